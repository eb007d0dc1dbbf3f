//! Slots that are waited for. Time is moved by hand.

#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, LeakyBucket, TokenBucket};
use sluicegate::{
    Denied, Event, KeyedOps, Limiter, Listener, Memory, OpKind, Outcome, Permit, Span,
};
use support::{MICRO, Polled, SECOND, limiter, limiter_in, until_they_sleep};

type Waiting<'a> = Polled<std::pin::Pin<Box<dyn Future<Output = Result<Permit, Denied>> + 'a>>>;

fn slot(ask: KeyedOps<'_>) -> Waiting<'_> {
    Polled::new(Box::pin(async move { ask.permit_async().await }))
}

/// So many at a time, each for ten seconds.
fn at_most(max: u64) -> Concurrency {
    Concurrency::at_most(max).lease(10 * SECOND)
}

fn woken(all: &[Waiting<'_>]) -> Vec<usize> {
    (0..all.len()).filter(|place| all[*place].is_woken()).collect()
}

// === order ===

#[test]
fn a_dropped_permit_wakes_the_one_who_has_waited_longest() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let mut held = limiter.of("alice").permit().unwrap();
    let mut all: Vec<_> = (0..5).map(|_| slot(limiter.of("alice"))).collect();
    assert!(all.iter_mut().all(Polled::waits));
    for _ in 0..5 {
        drop(held);
        assert_eq!(woken(&all), [0], "one slot, one is woken");
        held = all.remove(0).done().unwrap();
        assert!(woken(&all).is_empty(), "there is none left for them");
    }
    assert!(limiter.of("alice").permit().is_err());
}

#[test]
fn who_polls_without_having_been_woken_keeps_its_place() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut all: Vec<_> = (0..3).map(|_| slot(limiter.of("alice"))).collect();
    assert!(all.iter_mut().all(Polled::waits));
    assert!(all[0].waits() && all[0].waits() && all[1].waits());
    drop(held);
    assert_eq!(woken(&all), [0]);
}

#[test]
fn who_was_woken_and_came_too_late_is_still_the_first() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut all: Vec<_> = (0..3).map(|_| slot(limiter.of("alice"))).collect();
    assert!(all.iter_mut().all(Polled::waits));
    drop(held);
    let quicker = limiter.of("alice").permit().unwrap();
    assert!(all[0].is_woken() && all[0].waits(), "somebody was quicker");
    drop(quicker);
    assert_eq!(woken(&all), [0]);
    assert!(all[0].done().is_ok());
}

#[test]
fn those_who_wait_for_other_slots_are_not_woken() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let alices = limiter.of("alice").permit().unwrap();
    let bobs = limiter.of("bob").permit().unwrap();
    let mut all = vec![slot(limiter.of("alice")), slot(limiter.of("bob"))];
    assert!(all.iter_mut().all(Polled::waits));
    drop(bobs);
    assert_eq!(woken(&all), [1]);
    drop(alices);
    assert_eq!(woken(&all), [0, 1]);
}

#[test]
fn the_same_id_under_another_key_is_somebody_else() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let alices = limiter.of("alice").permit().unwrap();
    let bobs = limiter.of("bob").permit().unwrap();
    let request = |key| slot(limiter.of(key).id("request 7"));
    let mut all = vec![request("alice"), request("bob"), request("bob")];
    assert!(all.iter_mut().all(Polled::waits));
    drop(bobs);
    assert_eq!(woken(&all), [1]);
    drop(alices);
    assert_eq!(woken(&all), [0, 1]);
}

// === no lost wake-up ===

#[test]
fn who_is_woken_and_goes_away_passes_it_on() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut all: Vec<_> = (0..4).map(|_| slot(limiter.of("alice"))).collect();
    assert!(all.iter_mut().all(Polled::waits));
    drop(all.remove(1));
    assert!(woken(&all).is_empty(), "nothing to pass on yet");
    drop(held);
    drop(all.remove(0));
    assert_eq!(woken(&all), [0]);
    drop(all.remove(0));
    assert_eq!(woken(&all), [0]);
    assert!(all[0].done().is_ok());
}

