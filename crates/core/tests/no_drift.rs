//! Nothing drifts: over any long run, exactly what the rate says, to the unit.
//!
//! A client that comes back after exactly `retry_after` gets all there is; so the number admitted up to a
//! moment is what the exact formula says, for rates whose interval is not whole and for numbers near the
//! edge of what is held exactly.

mod support;

use support::limits::{bucket, leaky, smooth, stepped, warm_up, window};
use support::{DAY, SECOND, World, acquire, hit};

const YEAR: u64 = 365 * DAY;
/// A moment in our century that is no boundary of anything.
const START: u64 = 1_700_000_000_123_457;

/// Hits one at a time from `from` on, coming back when told; how many passed before `until`.
fn hammered(world: &mut World, from: u64, until: u64) -> u64 {
    let (mut now, mut passed) = (from, 0);
    while now < until {
        let decision = world.ask(hit(1), now);
        match decision.retry_after() {
            Some(retry) => now += retry,
            None => passed += 1,
        }
    }
    passed
}

#[test]
fn three_a_second_is_exactly_three_a_second_for_a_million_seconds() {
    let mut world = World::hard(bucket(3, SECOND, 2));
    assert!(world.allows(hit(2), START));
    // The last third of the last second has come at the end itself.
    let end = START + 1_000_000 * SECOND;
    assert_eq!(hammered(&mut world, START, end), 3_000_000 - 1);
    assert_eq!(hammered(&mut world, end, end + 1), 1);
}

#[test]
fn a_bucket_of_one_token_loses_only_what_its_clock_cannot_show() {
    // A full bucket gains nothing: from a third of a microsecond to the next whole one it is full. No
    // client that sees whole microseconds can be faster, and none is slower.
    let mut world = World::hard(bucket(3, SECOND, 1));
    let mut now = START;
    for _ in 0..1_000 {
        assert!(world.allows(hit(1), now));
        assert_eq!(world.would(hit(1), now).retry_after(), Some(333_334));
        now += 333_334;
    }
}

#[test]
fn three_a_second_is_exactly_three_million_over_a_million_seconds_in_big_steps() {
    let mut world = World::hard(bucket(3, SECOND, 1_000));
    assert!(world.allows(hit(1_000), START));
    let mut passed = 0;
    // Steps that are no multiple of anything: what is left over must be carried.
    let (mut now, end) = (START, START + 1_000_000 * SECOND);
    while now < end {
        now = (now + 77_777_777).min(end);
        let taken = world.ask(sluicegate_core::op::Op::Take { cost: 1_000 }, now).taken;
        passed += taken.expect("a take says what it took");
    }
    assert_eq!(passed, 3_000_000);
}

#[test]
fn bookings_at_three_a_second_meet_every_third_second_to_the_microsecond() {
    for limit in [bucket(3, SECOND, 1), smooth(3, SECOND, 0), leaky(3, SECOND, 1_000_000)] {
        let mut world = World::hard(limit);
        for booked in 0..100_000u64 {
            let decision = world.ask(acquire(1, YEAR), START);
            // Rounded up on its own, not on top of the one before.
            assert_eq!(decision.wait(), (booked * SECOND).div_ceil(3), "{limit:?}");
        }
    }
}

#[test]
fn a_day_of_one_two_three_four_five_six_seven_is_exactly_that_day_after_day() {
    let per_day = 1_234_567;
    let mut world = World::hard(bucket(per_day, DAY, per_day));
    assert!(world.allows(hit(per_day), START));
    let mut passed = 0;
    let mut now = START;
    // Hours less a bit, so that days are not met but at the end.
    while now < START + 30 * DAY {
        now = (now + 3_599_999_917).min(START + 30 * DAY);
        let taken = world.ask(sluicegate_core::op::Op::Take { cost: per_day }, now).taken;
        passed += taken.expect("a take says what it took");
        let exact = u128::from(now - START) * u128::from(per_day) / u128::from(DAY);
        assert_eq!(u128::from(passed), exact, "at {now}");
    }
    assert_eq!(passed, 30 * per_day);
}

