//! What is given back, cancelled, denied or only looked at leaves the world as if it had not happened.
//!
//! Two worlds live through the same history; one then takes the detour. Afterwards peeks of several costs
//! at many moments must say the same in both: that is all a client can ever see.

mod support;

use proptest::prelude::*;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::Op;
use support::limits::{counter, small, small_counting, small_log};
use support::{World, acquire, acquire_as, cancel, cases, commit, hit, peek, reserve, step};

/// What went before: hits and bookings, and how long before.
fn history() -> impl Strategy<Value = Vec<(u64, u64, Option<u64>)>> {
    prop::collection::vec((0u64..12, 1u64..4, prop::option::of(0u64..30)), 0..10)
}

fn hits_only() -> impl Strategy<Value = Vec<(u64, u64, Option<u64>)>> {
    prop::collection::vec((0u64..12, 1u64..4, Just(None)), 0..10)
}

fn played(limit: Limit, history: &[(u64, u64, Option<u64>)]) -> (World, u64) {
    let mut world = World::hard(limit);
    let mut now = 300;
    for &(pause, cost, max_wait) in history {
        now += pause;
        world.ask(max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait)), now);
    }
    (world, now)
}

/// The same to anyone who looks, from `now` on.
fn same(one: &World, other: &World, now: u64) -> Result<(), TestCaseError> {
    for step in [1, 7] {
        prop_assert_eq!(one.probe(now, step), other.probe(now, step));
    }
    Ok(())
}

/// This world with all limits but one lifted.
fn only(world: &World, index: usize) -> World {
    let mut only = world.clone();
    for (other, limit) in only.plan.iter_mut().enumerate() {
        if other != index {
            *limit = step(Limit::Unlimited, Mode::Hard);
        }
    }
    only
}

/// All but the sliding counter, which may leave less (see `cancelling`).
fn uncounted() -> impl Strategy<Value = Limit> {
    small().prop_filter("two counts", |limit| !matches!(limit, Limit::SlidingWindow(_)))
}

/// All that count, the leaky bucket and the log included, with nothing pending in them.
fn refundable() -> impl Strategy<Value = Limit> {
    small_counting()
}

