//! Explores every interleaving of a few threads in the store: the real entry count and shards, on
//! loom's lock and atomics.
//!
//! ```console
//! RUSTFLAGS="--cfg loom" cargo test -p sluicegate --release --lib --target-dir target/loom loom_
//! ```
//!
//! Loom also explores the memory order of each atomic, so it finds a missing release.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sluicegate_core::account::Moment;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;

use super::lanes::Budget;
use super::shard_set::SHARD_BITS;
use super::shards::{Shards, Target, UNCOUNTED, apply_together};
use super::{Memory, Overflow};
use crate::limit::{Concurrency, FixedWindow, IntoLimit};
use crate::plan::Rule;

const NOW: Timestamp = Timestamp::from_micros(1_717_416_000_000_000);
const LATER: Timestamp = Timestamp::from_micros(1_717_416_000_000_000 + 2 * 86_400_000_000);

/// Runs both, and waits for them.
fn both(one: impl FnOnce() + 'static, other: impl FnOnce() + 'static) {
    let thread = thread::spawn(one);
    other();
    thread.join().unwrap();
}

// === the count of entries ===

#[test]
fn loom_newcomers_never_have_more_lanes_than_there_may_be() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(1));
        let lanes = Arc::new(AtomicUsize::new(0));
        let come = |budget: Arc<Budget>, lanes: Arc<AtomicUsize>| {
            move || {
                if budget.reserve() {
                    budget.charge();
                    assert_eq!(lanes.fetch_add(1, Ordering::Relaxed), 0, "two in one lane");
                    budget.release(1);
                }
            }
        };
        both(come(budget.clone(), lanes.clone()), come(budget.clone(), lanes.clone()));
        let lanes = lanes.load(Ordering::Relaxed);
        assert_eq!((lanes, budget.used()), (1, 1), "and one of them got in");
    });
}

#[test]
fn loom_a_lane_given_up_is_there_for_one() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(1));
        budget.charge();
        let got_in = Arc::new(AtomicUsize::new(0));
        let come = |budget: Arc<Budget>, got_in: Arc<AtomicUsize>| {
            move || {
                got_in.fetch_add(usize::from(budget.reserve()), Ordering::Relaxed);
            }
        };
        let one = thread::spawn(come(budget.clone(), got_in.clone()));
        let other = thread::spawn(come(budget.clone(), got_in.clone()));
        budget.release(1);
        one.join().unwrap();
        other.join().unwrap();
        let got_in = got_in.load(Ordering::Relaxed);
        assert!(got_in <= 1);
        assert_eq!(budget.used(), got_in);
    });
}

// === shards ===

/// A limiter without its clock.
fn limiter(memory: &Memory, limit: impl IntoLimit) -> Arc<Shards> {
    let rule = Arc::new(Rule::new(vec![limit.into_limit().unwrap()], Mode::Hard).unwrap());
    let shards = Shards::new(memory.store.clone(), &rule, Overflow::Deny, SHARD_BITS, NOW);
    // Locks are created on first use, which must precede the threads.
    for hash in [who(0), who(1), who(2), who(3)] {
        let _ = peek(&shards, hash);
    }
    Arc::new(shards)
}

/// One identity in each of the shards, of which there are four here.
const fn who(shard: u64) -> u64 {
    shard << 62 | 7
}

fn hit(shards: &Shards, hash: u64, now: Timestamp) -> bool {
    let mut verdict = UNCOUNTED;
    match shards.hit(None, hash, 1, now, &mut verdict) {
        Some(_) => verdict.is_allowed(),
        None => hit_long(shards, hash, now),
    }
}

fn hit_long(shards: &Shards, hash: u64, now: Timestamp) -> bool {
    let op = Op::Hit { cost: 1, holder: Some(Holder(hash)) };
    shards.apply(hash, op, Moment::at(now)).unwrap().answer.verdict.is_allowed()
}

fn peek(shards: &Shards, hash: u64) -> Option<i64> {
    let op = Op::Peek { cost: 0 };
    shards.apply(hash, op, Moment::at(NOW)).unwrap().answer.verdict.remaining
}

fn together(all: &[(&Shards, u64)]) -> bool {
    let all: Vec<Target<'_>> = all
        .iter()
        .map(|(shards, hash)| Target {
            shards,
            hash: *hash,
            spare_capacity: false,
            rule: None,
            cost: None,
        })
        .collect();
    let op = Op::Hit { cost: 1, holder: None };
    apply_together(&all, op, NOW).unwrap().answer.verdict.is_allowed()
}

#[test]
fn loom_two_hits_on_one_key_pass_once_if_once_is_the_limit() {
    loom::model(|| {
        let shards = limiter(&Memory::with_key(10, [1, 2]), FixedWindow::per_day(1));
        let passed = Arc::new(AtomicUsize::new(0));
        let ask = |shards: Arc<Shards>, passed: Arc<AtomicUsize>| {
            move || {
                passed.fetch_add(usize::from(hit(&shards, who(1), NOW)), Ordering::Relaxed);
            }
        };
        both(ask(shards.clone(), passed.clone()), ask(shards, passed.clone()));
        assert_eq!(passed.load(Ordering::Relaxed), 1);
    });
}

/// Two newcomers at once, and room for one of them.
fn last_place(come: impl Fn(&Shards, u64) -> bool + Copy + Send + Sync + 'static) {
    loom::model(move || {
        let memory = Memory::with_key(1, [1, 2]);
        let shards = limiter(&memory, FixedWindow::per_day(5));
        let (one, other) = (shards.clone(), shards.clone());
        both(
            move || {
                come(&one, who(1));
            },
            move || {
                come(&other, who(2));
            },
        );
        // Both may have blocked each other; then the next one gets in.
        let entries = memory.entries();
        assert!(entries <= 1, "{entries} where there may be 1");
        assert_eq!(entries == 0, come(&shards, who(0)));
        assert_eq!(memory.entries(), 1);
    });
}

