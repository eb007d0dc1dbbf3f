//! Never above the bound, in any span, for the moments at which admitted costs are used.
//!
//! A hit is used when it is admitted, a booking at its turn (`now + wait`), a cancelled booking not at
//! all (see `cancelling`). Each bound is checked by brute force over all pairs of uses, in exact fractions.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use support::limits::{
    bucket, calendar, counter, cycle, leaky, log, slots, stepped, window, window_from_first_hit,
};
use support::uses::{Uses, dripped, in_every_span, per_period};
use support::{Fraction, HOUR, World, acquire, cancel, cases, hit, hit_as, step, us};

/// A caller: when (after the one before), at what cost, how patient; `None` does not wait.
type Callers = Vec<(u64, u64, Option<u64>)>;

fn callers(longest_pause: u64) -> impl Strategy<Value = Callers> {
    let max_wait = prop_oneof![Just(None), (0..6 * longest_pause).prop_map(Some)];
    let pause = prop_oneof![Just(0), 0..longest_pause / 4 + 1, 0..longest_pause];
    prop::collection::vec((pause, 1u64..6, max_wait), 1..40)
}

/// Lets them all in, in order of time, and says what was used when.
fn uses_of(world: &mut World, callers: &Callers) -> Uses {
    let mut now = 1_000;
    let mut uses = Uses::new();
    for &(pause, cost, max_wait) in callers {
        now += pause;
        let op = max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait));
        let decision = world.ask(op, now);
        if decision.allowed() {
            uses.push((now + decision.wait(), cost));
        }
    }
    uses.sort_unstable();
    uses
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_greedy_bucket_passes_at_most_its_burst_and_what_drips_in_any_span(
        n in 1u64..9, p in 1u64..50, burst in 1u64..9, callers in callers(40),
    ) {
        let hits = callers.into_iter().map(|(pause, cost, _)| (pause, cost, None)).collect();
        let uses = uses_of(&mut World::hard(bucket(n, p, burst)), &hits);
        in_every_span(&uses, |from, to, used| dripped(n, p, burst, to - from, used))?;
    }

    #[test]
    fn a_greedy_bucket_keeps_its_bound_when_time_jumps_about(
        n in 1u64..9, p in 1u64..50, burst in 1u64..9,
        hits in prop::collection::vec((0u64..200, 1u64..6), 1..60),
    ) {
        let mut world = World::hard(bucket(n, p, burst));
        // A cost above the burst leaves nothing behind, not even the memory of its time.
        let hits = hits.into_iter().filter(|&(_, cost)| cost <= burst);
        let passed = hits.filter(|&(now, cost)| world.allows(hit(cost), now));
        let uses = passed.collect();
        in_every_span(&uses, |from, to, used| dripped(n, p, burst, to - from, used))?;
    }

    #[test]
    fn bookings_of_a_greedy_bucket_add_less_than_what_drips_in_a_microsecond(
        n in 1u64..9, p in 1u64..50, burst in 1u64..9, callers in callers(40),
    ) {
        // A turn is rounded up to a whole microsecond, and what drips meanwhile is not lost: that is the
        // price of not drifting, and all that a booking can add.
        let uses = uses_of(&mut World::hard(bucket(n, p, burst)), &callers);
        in_every_span(&uses, |from, to, used| {
            let drips = Fraction::new(i128::from(to - from + 1) * i128::from(n), p.into());
            !drips.plus(Fraction::whole(burst.into())).at_most(Fraction::whole(used.into()))
        })?;
    }

    #[test]
    fn an_aligned_bucket_passes_its_burst_and_one_refill_per_boundary(
        n in 1u64..7, p in 1u64..30, burst in 1u64..9, callers in callers(40),
    ) {
        let uses = uses_of(&mut World::hard(stepped(n, p, burst, Refill::Aligned)), &callers);
        // A boundary at the very start of the span came before its first use.
        in_every_span(&uses, |from, to, used| used <= burst + n * (to / p - from / p))?;
    }

    #[test]
    fn an_interval_bucket_passes_its_burst_and_one_refill_per_period_begun(
        n in 1u64..7, p in 1u64..30, burst in 1u64..9, callers in callers(40),
    ) {
        let uses = uses_of(&mut World::hard(stepped(n, p, burst, Refill::Interval)), &callers);
        // Wherever the periods begin, a span cannot hold more boundaries than this.
        in_every_span(&uses, |from, to, used| used <= burst + n * (to - from).div_ceil(p))?;
    }

    #[test]
    fn a_fixed_window_never_holds_more_than_its_number(
        n in 1u64..7, p in 1u64..30, callers in callers(40),
    ) {
        let uses = uses_of(&mut World::hard(window(n, p)), &callers);
        for (index, used) in per_period(&uses, p) {
            prop_assert!(used <= n, "{} in window {}", used, index);
        }
    }

    #[test]
    fn windows_from_the_first_hit_hold_no_more_than_twice_in_any_span_as_long_as_one(
        n in 1u64..7, p in 1u64..30, callers in callers(40),
    ) {
        let uses = uses_of(&mut World::hard(window_from_first_hit(n, p)), &callers);
        // Windows do not overlap, so a span meets at most one more of them than it is long.
        in_every_span(&uses, |from, to, used| used <= n * ((to - from).div_ceil(p) + 1))?;
        // And the first one begins with the first hit.
        let first = uses.first().map_or(0, |first| first.0);
        let in_first = uses.iter().filter(|(moment, _)| *moment < first + p);
        prop_assert!(in_first.map(|(_, cost)| cost).sum::<u64>() <= n);
    }

    #[test]
    fn a_calendar_day_never_holds_more_than_its_number_however_long_it_is(
        count in 1u64..6,
        (spring, autumn) in (0usize..30, 0usize..30),
        callers in callers(40),
    ) {
        // One day of 23 hours and one of 25, as a year has them.
        let mut edges = vec![0u64];
        for day in 0..60 {
            let hours = 24 + u64::from(day == autumn) - u64::from(day == spring);
            edges.push(edges[day] + hours * HOUR);
        }
        let mut world = World::of(Vec::new());
        let mut per_day = BTreeMap::new();
        let mut now = edges[1];
        for (pause, cost, max_wait) in callers {
            now += pause * HOUR / 2;
            let day = edges.partition_point(|&edge| edge <= now);
            if day >= 30 {
                break;
            }
            let starts = [day - 2, day - 1, day, day + 1].map(|i| edges[i]);
            world.plan = vec![step(calendar(count, starts, 25 * HOUR), Mode::Hard)];
            let op = max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait * HOUR));
            let decision = world.ask(op, now);
            if decision.allowed() {
                let used_in = edges.partition_point(|&edge| edge <= now + decision.wait());
                *per_day.entry(used_in).or_insert(0) += cost;
            }
        }
        // A booking beyond the boundaries at hand is promised late, never early; within them it is exact.
        prop_assert!(per_day.values().all(|&used| used <= count), "{:?}", per_day);
    }

    #[test]
    fn no_rolling_window_of_a_log_ever_holds_more_than_its_number(
        windows in prop::collection::vec((1u64..6, 1u64..40), 1..4), callers in callers(30),
    ) {
        let uses = uses_of(&mut World::hard(Limit::SlidingLog(log(&windows))), &callers);
        for (max, length) in windows {
            in_every_span(&uses, |from, to, used| to - from >= length || used <= max)?;
        }
    }

    #[test]
    fn no_two_hits_of_a_log_are_closer_than_its_gap(
        n in 1u64..6, p in 1u64..40, gap in 1u64..20, callers in callers(20),
    ) {
        let limit = log(&[(n, p)]).with_min_gap(us(gap));
        let uses = uses_of(&mut World::hard(Limit::SlidingLog(limit)), &callers);
        prop_assert!(uses.windows(2).all(|two| two[1].0 - two[0].0 >= gap), "{:?}", uses);
    }

    #[test]
    fn a_leaky_bucket_lets_out_one_interval_apart_and_holds_no_more_than_its_queue(
        n in 1u64..7, p in 1u64..40, queue in 0u64..6, callers in callers(30),
    ) {
        let mut world = World::hard(leaky(n, p, queue));
        let mut now = 1_000;
        let mut uses = Uses::new();
        for (pause, cost, max_wait) in callers {
            now += pause;
            let op = max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait));
            let decision = world.ask(op, now);
            if decision.allowed() {
                uses.push((now + decision.wait(), cost));
            }
            // Those whose outflow has not ended: each takes cost × interval from its slot on.
            let interval = Fraction::new(p.into(), n.into());
            let begun = uses.iter().filter(|(slot, _)| *slot > now).map(|(_, cost)| cost);
            prop_assert!(begun.sum::<u64>() <= queue + 1, "{:?} at {}", uses, now);
            // Between any two, those before the later one have flowed out, exactly.
            for (i, &(from, _)) in uses.iter().enumerate() {
                for j in i + 1..uses.len() {
                    let between: u64 = uses[i..j].iter().map(|(_, cost)| cost).sum();
                    // A slot is its exact moment rounded up, so two lie apart by their time less at most
                    // the rounding of the first.
                    let apart = Fraction::whole((uses[j].0 - from + 1).into());
                    prop_assert!(!apart.at_most(interval.times(between.into())), "{:?}", uses);
                }
            }
        }
    }

    #[test]
    fn a_cycle_passes_its_permits_per_cycle_and_less_than_one_straddling_cost(
        n in 1u64..7, p in 1u64..30, callers in callers(40),
    ) {
        let uses = uses_of(&mut World::hard(cycle(n, p)), &callers);
        let dearest = uses.iter().map(|(_, cost)| *cost).max().unwrap_or(1);
        in_every_span(&uses, |from, to, used| used < n * (to / p - from / p + 1) + dearest)?;
    }

    #[test]
    fn a_cycle_of_hits_passes_its_permits_per_cycle(
        n in 1u64..7, p in 1u64..30, callers in callers(40),
    ) {
        let hits = callers.into_iter().map(|(pause, cost, _)| (pause, cost, None)).collect();
        let uses = uses_of(&mut World::hard(cycle(n, p)), &hits);
        prop_assert!(per_period(&uses, p).values().all(|&used| used <= n));
    }

    #[test]
    fn a_sliding_counter_never_passes_more_than_its_number_in_a_clock_window(
        n in 1u64..9, p in 1u64..30, up in any::<bool>(), callers in callers(30),
    ) {
        let rounding = if up { Rounding::Up } else { Rounding::Floor };
        let uses = uses_of(&mut World::hard(counter(n, p, rounding)), &callers);
        prop_assert!(per_period(&uses, p).values().all(|&used| used <= n), "{:?}", uses);
        // Rounded down, the estimate may forget a previous window that is almost over; never more.
        let max = if up { 2 * n - 1 } else { 2 * n };
        in_every_span(&uses, |from, to, used| to - from >= p || used <= max)?;
    }

    #[test]
    fn never_more_slots_are_held_than_there_are(
        max in 1u64..6, lease in 1u64..30,
        calls in prop::collection::vec((0u64..8, 1u64..4, 0u64..12, any::<bool>()), 1..60),
    ) {
        let mut world = World::hard(slots(max, lease));
        let mut live: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut now = 0;
        for (pause, cost, id, done) in calls {
            now += pause;
            live.retain(|_, &mut (_, until)| until > now);
            if done {
                assert_eq!(world.answer(cancel(id), now).is_ok(), live.remove(&id).is_some());
            } else if world.allows(hit_as(cost, id), now) {
                let held = live.entry(id).or_insert((cost, 0));
                held.1 = now + lease;
            }
            prop_assert!(live.values().map(|l| l.0).sum::<u64>() <= max);
        }
    }
}
