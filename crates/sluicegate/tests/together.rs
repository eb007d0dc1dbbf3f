//! Several limiters, one decision: all or nothing.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, FixedWindow, IntoLimit, LeakyBucket, SlidingLog, TokenBucket,
};
use sluicegate::{
    GateLevels, Limiter, Memory, Mode, Op, Outcome, Overflow, Refusal, Span, Together,
};
use sluicegate_core::algorithm::concurrency::Holder;
use support::{DAY, Dice, SECOND, every_turn, limiter};

fn left(limiter: &Limiter, key: &str) -> i64 {
    limiter.of(key).peek().remaining.unwrap()
}

fn full(limit: impl IntoLimit, overflow: Overflow, clock: &ManualClock) -> Limiter {
    let builder = Limiter::builder().limit(limit).clock(clock.clone());
    builder.memory(&Memory::with_entries(0)).overflow(overflow).build().unwrap()
}

#[test]
fn whoever_says_no_nobody_is_charged() {
    let clock = ManualClock::new();
    let all: Vec<Limiter> = every_turn()
        .into_iter()
        .map(|limit| Limiter::builder().limits([limit]).clock(clock.clone()).build().unwrap())
        .collect();
    for strict in 0..all.len() {
        let key = format!("request {strict}");
        // Whatever is asked of it, it has nothing left.
        all[strict].of(&key).cost(40).charge().unwrap();
        let request = all.iter().fold(Together::new(), |request, one| request.and(one, &key));
        let before: Vec<_> = all.iter().map(|one| one.of(&key).peek()).collect();
        let verdict = request.hit();
        assert!(!verdict.is_allowed());
        assert_eq!(verdict.decided_by, Some(strict), "{:?}", request.policies()[strict]);
        let after: Vec<_> = all.iter().map(|one| one.of(&key).peek()).collect();
        assert_eq!(before, after);
    }
}

#[test]
fn what_they_say_together_is_what_one_limiter_with_all_limits_says() {
    let clock = ManualClock::new();
    let limits = || {
        [
            TokenBucket::per_second(3).burst(5).into_limit().unwrap(),
            SlidingLog::per_second(4).into_limit().unwrap(),
            FixedWindow::per_minute(40).into_limit().unwrap(),
            Concurrency::at_most(9).lease(2 * SECOND).into_limit().unwrap(),
        ]
    };
    let one = Limiter::builder().limits(limits()).clock(clock.clone()).build().unwrap();
    let apart = limits().map(|limit| limiter_of(limit, &clock));
    let mut dice = Dice(3);
    for step in 0..2_000 {
        clock.advance(std::time::Duration::from_micros(dice.below(300_000)));
        let cost = dice.below(4);
        let request = apart.iter().fold(Together::new(), |all, limiter| all.and(limiter, "alice"));
        let request = request.cost(cost);
        assert_eq!(request.peek(), one.of("alice").cost(cost).peek(), "step {step}");
        assert_eq!(request.hit(), one.of("alice").cost(cost).hit(), "step {step}");
    }
}

fn limiter_of(limit: sluicegate_rules::limit::LimitConfig, clock: &ManualClock) -> Limiter {
    Limiter::builder().limits([limit]).clock(clock.clone()).build().unwrap()
}

#[test]
fn an_identity_that_is_named_twice_is_charged_once() {
    let clock = ManualClock::new();
    let bucket = limiter(TokenBucket::per_minute(10), &clock);
    let slots = limiter(Concurrency::at_most(2), &clock);
    let same = bucket.clone();
    let request = Together::new()
        .and(&bucket, "alice")
        .and(&slots, "alice")
        .and(&bucket, "alice")
        .and(&slots, "alice")
        .and(&same, "bob");
    assert!(request.hit().is_allowed());
    assert_eq!((left(&bucket, "alice"), left(&bucket, "bob")), (9, 9));
    assert_eq!(left(&slots, "alice"), 1);
    bucket.of("bob").cost(9).hit();
    assert_eq!(request.hit().decided_by, Some(4), "the place among all who were named");
}