#[test]
fn loom_two_newcomers_do_not_both_get_the_last_place() {
    last_place(|shards, who| hit(shards, who, NOW));
}

#[test]
fn loom_nor_do_they_by_the_long_way() {
    last_place(|shards, who| hit_long(shards, who, NOW));
}

#[test]
fn loom_nor_do_three_get_two_places() {
    // All interleavings would take too long: at most two additional switches.
    let mut some = loom::model::Builder::new();
    some.preemption_bound = Some(2);
    some.check(|| {
        let memory = Memory::with_key(2, [1, 2]);
        let shards = limiter(&memory, FixedWindow::per_day(5));
        let (one, other) = (shards.clone(), shards.clone());
        let more = [
            thread::spawn(move || hit(&one, who(1), NOW)),
            thread::spawn(move || hit_long(&other, who(2), NOW)),
        ];
        let got_in = usize::from(hit(&shards, who(3), NOW));
        let got_in =
            got_in + more.map(|one| usize::from(one.join().unwrap())).iter().sum::<usize>();
        assert!((1..=2).contains(&got_in));
        assert_eq!(memory.entries(), got_in);
    });
}

#[test]
fn loom_a_newcomer_does_not_get_the_place_of_one_whose_limit_is_changed() {
    loom::model(|| {
        let memory = Memory::with_key(1, [1, 2]);
        let shards = limiter(&memory, FixedWindow::per_day(5));
        assert!(hit(&shards, who(1), NOW));
        let (one, other) = (shards.clone(), shards.clone());
        both(
            move || {
                let limit = FixedWindow::per_day(9).into_limit().unwrap();
                let rule = Rule::new(vec![limit], Mode::Hard).unwrap().with_generation(1);
                let rule = Arc::new(rule);
                one.change(&rule, CarryOver::Used, NOW);
            },
            move || assert!(!hit(&other, who(2), NOW), "there was no place"),
        );
        assert_eq!(memory.entries(), 1);
    });
}

#[test]
fn loom_what_is_swept_away_is_counted_once() {
    loom::model(|| {
        let memory = Memory::with_key(10, [1, 2]);
        let shards = limiter(&memory, FixedWindow::per_day(5));
        assert!(hit(&shards, who(1), NOW));
        let (one, other) = (shards.clone(), shards.clone());
        // Both find it run out.
        both(
            move || one.sweep(LATER),
            move || {
                hit(&other, who(1), LATER);
            },
        );
        assert_eq!(memory.entries(), 1);
    });
}

#[test]
fn loom_requests_over_two_limiters_in_opposite_orders_come_to_an_end_and_are_charged_whole() {
    loom::model(|| {
        let memory = Memory::with_key(10, [1, 2]);
        let users = limiter(&memory, FixedWindow::per_day(5));
        let addresses = limiter(&memory, FixedWindow::per_day(1));
        let passed = Arc::new(AtomicUsize::new(0));
        let (one, other) = ((users.clone(), addresses.clone()), (users.clone(), addresses.clone()));
        let (first, second) = (passed.clone(), passed.clone());
        both(
            move || {
                let allowed = together(&[(&one.0, who(1)), (&one.1, who(1))]);
                first.fetch_add(usize::from(allowed), Ordering::Relaxed);
            },
            move || {
                let allowed = together(&[(&other.1, who(1)), (&other.0, who(1))]);
                second.fetch_add(usize::from(allowed), Ordering::Relaxed);
            },
        );
        assert_eq!(passed.load(Ordering::Relaxed), 1);
        assert_eq!((peek(&users, who(1)), peek(&addresses, who(1))), (Some(4), Some(0)));
        assert_eq!(memory.entries(), 2);
    });
}

#[test]
fn loom_requests_over_two_shards_in_opposite_orders_beside_a_plain_hit() {
    loom::model(|| {
        let memory = Memory::with_key(10, [1, 2]);
        let shards = limiter(&memory, FixedWindow::per_day(5));
        let (one, other, third) = (shards.clone(), shards.clone(), shards.clone());
        let more = [
            thread::spawn(move || assert!(together(&[(&one, who(1)), (&one, who(2))]))),
            thread::spawn(move || assert!(together(&[(&other, who(2)), (&other, who(1))]))),
        ];
        assert!(hit(&third, who(2), NOW));
        more.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((peek(&shards, who(1)), peek(&shards, who(2))), (Some(3), Some(2)));
        assert_eq!(memory.entries(), 2);
    });
}

#[test]
fn loom_a_slot_is_held_by_one_at_a_time() {
    loom::model(|| {
        let shards = limiter(&Memory::with_key(10, [1, 2]), Concurrency::at_most(1));
        let holding = Arc::new(AtomicUsize::new(0));
        let hold = |shards: Arc<Shards>, holding: Arc<AtomicUsize>, holder: Holder| {
            move || {
                let take = Op::Hit { cost: 1, holder: Some(holder) };
                let taken = shards.apply(who(1), take, Moment::at(NOW)).unwrap();
                if taken.answer.verdict.is_allowed() {
                    assert_eq!(holding.fetch_add(1, Ordering::Relaxed), 0);
                    holding.fetch_sub(1, Ordering::Relaxed);
                    shards.apply(who(1), Op::Cancel { holder }, Moment::at(NOW)).unwrap();
                }
            }
        };
        both(
            hold(shards.clone(), holding.clone(), Holder(1)),
            hold(shards, holding.clone(), Holder(2)),
        );
    });
}
