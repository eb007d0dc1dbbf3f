//! Permits and reservations: what is given back, and what is not. Time is moved by hand.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, FixedWindow, LeakyBucket, SlidingLog, SmoothBursty, TokenBucket,
};
use sluicegate::{Denied, Limiter, Memory, Op, Outcome, Overflow, Permit, Refusal, Span};
use sluicegate_core::algorithm::concurrency::Holder;
use support::{DAY, Dice, MICRO, SECOND, every_turn, limiter, limiter_in, until_they_sleep};

const MINUTE: Duration = Duration::from_secs(60);

fn left(limiter: &Limiter, key: &str) -> i64 {
    limiter.of(key).peek().remaining.unwrap()
}

/// Two at a time, and ten a minute.
fn slots_and_window(clock: &ManualClock) -> Limiter {
    Limiter::builder()
        .limit(Concurrency::at_most(2).lease(10 * SECOND).named("at a time"))
        .limit(FixedWindow::per_minute(10).named("a minute"))
        .clock(clock.clone())
        .build()
        .unwrap()
}

/// How many more pass, one after the other: what the window has left.
fn pass_one_by_one(limiter: &Limiter) -> usize {
    (0..20).take_while(|_| limiter.of("alice").permit().is_ok()).count()
}

// === permits ===

#[test]
fn a_permit_gives_its_slots_back_and_nothing_else() {
    let clock = ManualClock::new();
    let limiter = slots_and_window(&clock);
    for used in 1..=5 {
        let permit = limiter.of("alice").cost(2).permit().unwrap();
        assert!(limiter.of("alice").permit().is_err(), "both slots are taken");
        drop(permit);
        assert_eq!(left(&limiter, "alice"), (10 - 2 * used).min(2), "the window was charged");
    }
    let denied = limiter.of("alice").permit().unwrap_err();
    assert!(matches!(denied, Denied::NotNow(verdict) if verdict.decided_by == Some(1)));
}

#[test]
fn a_permit_that_is_denied_takes_nothing() {
    let clock = ManualClock::new();
    let limiter = slots_and_window(&clock);
    let _both = limiter.of("alice").cost(2).permit().unwrap();
    for _ in 0..20 {
        assert!(limiter.of("alice").permit().is_err());
    }
    clock.advance(10 * SECOND);
    assert_eq!(pass_one_by_one(&limiter), 8);
}

#[test]
fn renewing_charges_nothing() {
    let clock = ManualClock::new();
    let limiter = slots_and_window(&clock);
    let permit = limiter.of("alice").permit().unwrap();
    for _ in 0..30 {
        clock.advance(SECOND);
        permit.renew().unwrap();
    }
    assert_eq!(left(&limiter, "alice"), 1, "one slot is held");
    assert_eq!(pass_one_by_one(&limiter), 9, "one was charged, thirty seconds ago");
}

#[test]
fn renewing_passes_where_another_limit_is_used_up() {
    let clock = ManualClock::new();
    let limiter = slots_and_window(&clock);
    let permit = limiter.of("alice").permit().unwrap();
    for _ in 0..9 {
        drop(limiter.of("alice").permit().unwrap());
    }
    clock.advance(9 * SECOND);
    assert!(limiter.of("alice").permit().is_err(), "ten a minute");
    permit.renew().unwrap();
    clock.advance(9 * SECOND);
    drop(permit);
    assert!(limiter.of("alice").permit().is_err(), "still ten a minute");
}

#[test]
fn a_lease_that_has_ended_is_not_renewed() {
    let clock = ManualClock::new();
    let limiter = limiter(Concurrency::at_most(1).lease(10 * SECOND), &clock);
    let first = limiter.of("alice").permit().unwrap();
    clock.advance(10 * SECOND);
    let second = limiter.of("alice").permit().unwrap();
    assert!(first.renew().is_err());
    drop(first);
    assert!(limiter.of("alice").permit().is_err(), "the slot is the second one's");
    drop(second);
    assert!(limiter.of("alice").permit().is_ok());
}

#[test]
fn a_permit_of_the_shared_identity_is_renewed_and_given_back() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Concurrency::at_most(1).lease(10 * SECOND))
        .clock(clock.clone())
        .memory(&Memory::with_entries(0))
        .overflow(Overflow::Shared)
        .build()
        .unwrap();
    let permit = limiter.of("alice").permit().unwrap();
    clock.advance(6 * SECOND);
    permit.renew().unwrap();
    clock.advance(6 * SECOND);
    assert!(limiter.of("bob").permit().is_err(), "all share one");
    drop(permit);
    assert!(limiter.of("bob").permit().is_ok());
}

