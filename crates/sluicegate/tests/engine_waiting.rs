//! Requests that wait for their turn. Time is moved by hand.

#![cfg(all(feature = "config", feature = "tokio"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;
mod support;

use std::pin::Pin;
use std::time::Duration;

use engine_support::{check, engine, peek};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, HoldError, Holder, Span, Waited};
use support::{MICRO, Polled, SECOND};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: token_bucket, rate: 1/s, burst: 1 }
  - key: printer
    limits: { algorithm: leaky_bucket, rate: 1/s, queue: 2 }
  - key: calls
    limits: { algorithm: concurrency, max: 1, lease: 30s }
  - key: address
    rate_limit: { unit: day, requests_per_unit: 100 }
";

type Waiting = Polled<Pin<Box<dyn Future<Output = Result<Waited, HoldError>>>>>;

/// Somebody who waits for what these entries are under.
fn wait(engine: &Engine, entries: &'static [(&str, &str)], patience: Span, id: u64) -> Waiting {
    let engine = engine.clone();
    Polled::new(Box::pin(async move {
        let entries: Vec<[Entry<'_>; 1]> =
            entries.iter().map(|(key, value)| [Entry::new(key, value)]).collect();
        let descriptors: Vec<Descriptor<'_>> =
            entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        engine.wait(&request, Holder(id), patience).await
    }))
}

fn free(engine: &Engine, key: &str, value: &str, id: u64) {
    let entries = [Entry::new(key, value)];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let rules = engine.snapshot();
    rules.cancel(&request, Holder(id), engine.now(), &mut Checked::default()).unwrap();
}

const ALICE: &[(&str, &str)] = &[("user", "alice")];
const A_CALL: &[(&str, &str)] = &[("calls", "all")];
const TEN: Span = Span::from_secs(10);

#[test]
fn turns_come_in_the_order_they_were_asked_for() {
    let (engine, clock) = engine(RULES);
    let mut all: Vec<_> = (0..4).map(|id| wait(&engine, ALICE, TEN, id)).collect();
    assert!(all[0].done().unwrap().checked.allowed);
    assert!(all.iter_mut().skip(1).all(Polled::waits));
    for (turn, one) in all.iter_mut().enumerate().skip(1) {
        clock.advance(SECOND - MICRO);
        assert!(!one.is_woken(), "not a moment too early");
        clock.advance(MICRO);
        let waited = one.done().unwrap();
        assert!(waited.checked.allowed);
        assert_eq!(waited.waited, Span::from_secs(turn as u64));
    }
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn whoever_would_wait_for_longer_than_it_would_is_told_at_once() {
    let (engine, _) = engine(RULES);
    check(&engine, "user=alice");
    let refused = wait(&engine, ALICE, Span::from_micros(999_999), 1).done().unwrap();
    assert!(!refused.checked.allowed);
    assert_eq!(refused.checked.statuses[0].verdict.retry_after(), Some(Span::from_micros(1)));
    assert!(wait(&engine, ALICE, Span::from_secs(1), 2).waits());
}

#[test]
fn whoever_goes_gives_its_turn_back() {
    let (engine, clock) = engine(RULES);
    let printer: &[_] = &[("printer", "p")];
    assert!(wait(&engine, printer, TEN, 1).done().is_ok());
    let mut second = wait(&engine, printer, TEN, 2);
    let mut third = wait(&engine, printer, TEN, 3);
    assert!(second.waits() && third.waits());
    drop(third);
    let mut again = wait(&engine, printer, TEN, 4);
    assert!(again.waits(), "the queue has room again");
    clock.advance(SECOND);
    assert!(second.done().is_ok());
    clock.advance(SECOND);
    assert_eq!(again.done().unwrap().waited, Span::from_secs(2));
}

#[test]
fn a_slot_goes_to_who_waits_when_it_is_given_back() {
    let (engine, clock) = engine(RULES);
    let first = wait(&engine, A_CALL, TEN, 1).done().unwrap();
    assert!(first.has_slot);
    let mut second = wait(&engine, A_CALL, TEN, 2);
    assert!(second.waits());
    clock.advance(Duration::from_secs(3));
    assert!(!second.is_woken());
    free(&engine, "calls", "all", 1);
    assert!(second.is_woken());
    let second = second.done().unwrap();
    assert!(second.checked.allowed && second.has_slot);
    assert_eq!(second.waited, Span::from_secs(3));
    assert_eq!(peek(&engine, "calls=all"), "no 0!");
}

#[test]
fn who_waits_for_a_slot_gives_up_in_time() {
    let (engine, clock) = engine(RULES);
    wait(&engine, A_CALL, TEN, 1).done().unwrap();
    let mut second = wait(&engine, A_CALL, TEN, 2);
    assert!(second.waits());
    clock.advance(Duration::from_secs(10));
    let second = second.done().unwrap();
    assert!(!second.checked.allowed);
    assert_eq!(second.checked.statuses[0].verdict.retry_after(), Some(Span::from_secs(20)));
    assert_eq!(second.waited, TEN);
}

#[test]
fn the_end_of_a_lease_frees_a_slot_too() {
    let (engine, clock) = engine(RULES);
    wait(&engine, A_CALL, TEN, 1).done().unwrap();
    let mut second = wait(&engine, A_CALL, Span::from_secs(60), 2);
    assert!(second.waits());
    clock.advance(Duration::from_secs(30));
    assert!(second.done().unwrap().checked.allowed);
}

#[test]
fn whoever_goes_while_its_turn_is_to_come_frees_its_slot() {
    let (engine, clock) = engine(RULES);
    let both: &[_] = &[("user", "alice"), ("calls", "all")];
    check(&engine, "user=alice");
    let mut first = wait(&engine, both, TEN, 1);
    assert!(first.waits());
    let mut second = wait(&engine, A_CALL, TEN, 2);
    assert!(second.waits(), "the slot is taken with the turn");
    drop(first);
    assert!(second.is_woken());
    assert!(second.done().unwrap().checked.allowed);
    clock.advance(SECOND);
    assert_eq!(peek(&engine, "user=alice"), "yes 1", "nor is anything charged");
}

#[test]
fn waiting_is_counted_once() {
    let (engine, clock) = engine(RULES);
    wait(&engine, A_CALL, TEN, 1).done().unwrap();
    let mut second = wait(&engine, A_CALL, TEN, 2);
    assert!(second.waits());
    clock.advance(Duration::from_secs(3));
    free(&engine, "calls", "all", 1);
    second.done().unwrap();
    let rules = engine.snapshot();
    let no = rules.rules().rules().find(|no| rules.rules().id(*no).contains("calls")).unwrap();
    let stats = rules.stats(no);
    assert_eq!((stats.total_hits, stats.within_limit, stats.over_limit), (2, 2, 0));
}

#[test]
fn nobody_waits_for_what_counts_at_once() {
    let (engine, _) = engine(RULES);
    let refused = wait(&engine, &[("address", "x")], TEN, 1).done();
    assert_eq!(refused.unwrap_err(), HoldError::CountsAtOnce { descriptor: 0 });
}
