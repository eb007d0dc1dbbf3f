//! The law: who is denied and waits exactly `retry_after`, finding no competitor, is admitted; and not a
//! microsecond sooner. Over random plans of several limits and modes, since the law is the plan's.

mod support;

use proptest::prelude::*;
use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, GateLevels, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::verdict::Outcome;
use support::anything;
use support::limits::{calendar, cycle, log, slots, small, tally};
use support::{DAY, HOUR, World, acquire_as, cancel, cases, hit_as, rate, reserve, step, us};

fn mode() -> impl Strategy<Value = Mode> {
    let gate = GateLevels::new(700, 850).expect("in order");
    prop_oneof![
        3 => Just(Mode::Hard),
        1 => (1u64..120).prop_map(|percent| Mode::Soft { percent }),
        1 => (1_000u64..4_000).prop_map(move |up_to| Mode::Elastic { up_to, gate }),
    ]
}

/// Some limit under some mode; hard where the mode has no meaning for it.
fn steps(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = EnforcedLimit> {
    (limit, mode()).prop_map(|(limit, mode)| {
        EnforcedLimit::new(limit, mode).unwrap_or_else(|_| step(limit, Mode::Hard))
    })
}

fn any_limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        18 => small(),
        2 => (1u64..5, 1u64..60).prop_map(|(max, lease)| slots(max, lease)),
        1 => (1u64..5).prop_map(|n| calendar(n, [420, 500, 577, 650], 80)),
    ]
}

/// What went before.
fn history() -> impl Strategy<Value = Vec<(u64, Op)>> {
    let op = (0u8..16, 1u64..5, 0u64..40, 0u64..8).prop_map(|(kind, cost, max_wait, id)| {
        match kind {
            0..7 => hit_as(cost, id),
            7..11 => acquire_as(cost, max_wait, id),
            11 => Op::Charge { cost },
            12 => Op::Refund { cost },
            // It outlives the test: one that lapses meanwhile may let others in sooner.
            13 => reserve(cost, 1_000_000, id),
            14 => cancel(id),
            _ => Op::Take { cost },
        }
    });
    prop::collection::vec((0u64..12, op), 0..14)
}

fn played(plan: Vec<EnforcedLimit>, open: bool, history: &[(u64, Op)]) -> (World, u64) {
    let mut world = World::of(plan);
    world.open = open;
    let mut now = 500;
    for (pause, op) in history {
        now += pause;
        // An id may be in use or unknown, a limit may refuse: then nothing happened.
        let _ = world.answer(*op, now);
    }
    (world, now)
}

/// A fresh id, so that a slot is not simply renewed.
const ME: u64 = 77_777;

fn asks(cost: u64, max_wait: Option<u64>) -> Op {
    max_wait.map_or(hit_as(cost, ME), |max_wait| acquire_as(cost, max_wait, ME))
}

/// Whether a debt may reach beyond the calendar at hand: then the promise may be late, never early.
fn has_calendar(plan: &[EnforcedLimit]) -> bool {
    let is_calendar = |step: &EnforcedLimit| match step.limit() {
        Limit::FixedWindow(window) => matches!(window.align(), Align::Calendar(_)),
        _ => false,
    };
    plan.iter().any(is_calendar)
}

