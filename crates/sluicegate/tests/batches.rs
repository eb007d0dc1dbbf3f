//! Many checks at one moment: as if one came after the other.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, FixedWindow, TokenBucket};
use sluicegate::{Limiter, Memory, Overflow, Verdict};
use support::{Dice, SECOND, every_turn, limiter, limiter_in};

/// The verdicts of a batch, in the order they were told.
fn batch<K: AsRef<[u8]>>(limiter: &Limiter, keys: &[K]) -> Vec<Verdict> {
    let mut all = Vec::new();
    limiter.hit_batch(keys, |place, verdict| {
        assert_eq!(place, all.len(), "in their order, each once");
        all.push(verdict);
    });
    all
}

fn one_by_one<K: AsRef<[u8]>>(limiter: &Limiter, keys: &[K]) -> Vec<Verdict> {
    keys.iter().map(|key| limiter.hit(key)).collect()
}

#[test]
fn a_batch_is_as_many_hits() {
    for (kind, limit) in every_turn().into_iter().enumerate() {
        let clock = ManualClock::new();
        let twin = || {
            let builder = Limiter::builder().limits([limit.clone()]);
            builder.clock(clock.clone()).build().unwrap()
        };
        let (at_once, in_a_row) = (twin(), twin());
        let mut dice = Dice(9);
        for size in [0, 1, 2, 15, 16, 17, 31, 32, 33, 100] {
            // Few keys, so that many come twice.
            let keys: Vec<String> = (0..size).map(|_| format!("user:{}", dice.below(30))).collect();
            assert_eq!(batch(&at_once, &keys), one_by_one(&in_a_row, &keys), "limit {kind}");
            clock.advance(Duration::from_micros(dice.below(900_000)));
        }
    }
}

#[test]
fn a_key_that_comes_twice_in_a_batch_is_charged_twice() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_hour(20), &clock);
    let verdicts = batch(&limiter, &["alice"; 25]);
    let remaining: Vec<i64> = verdicts.iter().map(|verdict| verdict.remaining.unwrap()).collect();
    let expected: Vec<i64> = (0..20).rev().chain([0; 5]).collect();
    assert_eq!(remaining, expected);
    assert_eq!(verdicts.iter().filter(|verdict| verdict.is_allowed()).count(), 20);
}

#[test]
fn an_empty_batch_is_nothing() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, TokenBucket::per_minute(1), &clock);
    assert!(batch::<&str>(&limiter, &[]).is_empty());
    assert_eq!(memory.entries(), 0);
}

#[test]
fn a_thousand_keys_are_a_thousand_identities() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, TokenBucket::per_second(1), &clock);
    let keys: Vec<Vec<u8>> = (0..1_000u32).map(|user| user.to_be_bytes().to_vec()).collect();
    assert!(batch(&limiter, &keys).iter().all(Verdict::is_allowed));
    assert_eq!(memory.entries(), 1_000);
    assert!(!batch(&limiter, &keys).iter().any(Verdict::is_allowed));
    clock.advance(SECOND);
    limiter.sweep();
    assert_eq!(memory.entries(), 0);
}

#[test]
fn a_batch_takes_the_long_way_where_a_hit_does() {
    let clock = ManualClock::new();
    let slots = limiter(Concurrency::at_most(2).lease(SECOND), &clock);
    let allowed: Vec<bool> = batch(&slots, &["alice"; 3]).iter().map(Verdict::is_allowed).collect();
    assert_eq!(allowed, [true, true, false], "each under an id of its own");
}

#[test]
fn a_batch_that_finds_no_room_is_answered_by_the_policy() {
    for (overflow, passed) in [(Overflow::Shared, 6), (Overflow::Deny, 4), (Overflow::Allow, 8)] {
        let clock = ManualClock::new();
        let builder = Limiter::builder().limit(FixedWindow::per_hour(2)).clock(clock.clone());
        let builder = builder.memory(&Memory::with_entries(2)).overflow(overflow);
        let limiter = builder.build().unwrap();
        let keys = ["a", "b", "c", "d", "a", "b", "c", "d"];
        let verdicts = batch(&limiter, &keys);
        assert_eq!(verdicts.iter().filter(|verdict| verdict.is_allowed()).count(), passed);
    }
}

#[test]
fn who_is_told_may_ask_again() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_hour(3), &clock);
    let mut seen = Vec::new();
    limiter.hit_batch(&["alice", "alice"], |_, verdict| {
        seen.push((verdict.remaining.unwrap(), limiter.hit("alice").remaining.unwrap()));
    });
    assert_eq!(seen, [(2, 1), (0, 0)], "no lock is held meanwhile");
}

/// A clock that moves on each time it is looked at.
#[derive(Debug, Default)]
struct Restless(std::sync::atomic::AtomicU64);

impl sluicegate::clock::Clock for Restless {
    fn now(&self) -> sluicegate::Timestamp {
        let second = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        sluicegate::Timestamp::from_micros(1_000_000 * second)
    }
}

#[test]
fn a_batch_is_one_moment() {
    let limit = TokenBucket::per_second(1).burst(1);
    let limiter = Limiter::builder().limit(limit).clock(Restless::default()).build().unwrap();
    let verdicts = batch(&limiter, &["alice"; 40]);
    assert_eq!(verdicts.iter().filter(|verdict| verdict.is_allowed()).count(), 1);
}