#[test]
fn a_panic_gives_back_what_was_held() {
    let clock = ManualClock::new();
    let slots = limiter(Concurrency::at_most(1), &clock);
    let bucket = limiter(TokenBucket::per_minute(10), &clock);
    let work = || {
        let _permit = slots.of("alice").permit().unwrap();
        let _reservation = bucket.of("alice").cost(7).reserve().unwrap();
        std::panic::resume_unwind(Box::new("as in a handler"));
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    assert_eq!((left(&slots, "alice"), left(&bucket, "alice")), (1, 10));
}

#[test]
fn guards_outlive_the_limiter_they_came_from() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let original = limiter_in(&memory, Concurrency::at_most(1), &clock);
    let copy = original.clone();
    let permit = original.of("alice").permit().unwrap();
    drop(original);
    assert!(copy.of("alice").permit().is_err());
    std::thread::spawn(move || drop(permit)).join().unwrap();
    let last = copy.of("alice").permit().unwrap();
    drop(copy);
    assert_eq!(memory.entries(), 1, "the guard keeps its limiter");
    last.renew().unwrap();
    drop(last);
    assert_eq!(memory.entries(), 0);
}

#[test]
fn many_permits_leave_nothing_behind() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, Concurrency::at_most(50).lease(SECOND), &clock);
    let (mut dice, mut held): (Dice, Vec<Permit>) = (Dice(5), Vec::new());
    for _ in 0..20_000 {
        match dice.below(5) {
            0 | 1 => held.extend(limiter.of("alice").permit()),
            2 if !held.is_empty() => {
                let place = usize::try_from(dice.below(held.len() as u64)).unwrap();
                drop(held.swap_remove(place));
            }
            3 => held
                .truncate(held.iter().take_while(|permit| permit.renew().is_ok()).count().max(9)),
            _ => clock.advance(Duration::from_millis(dice.below(30))),
        }
        assert!(memory.entries() <= 1);
    }
    // Some have outlived their lease; dropping them frees nothing that is not theirs.
    drop(held);
    limiter.sweep();
    assert_eq!(memory.entries(), 0);
    assert_eq!(left(&limiter, "alice"), 50);
}

// === reservations ===

#[test]
fn a_commit_of_less_gives_the_rest_back_and_one_of_more_charges_it() {
    let clock = ManualClock::new();
    for (used, remaining) in [(0, 100), (20, 80), (60, 40), (100, 0), (130, -30)] {
        let limiter = limiter(TokenBucket::per_hour(100), &clock);
        let reservation = limiter.of("alice").cost(60).reserve().unwrap();
        assert_eq!(reservation.verdict().remaining, Some(40));
        assert_eq!(reservation.commit(used).unwrap().remaining, Some(remaining));
        assert_eq!(left(&limiter, "alice"), remaining);
    }
}

#[test]
fn a_commit_into_debt_says_how_long_it_takes_to_pay() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_second(10), &clock);
    let reservation = limiter.of("alice").cost(10).reserve().unwrap();
    let verdict = reservation.commit(35).unwrap();
    assert_eq!(verdict.outcome, Outcome::Allow { wait: Span::from_millis(2_500) });
}

#[test]
fn a_reservation_that_is_dropped_is_given_back() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_hour(10), &clock);
    for _ in 0..100 {
        let reservation = limiter.of("alice").cost(10).reserve().unwrap();
        assert!(limiter.of("alice").reserve().is_err());
        drop(reservation);
    }
    assert_eq!(left(&limiter, "alice"), 10);
}

#[test]
fn what_a_window_that_is_over_was_charged_is_not_given_to_the_next() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_minute(10), &clock);
    let reservation = limiter.of("alice").cost(8).reserve_for(10 * MINUTE).unwrap();
    clock.advance(MINUTE);
    limiter.of("alice").cost(5).hit();
    drop(reservation);
    assert_eq!(left(&limiter, "alice"), 5);
}

#[test]
fn a_reservation_that_runs_out_is_given_back_by_itself() {
    let clock = ManualClock::new();
    let limiter = limiter(SlidingLog::per_hour(10), &clock);
    let reservation = limiter.of("alice").cost(8).reserve_for(5 * SECOND).unwrap();
    clock.advance(5 * SECOND - MICRO);
    assert_eq!(left(&limiter, "alice"), 2);
    clock.advance(MICRO);
    assert_eq!(left(&limiter, "alice"), 10);
    drop(reservation);
    assert_eq!(left(&limiter, "alice"), 10, "not a second time");
}

#[test]
fn a_late_commit_is_charged_in_full_and_one_after_a_day_is_refused() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_day(100), &clock);
    let late = limiter.of("alice").cost(60).reserve().unwrap();
    let too_late = limiter.of("bob").cost(60).reserve().unwrap();
    clock.advance(MINUTE);
    assert_eq!(late.commit(30).unwrap().remaining, Some(70));
    clock.advance(DAY);
    assert_eq!(too_late.commit(30), Err(Refusal::UnknownHolder));
    assert_eq!(left(&limiter, "bob"), 100);
}

#[test]
fn a_reset_leaves_a_reservation_nothing_to_give_back() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_day(100), &clock);
    let dropped = limiter.of("alice").cost(60).reserve().unwrap();
    let committed = limiter.of("alice").cost(30).reserve().unwrap();
    limiter.of("alice").reset().unwrap();
    limiter.of("alice").cost(50).hit();
    drop(dropped);
    assert_eq!(left(&limiter, "alice"), 50);
    assert_eq!(committed.commit(20).unwrap().remaining, Some(30), "charged in full");
}

