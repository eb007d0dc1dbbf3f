//! Many threads at once: limits hold to the last unit, whoever comes first.
//!
//! Each test runs a fixed number of turns on a clock that stands still. Every way in which a few threads can meet is tried in
//! `src/memory/loom_tests.rs`; here they are real ones, and everything on top of the store is there too.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, Cycle, FixedWindow, IntoLimit, LeakyBucket, Refill, SlidingLog, SlidingWindow,
    SmoothBursty, TokenBucket, WarmUp,
};
use sluicegate::{CarryOver, Limiter, Memory, Op, Overflow, Together};

const THREADS: u64 = 8;

fn limiter(limit: impl IntoLimit) -> Limiter {
    Limiter::builder().limit(limit).clock(ManualClock::new()).build().unwrap()
}

/// Runs `each` in all threads, which start together; the sum of what they say.
fn in_threads(each: impl Fn(u64) -> u64 + Sync) -> u64 {
    let start = std::sync::Barrier::new(THREADS as usize);
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (each, start, sum) = (&each, &start, &sum);
            scope.spawn(move || {
                start.wait();
                sum.fetch_add(each(number), Ordering::Relaxed);
            });
        }
    });
    sum.into_inner()
}

/// How many of so many turns are granted.
fn count(turns: u64, mut granted: impl FnMut(u64) -> bool) -> u64 {
    (0..turns).filter(|turn| granted(*turn)).count() as u64
}

// === one key ===

/// How often one key passes when all threads want it.
fn passes(limit: impl IntoLimit, turns: u64) -> u64 {
    let limiter = limiter(limit);
    in_threads(|_| count(turns, |_| limiter.hit("hot").is_allowed()))
}

#[test]
fn a_hot_key_passes_exactly_as_often_as_its_limit_says() {
    let ten = Duration::from_secs(10);
    assert_eq!(passes(TokenBucket::per_minute(5_000), 1_000), 5_000);
    assert_eq!(passes(TokenBucket::per_minute(7).burst(999), 300), 999);
    assert_eq!(passes(TokenBucket::per(500, ten).refill(Refill::Interval), 100), 500);
    assert_eq!(passes(TokenBucket::per(500, ten).burst(700).refill(Refill::Interval), 200), 700);
    assert_eq!(passes(TokenBucket::per(500, ten).refill(Refill::Aligned), 100), 500);
    assert_eq!(passes(LeakyBucket::per_second(10).queue(499), 100), 500);
    assert_eq!(passes(FixedWindow::per_day(5_000), 1_000), 5_000);
    assert_eq!(passes(FixedWindow::per_hour(500).from_first_hit(), 100), 500);
    assert_eq!(passes(FixedWindow::per_day(500).in_zone("Europe/Berlin"), 100), 500);
    assert_eq!(passes(SlidingLog::per_minute(300), 100), 300);
    assert_eq!(passes(SlidingWindow::per_minute(500), 100), 500);
    assert_eq!(passes(SmoothBursty::per_second(5), 100), 1);
    assert_eq!(passes(WarmUp::per_second(5), 100), 1);
    assert_eq!(passes(Cycle::of(500).every(ten), 100), 500);
    assert_eq!(passes(Concurrency::at_most(100), 50), 100);
}

#[test]
fn a_hot_key_passes_exactly_as_often_as_the_least_of_its_limits_says() {
    let limiter = Limiter::builder()
        .limit(TokenBucket::per_minute(900))
        .limit(FixedWindow::per_day(800))
        .limit(SlidingWindow::per_hour(1_000))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let passed = in_threads(|_| count(200, |_| limiter.hit("hot").is_allowed()));
    assert_eq!(passed, 800);
    let left = limiter.of("hot").cost(0).ask(Op::Charge { cost: 100 }).unwrap().verdict;
    assert_eq!(
        left.remaining,
        Some(-100),
        "the bucket was charged 800 times too, and not more often"
    );
}

