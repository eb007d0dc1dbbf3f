//! Turns that are booked and waited for. Time is moved by hand.

#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{FixedWindow, LeakyBucket, SlidingLog, TokenBucket};
use sluicegate::{Booking, Denied, KeyedOps, Limiter, Memory, Op, Outcome, Span, Verdict};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_rules::limit::LimitConfig;
use support::{
    DAY, Dice, MICRO, Polled, SECOND, every_turn, limiter, limiter_in, until_they_sleep,
};

type Acquiring<'a> = Polled<std::pin::Pin<Box<dyn Future<Output = Result<Verdict, Denied>> + 'a>>>;

fn acquire(ask: KeyedOps<'_>) -> Acquiring<'_> {
    Polled::new(Box::pin(async move { ask.acquire().await }))
}

/// One a second, the first at once.
fn one_a_second(clock: &ManualClock) -> Limiter {
    limiter(TokenBucket::per_second(1).burst(1), clock)
}

// === order, and the limit ===

#[test]
fn those_who_wait_come_in_the_order_they_asked() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    let mut all: Vec<_> = (0..5).map(|_| acquire(limiter.of("alice"))).collect();
    assert!(all[0].done().is_ok());
    assert!(all.iter_mut().skip(1).all(Polled::waits));
    for turn in 1..5 {
        clock.advance(SECOND - MICRO);
        assert!(all.iter().all(|one| !one.is_woken()), "not a moment too early");
        clock.advance(MICRO);
        for (place, one) in all.iter_mut().enumerate().skip(turn).rev() {
            assert_eq!(one.is_woken(), place == turn);
            if place == turn {
                assert!(one.done().is_ok());
            } else {
                assert!(one.waits());
            }
        }
    }
    assert_eq!(clock.sleepers(), 0);
    assert!(all.iter().all(|one| one.wakes() <= 1), "nobody is woken in vain");
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    limiter.hit("alice");
    let mut waiting = acquire(limiter.of("alice"));
    assert!(waiting.waits());
    clock.advance(SECOND);
    assert!(!limiter.hit("alice").is_allowed(), "that one was booked, though not used yet");
    assert!(waiting.done().is_ok());
    assert!(!limiter.hit("alice").is_allowed());
}

/// Comes, goes and gives up at random, and says when it started those who did not give up.
fn starts_at_random(limit: LimitConfig, seed: u64) -> Vec<(u64, u64)> {
    let clock = ManualClock::at(sluicegate::Timestamp::from_micros(1_000_000_000_000));
    let limiter = Limiter::builder().limits([limit]).clock(clock.clone()).build().unwrap();
    let (mut dice, mut waiting, mut starts) = (Dice(seed), Vec::new(), Vec::new());
    for _ in 0..400 {
        match dice.below(10) {
            0..4 => {
                let cost = 1 + dice.below(2);
                let mut one = acquire(limiter.of("alice").cost(cost).within(4 * SECOND));
                match one.poll() {
                    std::task::Poll::Pending => waiting.push((cost, one)),
                    std::task::Poll::Ready(Ok(_)) => starts.push((limiter.now().as_micros(), cost)),
                    std::task::Poll::Ready(Err(_)) => {}
                }
            }
            4..6 if !waiting.is_empty() => {
                let place = dice.below(waiting.len() as u64);
                drop(waiting.remove(usize::try_from(place).unwrap()));
            }
            _ => clock.advance(Duration::from_micros(dice.below(700_000))),
        }
        waiting.retain_mut(|(cost, one)| {
            if one.is_woken() {
                assert!(one.done().is_ok(), "who is woken has its turn");
                starts.push((limiter.now().as_micros(), *cost));
                return false;
            }
            true
        });
    }
    starts
}

