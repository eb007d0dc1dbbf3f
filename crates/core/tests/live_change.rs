//! Changing a limit live: amounts convert in units, rounded against the client by less than one.

mod support;

use proptest::prelude::*;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::op::Op;
use support::limits::{
    bucket, counter, cycle, leaky, log, slices, slots, small, smooth, stepped, warm_up, window,
    window_from_first_hit,
};
use support::{DAY, HOUR, SECOND, World, acquire, at, cases, hit, hit_as, peek};

const KEEPS: [CarryOver; 4] =
    [CarryOver::Used, CarryOver::Remaining, CarryOver::Proportion, CarryOver::Nothing];

/// A limit of each kind whose capacity is `size`.
fn sized(kind: u8, n: u64, p: u64, size: u64) -> Limit {
    match kind {
        0 => bucket(n, p, size),
        1 => stepped(n, p, size, Refill::Interval),
        2 => stepped(n, p, size, Refill::Aligned),
        3 => leaky(n, p, size - 1),
        4 => window(size, p),
        5 => window_from_first_hit(size, p),
        6 => Limit::SlidingLog(log(&[(size, p)])),
        // Windows that all of these numbers of slices divide.
        8 => slices(size, 12 * p, [2, 3, 4, 6][(n % 4) as usize]),
        _ => counter(size, p, if n.is_multiple_of(2) { Rounding::Floor } else { Rounding::Up }),
    }
}

/// Whether only the number changes here: a log and two counts count anew what a window of another length
/// holds.
fn same_period(kind: u8) -> bool {
    matches!(kind, 6..=8)
}

fn history() -> impl Strategy<Value = Vec<(u64, Op)>> {
    let op = (0u8..8, 1u64..5, 0u64..30).prop_map(|(kind, cost, max_wait)| match kind {
        0..5 => hit(cost),
        5..7 => acquire(cost, max_wait),
        _ => Op::Charge { cost },
    });
    prop::collection::vec((0u64..10, op), 0..10)
}

fn played(limit: Limit, history: &[(u64, Op)]) -> (World, u64) {
    let mut world = World::hard(limit);
    let mut now = 300;
    for (pause, op) in history {
        now += pause;
        world.ask(*op, now);
    }
    (world, now)
}

fn changed(world: &World, new: Limit, carry: CarryOver, now: u64) -> World {
    let mut changed = world.clone();
    let new = World::hard(new).plan;
    changed.account.change(&world.plan, &new, &[Some(0)], carry, at(now));
    changed.plan = new;
    changed
}