proptest! {
    #![proptest_config(cases(700))]

    #[test]
    fn a_hit_and_its_refund_never_happened(
        limit in refundable(), history in hits_only(), pause in 0u64..12, cost in 1u64..5,
    ) {
        let (before, now) = played(limit, &history);
        let now = now + pause;
        let mut after = before.clone();
        let decision = after.ask(hit(cost), now);
        if decision.allowed() {
            after.ask(Op::Refund { cost }, now);
            same(&before, &after, now)?;
        }
    }

    #[test]
    fn a_reservation_cancelled_at_once_never_happened(
        limit in small(), history in history(), pause in 0u64..12, cost in 1u64..5,
    ) {
        // Not a new identity: to a smooth limiter, being seen for the first time is an event of its own.
        let mut before = World::hard(limit);
        before.ask(hit(1), 290);
        let mut now = 300;
        for (wait, cost, max_wait) in history {
            now += wait;
            before.ask(max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait)), now);
        }
        let now = now + pause;
        let mut after = before.clone();
        if after.allows(reserve(cost, 50, 1), now) {
            let decision = after.answer(cancel(1), now);
            prop_assert_eq!(decision.map(|answer| answer.returned), Ok(Some(cost)));
            same(&before, &after, now)?;
        }
    }

    #[test]
    fn a_reservation_settled_at_once_is_a_hit_of_what_was_used(
        limit in small_counting(), history in history(), pause in 0u64..12,
        cost in 1u64..5, actual in 0u64..5,
    ) {
        let (mut before, now) = played(limit, &history);
        let now = now + pause;
        let mut after = before.clone();
        if actual <= cost && after.allows(reserve(cost, 50, 1), now) {
            let decision = after.answer(commit(actual, 1), now);
            prop_assert_eq!(decision.map(|answer| answer.returned), Ok(Some(cost - actual)));
            prop_assert!(before.allows(hit(actual), now), "less than what passed");
            same(&before, &after, now)?;
        }
    }

    #[test]
    fn a_reservation_settled_for_more_is_charged_for_more(
        limit in small_counting(), history in history(), cost in 1u64..4, more in 1u64..4,
    ) {
        let (mut before, now) = played(limit, &history);
        let mut after = before.clone();
        if after.allows(reserve(cost, 50, 1), now) {
            prop_assert!(after.answer(commit(cost + more, 1), now).is_ok());
            before.ask(hit(cost), now);
            before.ask(Op::Charge { cost: more }, now);
            same(&before, &after, now)?;
        }
    }

    #[test]
    fn a_booking_cancelled_before_anything_else_never_happened(
        limit in uncounted(), history in history(), cost in 1u64..5, wait in 0u64..10,
    ) {
        let (before, now) = played(limit, &history);
        let mut after = before.clone();
        let decision = after.ask(acquire_as(cost, 100, 1), now);
        if decision.allowed() && wait < decision.wait() {
            let decision = after.answer(cancel(1), now + wait);
            prop_assert_eq!(decision.map(|answer| answer.returned), Ok(Some(cost)));
            same(&before, &after, now + wait)?;
        }
    }

    #[test]
    fn a_booking_cancelled_once_its_turn_has_come_gives_nothing_back(
        limit in small_counting(), history in history(), cost in 1u64..5, late in 0u64..10,
    ) {
        let (mut world, now) = played(limit, &history);
        let decision = world.ask(acquire_as(cost, 100, 1), now);
        if decision.allowed() {
            let now = now + decision.wait() + late;
            let before = world.clone();
            let answer = world.answer(cancel(1), now);
            prop_assert_eq!(answer.map(|answer| answer.returned), Ok(Some(0)));
            same(&before, &world, now)?;
        }
    }

    #[test]
    fn a_denied_call_leaves_no_trace(
        limit in small(), history in history(), cost in 1u64..7, max_wait in prop::option::of(0u64..5),
    ) {
        let (before, now) = played(limit, &history);
        let mut after = before.clone();
        let op = max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait));
        if !after.allows(op, now) {
            same(&before, &after, now)?;
        }
    }

    #[test]
    fn a_call_denied_by_one_limit_leaves_no_trace_on_the_others(
        limits in prop::collection::vec(small_counting(), 2..5), history in hits_only(), cost in 1u64..7,
    ) {
        let mut before = World::of(limits.into_iter().map(|limit| step(limit, Mode::Hard)).collect());
        let mut now = 300;
        for (pause, cost, _) in history {
            now += pause;
            before.ask(hit(cost), now);
        }
        let mut after = before.clone();
        if !after.allows(hit(cost), now) {
            same(&before, &after, now)?;
            // Nor on any of them alone: the others may go and nobody sees a difference.
            for index in 0..before.plan.len() {
                same(&only(&before, index), &only(&after, index), now)?;
            }
        }
    }

    #[test]
    fn a_peek_leaves_no_trace(
        limit in small_counting(), history in history(), pause in 0u64..30, cost in 0u64..7,
    ) {
        let (before, now) = played(limit, &history);
        let mut after = before.clone();
        after.ask(peek(cost), now + pause);
        same(&before, &after, now + pause)?;
    }

    #[test]
    fn a_peek_leaves_no_trace_in_a_log_that_counts_denials(
        log in small_log(), history in hits_only(), cost in 0u64..7,
    ) {
        let limit = Limit::SlidingLog(log.counting_denied().expect("small"));
        let (before, now) = played(limit, &history);
        let mut after = before.clone();
        after.ask(peek(cost), now);
        same(&before, &after, now)?;
    }

    #[test]
    fn a_refund_never_lifts_above_the_capacity(
        limit in small_counting(), history in history(), refund in 0u64..1_000, pause in 0u64..9,
    ) {
        let (mut world, now) = played(limit, &history);
        let capacity = limit.capacity().expect("a number") as i64;
        for op in [Op::Refund { cost: refund }, Op::Add { cost: refund, force: false }] {
            let decision = world.ask(op, now + pause);
            prop_assert!(decision.remaining.is_some_and(|left| left <= capacity), "{:?}", decision);
        }
    }

    #[test]
    fn a_reservation_cancels_itself_at_its_ttl(
        limit in small_counting(), history in hits_only(), cost in 1u64..5, ttl in 0u64..30, late in 0u64..30,
    ) {
        let (before, now) = played(limit, &history);
        let mut by_hand = before.clone();
        let mut by_itself = before.clone();
        if by_hand.allows(reserve(cost, 1_000_000, 1), now) {
            by_itself.ask(reserve(cost, ttl, 1), now);
            if ttl > 0 {
                // Until then it stands.
                let (a, b) = (by_hand.would(peek(1), now + ttl - 1), by_itself.would(peek(1), now + ttl - 1));
                prop_assert_eq!(a, b);
            }
            prop_assert!(by_hand.answer(cancel(1), now + ttl).is_ok());
            same(&by_hand, &by_itself, now + ttl + late)?;
        }
    }

    #[test]
    fn a_late_commit_charges_in_full(
        limit in small_counting(), history in hits_only(), cost in 1u64..5, actual in 1u64..7,
        ttl in 0u64..20, late in 0u64..20,
    ) {
        let (mut world, now) = played(limit, &history);
        if world.allows(reserve(cost, ttl, 1), now) {
            let now = now + ttl + late;
            let mut charged = world.clone();
            charged.ask(peek(1), now);
            charged.ask(Op::Charge { cost: actual }, now);
            prop_assert!(world.answer(commit(actual, 1), now).is_ok());
            same(&charged, &world, now)?;
        }
    }

    #[test]
    fn a_sliding_counter_forgets_a_refunded_hit_in_the_window_it_was_in(
        n in 1u64..9, p in 1u64..20, up in any::<bool>(), history in hits_only(), cost in 1u64..5,
        later in 0u64..40,
    ) {
        let limit = counter(n, p, if up { Rounding::Up } else { Rounding::Floor });
        let (before, now) = played(limit, &history);
        let mut after = before.clone();
        if after.allows(reserve(cost, 1_000_000, 1), now) {
            prop_assert!(after.answer(commit(0, 1), now + later).is_ok());
            same(&before, &after, now + later)?;
        }
    }
}

proptest! {
    // Every limit of a plan is looked at on its own, so each case takes long.
    #![proptest_config(cases(200))]

    #[test]
    fn a_booking_of_a_whole_plan_cancelled_at_once_never_happened(
        limits in prop::collection::vec(uncounted(), 2..4), history in history(), cost in 1u64..4,
    ) {
        let mut before = World::of(limits.into_iter().map(|limit| step(limit, Mode::Hard)).collect());
        // Not a new identity: being seen for the first time is an event of its own.
        before.ask(hit(1), 290);
        let mut now = 300;
        for (pause, cost, max_wait) in history {
            now += pause;
            before.ask(max_wait.map_or(hit(cost), |max_wait| acquire(cost, max_wait)), now);
        }
        let mut after = before.clone();
        let decision = after.ask(acquire_as(cost, 100, 1), now);
        if decision.allowed() && decision.wait() > 0 {
            after.ask(cancel(1), now);
            for index in 0..before.plan.len() {
                same(&only(&before, index), &only(&after, index), now)?;
            }
        }
    }
}