#[test]
fn never_more_than_the_limit_pass_whoever_gives_up() {
    for (kind, limit) in every_turn().into_iter().enumerate() {
        for seed in 1..40 {
            let starts = starts_at_random(limit.clone(), seed);
            assert!(starts.len() > 10, "limit {kind}, seed {seed}: {}", starts.len());
            // Late is not more: who is polled late was booked for earlier. So look at all that passed until then.
            for (from, (begin, _)) in starts.iter().enumerate() {
                let mut passed = 0;
                for (at, cost) in &starts[from..] {
                    passed += cost;
                    // The clock is moved in jumps of up to 0.7 s, and all turns in one come at its end.
                    let elapsed = at - begin + 700_000;
                    let most = match limit.algorithm() {
                        "token_bucket" => 3 + 2 + 2 * elapsed / 1_000_000,
                        "leaky_bucket" => 2 + 3 * elapsed / 1_000_000,
                        "smooth_bursty" | "warm_up" => 3 + 3 + 3 * elapsed / 1_000_000,
                        "sliding_log" => 3 * (1 + elapsed / 1_000_000),
                        _ => 3 * (2 + elapsed / 1_000_000),
                    };
                    assert!(passed <= most, "limit {kind}, seed {seed}: {passed} in {elapsed} us");
                }
            }
        }
    }
}

#[test]
fn turns_of_a_queue_are_one_span_apart_whoever_gives_up() {
    let clock = ManualClock::new();
    let limiter = limiter(LeakyBucket::per_second(1).queue(80), &clock);
    let mut dice = Dice(7);
    let mut all: Vec<Booking> = (0..40).map(|_| limiter.of("alice").book().unwrap()).collect();
    for _ in 0..30 {
        let place = usize::try_from(dice.below(all.len() as u64)).unwrap();
        drop(all.remove(place));
        all.push(limiter.of("alice").book().unwrap());
    }
    let mut turns: Vec<Duration> = all.iter().map(Booking::wait_time).collect();
    turns.sort();
    assert!(turns.windows(2).all(|two| two[1] - two[0] >= SECOND), "{turns:?}");
}

// === giving up ===

