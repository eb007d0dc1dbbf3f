//! Counters of Envoy's form in the memory store: the core's answers, whatever is asked, and no hit lost between threads.
//!
//! What a tally denies is counted, and what others deny too. So here, unlike elsewhere, a denial has to be
//! written down on every way through the store.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, Cycle, FixedWindow, IntoLimit, LeakyBucket, SlidingLog, SlidingWindow,
    SmoothBursty, TokenBucket, Unlimited,
};
use sluicegate::{
    Answer, CarryOver, Holder, Limiter, Mode, Op, Refusal, Span, Timestamp, Together,
};
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_rules::limit::{LimitConfig, continued};

/// The same cases every time, and others with `PROPTEST_CASES`.
fn cases(at_least: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..ProptestConfig::default()
    }
}

fn tally(most: u64, period: Span) -> LimitConfig {
    LimitConfig::fixed(None, Limit::Tally(Tally::new(most, period).unwrap()))
}

fn tallies() -> Vec<LimitConfig> {
    vec![
        tally(5, Span::from_secs(10)),
        tally(3, Span::from_secs(1)),
        tally(0, Span::from_secs(60)),
        // Both outgrow the eight bytes of a lane, one by its time and one by its count.
        tally(100_000, Span::from_micros(1_500)),
        tally((1 << 53) - 1, Span::from_secs(10)),
        tally(u64::from(u32::MAX), Span::from_secs(86_400)),
    ]
}

fn others() -> Vec<LimitConfig> {
    let ten = Duration::from_secs(10);
    let all = [
        TokenBucket::per_second(5).burst(2).into_limit(),
        TokenBucket::per_second(3).burst(9).into_limit(),
        TokenBucket::per_second(5).burst(10).initial(3).into_limit(),
        LeakyBucket::per_second(10).queue(3).into_limit(),
        FixedWindow::per(5, ten).into_limit(),
        FixedWindow::per(5, ten).from_first_hit().into_limit(),
        SlidingLog::per(3, ten).count_denied().into_limit(),
        SlidingWindow::per_minute(7).into_limit(),
        SmoothBursty::per_second(5).into_limit(),
        Cycle::of(5).every(ten).into_limit(),
        Concurrency::at_most(3).into_limit(),
        Unlimited.into_limit(),
    ];
    all.into_iter().map(Result::unwrap).collect()
}

/// A tally or two, alone or among others, anywhere.
fn plan() -> impl Strategy<Value = Vec<LimitConfig>> {
    let tallies = prop::collection::vec(prop::sample::select(tallies()), 1..3);
    let others = prop::collection::vec(prop::sample::select(others()), 0..3);
    (tallies, others).prop_flat_map(|(mut tallies, others)| {
        tallies.extend(others);
        Just(tallies).prop_shuffle()
    })
}

fn op() -> impl Strategy<Value = Op> {
    let cost = prop_oneof![6 => Just(1u64), 3 => 0..12u64, 1 => 0..30_000u64, 1 => 0..1u64 << 53];
    (0u8..24, cost, 0u64..4).prop_map(|(kind, cost, id)| match kind {
        0..12 => Op::Hit { cost, holder: None },
        12..14 => Op::Hit { cost, holder: Some(Holder(id)) },
        14..16 => Op::Peek { cost },
        16 => Op::Take { cost },
        17 => Op::Charge { cost },
        18..20 => Op::Refund { cost },
        20 => Op::Drain,
        21 => Op::Reset,
        22 => Op::Cancel { holder: Holder(id) },
        _ => Op::Reserve { cost, ttl: Span::from_secs(5), holder: Holder(id) },
    })
}

fn on() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0u64), 6 => 0..200_000u64, 6 => 0..20_000_000u64, 1 => 0..200_000_000_000u64]
}

fn some_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![4 => Just(Mode::Hard), 1 => Just(Mode::Soft { percent: 50 }), 1 => Just(Mode::Shadow)]
}

fn steps(limits: &[LimitConfig], mode: Mode, now: Timestamp) -> Option<Vec<EnforcedLimit>> {
    limits.iter().map(|limit| EnforcedLimit::new(limit.at(now), mode).ok()).collect()
}

/// As callers ask: a hit by the way of hits.
fn ask(limiter: &Limiter, key: &str, op: Op, slots: bool) -> Result<Answer, Refusal> {
    match op {
        Op::Hit { cost, holder: None } if !slots => Ok(limiter.of(key).cost(cost).hit().into()),
        op => limiter.of(key).ask(op),
    }
}