#[test]
fn units_are_neither_lost_nor_made_whatever_is_asked() {
    let limiter = limiter(FixedWindow::per_day(1_000_000));
    let used = in_threads(|number| {
        let mut used = 0;
        for turn in 0..300 {
            let ask = limiter.of("hot").cost(turn % 5 + 1);
            match (turn + number) % 5 {
                0 => used += ask.take().unwrap().0,
                1 => {
                    ask.charge().unwrap();
                    used += turn % 5 + 1;
                }
                2 => drop(ask.reserve().unwrap()),
                3 => {
                    ask.reserve().unwrap().commit(2).unwrap();
                    used += 2;
                }
                _ => {
                    ask.hit();
                    ask.refund().unwrap();
                }
            }
        }
        used
    });
    assert_eq!(limiter.of("hot").peek().remaining, Some(1_000_000 - used as i64));
}

#[test]
fn many_keys_pass_as_often_as_each_may() {
    let limiter = limiter(TokenBucket::per_hour(10));
    let keys: Vec<String> = (0..500).map(|key| format!("key {key}")).collect();
    let passed = in_threads(|number| {
        let mut passed = 0;
        for turn in 0..3 {
            // Some one by one, some in batches.
            if (turn + number) % 2 == 0 {
                limiter.hit_batch(&keys, |_, verdict| passed += u64::from(verdict.is_allowed()));
            } else {
                passed += keys.iter().filter(|key| limiter.hit(key).is_allowed()).count() as u64;
            }
        }
        passed
    });
    assert_eq!(passed, 500 * 10);
}

// === several limiters ===

#[test]
fn requests_over_several_limiters_in_any_order_are_charged_whole() {
    let memory = Memory::new();
    let of = |count| {
        let builder = Limiter::builder().limit(FixedWindow::per_day(count)).memory(&memory);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    // Everybody is asked for the same keys; the second says no first.
    let all = [of(100_000), of(1_500), of(100_000)];
    let keys = ["alice", "bob", "carol"];
    let passed = in_threads(|number| {
        count(400, |turn| {
            let mut order = [0, 1, 2];
            order.rotate_left(((turn + number) % 3) as usize);
            if number % 2 == 0 {
                order.reverse();
            }
            // And keys in another order in each limiter, so that shards are wanted in all orders too.
            let [first, second] = [keys[(turn % 3) as usize], keys[(turn / 3 % 3) as usize]];
            let request = order.iter().fold(Together::new(), |request, one| {
                let pair = if one % 2 == 0 { [first, second] } else { [second, first] };
                request.and(&all[*one], pair[0]).and(&all[*one], pair[1])
            });
            request.hit().is_allowed()
        })
    });
    let used = |limiter: &Limiter, most: i64| -> Vec<i64> {
        keys.iter().map(|key| most - limiter.of(key).peek().remaining.unwrap()).collect()
    };
    let (first, second, third) =
        (used(&all[0], 100_000), used(&all[1], 1_500), used(&all[2], 100_000));
    assert_eq!(first, second);
    assert_eq!(first, third);
    assert!(passed > 500 && passed < 8 * 400, "{passed}: some passed and some did not");
    assert!(second.iter().all(|used| *used <= 1_500));
    assert!(second.contains(&1_500), "{second:?}: one was used up");
}

// === while limits change ===

#[test]
fn a_limit_that_changes_all_the_time_lets_no_more_through_than_the_highest() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().limit(FixedWindow::per_day(500)).clock(clock).build().unwrap();
    let over = AtomicBool::new(false);
    let passed = thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                let most = if turn % 2 == 0 { 1_000 } else { 500 };
                limiter.set_limits([FixedWindow::per_day(most)], CarryOver::Used).unwrap();
                if turn >= 20 && over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let passed = in_threads(|_| count(400, |_| limiter.hit("hot").is_allowed()));
        over.store(true, Ordering::Relaxed);
        passed
    });
    assert!(passed <= 1_000);
    limiter.set_limits([FixedWindow::per_day(1_000)], CarryOver::Used).unwrap();
    let rest = count(2_000, |_| limiter.hit("hot").is_allowed());
    assert_eq!(passed + rest, 1_000, "what was used stays used, to the last unit");
}

