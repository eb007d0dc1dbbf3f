//! The fast and the slow path return the same verdicts and leave the same states.

use std::time::Duration;

use proptest::prelude::*;

use sluicegate_core::op::Op;

use super::{DAY, NOON, SECOND, World, at, limit, who};
use crate::limit::{
    Concurrency, Cycle, FixedWindow, LeakyBucket, Refill, Rounding, SlidingLog, SlidingWindow,
    SmoothBursty, TokenBucket, Unlimited, WarmUp,
};
use crate::memory::tests::cases;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit;
use sluicegate_core::time::Span;
use sluicegate_rules::limit::LimitConfig;

fn tally(max: u64, period: Span) -> LimitConfig {
    LimitConfig::fixed(None, Limit::Tally(Tally::new(max, period).unwrap()))
}

/// Limits whose hits take the fast path, always or sometimes.
fn short_limits() -> Vec<LimitConfig> {
    let ten = Duration::from_secs(10);
    vec![
        limit(TokenBucket::per_second(5).burst(2)),
        limit(TokenBucket::per_second(3).burst(9)),
        limit(TokenBucket::per_minute(7)),
        limit(TokenBucket::per_day(1_234_567).burst(40)),
        limit(TokenBucket::per_second(3_000_000).burst(10)),
        limit(TokenBucket::per(4, ten).burst(4).refill(Refill::Interval)),
        limit(TokenBucket::per(4, ten).burst(4).refill(Refill::Aligned)),
        limit(TokenBucket::per(4, ten).burst(9).refill(Refill::Interval)),
        limit(LeakyBucket::per_second(10).queue(3)),
        limit(LeakyBucket::per_second(3).queue(0)),
        limit(FixedWindow::per(5, ten)),
        limit(FixedWindow::per(100_000, Duration::from_micros(1_500))),
        limit(FixedWindow::per_day(20_000_000_000)),
        limit(FixedWindow::per(5, ten).from_first_hit()),
        limit(FixedWindow::per(20_000, ten).from_first_hit()),
        limit(FixedWindow::per_day(5).in_zone("Europe/Berlin")),
        limit(FixedWindow::per_week(6).in_zone("Asia/Kathmandu")),
        limit(FixedWindow::per_month(5).in_zone("America/Sao_Paulo")),
        limit(SlidingWindow::per_minute(7)),
        limit(SlidingWindow::per(7, Duration::from_micros(1_500)).rounding(Rounding::Up)),
        limit(SlidingWindow::per_minute(500_000)),
        limit(SlidingWindow::per(7, Duration::from_secs(10)).slices(5)),
        limit(Cycle::of(5).every(ten)),
        limit(Unlimited),
        limit(Concurrency::at_most(3)),
        tally(5, Span::from_secs(10)),
        tally(9, Span::from_secs(86_400)),
        // At microsecond resolution a word has few bits for a count.
        tally(100_000, Span::from_micros(1_500)),
        tally(u64::from(u32::MAX), Span::from_secs(1)),
        tally(0, Span::from_secs(60)),
    ]
}

/// Includes limits whose state a denial changes: it is logged, or it starts the state.
fn all_limits() -> Vec<LimitConfig> {
    let more = [
        limit(TokenBucket::per_second(5).burst(10).initial(3)),
        limit(SmoothBursty::per_second(5)),
        limit(WarmUp::per_second(5).over(Duration::from_secs(4))),
        limit(SlidingLog::per(5, Duration::from_secs(10))),
        limit(SlidingLog::per_minute(10).and_per(2, Duration::from_secs(3))),
        limit(SlidingLog::per_minute(9).min_gap(Duration::from_millis(200))),
        limit(SlidingLog::per(3, Duration::from_secs(10)).count_denied()),
    ];
    short_limits().into_iter().chain(more).collect()
}

/// Time steps; sometimes to the boundary of a calendar day.
fn step() -> impl Strategy<Value = i64> {
    let (second, day) = (SECOND as i64, DAY as i64);
    prop_oneof![
        6 => Just(0i64),
        6 => 0..second / 3,
        6 => 0..20 * second,
        2 => (0..80i64).prop_map(move |hours| hours * day / 24),
        1 => 0..60 * day,
    ]
}

fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(1u64), 4 => 0..12u64, 1 => 0..30_000u64, 1 => 0..1u64 << 53]
}

/// One limit half of the time: it has more paths.
fn plan(of: Vec<LimitConfig>) -> impl Strategy<Value = Vec<LimitConfig>> {
    let max = prop::sample::select(vec![1, 1, 1, 2, 3, 4]);
    (max, prop::collection::vec(prop::sample::select(of), 4)).prop_map(|(max, mut limits)| {
        limits.truncate(max);
        limits
    })
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(NOON), 0..DAY, 0..1u64 << 51]
}

/// Whether both worlds return the same verdicts to all identities at `now`.
fn same(one: &World, other: &World, all: [u64; 3], now: u64) -> Result<(), TestCaseError> {
    for (hash, cost) in all.into_iter().flat_map(|hash| [(hash, 0), (hash, 1), (hash, 4)]) {
        prop_assert_eq!(one.peek(hash, cost, now), other.peek(hash, cost, now));
    }
    one.audit();
    other.audit();
    Ok(())
}

const LATER: [u64; 8] = [0, 1, SECOND / 3, SECOND, 9 * SECOND, 61 * SECOND, DAY, 40 * DAY];

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn both_ways_lead_to_the_same_answers_and_states(
        limits in plan(all_limits()),
        start in start(),
        turns in prop::collection::vec((step(), 0..3usize, cost()), 1..80),
    ) {
        let (short, long) = (World::roomy(limits.clone()), World::roomy(limits));
        // They collide.
        let all = [who(7, 0), who(7, 1), who(7, 2)];
        let mut now = start;
        for (step, number, cost) in turns {
            now += step as u64;
            let hash = all[number];
            prop_assert_eq!(short.hit(hash, cost, now), long.hit_long(hash, cost, now));
            same(&short, &long, all, now)?;
        }
        for later in LATER {
            same(&short, &long, all, now + later)?;
        }
    }
}

#[test]
fn what_a_tally_denies_is_counted_on_every_way() {
    let minute = Span::from_secs(60);
    let plans = [
        vec![tally(10, minute)],
        vec![limit(TokenBucket::per_day(100)), tally(10, minute)],
        vec![limit(SlidingLog::per_hour(100)), tally(10, minute)],
    ];
    for limits in plans {
        let world = World::roomy(limits);
        assert!(world.hit(who(1, 1), 8, NOON).is_allowed());
        assert!(!world.hit(who(1, 1), 5, NOON).is_allowed(), "13");
        assert!(!world.hit(who(1, 1), 2, NOON).is_allowed(), "and not 10, but 15");
        assert!(!world.hit(who(1, 1), 11, NOON).is_allowed(), "never, and counted");
        assert!(!world.hit(who(1, 1), 0, NOON).is_allowed(), "beyond the limit");
        world.ask(who(1, 1), Op::Refund { cost: 16 }, NOON).unwrap();
        assert!(world.hit(who(1, 1), 0, NOON).is_allowed(), "at the limit");
        assert!(!world.hit(who(1, 1), 1, NOON).is_allowed());
        let next = world.hit(who(1, 1), 10, NOON + 60 * SECOND);
        assert_eq!((next.is_allowed(), next.remaining), (true, Some(0)), "nothing is carried over");
        world.audit();
    }
}

#[test]
fn a_tally_counts_what_another_limit_denies() {
    let limits = vec![tally(5, Span::from_secs(60)), limit(FixedWindow::per_day(2))];
    let world = World::roomy(limits);
    for passes in [true, true, false, false] {
        assert_eq!(world.hit(who(1, 1), 1, NOON).is_allowed(), passes);
    }
    // The first has counted four of five; the second two of two, two of which are refunded.
    world.ask(who(1, 1), Op::Refund { cost: 2 }, NOON).unwrap();
    assert_eq!(world.hit(who(1, 1), 2, NOON).remaining, Some(0));
    assert_eq!(world.hit(who(1, 1), 2, NOON).decided_by, Some(1), "a day is longer");
}