#[test]
fn a_slot_that_was_taken_together_is_held_until_its_lease_ends() {
    let clock = ManualClock::new();
    let slots = limiter(Concurrency::at_most(1).lease(5 * SECOND), &clock);
    let bucket = limiter(TokenBucket::per_minute(10), &clock);
    let request = Together::new().and(&slots, "alice").and(&bucket, "alice");
    assert!(request.hit().is_allowed());
    assert_eq!(request.hit().outcome, Outcome::Deny { retry_after: Span::from_secs(5) });
    clock.advance(5 * SECOND);
    assert!(request.hit().is_allowed());
}

#[test]
fn nobody_asked_is_nobody_against_it() {
    assert!(Together::new().hit().is_allowed());
    assert_eq!(Together::new().peek().remaining, None);
    assert_eq!(
        Together::new().ask(Op::Commit { cost: 1, holder: Holder(1) }),
        Err(Refusal::UnknownHolder)
    );
}

#[test]
fn a_refused_operation_touches_nobody() {
    let clock = ManualClock::new();
    let (bucket, slots) =
        (limiter(TokenBucket::per_minute(10), &clock), limiter(Concurrency::at_most(1), &clock));
    let request = Together::new().and(&bucket, "alice").and(&slots, "alice");
    assert!(matches!(request.ask(Op::Charge { cost: 3 }), Err(Refusal::Unsupported { .. })));
    let op = Op::Hit { cost: 1, holder: None };
    assert_eq!(request.ask(op), Err(Refusal::NeedsHolder));
    assert_eq!((left(&bucket, "alice"), left(&slots, "alice")), (10, 1));
}

#[test]
fn what_is_booked_and_reserved_together_is_settled_together() {
    let clock = ManualClock::new();
    let queue = limiter(LeakyBucket::per_second(1).queue(5), &clock);
    let window = limiter(FixedWindow::per_hour(10), &clock);
    let request = Together::new().and(&queue, "alice").and(&window, "alice");
    queue.hit("alice");
    let holder = Some(Holder(1));
    let op = Op::Acquire { cost: 1, max_wait: Span::from_secs(9), holder };
    let wait = Span::from_secs(1);
    assert_eq!(request.ask(op).unwrap().verdict.outcome, Outcome::Allow { wait });
    assert_eq!(left(&window, "alice"), 9);
    assert_eq!(request.ask(Op::Cancel { holder: Holder(1) }).unwrap().returned, Some(1));
    assert_eq!(left(&window, "alice"), 10);

    let op = Op::Reserve { cost: 3, ttl: Span::from_secs(60), holder: Holder(2) };
    assert!(request.ask(op).unwrap().verdict.is_allowed());
    request.ask(Op::Commit { cost: 1, holder: Holder(2) }).unwrap();
    assert_eq!(left(&window, "alice"), 9);
}

#[test]
fn the_time_is_that_of_the_first_clock_unless_told() {
    let (early, late) = (ManualClock::new(), ManualClock::new());
    late.advance(DAY);
    let (one, two) =
        (limiter(FixedWindow::per_hour(1), &early), limiter(FixedWindow::per_hour(1), &late));
    let request = Together::new().and(&one, "alice").and(&two, "alice");
    assert!(request.hit().is_allowed());
    assert!(!request.hit().is_allowed());
    assert!(two.hit("alice").is_allowed(), "a day later, by its own clock");
    let request = request.at(two.now());
    assert!(!request.hit().is_allowed(), "the second has had its hit in this hour");
    assert_eq!(request.at(two.now().after(Span::from_secs(3600))).hit().decided_by, Some(0));
}

// === gates ===

#[test]
fn each_limiter_has_a_gate_of_its_own() {
    let clock = ManualClock::new();
    let elastic = || {
        let gate = GateLevels::new(700, 850).unwrap();
        Limiter::builder()
            .limit(FixedWindow::per_hour(2))
            .mode(Mode::Elastic { up_to: 2_000, gate })
            .clock(clock.clone())
            .build()
            .unwrap()
    };
    let (open, closed) = (elastic(), elastic());
    open.set_load(100);
    closed.set_load(900);
    let on = |limiter| Together::new().and(limiter, "alice").cost(3).peek();
    assert!(on(&open).is_allowed() && !on(&closed).is_allowed());
    let request = Together::new().and(&open, "alice").and(&closed, "alice");
    assert!(request.hit().is_allowed() && request.hit().is_allowed());
    let denied = request.hit();
    assert_eq!((denied.is_allowed(), denied.decided_by), (false, Some(1)));
    assert!(open.hit("alice").elastic, "its own gate is open");
    clock.advance(10 * SECOND);
    assert!(!open.hit("alice").is_allowed(), "a signal 10 s old is no signal");
}

