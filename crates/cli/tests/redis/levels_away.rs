//! A store that is killed while nodes hold leases: what they hold is spent, and then each rule says
//! what happens.

use std::thread;
use std::time::{Duration, Instant};

use sluicegate_testkit::redis::{Options, Single};

use crate::client::{Answer, Client};
use crate::fleet::Fleet;
use crate::hammer::{CLIENTS, ask_times, ask_until_not_allowed_while};
use crate::levels::{cells, key_of, now};
use crate::support::service::Service;

const NODES: usize = 2;

/// Far more than is used, so that much is held.
const RULES: &str = "
  - key: user
    consistency: leased
    limits: { algorithm: token_bucket, rate: 1/s, burst: 1000000 }
    on_store_failure: deny
";
const ADA: &str = r#"{"user":"ada"}"#;

#[test]
fn what_is_held_is_spent_and_then_the_rule_says_what_happens() {
    // What was answered is on disk.
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    let mut fleet = Fleet::start(NODES, server.url(), RULES);
    let (mut before, mut when_killed) = (0, 0);
    let counts = ask_until_not_allowed_while(&fleet.services, ADA, |progress| {
        progress.await_allowed(1_000);
        before = progress.allowed();
        server.kill();
        when_killed = progress.allowed();
    });
    assert_eq!(counts.in_doubt(), 0, "{counts:?}");
    // Every client has been denied, and others are too.
    for service in &fleet.services {
        let mut client = Client::of(&service.http).unwrap();
        assert_eq!([(); 5].map(|()| client.check(ADA)), [Answer::Denied; 5]);
    }
    fleet.services.iter_mut().for_each(Service::kill);
    server.restart();
    let held: u64 = cells(&server, &key_of("user", "ada")).iter().map(|cell| cell.amount).sum();
    // Each client may have had an answer of the store that was not counted yet.
    let answered = (NODES * CLIENTS) as u64;
    let after = counts.allowed - when_killed;
    println!("{when_killed} until it was killed, {after} afterwards; {held} were outstanding");
    assert!(counts.allowed - before > answered, "what was held is spent");
    assert!(after <= held + answered, "and no more");
}

#[test]
fn what_is_held_is_not_spent_for_longer_than_two_seconds() {
    let server = Single::start();
    let fleet = Fleet::start(NODES, server.url(), RULES);
    ask_times(&fleet.services, &[ADA], 100);
    server.kill();
    let killed = now();
    thread::scope(|scope| {
        let spend = |service| scope.spawn(move || last_spent(service, killed));
        let all: Vec<_> = fleet.services.iter().map(spend).collect();
        for spent in all.into_iter().map(|spent| spent.join().unwrap()) {
            println!("the last was spent {spent:?} after the store was killed");
            assert!(spent.is_none_or(|spent| spent <= Duration::from_secs(2)), "{spent:?}");
        }
    });
}

/// Asks slowly until it is denied: when that was asked which was admitted last.
fn last_spent(service: &Service, killed: Instant) -> Option<Duration> {
    let mut client = Client::of(&service.http).unwrap();
    let mut spent = None;
    loop {
        let sent = now() - killed;
        match client.check(ADA) {
            Answer::Allowed => spent = Some(sent),
            Answer::Denied => return spent,
            other => panic!("{other:?}"),
        }
        thread::park_timeout(Duration::from_millis(20));
    }
}
