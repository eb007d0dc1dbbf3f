//! Limiters that share a store share its cap, and what one has no use for any more is there for the others.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{FixedWindow, IntoLimit, SlidingLog, TokenBucket};
use sluicegate::{LimitError, Limiter, Memory, Overflow};

fn limiter(limit: impl IntoLimit, memory: &Memory, clock: &ManualClock) -> Limiter {
    let builder = Limiter::builder().limit(limit).memory(memory).overflow(Overflow::Deny);
    builder.clock(clock.clone()).build().unwrap()
}

/// How often somebody has to ask until there is room.
fn tries(limiter: &Limiter, key: &str) -> Option<usize> {
    (1..=10_000).find(|_| limiter.hit(key).is_allowed())
}

#[test]
fn what_has_run_out_in_one_limiter_makes_room_in_another_though_nobody_asks_the_first() {
    let (memory, clock) = (Memory::with_entries(100), ManualClock::new());
    let idle = [
        limiter(TokenBucket::per_second(1), &memory, &clock),
        limiter(SlidingLog::per_second(1), &memory, &clock),
        limiter(FixedWindow::per_second(1), &memory, &clock),
    ];
    let busy = limiter(FixedWindow::per_day(5), &memory, &clock);
    for number in 0..100 {
        assert!(idle[number % 3].hit(format!("{number}")).is_allowed());
    }
    assert!(!busy.hit("alice").is_allowed(), "there is no room");
    clock.advance(Duration::from_secs(2));
    let tries = tries(&busy, "alice");
    assert!(tries.is_some_and(|tries| tries <= 5 * 256), "{tries:?} tries");
    for number in 1..100 {
        assert!((0..5 * 256).any(|_| busy.hit(format!("{number}")).is_allowed()), "{number}");
    }
    assert_eq!(memory.entries(), 100);
    assert!(!busy.hit("one more").is_allowed());
}

#[test]
fn each_limiter_tells_by_its_own_clock_what_has_run_out() {
    let (memory, slow, fast) = (Memory::with_entries(1), ManualClock::new(), ManualClock::new());
    let first = limiter(FixedWindow::per_day(1), &memory, &slow);
    let second = limiter(FixedWindow::per_day(1), &memory, &fast);
    assert!(first.hit("alice").is_allowed());
    fast.advance(Duration::from_secs(5 * 86_400));
    assert_eq!(tries(&second, "bob"), None, "Alice's day is not over");
    assert!(!first.hit("alice").is_allowed());
}

#[test]
fn a_name_is_taken_once() {
    let memory = Memory::new();
    let logins =
        || Limiter::builder().name("logins").limit(FixedWindow::per_day(1)).memory(&memory);
    let first = logins().build().unwrap();
    let error = logins().build().unwrap_err();
    assert_eq!(error, LimitError::NameTaken { name: "logins".to_owned() });
    assert_eq!(logins().on(&memory).unwrap_err(), error);
    assert!(error.to_string().contains("`logins`"), "{error}");
    let clone = first.clone();
    drop(first);
    assert!(logins().build().is_err(), "a clone has it");
    drop(clone);
    logins().build().unwrap();
    let nameless = || Limiter::builder().limit(FixedWindow::per_day(1)).on(&memory).unwrap();
    let _two = (nameless(), nameless());
    let _elsewhere = logins().memory(&Memory::new()).build().unwrap();
}
