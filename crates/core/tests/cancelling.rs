//! Cancelling a booking never lets more be used than the limit's bound, wherever in the queue it stood.
//!
//! Those booked after it keep the turns they were promised. What a cancel gives back must therefore be
//! usable by a newcomer *beside* all of them; where it would not be, nothing comes back. Each property
//! books and cancels at random and judges what remains by the moments of use, as `bounds` does.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use support::limits::{
    bucket, calendar, counter, cycle, leaky, log, smooth, stepped, warm_up, window,
    window_from_first_hit,
};
use support::uses::{Uses, dripped, in_every_span, per_period};
use support::{Fraction, World, acquire_as, cancel, cases, hit, peek, us};

/// Acquires, and now and then instead the cancelling of a pending one, counted from the last.
type Calls = Vec<(u64, u64, u64, Option<usize>)>;

fn calls() -> impl Strategy<Value = Calls> {
    let pause = prop_oneof![3 => Just(0), 3 => 0u64..4, 1 => 0u64..20];
    // The impatient are plain hits; the patient stand in long queues.
    let max_wait = prop_oneof![1 => Just(0), 3 => 0u64..40, 3 => Just(1_000)];
    let call = (pause, 1u64..6, max_wait, prop::option::weighted(0.35, 0usize..5));
    prop::collection::vec(call, 1..24)
}

const START: u64 = 1_000;

/// What is used when, less what was cancelled before its turn. Bookings that `may_book` does not like are
/// not made.
fn uses_if(world: &mut World, calls: &Calls, may_book: impl Fn(u64, u64) -> bool) -> Uses {
    let mut now = START;
    let mut uses: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (id, &(pause, cost, max_wait, victim)) in calls.iter().enumerate() {
        now += pause;
        let id = id as u64;
        let Some(victim) = victim else {
            let op = acquire_as(cost, max_wait, id);
            let decision = world.would(op, now);
            if decision.allowed() && may_book(now, now + decision.wait()) {
                world.ask(op, now);
                uses.insert(id, (now + decision.wait(), cost));
            }
            continue;
        };
        let pending = uses.iter().rev().filter(|(_, (turn, _))| *turn > now);
        if let Some(id) = pending.map(|(id, _)| *id).nth(victim) {
            world.ask(cancel(id), now);
            uses.remove(&id);
        }
    }
    let mut uses: Uses = uses.into_values().collect();
    uses.sort_unstable();
    uses
}

fn uses_of(limit: Limit, calls: &Calls) -> Uses {
    uses_if(&mut World::hard(limit), calls, |_, _| true)
}