#[test]
fn a_plan_of_more_than_four_limits_goes_the_long_way() {
    let five = (1..=5).map(|n| limit(FixedWindow::per_day(10 + n))).collect();
    let world = World::roomy(five);
    for left in (0..11).rev() {
        assert_eq!(world.hit(who(1, 1), 1, NOON).remaining, Some(left));
    }
    assert!(!world.hit(who(1, 1), 1, NOON).is_allowed());
    assert_eq!(world.audit().used, 5);
}

#[test]
fn a_life_that_is_over_begins_anew_with_a_denial() {
    // The expiry of a whole state is in seconds, so it may stay up to one second longer.
    let world = World::roomy(vec![limit(TokenBucket::per_second(5).burst(10).initial(3))]);
    assert!(world.hit(who(1, 1), 1, NOON + 1).is_allowed());
    assert!(!world.hit(who(1, 1), 4, NOON + 1 + DAY).is_allowed(), "three to begin with");
    assert!(world.hit(who(1, 1), 4, NOON + 1 + DAY + SECOND / 5).is_allowed(), "one more since");
}

#[test]
fn a_clock_that_was_set_back_takes_nothing_from_who_did_not_ask_meanwhile() {
    let kinds = [
        limit(FixedWindow::per_day(5).in_zone("Europe/Berlin")),
        limit(TokenBucket::per_day(5)),
        // ShardUsage whole.
        limit(SlidingLog::per(5, Duration::from_secs(86_400))),
    ];
    let turns = [(NOON - 40 * DAY, false), (NOON - 40 * DAY, true), (0, false), (0, true)];
    for (kind, (back, looks)) in kinds.iter().flat_map(|kind| turns.map(|turn| (kind, turn))) {
        let world = World::roomy(vec![kind.clone()]);
        assert!(world.hit(who(1, 1), 5, NOON).is_allowed());
        if looks {
            world.peek(who(1, 2), 1, back);
        }
        world.hit(who(1, 2), 1, back);
        assert!(!world.hit(who(1, 1), 1, NOON).is_allowed(), "the day is used up");
        world.shards.sweep(at(NOON + DAY));
        assert_eq!(world.audit().used, 0, "and it is over when it would have been");
    }
}

#[test]
fn a_peek_into_the_future_leaves_no_trace() {
    let world = World::roomy(vec![limit(FixedWindow::per_day(1))]);
    assert!(world.hit(who(1, 1), 1, NOON).is_allowed());
    assert!(world.peek(who(1, 1), 1, NOON + 2 * DAY).is_allowed(), "the day after tomorrow");
    assert!(world.hit(who(1, 1), 0, NOON + 2 * DAY).is_allowed());
    assert!(!world.peek(who(1, 1), 1, NOON).is_allowed(), "and still not today");
}

#[test]
fn a_look_at_a_distant_time_leaves_no_trace() {
    let long_ago = [0, NOON - 400 * DAY, NOON - 2 * DAY];
    let far_ahead = [NOON + 9 * 365 * DAY, NOON + 40 * 365 * DAY, 1 << 52];
    for then in long_ago.into_iter().chain(far_ahead) {
        let world = World::roomy(vec![limit(FixedWindow::per_day(1))]);
        assert!(world.hit(who(1, 1), 1, NOON).is_allowed());
        for looks in [who(1, 1), who(1, 2)] {
            let _ = world.peek(looks, 1, then);
            let _ = world.hit(looks, 0, then);
        }
        assert!(!world.peek(who(1, 1), 1, NOON).is_allowed(), "after a look at {then}");
        assert_eq!(world.audit().used, 1);
    }
}

#[test]
fn time_is_cut_at_the_latest_moment_that_can_be_named() {
    let latest = (1 << 52) - 1;
    let world = World::roomy(vec![limit(TokenBucket::per_second(1))]);
    for later in [0, 1, DAY, 400 * DAY] {
        let (one, other, now) = (who(1, later), who(2, later), latest + later);
        assert!(world.hit(one, 1, now).is_allowed());
        assert!(!world.hit(one, 1, now).is_allowed(), "{later} too late");
        assert!(world.hit_long(other, 1, now).is_allowed());
        assert!(!world.hit_long(other, 1, now).is_allowed(), "{later} too late");
        world.shards.sweep(at(now));
        assert!(!world.hit(one, 1, now).is_allowed(), "{later} too late");
    }
}
