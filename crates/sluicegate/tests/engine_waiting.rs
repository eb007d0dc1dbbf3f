//! Requests that wait for their turn. Time is moved by hand.

#![cfg(all(feature = "config", feature = "tokio"))]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;
mod support;

use std::pin::Pin;
use std::time::Duration;

use engine_support::{check, engine, peek};
use sluicegate::backend::{Call, ready};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, HoldError, Holder, Span, Waited, rules_of};
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

/// The parts of a `Waited` that do not borrow from the engine.
#[derive(Debug)]
struct Turn {
    checked: Checked,
    waited: Span,
    has_slot: bool,
}

impl From<Waited<'_>> for Turn {
    fn from(Waited { checked, waited, has_slot, .. }: Waited<'_>) -> Self {
        Self { checked, waited, has_slot }
    }
}

type Waiting = Polled<Pin<Box<dyn Future<Output = Result<Turn, HoldError>>>>>;

/// Somebody who waits for what these entries are under.
fn wait(engine: &Engine, entries: &'static [(&str, &str)], patience: Span, id: u64) -> Waiting {
    wait_for(engine, entries, 1, patience, id)
}

fn wait_for(
    engine: &Engine,
    entries: &'static [(&str, &str)],
    hits: u64,
    patience: Span,
    id: u64,
) -> Waiting {
    let engine = engine.clone();
    Polled::new(Box::pin(async move {
        let entries: Vec<[Entry<'_>; 1]> =
            entries.iter().map(|(key, value)| [Entry::new(key, value)]).collect();
        let descriptors: Vec<Descriptor<'_>> =
            entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let request = Request { domain: "shop", descriptors: &descriptors, hits };
        engine.wait(&request, Holder(id), patience).await.map(Turn::from)
    }))
}

fn free(engine: &Engine, key: &str, value: &str, id: u64) {
    let entries = [Entry::new(key, value)];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let rules = engine.snapshot();
    ready(engine.cancel(
        Call::new(&rules, &request, engine.now()),
        Holder(id),
        &mut Checked::default(),
    ))
    .unwrap()
    .unwrap();
}

/// A caller that waits for a reservation.
fn reserve(engine: &Engine, entries: [(&'static str, &'static str); 2], id: u64) -> Waiting {
    let engine = engine.clone();
    Polled::new(Box::pin(async move {
        let entries = entries.map(|(key, value)| [Entry::new(key, value)]);
        let descriptors = entries.each_ref().map(|entries| Descriptor::of(entries));
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        let ttl = Span::from_secs(20);
        engine.reserve_waiting(&request, Holder(id), ttl, TEN).await.map(Turn::from)
    }))
}

#[test]
fn what_was_waited_for_is_reserved_from_its_turn_on() {
    let (engine, clock) = engine(RULES);
    assert!(wait(&engine, ALICE, TEN, 1).done().unwrap().checked.allowed);
    let mut reserved = reserve(&engine, [("user", "alice"), ("calls", "all")], 2);
    assert!(reserved.waits());
    clock.advance(SECOND);
    let waited = reserved.done().unwrap();
    assert!(waited.checked.allowed && waited.has_slot);
    assert_eq!(peek(&engine, "calls=all"), "no 0!");
    // At the deadline token and slot are returned.
    clock.advance(SECOND * 20);
    assert_eq!(peek(&engine, "calls=all"), "yes 1");

    // Dropped while it waits, it holds nothing.
    assert!(wait(&engine, ALICE, TEN, 3).done().unwrap().checked.allowed);
    let mut reserved = reserve(&engine, [("user", "alice"), ("calls", "all")], 4);
    assert!(reserved.waits());
    assert_eq!(peek(&engine, "calls=all"), "no 0!");
    drop(reserved);
    assert_eq!(peek(&engine, "calls=all"), "yes 1");
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
    assert_eq!(refused.checked.statuses[0].verdict.retry_after(), Some(Span::from_secs(1)));
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
fn a_slot_wakes_who_has_waited_longest_and_nobody_else() {
    let (engine, _) = engine(RULES);
    wait(&engine, A_CALL, TEN, 0).done().unwrap();
    let mut all: Vec<_> = (1..5).map(|id| wait(&engine, A_CALL, TEN, id)).collect();
    assert!(all.iter_mut().all(Polled::waits));
    for (holder, mut first) in (0..).zip(std::mem::take(&mut all)) {
        all.push(wait(&engine, A_CALL, TEN, holder + 5));
        assert!(all.iter_mut().all(Polled::waits));
        free(&engine, "calls", "all", holder);
        assert!(first.is_woken());
        assert!(!all.iter().any(Polled::is_woken), "there is one slot");
        assert!(first.done().unwrap().checked.allowed);
    }
}

#[test]
fn whoever_was_woken_and_goes_or_cannot_use_it_tells_the_next() {
    let (engine, _) = engine(&RULES.replace("max: 1", "max: 2"));
    let two: &[_] = &[("calls", "all"), ("printer", "p")];
    for id in 0..2 {
        wait(&engine, A_CALL, TEN, id).done().unwrap();
    }
    let mut goes = wait(&engine, A_CALL, TEN, 2);
    let mut cannot = wait(&engine, two, TEN, 3);
    let (mut third, mut fourth) = (wait(&engine, A_CALL, TEN, 4), wait(&engine, A_CALL, TEN, 5));
    assert!(goes.waits() && cannot.waits() && third.waits() && fourth.waits());
    // The printer's queue is full by now.
    for _ in 0..3 {
        check(&engine, "printer=p");
    }
    free(&engine, "calls", "all", 0);
    assert!(goes.is_woken() && !cannot.is_woken());
    drop(goes);
    assert!(cannot.is_woken() && !third.is_woken());
    assert!(!cannot.done().unwrap().checked.allowed);
    assert!(third.is_woken() && !fourth.is_woken());
    assert!(third.done().unwrap().checked.allowed);
    assert!(fourth.waits());
}

#[test]
fn slots_that_are_given_back_together_wake_as_many() {
    let (engine, _) = engine(&RULES.replace("max: 1", "max: 3"));
    let mut checked = Checked::default();
    let entries = [Entry::new("calls", "all")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 3 };
    let (rules, now) = (engine.snapshot(), engine.now());
    ready(engine.reserve(Call::new(&rules, &request, now), Holder(0), TEN, &mut checked))
        .unwrap()
        .unwrap();
    let mut all: Vec<_> = (1..5).map(|id| wait(&engine, A_CALL, TEN, id)).collect();
    assert!(all.iter_mut().all(Polled::waits));
    ready(engine.commit(Call::new(&rules, &request, now), Holder(0), &mut checked))
        .unwrap()
        .unwrap();
    for one in &mut all[..3] {
        assert!(one.is_woken());
        assert!(one.done().unwrap().checked.allowed);
    }
    assert!(all[3].waits());
}

#[test]
fn whoever_needs_less_passes_who_needs_more_than_there_is() {
    let (engine, _) = engine(&RULES.replace("max: 1", "max: 2"));
    for id in 0..2 {
        wait(&engine, A_CALL, TEN, id).done().unwrap();
    }
    let mut two = wait_for(&engine, A_CALL, 2, TEN, 2);
    let mut one = wait(&engine, A_CALL, TEN, 3);
    assert!(two.waits() && one.waits());
    free(&engine, "calls", "all", 0);
    assert!(two.waits(), "there is one");
    assert!(one.done().unwrap().checked.allowed);
    free(&engine, "calls", "all", 1);
    assert!(two.waits());
    free(&engine, "calls", "all", 3);
    assert!(two.done().unwrap().checked.allowed);
}

#[test]
fn who_waits_for_a_slot_of_a_rule_that_goes_away_may_go() {
    let (engine, _) = engine(RULES);
    wait(&engine, A_CALL, TEN, 1).done().unwrap();
    let (mut second, mut third) = (wait(&engine, A_CALL, TEN, 2), wait(&engine, A_CALL, TEN, 3));
    assert!(second.waits() && third.waits());
    engine.reload(rules_of(&RULES.replace("calls", "others")).unwrap()).unwrap();
    assert!(second.done().unwrap().checked.allowed);
    // And who has not looked yet when the rule is back waits where it is now.
    engine.reload(rules_of(RULES).unwrap()).unwrap();
    wait(&engine, A_CALL, TEN, 4).done().unwrap();
    assert!(third.waits());
    free(&engine, "calls", "all", 4);
    assert!(third.is_woken());
    assert!(third.done().unwrap().checked.allowed);
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
fn a_lease_begins_when_the_turn_has_come() {
    let (engine, clock) = engine(RULES);
    let both: &[_] = &[("user", "alice"), ("calls", "all")];
    check(&engine, "user=alice");
    let mut waits = wait(&engine, both, TEN, 1);
    assert!(waits.waits());
    clock.advance(SECOND);
    assert!(waits.done().unwrap().has_slot);
    clock.advance(Duration::from_secs(30) - MICRO);
    assert_eq!(peek(&engine, "calls=all"), "no 0!");
    clock.advance(MICRO);
    assert_eq!(peek(&engine, "calls=all"), "yes 1");
}

#[test]
fn a_slot_that_is_only_watched_is_not_there_to_be_given_back() {
    let (engine, _) = engine(&RULES.replace("- key: calls", "- key: calls\n    mode: shadow"));
    assert!(wait(&engine, A_CALL, TEN, 1).done().unwrap().has_slot);
    let second = wait(&engine, A_CALL, TEN, 2).done().unwrap();
    assert!(second.checked.allowed && !second.has_slot);
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

#[test]
fn a_slot_is_held_until_the_turn_though_its_lease_is_shorter() {
    let (engine, clock) = engine(
        "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: token_bucket, rate: 1 per 10s, burst: 1 }
  - key: calls
    limits: { algorithm: concurrency, max: 1, lease: 2s }
",
    );
    let both: &[_] = &[("user", "alice"), ("calls", "all")];
    check(&engine, "user=alice");
    let mut first = wait(&engine, both, TEN, 1);
    assert!(first.waits());
    for _ in 0..9 {
        clock.advance(SECOND);
        assert!(first.waits());
        assert_eq!(peek(&engine, "calls=all"), "no 0!", "whoever waits holds it on");
    }
    clock.advance(SECOND);
    let first = first.done().unwrap();
    assert!(first.checked.allowed && first.has_slot);
    clock.advance(SECOND);
    assert_eq!(peek(&engine, "calls=all"), "no 0!", "and its lease begins with the turn");
    clock.advance(SECOND);
    assert_eq!(peek(&engine, "calls=all"), "yes 1");
}