/// What guards do, next to the operations that they stand for.
#[test]
fn guards_give_back_exactly_what_the_core_says() {
    for (kind, limit) in every_turn().into_iter().enumerate() {
        for seed in 1..30 {
            let clock = ManualClock::new();
            let twin = || {
                let builder = Limiter::builder().limits([limit.clone()]);
                builder.clock(clock.clone()).build().unwrap()
            };
            let (guards, ops) = (twin(), twin());
            let mut dice = Dice(seed);
            let mut booked: Vec<(Booking, Holder)> = Vec::new();
            for step in 0..120 {
                let holder = Holder(step);
                match dice.below(8) {
                    0..3 => {
                        let cost = dice.below(3);
                        let patience = Duration::from_secs(dice.below(5));
                        let ask = guards.of("alice").cost(cost).within(patience);
                        let patience = Span::from_micros(patience.as_micros() as u64);
                        let op = Op::Acquire { cost, max_wait: patience, holder: Some(holder) };
                        let said = ops.of("alice").ask(op).unwrap().verdict;
                        match ask.book() {
                            Ok(booking) => {
                                assert_eq!(*booking.verdict(), said);
                                booked.push((booking, holder));
                            }
                            Err(denied) => assert_eq!(denied, Denied::NotNow(said)),
                        }
                    }
                    3..5 if !booked.is_empty() => {
                        let place = usize::try_from(dice.below(booked.len() as u64)).unwrap();
                        let (booking, holder) = booked.remove(place);
                        let due = booking.wait_time().is_zero();
                        drop(booking);
                        let answer = ops.of("alice").ask(Op::Cancel { holder });
                        if due && let Ok(answer) = answer {
                            assert_eq!(answer.returned, Some(0), "its turn had come");
                        }
                    }
                    5 => assert_eq!(guards.hit("alice"), ops.hit("alice")),
                    6 => booked.retain_mut(|(booking, _)| !booking.wait_time().is_zero()),
                    _ => clock.advance(Duration::from_micros(dice.below(800_000))),
                }
                let (one, other) = (guards.of("alice").peek(), ops.of("alice").peek());
                assert_eq!(one, other, "limit {kind}, seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn who_gives_up_before_the_turn_gives_it_back() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    limiter.hit("alice");
    for _ in 0..5 {
        let mut gone = acquire(limiter.of("alice"));
        assert!(gone.waits());
        clock.advance(MICRO);
    }
    assert!(limiter.of("alice").book().unwrap().wait_time() < SECOND, "nobody is before it");
}

#[test]
fn who_gives_up_after_the_turn_gives_nothing_back() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    limiter.hit("alice");
    let mut late = acquire(limiter.of("alice"));
    assert!(late.waits());
    clock.advance(SECOND);
    drop(late);
    assert_eq!(limiter.of("alice").peek().remaining, Some(0));

    let at_once = limiter.of("bob").book().unwrap();
    drop(at_once);
    assert_eq!(limiter.of("bob").peek().remaining, Some(0), "its turn was there from the start");
}

#[test]
fn a_turn_that_was_used_is_not_given_back() {
    let clock = ManualClock::new();
    let limiter = limiter(FixedWindow::per_minute(2), &clock);
    assert!(acquire(limiter.of("alice")).done().is_ok());
    assert!(limiter.of("alice").acquire_blocking().is_ok());
    assert_eq!(limiter.of("alice").peek().remaining, Some(0));
}

#[test]
fn a_future_that_was_never_polled_has_booked_nothing() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    let never = acquire(limiter.of("alice"));
    assert_eq!(limiter.of("alice").peek().remaining, Some(1));
    drop(never);
    assert_eq!(limiter.of("alice").peek().remaining, Some(1));
}

// === patience ===

#[test]
fn a_wait_that_is_too_long_is_denied_at_once_and_books_nothing() {
    for (kind, limit) in every_turn().into_iter().enumerate() {
        for (taken, cost) in [(3, 1), (5, 2), (8, 1), (9, 3)] {
            let clock = ManualClock::new();
            let limiter =
                Limiter::builder().limits([limit.clone()]).clock(clock.clone()).build().unwrap();
            let booked: Vec<_> = (0..taken).map(|_| limiter.of("alice").book().unwrap()).collect();
            let before = limiter.of("alice").peek();
            let ask = limiter.of("alice").cost(cost).within(SECOND / 2);
            let Err(denied) = ask.book() else { continue };
            assert_eq!(limiter.of("alice").peek(), before, "nothing is booked");
            let Some(after) = denied.retry_after() else { continue };
            clock.advance(Duration::from_micros(after.as_micros()) - MICRO);
            assert!(ask.book().is_err(), "limit {kind}: not a moment earlier");
            clock.advance(MICRO);
            let booking = ask.book().unwrap();
            assert!(booking.wait_time() <= SECOND / 2, "limit {kind}: within what was acceptable");
            drop(booked);
        }
    }
}

#[test]
fn what_can_never_pass_is_not_waited_for() {
    let clock = ManualClock::new();
    let limiter = limiter(SlidingLog::per_second(3), &clock);
    let denied = limiter.of("alice").cost(4).acquire_blocking().unwrap_err();
    assert_eq!(denied.retry_after(), None);
    let Denied::NotNow(verdict) = denied else { panic!() };
    assert_eq!(verdict.outcome, Outcome::Never { max_cost: 3 });
}

// === jitter ===

#[test]
fn jitter_stays_within_its_bound_and_never_starts_before_the_turn() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    let keys: Vec<String> = (0..200).map(|user| format!("user:{user}")).collect();
    let most = Duration::from_millis(10);
    let mut all: Vec<_> = keys
        .iter()
        .map(|key| {
            limiter.hit(key);
            acquire(limiter.of(key).jitter(most))
        })
        .collect();
    let mut ready = |by: Duration| {
        clock.advance(by);
        all.retain_mut(|one| one.waits());
        200 - all.len()
    };
    assert_eq!(ready(Duration::ZERO), 0);
    assert_eq!(ready(SECOND - MICRO), 0, "before the turn");
    let half = ready(MICRO + most / 2);
    assert!(0 < half && half < 200, "{half} of 200 in the first half");
    assert_eq!(ready(most / 2), 200, "the bound");
}

#[test]
fn who_gives_up_while_it_waits_a_little_longer_gives_nothing_back() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    limiter.hit("alice");
    let mut late = acquire(limiter.of("alice").jitter(3600 * SECOND));
    assert!(late.waits());
    clock.advance(SECOND);
    assert!(late.waits());
    drop(late);
    assert_eq!(limiter.of("alice").peek().remaining, Some(0));
}

// === threads ===

