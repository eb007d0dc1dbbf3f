//! Loss and return of the store under load, with all settings at their defaults:
//! what passes beyond the limit has a bound, and nothing that was bought is lost.
//!
//! Without Redis a node admits its share of what it last observed as remaining. So all of them
//! together admit no more than remained, and what was admitted since their last observations: under
//! this load some per cent of the limit. [`SLACK`] is several times what was measured.

use std::thread;
use std::time::Duration;

use sluicegate_testkit::redis::{Options, Sentinel, Single};
use sluicegate_testkit::until;

use crate::client::{Answer, Client};
use crate::fleet::Fleet;
use crate::hammer::{Counts, ask_over_rls, load_in_parallel};

const NODES: usize = 3;
const LIMIT: u64 = 4_000;
const SLACK: u64 = LIMIT / 5;
const RULES: &str = "
  - key: strict
    limits: { algorithm: fixed_window, rate: 4000/year }
  - key: log
    limits: { algorithm: sliding_log, rate: 4000/day }
  - key: leased
    consistency: leased
    limits: { algorithm: token_bucket, rate: 1/day, burst: 4000 }
  - key: hot
    consistency: { strict: { hot_keys: leased } }
    limits: { algorithm: token_bucket, rate: 1/day, burst: 4000 }
";

/// Requests for one key at every node while something happens, and then until the limit is used up.
fn admits_the_limit(url: &str, key: &str, happens: impl FnOnce()) {
    let fleet = Fleet::with(NODES, url, RULES, &[]);
    fleet.knows_itself();
    let mut counts = Counts::default();
    thread::scope(|scope| {
        let load = scope.spawn(|| load_in_parallel(&fleet.services, key, "ada", 3_000));
        happens();
        counts += load.join().unwrap();
    });
    // What is leased is given back within seconds, and comes to others.
    let mut denied = 0;
    until("the limit is used up", || {
        let more = ask_over_rls(&fleet.services, key, "ada", 100);
        counts += more;
        denied = if more.allowed == 0 { denied + 1 } else { 0 };
        (denied == 10).then_some(())
    });
    println!("{key}: {} of {LIMIT}, {counts:?}", counts.allowed);
    assert_eq!(counts.failed, 0);
    let bound = LIMIT - SLACK..=LIMIT + SLACK;
    assert!(bound.contains(&counts.allowed), "{key}: {} of {LIMIT}", counts.allowed);
    assert_eq!(fleet.metric("sluicegate_redis_disagreements_total"), 0);
}

fn wait(millis: u64) {
    thread::park_timeout(Duration::from_millis(millis));
}

fn killed_three_times_without_persistence(key: &str) {
    let server = Single::start();
    admits_the_limit(server.url(), key, || {
        for _ in 0..3 {
            wait(150);
            server.kill();
            wait(100);
            server.restart();
        }
    });
}

#[test]
fn a_strict_limit_on_a_server_that_is_killed() {
    killed_three_times_without_persistence("strict");
}

#[test]
fn a_log_on_a_server_that_is_killed() {
    killed_three_times_without_persistence("log");
}

#[test]
fn leases_of_a_server_that_is_killed() {
    killed_three_times_without_persistence("leased");
}

#[test]
fn hot_keys_of_a_server_that_is_killed() {
    killed_three_times_without_persistence("hot");
}

fn paused_five_times(key: &str) {
    let server = Single::start();
    admits_the_limit(server.url(), key, || {
        for _ in 0..5 {
            wait(100);
            server.pause();
            wait(300);
            server.resume();
        }
    });
}

#[test]
fn a_strict_limit_on_a_server_that_is_paused() {
    paused_five_times("strict");
}

#[test]
fn leases_of_a_server_that_is_paused() {
    paused_five_times("leased");
}

#[test]
fn hot_keys_of_a_server_that_is_paused() {
    paused_five_times("hot");
}

#[test]
fn a_log_whose_replica_is_promoted_and_whose_primary_comes_back() {
    let sentinel = Sentinel::start();
    admits_the_limit(sentinel.url(), "log", || {
        wait(150);
        let primary = sentinel.primary();
        primary.kill();
        sentinel.await_primary_other_than(primary.port());
        primary.restart();
        sentinel.await_calm();
    });
}

/// How many of so many checks pass at each node.
fn allowed(fleet: &Fleet, key: &str, checks: [usize; NODES]) -> usize {
    let one = |(service, checks): (&crate::support::service::Service, usize)| {
        let mut client = Client::of(&service.http).unwrap();
        let asked = format!(r#"{{"{key}":"ada"}}"#);
        (0..checks).filter(|_| client.check(&asked) == Answer::Allowed).count()
    };
    fleet.services.iter().zip(checks).map(one).sum()
}

const SMALL: &str = "
  - key: ten
    limits: { algorithm: fixed_window, rate: 10/year }
  - key: two
    limits: { algorithm: fixed_window, rate: 2/year }
  - key: busy
    limits: { algorithm: fixed_window, rate: 1000000/year }
  - key: slots
    limits: { algorithm: concurrency, max: 100, lease: 10m }
";

#[test]
fn quota_that_was_used_up_without_redis_stays_used_up() {
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    let mut fleet = Fleet::with(NODES, server.url(), SMALL, &[]);
    fleet.knows_itself();
    server.kill();
    fleet.says("the store cannot be reached");
    // Each has a third.
    assert_eq!(allowed(&fleet, "ten", [5; NODES]), 9);
    server.restart();
    fleet.says("the store answers");
    // The order of the nodes, and when each notices that Redis is back, make no difference: one
    // hit is left.
    let after = allowed(&fleet, "ten", [20; NODES]);
    assert!(after <= 1, "{after}");
}

#[test]
fn uneven_demand_does_not_divide_what_cannot_be_divided() {
    let server = Single::start();
    let fleet = Fleet::with(NODES, server.url(), SMALL, &[]);
    fleet.knows_itself();
    // All of the demand is at one node, for longer than shares need to follow it.
    let mut client = Client::of(&fleet.services[0].http).unwrap();
    until("shares follow demand", || {
        (0..2_000).for_each(|_| {
            client.check(r#"{"two":"bob"}"#);
        });
        client.check(r#"{"busy":"ada"}"#);
        let reported = server.cli(&["ZCARD", "sg:1:{nodes}:0"]).parse::<u64>().unwrap();
        (reported > 2).then_some(())
    });
    server.kill();
    let passed = allowed(&fleet, "two", [5; NODES]);
    assert!((2..=NODES).contains(&passed), "{passed}");
}

#[test]
fn slots_are_shared_without_redis_and_known_to_it_afterwards() {
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    let mut fleet = Fleet::with(NODES, server.url(), SMALL, &[]);
    fleet.knows_itself();
    // Every node knows of 40 slots, give or take what the others took after it.
    assert_eq!(allowed(&fleet, "slots", [12, 12, 16]), 40);
    assert_eq!(allowed(&fleet, "slots", [1; NODES]), 3);
    server.kill();
    fleet.says("the store cannot be reached");
    let without = allowed(&fleet, "slots", [100; NODES]);
    println!("43 slots with Redis, {without} without it");
    assert!((50..=57).contains(&without), "{without}");
    server.restart();
    fleet.says("the store answers");
    let after = allowed(&fleet, "slots", [100; NODES]);
    assert_eq!(43 + without + after, 100, "43 and {without} and {after}");
}
