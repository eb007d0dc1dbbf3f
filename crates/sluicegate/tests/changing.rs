//! Limits that are changed while something is pending. Time is moved by hand.

#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, FixedWindow, IntoLimit, LeakyBucket, TokenBucket};
use sluicegate::{CarryOver, GateLevels, Limiter, Memory, Mode};
use support::{DAY, MICRO, Polled, SECOND, every_turn, limiter, limiter_in, until_they_sleep};

fn left(limiter: &Limiter, key: &str) -> i64 {
    limiter.of(key).peek().remaining.unwrap()
}

// === bookings ===

#[test]
fn a_booked_turn_stays_where_it_is() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_second(1).burst(1), &clock);
    limiter.hit("alice");
    let ask = limiter.of("alice");
    let mut waiting = Polled::new(ask.acquire());
    assert!(waiting.waits());
    limiter.set_limits([TokenBucket::per_second(100).burst(1)], CarryOver::Used).unwrap();
    clock.advance(SECOND - MICRO);
    assert!(!waiting.is_woken() && waiting.waits(), "its turn was promised for a second later");
    clock.advance(MICRO);
    assert!(waiting.is_woken() && waiting.done().is_ok());
}

#[test]
fn a_booking_is_given_up_under_the_new_limit() {
    let clock = ManualClock::new();
    let limiter = limiter(LeakyBucket::per_second(1).queue(9), &clock);
    limiter.hit("alice");
    let booking = limiter.of("alice").cost(3).book().unwrap();
    limiter.set_limits([LeakyBucket::per_second(1).queue(4)], CarryOver::Used).unwrap();
    assert_eq!(left(&limiter, "alice"), 1, "four of five are taken");
    drop(booking);
    assert_eq!(left(&limiter, "alice"), 4);
}

#[test]
fn what_was_booked_of_another_algorithm_is_not_given_to_the_new_one() {
    let clock = ManualClock::new();
    let limiter = limiter(LeakyBucket::per_second(1).queue(9), &clock);
    limiter.hit("alice");
    let booking = limiter.of("alice").cost(3).book().unwrap();
    limiter.set_limits([FixedWindow::per_hour(5)], CarryOver::Used).unwrap();
    limiter.of("alice").cost(4).hit();
    drop(booking);
    assert_eq!(left(&limiter, "alice"), 1);
}

// === reservations ===

#[test]
fn a_reservation_is_settled_under_the_new_limit() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_day(10), &clock);
    let dropped = limiter.of("alice").cost(4).reserve().unwrap();
    let committed = limiter.of("alice").cost(4).reserve().unwrap();
    limiter.set_limits([FixedWindow::per_day(20)], CarryOver::Used).unwrap();
    assert_eq!(left(&limiter, "alice"), 12);
    drop(dropped);
    assert_eq!(left(&limiter, "alice"), 16);
    assert_eq!(committed.commit(1).unwrap().remaining, Some(19));
}

#[test]
fn a_reservation_follows_the_name_of_its_limit() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(FixedWindow::per_day(10).named("day"))
        .limit(FixedWindow::per_hour(5).named("hour"))
        .clock(clock.clone())
        .build()
        .unwrap();
    let reservation = limiter.of("alice").cost(4).reserve().unwrap();
    let turned = [FixedWindow::per_hour(5).named("hour"), FixedWindow::per_day(10).named("day")];
    limiter.set_limits(turned, CarryOver::Used).unwrap();
    assert_eq!(left(&limiter, "alice"), 1);
    limiter.set_limits([FixedWindow::per_day(10).named("day")], CarryOver::Used).unwrap();
    assert_eq!(left(&limiter, "alice"), 6);
    drop(reservation);
    assert_eq!(left(&limiter, "alice"), 10);
}

#[test]
fn what_is_pending_over_many_changes_leaves_nothing_behind() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, TokenBucket::per_second(5), &clock);
    let mut pending = Vec::new();
    for round in 0..3 {
        for limit in every_turn() {
            let keep =
                [CarryOver::Used, CarryOver::Remaining, CarryOver::Proportion, CarryOver::Nothing]
                    [round];
            pending.extend(limiter.of("alice").reserve_for(100 * SECOND));
            let booking = limiter.of("alice").within(10 * SECOND).book();
            limiter.set_limits([limit], keep).unwrap();
            clock.advance(SECOND / 3);
            drop(booking);
            if pending.len() > 4 {
                drop(pending.remove(1));
                pending.remove(0).commit(2).unwrap();
            }
        }
    }
    drop(pending);
    clock.advance(2 * DAY);
    limiter.sweep();
    assert_eq!(memory.entries(), 0);
    let last = every_turn().pop().unwrap();
    let fresh = Limiter::builder().limits([last]).clock(clock.clone()).build().unwrap();
    assert!((0..5).all(|_| limiter.hit("alice") == fresh.hit("alice")));
}

// === permits ===

#[test]
fn who_is_in_flight_stays_in_flight() {
    let clock = ManualClock::new();
    let limiter = limiter(Concurrency::at_most(3).lease(10 * SECOND), &clock);
    let mut held: Vec<_> = (0..3).map(|_| limiter.of("alice").permit().unwrap()).collect();
    limiter.set_limits([Concurrency::at_most(2).lease(10 * SECOND)], CarryOver::Used).unwrap();
    assert_eq!(left(&limiter, "alice"), -1);
    assert!(held.iter().all(|permit| permit.renew().is_ok()));
    held.pop();
    assert!(limiter.of("alice").permit().is_err(), "two of two");
    held.pop();
    assert!(limiter.of("alice").permit().is_ok());
}

