//! A store that is killed while nodes hold leases: what they hold is spent, and then each rule says what happens.

use sluicegate_bed::redis::{Options, Single};

use crate::client::{Answer, Client};
use crate::fleet::Fleet;
use crate::hammer::{CLIENTS, ask_until_not_allowed_while};
use crate::levels::{cells, key_of};

const NODES: usize = 2;

/// Far more than is used, so that much is held.
const RULES: &str = "
  - key: user
    consistency: leased
    limits: { algorithm: token_bucket, rate: 1/day, burst: 1000000 }
    on_store_failure: deny
";
const ADA: &str = r#"{"user":"ada"}"#;

#[test]
fn what_is_held_is_spent_and_then_the_rule_says_what_happens() {
    // What was answered is on disk.
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    let mut fleet = Fleet::start(NODES, server.url(), RULES);
    let mut before = 0;
    let counts = ask_until_not_allowed_while(&fleet.services, ADA, |progress| {
        progress.await_allowed(1_000);
        before = progress.allowed();
        server.kill();
    });
    assert_eq!(counts.in_doubt(), 0, "{counts:?}");
    // Every client has been denied, and others are too.
    for service in &fleet.services {
        let mut client = Client::of(&service.http).unwrap();
        assert_eq!([(); 5].map(|()| client.check(ADA)), [Answer::Denied; 5]);
    }
    fleet.services.iter_mut().for_each(|service| service.kill());
    server.restart();
    let held: u64 = cells(&server, &key_of("user", "ada")).iter().map(|cell| cell.amount).sum();
    // Up to here the store may have answered after they were counted.
    let (after, answered) = (counts.allowed - before, (NODES * CLIENTS) as u64);
    println!("{before} before it was killed, {after} afterwards; {held} were outstanding");
    assert!(after > answered, "what was held is spent");
}