#[test]
fn one_at_a_time_a_day_is_met_to_the_microsecond() {
    let per_day = 1_234_567;
    let mut world = World::hard(bucket(per_day, DAY, 2));
    assert!(world.allows(hit(2), START));
    let mut now = START;
    for admitted in 1..100_000u64 {
        let due = (u128::from(admitted) * u128::from(DAY)).div_ceil(u128::from(per_day)) as u64;
        if let Some(retry) = world.would(hit(1), now).retry_after() {
            now += retry;
        }
        assert_eq!(now, START + due);
        assert!(world.allows(hit(1), now));
    }
}

#[test]
fn a_budget_of_a_trillion_a_year_is_exact_in_a_bucket_and_a_window() {
    let budget = 1_000_000_000_000;
    let mut world = World::hard(bucket(budget, YEAR, budget));
    assert!(world.allows(hit(budget), START));
    for day in 1..=365u64 {
        let due = u128::from(budget) * u128::from(day) / 365
            - u128::from(budget) * u128::from(day - 1) / 365;
        let decision = world.ask(hit(due as u64), START + day * DAY);
        assert_eq!((decision.allowed(), decision.remaining), (true, Some(0)), "day {day}");
    }
    let mut world = World::hard(window(budget, YEAR));
    let year = START / YEAR * YEAR;
    for nth in 1..50 {
        let decision = world.ask(hit(budget), year + nth * YEAR);
        assert_eq!((decision.allowed(), decision.remaining), (true, Some(0)));
        let denied = world.ask(hit(1), year + nth * YEAR + 1);
        assert_eq!(denied.retry_after(), Some(YEAR - 1));
    }
}

#[test]
fn more_than_one_a_microsecond_is_exact_too() {
    // 7,000,003 per second: 7.000003 a microsecond.
    let per_second = 7_000_003;
    let mut world = World::hard(bucket(per_second, SECOND, per_second));
    assert!(world.allows(hit(per_second), START));
    let (mut passed, mut now) = (0u128, START);
    while now < START + 10 * SECOND {
        now += 313;
        let decision = world.ask(sluicegate_core::op::Op::Drain, now);
        passed += u128::from(decision.taken.expect("a drain says what it took"));
        assert_eq!(passed, u128::from(now - START) * u128::from(per_second) / u128::from(SECOND));
    }
    let denied = world.ask(hit(1), now);
    assert!(denied.retry_after().is_none_or(|retry| retry == 1));
}

#[test]
fn intervals_never_lose_a_period() {
    use sluicegate_core::algorithm::token_bucket::Refill;
    for refill in [Refill::Interval, Refill::Aligned] {
        let mut world = World::hard(stepped(3, SECOND, 3, refill));
        let start = START / SECOND * SECOND;
        assert_eq!(hammered(&mut world, start, start + 50_000 * SECOND), 150_000, "{refill:?}");
    }
}

#[test]
fn the_smooth_limiters_hold_their_stable_rate_over_a_long_run() {
    // Warmed up, the next is due exactly an interval after the one before, remainders carried.
    for limit in [
        smooth(3, SECOND, SECOND),
        warm_up(3, SECOND, 10 * SECOND, 3_000),
        warm_up(3, SECOND, 7 * SECOND, 2_345),
    ] {
        let mut world = World::hard(limit);
        let mut turn = START;
        for _ in 0..100 {
            turn = START + world.ask(acquire(1, YEAR), START).wait();
        }
        let warm = turn;
        for more in 1..=200_000u64 {
            let decision = world.ask(acquire(1, YEAR), START);
            turn = START + decision.wait();
            let due = more * SECOND;
            // `warm` itself was rounded up: within a microsecond, and never creeping.
            assert!((turn - warm).abs_diff(due.div_ceil(3)) <= 1, "{more} of {limit:?}");
        }
        assert_eq!((turn - warm) / SECOND, 66_666);
    }
}