fn has_slots(limits: &[LimitConfig]) -> bool {
    limits.iter().any(|limit| limit.algorithm() == "concurrency")
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn memory_counts_what_is_denied_as_the_core_does(
        (old, new) in (plan(), plan()),
        mode in some_mode(),
        start in prop_oneof![0..20_000_000u64, 1_790_000_000_000_000..1_800_000_000_000_000u64],
        turns in prop::collection::vec((on(), 0..3usize, op()), 1..60),
        changed in 0..60usize,
        keep in prop::sample::select(vec![CarryOver::Used, CarryOver::Remaining, CarryOver::Proportion, CarryOver::Nothing]),
    ) {
        let (Some(_), Some(_)) =
            (steps(&old, mode, Timestamp::EPOCH), steps(&new, mode, Timestamp::EPOCH)) else {
            // A smooth limiter is not soft.
            return Ok(());
        };
        let clock = ManualClock::at(Timestamp::EPOCH);
        let builder = Limiter::builder().limits(old.clone()).mode(mode).clock(clock.clone());
        let limiter = builder.build().unwrap();
        let mut accounts: HashMap<usize, Account> = HashMap::new();
        let mut limits = old;
        let mut now = start;
        for (place, (step, who, op)) in turns.into_iter().enumerate() {
            now += step;
            let at = Timestamp::from_micros(now);
            clock.set(at);
            if place == changed {
                limiter.set_limits(new.clone(), keep).unwrap();
                let from = continued(&new, &limits);
                let (before, after) = (steps(&limits, mode, at).unwrap(), steps(&new, mode, at).unwrap());
                for account in accounts.values_mut() {
                    account.change(&before, &after, &from, keep, at);
                }
                limits.clone_from(&new);
            }
            let said = ask(&limiter, ["a", "b", "c"][who], op, has_slots(&limits));
            let plan = steps(&limits, mode, at).unwrap();
            let due = accounts.entry(who).or_default().apply(&plan, op, Moment::at(at));
            prop_assert_eq!(said, due, "{:?} at {} under {:?}", op, now, limits);
        }
    }
}

// === threads ===

const THREADS: u64 = 8;

fn in_threads(each: impl Fn() -> u64 + Sync) -> u64 {
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| sum.fetch_add(each(), Ordering::Relaxed));
        }
    });
    sum.into_inner()
}

#[test]
fn a_hot_key_passes_as_often_as_its_tally_says_and_every_hit_is_counted() {
    let clock = ManualClock::new();
    let build = |limits: Vec<LimitConfig>| {
        Limiter::builder().limits(limits).clock(clock.clone()).build().unwrap()
    };
    let day = Span::from_secs(86_400);
    let bucket = TokenBucket::per_day(300).into_limit().unwrap();
    for (limits, passes) in [(vec![tally(500, day)], 500), (vec![bucket, tally(500, day)], 300)] {
        let limiter = build(limits);
        let hits = || (0..100).filter(|_| limiter.hit("hot").is_allowed()).count() as u64;
        assert_eq!(in_threads(hits), passes);
        // 800 came: one more than 300 given back is what it takes to be within 500 again.
        limiter.of("hot").cost(299).refund().unwrap();
        assert!(!limiter.of("hot").cost(0).hit().is_allowed(), "501");
        limiter.of("hot").cost(1).refund().unwrap();
        assert!(limiter.of("hot").cost(0).hit().is_allowed(), "500");
    }
}

#[test]
fn of_several_limiters_the_tally_counts_whatever_the_others_say() {
    let clock = ManualClock::new();
    let build =
        |limit: LimitConfig| Limiter::builder().limit(limit).clock(clock.clone()).build().unwrap();
    let counted = build(tally(500, Span::from_secs(86_400)));
    let charged = build(FixedWindow::per_day(200).into_limit().unwrap());
    let request = Together::new().and(&charged, "one").and(&counted, "two");
    let hits = || (0..50).filter(|_| request.hit().is_allowed()).count() as u64;
    assert_eq!(in_threads(hits), 200);
    assert_eq!(counted.of("two").peek().remaining, Some(100), "all 400");
    assert_eq!(charged.of("one").peek().remaining, Some(0), "no more than 200");
}
