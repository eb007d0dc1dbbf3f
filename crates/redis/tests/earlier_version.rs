//! Counters that version 0.1.0 left in Redis are read by this version: a rolling upgrade neither
//! forgets a charge nor invents one.
//!
//! `earlier_version/state.txt` has the time of the recording, the commands that restore the keys,
//! and the answers of another node of the earlier version: `peek KEY VALUE ALLOWED REMAINING`.

#![allow(clippy::unwrap_used)] // A failure is a failed test.

use sluicegate::backend::Call;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Operation, Timestamp, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;
use std::sync::Arc;

const RULES: &str = include_str!("earlier_version/rules.yaml");
const STATE: &str = include_str!("earlier_version/state.txt");

/// Whether the request passes, and the remaining quota.
async fn apply(
    engine: &Engine<RedisBackend>,
    operation: Operation,
    key: &str,
    value: &str,
) -> (bool, i64) {
    let entries = [Entry::new(key, value)];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let (rules, mut checked) = (engine.snapshot(), Checked::default());
    let call: Call<'_> = engine.call(&rules, &request);
    engine.apply(operation, call, &mut checked).await.unwrap();
    (checked.allowed, checked.statuses[0].verdict.remaining.unwrap())
}

#[tokio::test]
async fn counters_of_an_earlier_version_are_continued() {
    let server = Single::start();
    let lines: Vec<Vec<&str>> = STATE.lines().map(|line| line.split('\t').collect()).collect();
    let lines_of = |kind: &'static str| {
        lines.iter().filter(move |line| line[0] == kind).map(|line| &line[1..])
    };
    for command in lines_of("redis") {
        server.cli(command);
    }
    let at: u64 = lines_of("time").next().unwrap()[0].parse().unwrap();
    let clock = ManualClock::at(Timestamp::from_micros(at));
    let engine = Engine::builder(rules_of(RULES).unwrap()).clock(clock.clone()).build().unwrap();
    let options = StoreOptions { clock: Some(Arc::new(clock)), ..StoreOptions::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), LinkOptions::default()).unwrap();
    let engine = RedisBackend::attach(engine, Store::new(link, options));
    let mut count = 0;
    for peek in lines_of("peek") {
        let [key, value, allowed, remaining] = *peek else { panic!("{peek:?}") };
        let expected = (allowed == "true", remaining.parse().unwrap());
        assert_eq!(apply(&engine, Operation::Peek, key, value).await, expected, "{key}={value}");
        if expected.0 {
            let after = (true, (expected.1 - 1).max(0));
            assert_eq!(apply(&engine, Operation::Hit, key, value).await, after, "{key}={value}");
        }
        count += 1;
    }
    assert_eq!(count, 14, "every algorithm, a leased rule, several limits and a reservation");
}