/// Checks the law for one call; `sooner` says whether that half applies.
fn law(world: &World, op: Op, now: u64, sooner: bool) -> Result<(), TestCaseError> {
    let mut after = world.clone();
    let Some(retry) = after.ask(op, now).retry_after() else {
        return Ok(());
    };
    prop_assert!(retry > 0, "denied, and told to come at once");
    prop_assert!(after.allows(op, now + retry), "denied after waiting {}", retry);
    if sooner {
        prop_assert!(world.would(op, now + retry).allowed(), "the same call, made then instead");
        let near = retry.saturating_sub(40)..retry;
        for earlier in near.chain((0..retry).step_by(retry as usize / 8 + 1)) {
            prop_assert!(
                !world.would(op, now + earlier).allowed(),
                "{} of {} was enough",
                earlier,
                retry
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn a_denied_hit_is_admitted_after_exactly_its_retry_after(
        plan in prop::collection::vec(steps(any_limit()), 1..6),
        open in any::<bool>(),
        history in history(),
        cost in 1u64..8,
        pause in 0u64..10,
    ) {
        let (world, now) = played(plan, open, &history);
        law(&world, asks(cost, None), now + pause, !has_calendar(&world.plan))?;
    }

    #[test]
    fn a_denied_acquire_is_admitted_once_its_turn_is_within_its_patience(
        plan in prop::collection::vec(steps(any_limit()), 1..6),
        open in any::<bool>(),
        history in history(),
        cost in 1u64..8,
        max_wait in 0u64..30,
        pause in 0u64..10,
    ) {
        let (world, now) = played(plan, open, &history);
        law(&world, asks(cost, Some(max_wait)), now + pause, !has_calendar(&world.plan))?;
    }

    #[test]
    fn a_cost_above_one_cycle_is_admitted_when_enough_cycles_lie_within_its_patience(
        permits in 1u64..5, period in 1u64..20, history in history(),
        cost in 1u64..12, max_wait in 0u64..60,
    ) {
        let (world, now) = played(vec![step(cycle(permits, period), Mode::Hard)], false, &history);
        law(&world, asks(cost, Some(max_wait)), now, true)?;
    }

    #[test]
    fn who_waits_is_admitted_also_where_denials_count(
        windows in prop::collection::vec((1u64..6, 1u64..25), 1..3),
        gap in 0u64..6,
        beside in prop::collection::vec(steps(any_limit()), 0..3),
        history in history(),
        cost in 1u64..4,
    ) {
        let log = log(&windows).with_min_gap(us(gap)).counting_denied().expect("small");
        let mut plan = vec![step(Limit::SlidingLog(log), Mode::Hard)];
        plan.extend(beside);
        let (world, now) = played(plan, false, &history);
        law(&world, asks(cost, None), now, false)?;
    }

    #[test]
    fn who_waits_is_admitted_also_where_a_tally_counts_what_others_deny(
        tallies in prop::collection::vec((1u64..12, 1u64..40, prop::option::of(1u64..120)), 1..3),
        beside in prop::collection::vec(steps(any_limit()), 0..3),
        history in history(),
        cost in 1u64..6,
        first in any::<bool>(),
    ) {
        let tally = |(max, period, soft): (u64, u64, Option<u64>)| {
            let mode = soft.map_or(Mode::Hard, |percent| Mode::Soft { percent });
            step(tally(max, period), mode)
        };
        let mut plan: Vec<EnforcedLimit> = tallies.into_iter().map(tally).chain(beside).collect();
        if first {
            plan.reverse();
        }
        let (world, now) = played(plan, false, &history);
        law(&world, asks(cost, None), now, false)?;
    }

    #[test]
    fn never_names_the_largest_cost_that_ever_passes(
        plan in prop::collection::vec(steps(any_limit()), 1..6),
        history in history(),
        cost in 1u64..30,
        later in prop::collection::vec(0u64..400, 6),
    ) {
        let (world, now) = played(plan.clone(), false, &history);
        let Outcome::Never { max_cost } = world.would(asks(cost, None), now).outcome else {
            return Ok(());
        };
        prop_assert!(max_cost < cost);
        let fresh = World::of(plan);
        let passes = fresh.would(asks(max_cost, None), now).allowed();
        prop_assert!(passes, "{} was said to pass", max_cost);
        for moment in later {
            for world in [&fresh, &world] {
                let decision = world.would(asks(max_cost + 1, None), now + moment);
                prop_assert!(matches!(decision.outcome, Outcome::Never { .. }), "{:?}", decision);
            }
        }
    }

    #[test]
    fn an_acquire_that_can_never_be_met_never_is(
        permits in 1u64..5, period in 1u64..12, cost in 1u64..20, max_wait in 0u64..40, start in 0u64..50,
    ) {
        let world = World::hard(cycle(permits, period));
        let passes = |cost| (start..start + 2 * period).any(|t| world.would(asks(cost, Some(max_wait)), t).allowed());
        match world.would(asks(cost, Some(max_wait)), start).outcome {
            Outcome::Never { max_cost } => {
                prop_assert!(!passes(cost));
                prop_assert!(passes(max_cost), "{} was said to pass", max_cost);
                prop_assert!(!passes(max_cost + 1), "{} passes too", max_cost + 1);
            }
            _ => prop_assert!(passes(cost)),
        }
    }

    #[test]
    fn the_law_holds_for_numbers_of_any_size(
        plan in prop::collection::vec(anything::limit(), 1..4),
        start in prop_oneof![Just(1_700_000_000_000_000u64), 0u64..(1 << 50)],
        history in prop::collection::vec((anything::number(), any::<bool>(), 0u64..2_000_000), 0..8),
        cost in anything::number(),
        max_wait in prop::option::of(anything::number()),
    ) {
        // A bucket that starts short may be forgotten while the others of its plan are waited for: the one
        // exception to the law. On its own it has laws below.
        let short = |limit: &Limit| match limit {
            Limit::TokenBucket(bucket) => bucket.initial() < bucket.burst(),
            _ => false,
        };
        let plan = plan.into_iter().flatten().filter(|limit| !short(limit));
        let plan: Vec<EnforcedLimit> = plan.map(|limit| step(limit, Mode::Hard)).collect();
        let denials_count = |step: &EnforcedLimit| match step.limit() {
            Limit::SlidingLog(log) => log.counts_denied(),
            limit => limit.counts_first(),
        };
        let sooner = !has_calendar(&plan) && !plan.iter().any(denials_count);
        let mut world = World::of(plan);
        let mut now = start;
        for (id, (cost, all, pause)) in history.into_iter().enumerate() {
            now += pause;
            let capacity = world.plan.iter().filter_map(|step| step.limit().capacity()).min();
            let cost = if all { capacity.unwrap_or(cost) } else { cost };
            world.ask(hit_as(cost, id as u64), now);
        }
        // Nobody waits for a tally.
        let waits = !world.plan.iter().any(|step| step.limit().counts_first());
        let op = asks(cost, max_wait.filter(|_| waits));
        let retry = world.would(op, now).retry_after();
        // Beyond the latest `now` there is nothing to come back at.
        if retry.is_some_and(|retry| now + retry < (1 << 52)) {
            law(&world, op, now, sooner)?;
        }
    }
    #[test]
    fn a_bucket_that_starts_short_is_not_forgotten_before_the_denied_come_back(
        (n, p) in (1u64..5, 1u64..40), (burst, initial) in (1u64..9, 0u64..9),
        forget_after in 1u64..200, history in history(), cost in 1u64..9, max_wait in prop::option::of(0u64..40),
    ) {
        // Also where it takes longer to fill than it is remembered after its last hit.
        let bucket = TokenBucket::new(rate(n, p), burst).and_then(|b| b.with_initial(initial.min(burst)));
        let bucket = bucket.and_then(|b| b.with_forget_after(us(forget_after))).expect("small");
        let plan = vec![step(Limit::TokenBucket(bucket), Mode::Hard)];
        let (world, now) = played(plan, false, &history);
        // It starts with its first call, so a later first call is another story: only who waits is asked.
        law(&world, asks(cost, max_wait), now, false)?;
    }

    #[test]
    fn a_stepped_bucket_that_starts_short_is_not_forgotten_before_the_denied_come_back(
        (n, p) in (1u64..5, 1u64..40), (burst, initial) in (1u64..9, 0u64..9),
        aligned in any::<bool>(), forget_after in 1u64..200, history in history(), cost in 1u64..9,
    ) {
        let refill = if aligned { Refill::Aligned } else { Refill::Interval };
        let bucket = TokenBucket::new(rate(n, p), burst).and_then(|b| b.with_refill(refill));
        let bucket = bucket.and_then(|b| b.with_initial(initial.min(burst)));
        let bucket = bucket.and_then(|b| b.with_forget_after(us(forget_after))).expect("small");
        let plan = vec![step(Limit::TokenBucket(bucket), Mode::Hard)];
        let (world, now) = played(plan, false, &history);
        law(&world, asks(cost, None), now, false)?;
    }

    #[test]
    fn a_cost_above_one_cycle_waits_for_all_limits_of_the_plan_at_once(
        permits in 1u64..4, period in 2u64..12,
        beside in prop::collection::vec(steps(any_limit()), 1..4),
        history in history(), cost in 2u64..8, max_wait in 0u64..40,
    ) {
        // The best moment of a cycle comes and goes, and the others must be ready in it.
        let mut plan = vec![step(cycle(permits, period), Mode::Hard)];
        plan.extend(beside);
        let (world, now) = played(plan, false, &history);
        law(&world, asks(cost, Some(max_wait)), now, !has_calendar(&world.plan))?;
    }
}

#[test]
fn a_bucket_that_takes_two_days_to_fill_is_full_after_two_days() {
    let bucket = TokenBucket::new(rate(1, HOUR), 48).and_then(|b| b.with_initial(0));
    let mut world = World::hard(Limit::TokenBucket(bucket.expect("within the bounds")));
    let decision = world.ask(hit_as(48, ME), 1_000 * DAY);
    assert_eq!(decision.retry_after(), Some(2 * DAY), "longer than the day it is remembered for");
    assert!(world.allows(hit_as(48, ME), 1_002 * DAY));
}