#[test]
fn limits_that_change_their_number_and_kind_keep_what_is_named() {
    let limiter = Limiter::builder()
        .limit(FixedWindow::per_day(2_000).named("daily"))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let over = AtomicBool::new(false);
    let daily = || FixedWindow::per_day(2_000).named("daily").into_limit().unwrap();
    let burst = || TokenBucket::per_second(100_000).named("burst").into_limit().unwrap();
    let passed = thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                let limits = match turn % 3 {
                    0 => vec![burst(), daily()],
                    1 => vec![
                        daily(),
                        burst(),
                        LeakyBucket::per_second(100_000).into_limit().unwrap(),
                    ],
                    _ => vec![daily()],
                };
                limiter.set_limits(limits, CarryOver::Used).unwrap();
                if turn >= 20 && over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let passed = in_threads(|number| {
            count(400, |turn| match (turn + number) % 7 {
                // Something pending now and then, so that whole accounts are moved too.
                0 => limiter.of("hot").reserve().is_ok_and(|one| one.commit(1).is_ok()),
                _ => limiter.hit("hot").is_allowed(),
            })
        });
        over.store(true, Ordering::Relaxed);
        passed
    });
    limiter.set_limits([daily()], CarryOver::Used).unwrap();
    let rest = count(3_000, |_| limiter.hit("hot").is_allowed());
    assert_eq!(passed + rest, 2_000);
}

// === permits ===

#[test]
fn no_more_permits_are_out_than_there_are() {
    let limiter = limiter(Concurrency::at_most(3));
    let out = AtomicU64::new(0);
    let granted = in_threads(|_| {
        count(300, |_| {
            let Ok(permit) = limiter.of("hot").permit() else { return false };
            assert!(out.fetch_add(1, Ordering::SeqCst) < 3);
            out.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
            true
        })
    });
    assert!(granted >= 300, "somebody got one");
    assert_eq!(limiter.of("hot").peek().remaining, Some(3), "and all came back");
}

#[test]
fn whoever_waits_for_a_permit_gets_it() {
    let limiter = limiter(Concurrency::at_most(4));
    let out = AtomicU64::new(0);
    // One slot or two at a time; nobody waits for the clock, which stands still.
    let granted = in_threads(|number| {
        let slots = number % 2 + 1;
        count(100, |_| {
            let permit = limiter.of("hot").cost(slots).permit_blocking().unwrap();
            assert!(out.fetch_add(slots, Ordering::SeqCst) + slots <= 4);
            out.fetch_sub(slots, Ordering::SeqCst);
            drop(permit);
            true
        })
    });
    assert_eq!(granted, 8 * 100);
    assert_eq!(limiter.of("hot").peek().remaining, Some(4));
}

// === the cap ===

#[test]
fn newcomers_of_all_threads_together_do_not_pass_the_cap() {
    let memory = Memory::with_entries(1_000);
    let build = |limit: sluicegate_rules::limit::LimitConfig| {
        let builder = Limiter::builder().limit(limit).memory(&memory).overflow(Overflow::Deny);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    // One goes the short way, the other the long way.
    let short = build(FixedWindow::per_day(5).into_limit().unwrap());
    let long = build(SlidingLog::per_hour(5).into_limit().unwrap());
    let admitted = in_threads(|number| {
        count(400, |turn| {
            let limiter = if turn % 2 == 0 { &short } else { &long };
            let allowed = limiter.hit(format!("{number} {turn}")).is_allowed();
            // Each thread that adds one counts it twice for a moment.
            assert!(memory.entries() <= 1_000 + THREADS as usize);
            allowed
        })
    });
    assert_eq!(memory.entries() as u64, admitted);
    // Near the cap they may have been in each other's way; one by one they are not.
    let rest = count(100, |turn| short.hit(format!("more {turn}")).is_allowed());
    assert_eq!(admitted + rest, 1_000);
    assert_eq!(memory.entries(), 1_000);
}

#[test]
fn entries_come_and_go_and_none_is_lost_on_the_way() {
    let clock = ManualClock::new();
    let memory = Memory::with_entries(2_000);
    let limiter = Limiter::builder()
        .limit(TokenBucket::per_second(10))
        .limit(SlidingLog::per_second(5))
        .memory(&memory)
        .overflow(Overflow::Shared)
        .clock(clock.clone())
        .build()
        .unwrap();
    for _ in 0..5 {
        in_threads(|number| {
            for turn in 0..100 {
                limiter.hit(format!("{number} {turn}"));
                if turn % 25 == 0 {
                    limiter.sweep();
                }
            }
            0
        });
        clock.advance(Duration::from_secs(2));
        in_threads(|_| {
            limiter.sweep();
            0
        });
        assert_eq!(memory.entries(), 0);
    }
}