#[test]
fn who_could_not_use_what_was_given_back_passes_it_on_when_it_goes() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(3), &clock);
    let mut held: Vec<_> = (0..3).map(|_| limiter.of("alice").permit().unwrap()).collect();
    let mut all = vec![slot(limiter.of("alice").cost(3))];
    all.extend((0..3).map(|_| slot(limiter.of("alice"))));
    assert!(all.iter_mut().all(Polled::waits));
    for _ in 0..2 {
        held.pop();
        assert_eq!(woken(&all), [0]);
        assert!(all[0].waits(), "it needs all three");
    }
    drop(all.remove(0));
    assert_eq!(woken(&all), [0, 1], "two are free");
    let _both = (all[0].done().unwrap(), all[1].done().unwrap());
    assert!(all[2].waits());
}

#[test]
fn several_slots_given_back_at_once_wake_several() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(3), &clock);
    let held = limiter.of("alice").cost(2).permit().unwrap();
    let _other = limiter.of("alice").permit().unwrap();
    let mut all: Vec<_> = (0..3).map(|_| slot(limiter.of("alice"))).collect();
    assert!(all.iter_mut().all(Polled::waits));
    drop(held);
    assert_eq!(woken(&all), [0, 1]);
}

#[test]
fn a_slot_that_newcomers_share_wakes_whoever_waits_for_it() {
    let clock = ManualClock::new();
    let limiter = limiter_in(&Memory::with_entries(0), at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut waiting = slot(limiter.of("bob"));
    assert!(waiting.waits(), "all newcomers share one slot");
    drop(held);
    assert!(waiting.is_woken() && waiting.done().is_ok());
}

#[test]
fn a_booking_that_is_given_up_frees_its_slot_and_wakes() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(at_most(1))
        .limit(LeakyBucket::per_second(1).queue(9))
        .clock(clock.clone())
        .build()
        .unwrap();
    let booking = limiter.of("alice").book().unwrap();
    let mut waiting = slot(limiter.of("alice"));
    assert!(waiting.waits());
    drop(booking);
    assert!(waiting.is_woken() && waiting.done().is_ok());
}

#[test]
fn a_slot_that_came_with_a_turn_is_held_when_the_turn_has_come() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    assert!(limiter.of("alice").id("request 7").acquire_blocking().is_ok());
    assert!(limiter.of("alice").permit().is_err(), "`request 7` has it");
    assert!(limiter.of("alice").id("request 7").acquire_blocking().is_ok(), "the same again");
    clock.advance(10 * SECOND);
    assert!(limiter.of("alice").permit().is_ok());
}

// === leases and patience ===

#[test]
fn a_leaked_permit_is_waited_out() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    std::mem::forget(limiter.of("alice").permit().unwrap());
    let mut all: Vec<_> = (0..2).map(|_| slot(limiter.of("alice"))).collect();
    assert!(all.iter_mut().all(Polled::waits));
    clock.advance(10 * SECOND - MICRO);
    assert!(woken(&all).is_empty());
    clock.advance(MICRO);
    let permit = all[0].done().unwrap();
    assert!(all[1].waits());
    clock.advance(10 * SECOND - MICRO);
    assert_eq!(all[1].wakes(), 1);
    drop(permit);
    assert!(all[1].is_woken() && all[1].done().is_ok());
}

#[test]
fn a_lease_that_was_renewed_is_waited_for_anew() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut waiting = slot(limiter.of("alice"));
    assert!(waiting.waits());
    clock.advance(6 * SECOND);
    held.renew().unwrap();
    clock.advance(4 * SECOND);
    assert!(waiting.is_woken() && waiting.waits(), "looked again, and sleeps again");
    assert_eq!(clock.sleepers(), 1);
    clock.advance(6 * SECOND);
    assert!(waiting.is_woken());
    let _permit = waiting.done().unwrap();
    assert!(held.renew().is_err(), "somebody else has it");
}

#[test]
fn patience_ends_at_its_moment() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut waiting = slot(limiter.of("alice").within(3 * SECOND));
    assert!(waiting.waits());
    clock.advance(3 * SECOND - MICRO);
    assert!(!waiting.is_woken() && waiting.waits());
    clock.advance(MICRO);
    assert!(waiting.is_woken());
    let denied = waiting.done().unwrap_err();
    assert_eq!(denied.retry_after(), Some(Span::from_secs(7)), "when the lease ends");
    drop(waiting);
    drop(held);
    assert_eq!(limiter.of("alice").peek().remaining, Some(1), "it took nothing with it");
}