#[test]
fn a_reserved_slot_is_freed_by_its_settlement() {
    let clock = ManualClock::new();
    let limiter = limiter(Concurrency::at_most(1), &clock);
    let first = limiter.of("alice").reserve().unwrap();
    assert!(matches!(limiter.of("alice").reserve(), Err(Denied::NotNow(_))));
    std::thread::scope(|scope| {
        let second = scope.spawn(|| limiter.of("alice").permit_blocking().is_ok());
        until_they_sleep(&clock, 1);
        first.commit(1).unwrap();
        assert!(second.join().unwrap(), "whoever waits is told");
    });
    drop(limiter.of("alice").reserve().unwrap());
    assert!(limiter.of("alice").reserve().is_ok());
}

#[test]
fn an_id_that_is_in_use_is_refused_until_it_is_settled() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_day(100), &clock);
    let first = limiter.of("alice").id("job 1").reserve().unwrap();
    let again = limiter.of("alice").id("job 1").reserve();
    assert_eq!(again.unwrap_err(), Denied::Refused(Refusal::HolderInUse));
    assert_eq!(left(&limiter, "alice"), 99, "the refused one has not touched the first");
    first.commit(1).unwrap();
    assert!(limiter.of("alice").id("job 1").reserve().is_ok());
}

/// What guards do, next to the operations that they stand for.
#[test]
fn reservations_settle_exactly_as_the_core_says() {
    for (kind, limit) in every_turn().into_iter().enumerate() {
        for seed in 1..20 {
            let clock = ManualClock::new();
            let twin = || {
                let builder = Limiter::builder().limits([limit.clone()]);
                builder.clock(clock.clone()).build().unwrap()
            };
            let (guards, ops) = (twin(), twin());
            let (mut dice, mut open) = (Dice(seed), Vec::new());
            for step in 0..150 {
                let holder = Holder(step);
                match dice.below(7) {
                    0..3 => {
                        let (cost, seconds) = (dice.below(4), 1 + dice.below(3));
                        let ttl = Span::from_secs(seconds);
                        let said = ops.of("alice").ask(Op::Reserve { cost, ttl, holder }).unwrap();
                        let ask = guards.of("alice").cost(cost);
                        match ask.reserve_for(Duration::from_secs(seconds)) {
                            Ok(reservation) => {
                                assert_eq!(*reservation.verdict(), said.verdict);
                                open.push((reservation, holder));
                            }
                            Err(denied) => assert_eq!(denied, Denied::NotNow(said.verdict)),
                        }
                    }
                    3 | 4 if !open.is_empty() => {
                        let place = usize::try_from(dice.below(open.len() as u64)).unwrap();
                        let (reservation, holder) = open.remove(place);
                        if dice.below(2) == 0 {
                            drop(reservation);
                            ops.of("alice").ask(Op::Cancel { holder }).unwrap();
                        } else {
                            let cost = dice.below(6);
                            let said = ops.of("alice").ask(Op::Commit { cost, holder }).unwrap();
                            assert_eq!(reservation.commit(cost), Ok(said.verdict));
                        }
                    }
                    5 => assert_eq!(guards.hit("alice"), ops.hit("alice")),
                    _ => clock.advance(Duration::from_micros(dice.below(900_000))),
                }
                let (one, other) = (guards.of("alice").peek(), ops.of("alice").peek());
                assert_eq!(one, other, "limit {kind}, seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn many_reservations_leave_nothing_behind() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, TokenBucket::per_second(1_000), &clock);
    for _ in 0..20_000 {
        let reservation = limiter.of("alice").cost(5).reserve().unwrap();
        reservation.commit(3).unwrap();
        clock.advance(Duration::from_millis(3));
        drop(limiter.of("alice").reserve().unwrap());
        assert!(memory.entries() <= 1);
    }
    clock.advance(SECOND);
    limiter.sweep();
    assert_eq!(memory.entries(), 0);
}

#[test]
fn guards_that_were_leaked_are_forgotten_after_a_day() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let bucket = limiter_in(&memory, TokenBucket::per_second(5), &clock);
    let queue = limiter_in(&memory, LeakyBucket::per_second(5).queue(5), &clock);
    let smooth = limiter_in(&memory, SmoothBursty::per_second(5), &clock);
    let slots = limiter_in(&memory, Concurrency::at_most(5), &clock);
    std::mem::forget(bucket.of("alice").reserve().unwrap());
    std::mem::forget(queue.of("alice").book().unwrap());
    std::mem::forget(queue.of("alice").book().unwrap());
    std::mem::forget(smooth.of("alice").book().unwrap());
    std::mem::forget(slots.of("alice").permit().unwrap());
    assert_eq!(memory.entries(), 4);
    clock.advance(DAY + 2 * MINUTE);
    for limiter in [&bucket, &queue, &smooth, &slots] {
        limiter.sweep();
    }
    assert_eq!(memory.entries(), 0);
}