fn left(world: &World, now: u64) -> i64 {
    world.would(peek(1), now).remaining.expect("a number")
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn what_was_used_stays_used(
        kind in 0u8..9, (n, p) in (1u64..5, 1u64..20), (m, q) in (1u64..5, 1u64..20),
        (size, new_size) in (1u64..9, 1u64..9), history in history(), pause in 0u64..8,
    ) {
        let q = if same_period(kind) { p } else { q };
        // Another rounding of the same counts is another number; the counts are compared as they are.
        let m = if kind == 7 { n } else { m };
        let (world, now) = played(sized(kind, n, p, size), &history);
        let now = now + pause;
        let new = changed(&world, sized(kind, m, q, new_size), CarryOver::Used, now);
        let used = size as i64 - left(&world, now);
        prop_assert_eq!(left(&new, now), new_size as i64 - used);
    }

    #[test]
    fn what_is_left_stays_left_as_far_as_it_fits(
        kind in 0u8..9, (n, p) in (1u64..5, 1u64..20), (m, q) in (1u64..5, 1u64..20),
        (size, new_size) in (1u64..9, 1u64..9), history in history(), pause in 0u64..8,
    ) {
        let q = if same_period(kind) { p } else { q };
        // The rounding of the same counts: another is another number.
        let m = if kind == 7 { n } else { m };
        let (world, now) = played(sized(kind, n, p, size), &history);
        let now = now + pause;
        let new = changed(&world, sized(kind, m, q, new_size), CarryOver::Remaining, now);
        let (was, is) = (left(&world, now), left(&new, now));
        // As good as new stays as good as new.
        let full = world.would(peek(1), now).reset_after == 0;
        let due = if full { new_size as i64 } else { was.min(new_size as i64) };
        prop_assert!(is <= due, "{} left, was {}", is, was);
        // A window before that weighs less than a hit is not as good as none: what is left stays left.
        let less = kind == 7 && is == was.min(new_size as i64);
        prop_assert!(is == due || less, "{} left, was {}", is, was);
    }

    #[test]
    fn what_was_used_stays_the_same_part_of_the_whole(
        kind in prop_oneof![1u8..3, 4u8..6], p in 1u64..20, n in 1u64..5,
        (size, new_size) in (1u64..9, 1u64..9), history in history(), pause in 0u64..8,
    ) {
        // Limits that count in whole units: so does the part.
        let (world, now) = played(sized(kind, n, p, size), &history);
        let now = now + pause;
        let new = changed(&world, sized(kind, n, p, new_size), CarryOver::Proportion, now);
        let used = (size as i64 - left(&world, now)) as u64;
        prop_assert_eq!(left(&new, now), new_size as i64 - (used * new_size).div_ceil(size) as i64);
    }

    #[test]
    fn keeping_nothing_starts_everyone_anew(
        kind in 0u8..9, (n, p) in (1u64..5, 1u64..20), (m, q) in (1u64..5, 1u64..20),
        (size, new_size) in (1u64..9, 1u64..9), history in history(),
    ) {
        let (world, now) = played(sized(kind, n, p, size), &history);
        let limit = sized(kind, m, q, new_size);
        if limit == *world.plan[0].limit() {
            return Ok(());
        }
        let new = changed(&world, limit, CarryOver::Nothing, now);
        prop_assert_eq!(new.probe(now, 3), World::hard(limit).probe(now, 3));
    }

    #[test]
    fn a_change_to_the_same_limit_changes_nothing(
        limit in small(), history in history(), carry in 0usize..3, pause in 0u64..30,
    ) {
        let (world, now) = played(limit, &history);
        let same = changed(&world, limit, KEEPS[carry], now + pause);
        prop_assert_eq!(world.probe(now + pause, 1), same.probe(now + pause, 1));
        prop_assert_eq!(world.probe(now + pause, 9), same.probe(now + pause, 9));
    }

    #[test]
    fn there_and_back_never_gives_more_than_before(
        kind in 0u8..9, (n, p) in (1u64..5, 1u64..20), (m, q) in (1u64..5, 1u64..20),
        (size, new_size) in (1u64..9, 1u64..9), history in history(), pause in 0u64..8,
    ) {
        let q = if same_period(kind) { p } else { q };
        let (world, now) = played(sized(kind, n, p, size), &history);
        let now = now + pause;
        let there = changed(&world, sized(kind, m, q, new_size), CarryOver::Used, now);
        let back = changed(&there, sized(kind, n, p, size), CarryOver::Used, now);
        for step in 0..40 {
            let then = now + step;
            for cost in [1, 2, 4] {
                let (was, is) = (world.would(peek(cost), then), back.would(peek(cost), then));
                prop_assert!(was.allowed() || !is.allowed(), "{} at +{}", cost, step);
                prop_assert!(is.remaining <= was.remaining);
            }
        }
    }

    #[test]
    fn a_bucket_refilled_another_way_keeps_what_was_used(
        (from, to) in (0u8..3, 0u8..3), (n, p) in (1u64..5, 1u64..20), (m, q) in (1u64..5, 1u64..20),
        (size, new_size) in (1u64..9, 1u64..9), history in history(), pause in 0u64..8,
    ) {
        let (world, now) = played(sized(from, n, p, size), &history);
        let now = now + pause;
        let new = changed(&world, sized(to, m, q, new_size), CarryOver::Used, now);
        let used = size as i64 - left(&world, now);
        prop_assert_eq!(left(&new, now), new_size as i64 - used);
    }

    #[test]
    fn another_algorithm_starts_anew(
        (from, to) in (0u8..9, 0u8..9), n in 1u64..5, p in 1u64..20, size in 1u64..9, history in history(),
    ) {
        let (world, now) = played(sized(from, n, p, size), &history);
        let limit = sized(to, n, p, size);
        if limit.algorithm() != world.plan[0].limit().algorithm() {
            let new = changed(&world, limit, CarryOver::Used, now);
            prop_assert_eq!(new.probe(now, 3), World::hard(limit).probe(now, 3));
        }
    }

    #[test]
    fn a_cycle_changes_from_the_next_cycle_on(
        (size, new_size) in (1u64..9, 1u64..9), period in 1u64..30, pause in 0u64..60, used in 1u64..9,
    ) {
        let now = 300 + pause;
        let mut world = World::hard(cycle(size, period));
        world.ask(hit(used.min(size)), now);
        let new = changed(&world, cycle(new_size, period), CarryOver::Used, now);
        prop_assert_eq!(left(&new, now), left(&world, now));
        let next = (now / period + 1) * period;
        prop_assert_eq!(left(&new, next), new_size as i64);
        if next > now {
            prop_assert_eq!(left(&new, next - 1), left(&world, now));
        }
    }

    #[test]
    fn time_already_booked_stays_booked(
        smoothly in any::<bool>(), (n, p) in (1u64..5, 1u64..20), (m, q) in (1u64..5, 1u64..20),
        cost in 1u64..20, pause in 0u64..20,
    ) {
        let of = |n, p| if smoothly { smooth(n, p, 30) } else { warm_up(n, p, 30, 3_000) };
        let mut world = World::hard(of(n, p));
        world.ask(hit(cost), 300);
        let now = 300 + pause;
        let wait = world.would(acquire(1, 10_000), now).wait();
        let new = changed(&world, of(m, q), CarryOver::Used, now);
        prop_assert_eq!(new.would(acquire(1, 10_000), now).wait(), wait);
    }

    #[test]
    fn who_is_in_flight_stays_in_flight(
        (max, new_max) in (1u64..6, 1u64..6), lease in 1u64..30, held in 0u64..6, carry in 0usize..3,
    ) {
        let mut world = World::hard(slots(max, lease));
        let held = (0..held).filter(|&id| world.allows(hit_as(1, id), 300)).count() as i64;
        let new = changed(&world, slots(new_max, lease), KEEPS[carry], 300);
        prop_assert_eq!(left(&new, 300), new_max as i64 - held);
        prop_assert_eq!(left(&new, 300 + lease), new_max as i64);
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_period_that_began_with_a_hit_ends_a_new_period_after_it_or_after_the_change(
        n in 1u64..6, p in 1u64..40, q in 1u64..40, pause in 0u64..40,
    ) {
        // Whatever has passed of the old period was not a whole new one: what was used stays used.
        let mut world = World::hard(window_from_first_hit(n, p));
        world.ask(hit(n), 300);
        let now = 300 + pause.min(p - 1);
        let new = changed(&world, window_from_first_hit(n, q), CarryOver::Used, now);
        let began = if p != q && now >= 300 + q { now } else { 300 };
        prop_assert_eq!(new.would(hit(1), now).retry_after(), Some(began + q - now));
    }
}

#[test]
fn a_day_that_becomes_an_hour_does_not_end_two_hours_ago() {
    let then = 1_000 * DAY;
    let now = then + 2 * HOUR;
    let mut world = World::hard(window_from_first_hit(5, DAY));
    world.ask(hit(5), then);
    let new = changed(&world, window_from_first_hit(5, HOUR), CarryOver::Used, now);
    assert_eq!(new.would(hit(1), now).retry_after(), Some(HOUR), "five were used, five stay used");
}

#[test]
fn a_bucket_refilled_each_second_instead_of_each_day_is_not_refilled_for_the_seconds_gone_by() {
    let then = 1_000 * DAY;
    let now = then + HOUR;
    let mut world = World::hard(stepped(10, DAY, 100, Refill::Interval));
    world.ask(hit(100), then);
    let new = changed(&world, stepped(10, SECOND, 100, Refill::Interval), CarryOver::Used, now);
    assert_eq!(left(&new, now), 0);
    assert_eq!(left(&new, now + SECOND), 10);
}

#[test]
fn a_part_of_a_token_is_the_same_part_of_many() {
    // A tenth of one token is in use: so are ten of a hundred.
    let mut world = World::hard(bucket(1, 10, 1));
    world.ask(hit(1), 0);
    let new = changed(&world, bucket(1, 10, 100), CarryOver::Proportion, 9);
    assert_eq!(left(&new, 9), 90);
}

#[test]
fn what_a_sliding_counter_has_left_stays_left_though_its_previous_window_weighs_less() {
    // Of 80 hits in the window before, a tenth still weighs: 72 left, and all of 40 under the new number.
    let mut world = World::hard(counter(80, 100, Rounding::Floor));
    world.ask(hit(80), 1_000);
    assert_eq!(left(&world, 1_190), 72);
    let new = changed(&world, counter(40, 100, Rounding::Floor), CarryOver::Remaining, 1_190);
    assert_eq!(left(&new, 1_190), 40);
}

#[test]
fn usage_is_kept_between_the_limits_that_say_so() {
    let all = [
        bucket(1, 10, 5),
        stepped(1, 10, 5, Refill::Interval),
        leaky(1, 10, 4),
        window(5, 10),
        Limit::SlidingLog(log(&[(5, 10)])),
        counter(5, 10, Rounding::Up),
        slices(5, 10, 2),
        slices(5, 12, 6),
        slots(5, 10),
        cycle(5, 10),
        smooth(1, 10, 5),
        warm_up(5, 10, 3, 3_000),
        Limit::Closed,
        Limit::Unlimited,
    ];
    // A closed limit has only the usage of the one before it.
    for old in all.iter().filter(|old| **old != Limit::Closed) {
        for new in &all {
            // Its usage is stored permits, and a hit on a new one takes none.
            if old.algorithm() == "smooth_bursty" && *new == Limit::Closed {
                continue;
            }
            let mut world = World::hard(*old);
            world.ask(hit_as(1, 1), 300);
            // Nothing passes a closed limit, but usage is stored.
            if !matches!(old, Limit::Concurrency(_)) {
                world.ask(Op::Charge { cost: 2 }, 300);
            }
            let after = changed(&world, *new, CarryOver::Used, 300);
            let nothing = [State::New, State::Spent(0)];
            let is_kept = after.account.state(0).is_some_and(|state| !nothing.contains(state));
            // Nothing is stored for an unlimited one.
            let expected = new.keeps_usage_of(old) && *old != Limit::Unlimited;
            assert_eq!(is_kept, expected, "{} to {}", old.algorithm(), new.algorithm());
        }
    }
    let mut world = World::hard(window(5, 10));
    world.ask(hit(2), 300);
    let closed = changed(&world, Limit::Closed, CarryOver::Used, 300);
    let bucket = bucket(1, 10, 5);
    assert!(bucket.keeps_usage_of(&Limit::Closed) && Limit::Closed.keeps_usage_of(&window(5, 10)));
    assert_eq!(left(&changed(&closed, bucket, CarryOver::Used, 300), 300), 3);
}