#[test]
fn those_who_block_come_in_the_order_they_asked() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    limiter.hit("alice");
    let (sender, started) = mpsc::channel();
    std::thread::scope(|scope| {
        for place in 0..4 {
            let (sender, limiter) = (sender.clone(), &limiter);
            scope.spawn(move || {
                limiter.of("alice").acquire_blocking().unwrap();
                sender.send(place).unwrap();
            });
            until_they_sleep(&clock, place + 1);
        }
        for place in 0..4 {
            clock.advance(SECOND - MICRO);
            assert_eq!(clock.sleepers(), 4 - place, "not a moment too early");
            clock.advance(MICRO);
            assert_eq!(started.recv(), Ok(place));
            assert!(started.try_recv().is_err(), "one at a time");
        }
    });
}

// === one task, several turns ===

#[test]
fn a_task_that_waits_for_two_turns_is_woken_for_the_first() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    limiter.hit("alice");
    let (first, second) =
        (limiter.of("alice").book().unwrap(), limiter.of("alice").book().unwrap());
    let mut both = Polled::new(async {
        tokio::select! {
            _ = first.wait() => "first",
            _ = second.wait() => "second",
        }
    });
    assert!(both.waits() && both.waits());
    assert_eq!(clock.sleepers(), 2);
    clock.advance(SECOND);
    assert!(both.is_woken());
    assert_eq!(both.done(), "first");
}

#[tokio::test(flavor = "current_thread")]
async fn tasks_wait_for_their_turns_side_by_side() {
    let clock = ManualClock::new();
    let limiter = one_a_second(&clock);
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.of("alice").acquire().await.unwrap();
                limiter.now()
            })
        })
        .collect();
    let begin = clock_now(&clock);
    while clock.sleepers() < 9 {
        tokio::task::yield_now().await;
    }
    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await.unwrap().since(begin));
        clock.advance(SECOND);
    }
    let expected: Vec<Span> = (0..10).map(Span::from_secs).collect();
    assert_eq!(turns, expected);
}

fn clock_now(clock: &ManualClock) -> sluicegate::Timestamp {
    sluicegate::clock::Clock::now(clock)
}

// === nothing is left behind ===

#[test]
fn twenty_thousand_turns_in_a_row_leave_no_more_than_one() {
    let (clock, memory) = (ManualClock::new(), Memory::new());
    let limiter = limiter_in(&memory, TokenBucket::per_second(1).burst(1), &clock);
    let file = std::env::temp_dir().join(format!("sluicegate-turns-{}", std::process::id()));
    let mut bytes = Vec::new();
    for turn in 0..20_000 {
        let mut one = acquire(limiter.of("alice"));
        if turn > 0 {
            assert!(one.waits());
            clock.advance(SECOND);
        }
        assert!(one.done().is_ok());
        assert_eq!(memory.entries(), 1);
        if turn % 10_000 == 1 {
            bytes.push(memory.save(&file).unwrap().bytes);
        }
    }
    bytes.push(memory.save(&file).unwrap().bytes);
    std::fs::remove_file(&file).unwrap();
    assert!(bytes.iter().all(|size| *size == bytes[0]), "{bytes:?}");
    clock.advance(SECOND);
    limiter.sweep();
    assert_eq!(memory.entries(), 0);
}

#[test]
fn nothing_is_left_behind_whoever_gave_up() {
    for limit in every_turn() {
        let (clock, memory) = (ManualClock::new(), Memory::new());
        let build = || {
            let builder = Limiter::builder().limits([limit.clone()]).memory(&memory);
            builder.clock(clock.clone()).build().unwrap()
        };
        let limiter = build();
        let keys: Vec<String> = (0..20).map(|user| format!("user:{user}")).collect();
        let (mut dice, mut waiting) = (Dice(11), Vec::new());
        for _ in 0..2_000 {
            let key = &keys[usize::try_from(dice.below(20)).unwrap()];
            match dice.below(4) {
                0 => waiting.push(acquire(limiter.of(key).within(5 * SECOND))),
                1 if !waiting.is_empty() => {
                    let place = usize::try_from(dice.below(waiting.len() as u64)).unwrap();
                    drop(waiting.swap_remove(place));
                }
                2 => waiting.retain_mut(|one| one.waits()),
                _ => clock.advance(Duration::from_micros(dice.below(300_000))),
            }
        }
        drop(waiting);
        clock.advance(2 * DAY);
        limiter.sweep();
        assert_eq!(memory.entries(), 0, "{}", limit.algorithm());
        let fresh = build();
        for _ in 0..6 {
            assert_eq!(limiter.hit("user:3"), fresh.hit("user:3"));
        }
    }
}