#[test]
fn a_permit_whose_limit_is_gone_frees_nothing() {
    let clock = ManualClock::new();
    let limiter = limiter(Concurrency::at_most(1), &clock);
    let old = limiter.of("alice").permit().unwrap();
    limiter.set_limits([Concurrency::at_most(1)], CarryOver::Nothing).unwrap();
    let new = limiter.of("alice").permit().unwrap();
    assert!(old.renew().is_err());
    drop(old);
    assert!(limiter.of("alice").permit().is_err(), "the slot is the new one's");
    drop(new);
    assert!(limiter.of("alice").permit().is_ok());
}

#[test]
fn guards_live_through_a_change_of_mode() {
    let clock = ManualClock::new();
    let gate = GateLevels::new(700, 850).unwrap();
    let limiter = limiter(Concurrency::at_most(1).lease(10 * SECOND), &clock);
    let permit = limiter.of("alice").permit().unwrap();
    limiter.set_mode(Mode::Elastic { up_to: 2_000, gate }).unwrap();
    limiter.set_load(0);
    clock.advance(6 * SECOND);
    limiter.set_load(0);
    permit.renew().unwrap();
    let second = limiter.of("alice").permit().unwrap();
    assert!(second.verdict().elastic);
    assert!(limiter.of("alice").permit().is_err(), "twice one");
    clock.advance(6 * SECOND);
    limiter.set_load(0);
    assert!(limiter.of("alice").permit().is_err(), "renewed under both");
    limiter.set_mode(Mode::Hard).unwrap();
    drop(permit);
    assert!(limiter.of("alice").permit().is_err(), "the other is in flight still");
    drop(second);
    assert!(limiter.of("alice").permit().is_ok());
}

#[test]
fn who_waits_for_a_slot_is_woken_when_there_are_more() {
    let clock = ManualClock::new();
    let limiter = limiter(Concurrency::at_most(1), &clock);
    let _held = limiter.of("alice").permit().unwrap();
    let ask = limiter.of("alice");
    let (mut one, mut two) = (Polled::new(ask.permit_async()), Polled::new(ask.permit_async()));
    assert!(one.waits() && two.waits());
    limiter.set_limits([Concurrency::at_most(3)], CarryOver::Used).unwrap();
    assert!(one.is_woken() && two.is_woken());
    let _both = (one.done().unwrap(), two.done().unwrap());
}

#[test]
fn who_waits_for_a_slot_is_woken_however_it_is_freed() {
    let clock = ManualClock::new();
    let limiter = limiter(Concurrency::at_most(1), &clock);
    limiter.of("alice").id("request 7").hit();
    let ask = limiter.of("alice");
    let mut waiting = Polled::new(ask.permit_async());
    assert!(waiting.waits());
    limiter.of("alice").reset().unwrap();
    assert!(waiting.is_woken() && waiting.done().is_ok());
}

// === the change itself ===

#[test]
fn limits_that_cannot_be_change_nothing() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_day(10), &clock);
    limiter.of("alice").cost(4).hit();
    let policies = limiter.policies();
    assert!(limiter.set_limits([FixedWindow::per_day(0)], CarryOver::Used).is_err());
    assert!(limiter.set_limits(Vec::<FixedWindow>::new(), CarryOver::Used).is_err());
    assert_eq!(limiter.policies(), policies);
    assert_eq!(left(&limiter, "alice"), 6);
}

#[test]
fn those_who_block_are_not_disturbed_by_a_change() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_second(1).burst(1), &clock);
    limiter.hit("alice");
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            limiter.of("alice").acquire_blocking().unwrap();
            limiter.now()
        });
        until_they_sleep(&clock, 1);
        for count in 1..20 {
            limiter.set_limits([TokenBucket::per_second(count).burst(1)], CarryOver::Used).unwrap();
        }
        let turn = limiter.now().after(sluicegate::Span::from_secs(1));
        clock.advance(SECOND);
        assert_eq!(blocked.join().unwrap(), turn);
    });
}

// === load ===

#[test]
fn the_load_opens_and_closes_an_elastic_limit_and_grows_old() {
    let clock = ManualClock::new();
    let gate = GateLevels::new(700, 850).unwrap();
    let limiter = Limiter::builder()
        .limit(FixedWindow::per_day(2))
        .mode(Mode::Elastic { up_to: 2_000, gate })
        .clock(clock.clone())
        .build()
        .unwrap();
    let open = || limiter.of("somebody new").cost(3).peek().is_allowed();
    assert!(!open(), "nothing was heard");
    for (load, expected) in [(699, true), (800, true), (851, false), (800, false), (0, true)] {
        limiter.set_load(load);
        assert_eq!(open(), expected, "at {load}");
    }
    clock.advance(10 * SECOND - MICRO);
    assert!(open());
    clock.advance(MICRO);
    assert!(!open(), "a signal 10 s old is no signal");
}

#[test]
fn the_load_means_nothing_to_other_limiters() {
    let clock = ManualClock::new();
    let limit = FixedWindow::per_day(2).into_limit().unwrap();
    let limiter = Limiter::builder().limits([limit]).clock(clock.clone()).build().unwrap();
    limiter.set_load(0);
    assert!(!limiter.of("alice").cost(3).peek().is_allowed());
}