// === no room ===

#[test]
fn who_has_no_room_answers_by_its_own_policy() {
    let clock = ManualClock::new();
    let known = limiter(FixedWindow::per_hour(5), &clock);
    let per_hour = || FixedWindow::per_hour(2);
    let shared = full(per_hour(), Overflow::Shared, &clock);
    let deny = full(per_hour(), Overflow::Deny, &clock);
    let allow = full(per_hour(), Overflow::Allow, &clock);

    let request = Together::new().and(&known, "alice").and(&allow, "alice").and(&shared, "alice");
    let passed: Vec<bool> = (0..4).map(|_| request.hit().is_allowed()).collect();
    assert_eq!(passed, [true, true, false, false], "the shared identity has two");
    assert_eq!(left(&known, "alice"), 3, "charged for those that passed");
    assert_eq!(request.hit().decided_by, Some(2));

    let request = request.and(&deny, "alice");
    let request_alone = Together::new().and(&known, "bob").and(&deny, "bob");
    for denied in [request.hit(), request_alone.hit()] {
        assert_eq!(denied.outcome, Outcome::Deny { retry_after: Span::from_secs(1) });
    }
    assert_eq!((left(&known, "alice"), left(&known, "bob")), (3, 5));

    assert!((0..9).all(|_| Together::new().and(&allow, "alice").hit().is_allowed()));
}

#[test]
fn two_newcomers_who_share_an_identity_are_charged_once() {
    let clock = ManualClock::new();
    let shared = full(TokenBucket::per_hour(9), Overflow::Shared, &clock);
    let request = Together::new().and(&shared, "alice").and(&shared, "bob");
    assert_eq!(request.hit().remaining, Some(8));
}

#[test]
fn one_place_for_two_is_given_to_neither_unless_both_pass() {
    let clock = ManualClock::new();
    let memory = Memory::with_entries(1);
    let build = |count| {
        let builder = Limiter::builder().limit(FixedWindow::per_hour(count)).memory(&memory);
        builder.clock(clock.clone()).overflow(Overflow::Deny).build().unwrap()
    };
    let (one, two) = (build(5), build(5));
    assert!(!Together::new().and(&one, "alice").and(&two, "alice").hit().is_allowed());
    assert_eq!(memory.entries(), 0, "what was set aside is given up");
    assert!(Together::new().and(&one, "alice").hit().is_allowed());
}

// === many ===

#[test]
fn however_many_there_are_all_are_heard() {
    const MANY: usize = 40;
    let clock = ManualClock::new();
    let all: Vec<Limiter> = (0..MANY).map(|_| limiter(FixedWindow::per_hour(2), &clock)).collect();
    let request = all.iter().fold(Together::new(), |request, one| request.and(one, "alice"));
    all[MANY - 1].of("alice").cost(2).hit();
    assert_eq!(request.hit().decided_by, Some(MANY - 1));
    assert!(all[..MANY - 1].iter().all(|one| left(one, "alice") == 2));
    all[MANY - 1].of("alice").reset().unwrap();
    assert!(request.hit().is_allowed());
    assert!(all.iter().all(|one| left(one, "alice") == 1));
}

#[test]
fn threads_that_name_the_same_in_another_order_do_not_block_each_other() {
    let clock = ManualClock::new();
    let (one, two) =
        (limiter(FixedWindow::per_hour(900), &clock), limiter(TokenBucket::per_hour(700), &clock));
    let passed = std::thread::scope(|scope| {
        let forth = scope.spawn(|| {
            let request = Together::new().and(&one, "alice").and(&two, "alice");
            (0..500).filter(|_| request.hit().is_allowed()).count()
        });
        let back = scope.spawn(|| {
            let request = Together::new().and(&two, "alice").and(&one, "alice");
            (0..500).filter(|_| request.hit().is_allowed()).count()
        });
        forth.join().unwrap() + back.join().unwrap()
    });
    assert_eq!(passed, 700);
    assert_eq!((left(&one, "alice"), left(&two, "alice")), (200, 0));
}
