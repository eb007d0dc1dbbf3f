//! What is reserved at one node is settled at another, while others do the same.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use serde_json::Value;
use sluicegate_testkit::redis::Single;

use crate::fleet::Fleet;
use crate::support::http::{Answer, post};

const NODES: usize = 4;
const CLIENTS: usize = 8;
const ROUNDS: usize = 8;

const RULES: &str = "
  - key: tokens
    limits: { algorithm: token_bucket, rate: 1/day, burst: 1000 }
    on_store_failure: error
  - key: slots
    limits: { algorithm: concurrency, max: 3, lease: 1h }
    on_store_failure: error
";

const SLOTS: &str = r#"{"slots":"ada"}"#;

#[test]
fn tokens_are_given_back_to_the_last_one() {
    let server = Single::start();
    let fleet = Fleet::start(NODES, server.url(), RULES);
    each_client(|client, round| {
        let answer = reserve(&fleet, client + round, "tokens", 10);
        assert_eq!(answer.status, 200, "{answer:?}");
        let settled = settle(&fleet, client + round + 1, "commit", &answer, r#","hits":4"#);
        assert_eq!(settled["returned"], 6, "{settled}");
    });
    let used = 4 * CLIENTS * ROUNDS;
    assert_eq!(fleet.left(r#"{"tokens":"ada"}"#), [1000 - used as i64]);
}

#[test]
fn slots_are_never_held_by_more_than_there_are() {
    let server = Single::start();
    let fleet = Fleet::start(NODES, server.url(), RULES);
    let (held, most, had) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
    each_client(|client, round| {
        let answer = reserve(&fleet, client + round, "slots", 1);
        if answer.status == 429 {
            return;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        // Counted only while it is certainly held.
        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        had.fetch_add(1, Ordering::SeqCst);
        let left = fleet.left(SLOTS)[0];
        assert!((0..3).contains(&left), "{left} are free while one is held");
        held.fetch_sub(1, Ordering::SeqCst);
        settle(&fleet, client + round + 1, "cancel", &answer, "");
    });
    println!("{had:?} slots were had, {most:?} at once");
    assert!((1..=3).contains(&most.into_inner()));
    assert!(had.into_inner() >= 3);
    assert_eq!(fleet.left(SLOTS), [3]);
}

fn each_client(run: impl Fn(usize, usize) + Sync) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let run = &run;
            scope.spawn(move || (0..ROUNDS).for_each(|round| run(client, round)));
        }
    });
}

fn reserve(fleet: &Fleet, node: usize, key: &str, hits: u64) -> Answer {
    let body = format!(r#"{{"domain":"shop","descriptors":[{{"{key}":"ada"}}],"hits":{hits}}}"#);
    post(&fleet.services[node % NODES].http, "/v1/reserve", &body)
}

fn settle(fleet: &Fleet, node: usize, how: &str, reserved: &Answer, more: &str) -> Value {
    let told: Value = serde_json::from_str(&reserved.body).unwrap();
    let body = format!(r#"{{"reservation":{}{more}}}"#, told["reservation"]);
    let answer = post(&fleet.services[node % NODES].http, &format!("/v1/{how}"), &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}