/// Whether those before each use had their time by then, `stored` units being free. A turn is its exact
/// moment rounded up, so that two lie apart by their time less than a microsecond short of it.
fn spaced(uses: &Uses, (n, p): (u64, u64), stored: Fraction) -> Result<(), TestCaseError> {
    for (i, &(from, _)) in uses.iter().enumerate() {
        let mut before = 0;
        for two in uses[i..].windows(2) {
            before += two[0].1;
            let time = i128::from(two[1].0 - from + 1);
            let paid = Fraction::new(time * i128::from(n), p.into()).plus(stored);
            prop_assert!(!paid.at_most(Fraction::whole(before.into())), "{:?}", uses);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_greedy_bucket_passes_its_burst_and_what_drips(
        n in 1u64..5, p in 1u64..20, burst in 1u64..6, calls in calls(),
    ) {
        let uses = uses_of(bucket(n, p, burst), &calls);
        // Turns are whole microseconds: what drips in one may come on top.
        in_every_span(&uses, |from, to, used| dripped(n, p, burst, to - from + 1, used))?;
    }

    #[test]
    fn an_aligned_bucket_passes_its_burst_and_one_refill_per_boundary(
        n in 1u64..4, p in 1u64..12, burst in 1u64..6, calls in calls(),
    ) {
        let uses = uses_of(stepped(n, p, burst, Refill::Aligned), &calls);
        in_every_span(&uses, |from, to, used| used <= burst + n * (to / p - from / p))?;
    }

    #[test]
    fn an_interval_bucket_passes_its_burst_and_one_refill_per_period_begun(
        n in 1u64..4, p in 1u64..12, burst in 1u64..6, calls in calls(),
    ) {
        let uses = uses_of(stepped(n, p, burst, Refill::Interval), &calls);
        in_every_span(&uses, |from, to, used| used <= burst + n * (to - from).div_ceil(p))?;
    }

    #[test]
    fn a_fixed_window_holds_no_more_than_its_number(
        n in 1u64..6, p in 1u64..12, calls in calls(),
    ) {
        let uses = uses_of(window(n, p), &calls);
        prop_assert!(per_period(&uses, p).values().all(|&used| used <= n), "{:?}", uses);
    }

    #[test]
    fn a_calendar_window_holds_no_more_than_its_number(
        n in 1u64..6, lengths in prop::array::uniform3(2u64..30), calls in calls(),
    ) {
        let edges = lengths.iter().scan(START, |edge, length| {
            *edge += length;
            Some(*edge)
        });
        let edges: Vec<u64> = std::iter::once(START).chain(edges).collect();
        let starts = [edges[0], edges[1], edges[2], edges[3]];
        let mut world = World::hard(calendar(n, starts, 30));
        // Beyond the boundaries at hand the calendar is not known.
        let uses = uses_if(&mut world, &calls, |now, turn| now < edges[2] && turn < edges[3]);
        for bounds in edges.windows(2) {
            let inside = uses.iter().filter(|(at, _)| (bounds[0]..bounds[1]).contains(at));
            let used: u64 = inside.map(|(_, cost)| cost).sum();
            prop_assert!(used <= n, "{} in {:?}: {:?}", used, bounds, uses);
        }
    }

    #[test]
    fn windows_from_the_first_hit_hold_no_more_than_windows_can(
        n in 1u64..6, p in 1u64..12, calls in calls(),
    ) {
        let uses = uses_of(window_from_first_hit(n, p), &calls);
        in_every_span(&uses, |from, to, used| used <= n * ((to - from).div_ceil(p) + 1))?;
    }

    #[test]
    fn a_cycle_passes_its_permits_per_cycle_and_less_than_one_straddling_cost(
        n in 1u64..6, p in 1u64..12, calls in calls(),
    ) {
        let uses = uses_of(cycle(n, p), &calls);
        let dearest = uses.iter().map(|(_, cost)| *cost).max().unwrap_or(1);
        in_every_span(&uses, |from, to, used| used < n * (to / p - from / p + 1) + dearest)?;
    }

    #[test]
    fn a_place_cancelled_in_a_queue_is_nobody_elses(
        n in 1u64..5, p in 1u64..20, queue in 0u64..9, calls in calls(),
    ) {
        spaced(&uses_of(leaky(n, p, queue), &calls), (n, p), Fraction::whole(0))?;
    }

    #[test]
    fn a_bursty_limiter_passes_what_it_stored_and_what_its_rate_yields(
        n in 1u64..5, p in 1u64..20, max_burst in prop_oneof![Just(0), 0u64..40], calls in calls(),
    ) {
        let stored = Fraction::new(i128::from(max_burst) * i128::from(n), p.into());
        spaced(&uses_of(smooth(n, p, max_burst), &calls), (n, p), stored)?;
    }

    #[test]
    fn a_warming_up_limiter_is_never_faster_than_its_stable_rate(
        n in 1u64..5, p in 1u64..20, period in 1u64..60, cold in 1_000u64..9_000, calls in calls(),
    ) {
        // Stored permits cost the stable interval or more: nothing is free.
        spaced(&uses_of(warm_up(n, p, period, cold), &calls), (n, p), Fraction::whole(0))?;
    }

    #[test]
    fn no_rolling_window_of_a_log_holds_more_than_its_number(
        windows in prop::collection::vec((1u64..6, 1u64..25), 1..4), gap in 0u64..6, calls in calls(),
    ) {
        let limit = log(&windows).with_min_gap(us(gap));
        let uses = uses_of(Limit::SlidingLog(limit), &calls);
        for (max, length) in windows {
            in_every_span(&uses, |from, to, used| to - from >= length || used <= max)?;
        }
        prop_assert!(uses.windows(2).all(|two| two[1].0 - two[0].0 >= gap), "{:?}", uses);
    }

    #[test]
    fn a_sliding_counter_holds_no_more_than_its_number_in_a_clock_window(
        n in 1u64..6, p in 1u64..12, up in any::<bool>(), calls in calls(),
    ) {
        let limit = counter(n, p, if up { Rounding::Up } else { Rounding::Floor });
        let uses = uses_of(limit, &calls);
        prop_assert!(per_period(&uses, p).values().all(|&used| used <= n), "{:?}", uses);
    }

    #[test]
    fn a_cancelled_booking_of_a_sliding_counter_leaves_no_more_than_before(
        n in 1u64..6, p in 1u64..6, up in any::<bool>(),
        hits in prop::collection::vec((0u64..3, 1u64..6), 0..4), cost in 1u64..6, wait in 0u64..12,
    ) {
        // It may leave less: a booking further ahead than the next window moves the counts there.
        let mut before = World::hard(counter(n, p, if up { Rounding::Up } else { Rounding::Floor }));
        let mut now = START;
        for (pause, cost) in hits {
            now += pause;
            before.ask(hit(cost), now);
        }
        let mut after = before.clone();
        let decision = after.ask(acquire_as(cost, 1_000, 1), now);
        if decision.allowed() && wait < decision.wait() {
            let now = now + wait;
            after.ask(cancel(1), now);
            for later in now..now + 3 * p {
                for cost in 1..=n {
                    let (was, is) = (before.would(peek(cost), later), after.would(peek(cost), later));
                    prop_assert!(was.allowed() || !is.allowed(), "{} at +{}", cost, later - now);
                }
            }
        }
    }
}

#[test]
fn a_booking_cancelled_in_the_middle_of_a_smooth_limiter_makes_nobody_pass_sooner() {
    let mut world = World::hard(smooth(1, 10, 0));
    let waits = [(1, 0), (3, 1), (1, 2)].map(|(cost, id)| {
        let decision = world.ask(acquire_as(cost, 1_000, id), 100);
        decision.wait()
    });
    assert_eq!(waits, [0, 10, 40]);
    let decision = world.answer(cancel(1), 100).map(|answer| answer.returned);
    assert_eq!(
        decision,
        Ok(Some(0)),
        "the one behind keeps its turn, and the hole is too early to sell"
    );
    assert_eq!(world.ask(acquire_as(1, 1_000, 3), 100).wait(), 50);
}
