//! The worked examples of the mission, told as they are told there.

mod support;

use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::limit::Limit;
use support::limits::{bucket, counter, log, window};
use support::{DAY, HOUR, MINUTE, SECOND, World, hit, peek};

/// A moment of a day: `clock(2, 0, 30)` is 2:00:30.
fn clock(hours: u64, minutes: u64, seconds: u64) -> u64 {
    20_000 * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND
}

#[test]
fn a3_five_a_minute_can_pass_ten_around_an_edge() {
    let mut world = World::hard(window(5, MINUTE));
    let passed = |world: &mut World, from: u64| {
        let tries = (0..30).map(|i| from + i * SECOND);
        tries.filter(|&now| world.allows(hit(1), now)).count()
    };
    assert_eq!(passed(&mut world, clock(2, 0, 30)), 5, "up to 2:01:00");
    assert_eq!(passed(&mut world, clock(2, 1, 0)), 5, "up to 2:01:30");
}

#[test]
fn a3_the_denied_are_told_the_next_minute() {
    let mut world = World::hard(window(5, MINUTE));
    assert!(world.allows(hit(5), clock(2, 0, 59)));
    let denied = world.ask(hit(1), clock(2, 0, 59));
    assert_eq!(denied.retry_after(), Some(SECOND));
    assert_eq!(denied.remaining, Some(0));
}

#[test]
fn a4_hammering_keeps_you_out_when_denials_count() {
    let limit = log(&[(2, MINUTE)]).counting_denied().expect("a small log");
    let mut world = World::hard(Limit::SlidingLog(limit));
    assert!(world.allows(hit(1), clock(1, 0, 1)));
    assert!(world.allows(hit(1), clock(1, 0, 30)));
    let denied = world.ask(hit(1), clock(1, 0, 50));
    // The denied attempt is logged: 1:00:30 and 1:00:50 fill the window until 1:01:30.
    assert_eq!(denied.retry_after(), Some(40 * SECOND));
    assert!(world.allows(hit(1), clock(1, 1, 40)));
    // 1:00:50, though denied, still counts beside 1:01:40.
    assert!(!world.allows(hit(1), clock(1, 1, 45)));
}

#[test]
fn a4_without_counting_denials_the_same_caller_is_back_sooner() {
    let mut world = World::hard(Limit::SlidingLog(log(&[(2, MINUTE)])));
    assert!(world.allows(hit(1), clock(1, 0, 1)));
    assert!(world.allows(hit(1), clock(1, 0, 30)));
    let denied = world.ask(hit(1), clock(1, 0, 50));
    assert_eq!(denied.retry_after(), Some(11 * SECOND));
    assert!(!world.would(hit(1), clock(1, 1, 1) - 1).allowed());
    assert!(world.allows(hit(1), clock(1, 1, 1)), "an entry of age 60 s is gone");
}

#[test]
fn a4_one_log_serves_ten_a_minute_and_two_every_three_seconds() {
    let mut world = World::hard(Limit::SlidingLog(log(&[(10, MINUTE), (2, 3 * SECOND)])));
    let mut passed = Vec::new();
    for second in 0..60 {
        for _ in 0..3 {
            if world.allows(hit(1), clock(1, 0, second)) {
                passed.push(second);
            }
        }
    }
    assert_eq!(passed, [0, 0, 3, 3, 6, 6, 9, 9, 12, 12]);
}

#[test]
fn a5_six_and_a_half_of_seven_admits_one_more() {
    let mut world = World::hard(counter(7, MINUTE, Rounding::Floor));
    assert!(world.allows(hit(5), clock(3, 0, 10)));
    // 3 in the current minute, 30 % into it: 3 + 5 × 0.7 = 6.5.
    assert!(world.allows(hit(3), clock(3, 1, 18)));
    assert_eq!(world.would(peek(1), clock(3, 1, 18)).remaining, Some(1));
    assert!(world.allows(hit(1), clock(3, 1, 18)));
    assert!(!world.allows(hit(1), clock(3, 1, 18)));
}

#[test]
fn a5_the_strict_variant_counts_the_half_as_a_whole() {
    let mut world = World::hard(counter(7, MINUTE, Rounding::Up));
    assert!(world.allows(hit(5), clock(3, 0, 10)));
    assert!(world.allows(hit(3), clock(3, 1, 18)));
    let denied = world.ask(hit(1), clock(3, 1, 18));
    assert_eq!(denied.remaining, Some(0));
    // 3 + 5 × overlap <= 6 needs an overlap of 60 %: 24 seconds into the minute.
    assert_eq!(denied.retry_after(), Some(6 * SECOND));
}

#[test]
fn a1_several_buckets_on_one_identity_are_all_or_nothing() {
    let second = bucket(1, SECOND, 1);
    let day = bucket(150, DAY, 150);
    let plan = [second, day].map(|limit| support::step(limit, Default::default()));
    let mut world = World::of(plan.to_vec());
    assert!(world.allows(hit(1), clock(0, 0, 0)));
    for _ in 0..10 {
        assert!(!world.allows(hit(1), clock(0, 0, 0)), "the second is used up");
    }
    world.plan.remove(0);
    let mut alone = World::hard(day);
    assert!(alone.allows(hit(1), clock(0, 0, 0)));
    let (denied_beside, fresh) = (world.account.state(1), alone.account.state(0));
    assert_eq!(denied_beside, fresh, "ten denials took nothing from the day");
}