#[test]
fn who_has_no_patience_is_told_at_once() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let _held = limiter.of("alice").permit().unwrap();
    assert!(slot(limiter.of("alice").within(std::time::Duration::ZERO)).done().is_err());
    let never = slot(limiter.of("alice").cost(2)).done().unwrap_err();
    let Denied::NotNow(verdict) = never else { panic!() };
    assert_eq!(verdict.outcome, Outcome::Never { max_cost: 1 });
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_slot_that_is_free_in_the_last_moment_is_taken() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let mut waiting = slot(limiter.of("alice").within(SECOND));
    assert!(waiting.waits());
    clock.advance(SECOND);
    drop(held);
    assert!(waiting.done().is_ok());
}

#[test]
fn another_limit_of_the_plan_is_waited_for_too() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(at_most(1))
        .limit(TokenBucket::per_second(1).burst(1))
        .clock(clock.clone())
        .build()
        .unwrap();
    let held = limiter.of("alice").permit().unwrap();
    let mut waiting = slot(limiter.of("alice"));
    assert!(waiting.waits());
    drop(held);
    assert!(waiting.is_woken() && waiting.waits(), "there is a slot, but no token");
    clock.advance(SECOND);
    assert!(waiting.is_woken() && waiting.done().is_ok());
}

// === no busy loop ===

struct Looks(AtomicUsize);

impl Listener for Looks {
    fn decided(&self, event: &Event<'_>) {
        self.0.fetch_add(usize::from(event.op == OpKind::Hit), Ordering::SeqCst);
    }
}

#[test]
fn who_waits_looks_once_for_each_time_it_is_woken() {
    let clock = ManualClock::new();
    let looks = Arc::new(Looks(AtomicUsize::new(0)));
    let limiter = Limiter::builder()
        .limit(at_most(1))
        .clock(clock.clone())
        .listener(looks.clone())
        .build()
        .unwrap();
    let held = limiter.of("alice").permit().unwrap();
    let mut waiting = slot(limiter.of("alice"));
    assert!(waiting.waits());
    for second in 0..9 {
        clock.advance(SECOND);
        held.renew().unwrap();
        let other = limiter.of("bob").permit().unwrap();
        drop(other);
        assert_eq!(waiting.wakes(), 0, "after {second} seconds");
    }
    let before = looks.0.load(Ordering::SeqCst);
    clock.advance(SECOND);
    assert_eq!(waiting.wakes(), 1, "when the lease would have ended");
    assert!(waiting.waits());
    assert_eq!(looks.0.load(Ordering::SeqCst), before + 1);
}

// === threads ===

#[test]
fn those_who_block_get_their_slots_in_the_order_they_came() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    let held = limiter.of("alice").permit().unwrap();
    let (sender, got) = mpsc::channel();
    std::thread::scope(|scope| {
        for place in 0..4 {
            let (sender, limiter) = (sender.clone(), &limiter);
            scope.spawn(move || {
                let permit = limiter.of("alice").permit_blocking();
                sender.send((place, permit)).unwrap();
            });
            until_they_sleep(&clock, place + 1);
        }
        drop(held);
        for expected in 0..4 {
            let (place, permit) = got.recv().unwrap();
            assert_eq!(place, expected);
            assert!(got.try_recv().is_err(), "one at a time");
            drop(permit.unwrap());
        }
    });
}

#[test]
fn who_blocks_is_denied_when_its_patience_ends_and_served_when_a_lease_does() {
    let clock = ManualClock::new();
    let limiter = limiter(at_most(1), &clock);
    std::mem::forget(limiter.of("alice").permit().unwrap());
    std::thread::scope(|scope| {
        let hasty =
            scope.spawn(|| limiter.of("alice").within(3 * SECOND).permit_blocking().is_err());
        let patient = scope.spawn(|| limiter.of("alice").permit_blocking().is_ok());
        until_they_sleep(&clock, 2);
        clock.advance(3 * SECOND);
        assert!(hasty.join().unwrap());
        clock.advance(7 * SECOND);
        assert!(patient.join().unwrap());
    });
}

#[test]
fn never_more_than_the_limit_hold_a_slot_on_many_threads() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, at_most(3), &clock);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let permit = limiter.of("alice").permit_blocking().unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    limiter.sweep();
    assert_eq!(memory.entries(), 0);
}
