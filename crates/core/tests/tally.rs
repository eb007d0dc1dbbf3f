//! The counter of Envoy's form: counted first, compared afterwards, whatever anybody else says.

mod support;

use proptest::prelude::*;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::{EnforcedLimit, GateLevels, Mode};
use sluicegate_core::op::{Op, OpKind, Refusal};
use sluicegate_core::quota::QuotaError;
use sluicegate_core::verdict::Outcome;
use support::limits::{bucket, log, slots, tally, window};
use support::{
    DAY, MINUTE, Reply, SECOND, World, acquire, at, cancel, cases, commit, hit, hit_as, peek,
    reserve, step, us,
};

/// All that ever came, and when. What counts now is found by going through it once more.
#[derive(Debug, Clone, Default)]
struct Arrivals(Vec<(u64, Arrival)>);

#[derive(Debug, Clone, Copy)]
enum Arrival {
    Came(u64),
    GivenBack(u64),
    Forgotten,
}

impl Arrivals {
    fn count(&self, period: u64, now: u64) -> u64 {
        let mut count = 0u64;
        for (when, arrival) in &self.0 {
            if when / period == now / period {
                count = match arrival {
                    Arrival::Came(n) => count + n,
                    Arrival::GivenBack(n) => count.saturating_sub(*n),
                    Arrival::Forgotten => 0,
                };
            }
        }
        count
    }

    /// What the operation says, by the specification.
    fn run(&mut self, (max, period): (u64, u64), op: Op, now: u64) -> Reply {
        let before = self.count(period, now);
        let ends_in = period - now % period;
        let judged = |cost: u64| {
            if cost > max {
                Outcome::Never { max_cost: max }
            } else if before + cost > max {
                Outcome::Deny { retry_after: us(ends_in) }
            } else {
                Outcome::Allow { wait: us(0) }
            }
        };
        let free = Outcome::Allow { wait: us(0) };
        let left = max.saturating_sub(before);
        let (outcome, arrival, taken) = match op {
            Op::Hit { cost, .. } => (judged(cost), Arrival::Came(cost), None),
            Op::Peek { cost } => (judged(cost), Arrival::Came(0), None),
            Op::Charge { cost } => (free, Arrival::Came(cost), None),
            Op::Refund { cost } | Op::Add { cost, .. } => (free, Arrival::GivenBack(cost), None),
            Op::Take { cost } if cost.min(left) == 0 => {
                (judged(cost.min(1)), Arrival::Came(0), Some(0))
            }
            Op::Take { cost } => (free, Arrival::Came(cost.min(left)), Some(cost.min(left))),
            Op::Drain => (free, Arrival::Came(left), Some(left)),
            _ => (free, Arrival::Forgotten, None),
        };
        self.0.push((now, arrival));
        let count = self.count(period, now);
        Reply {
            outcome,
            remaining: Some(max.saturating_sub(count) as i64),
            reset_after: if count == 0 { 0 } else { ends_in },
            taken,
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    (0u32..16, 0u64..9).prop_map(|(kind, cost)| match kind {
        0..7 => hit(cost),
        7..9 => peek(cost),
        9..11 => Op::Take { cost },
        11 => Op::Charge { cost },
        12 => Op::Refund { cost },
        13 => Op::Add { cost, force: false },
        14 => Op::Drain,
        _ => Op::Reset,
    })
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_tally_answers_as_a_list_of_all_that_came(
        max in 0u64..8, period in 1u64..20, start in 0u64..60,
        script in prop::collection::vec((prop_oneof![Just(0u64), 0u64..4, 0u64..40], op()), 1..30),
    ) {
        let mut world = World::hard(tally(max, period));
        let mut model = Arrivals::default();
        let mut now = start;
        for (pause, op) in script {
            now += pause;
            let decision = world.ask(op, now);
            prop_assert_eq!(decision, model.run((max, period), op, now), "{:?} at {}", op, now);
        }
    }

    #[test]
    fn no_window_admits_more_than_its_limit_and_whoever_waits_as_told_gets_in(
        max in 1u64..8, period in 1u64..20,
        hits in prop::collection::vec((0u64..6, 1u64..9), 1..60),
    ) {
        let mut world = World::hard(tally(max, period));
        let mut used = std::collections::BTreeMap::new();
        let mut now = 0;
        for (pause, cost) in hits {
            now += pause;
            let decision = world.ask(hit(cost), now);
            if decision.allowed() {
                *used.entry(now / period).or_insert(0) += cost;
            } else if let Some(after) = decision.retry_after() {
                prop_assert!(after > 0 && !world.would(hit(cost), now + after - 1).allowed());
                prop_assert!(world.would(hit(cost), now + after).allowed());
            }
        }
        prop_assert!(used.values().all(|used| *used <= max), "{:?}", used);
    }

    #[test]
    fn a_clock_that_steps_back_is_taken_to_stand_still(
        max in 1u64..8, period in 1u64..20,
        hits in prop::collection::vec((0u64..9, any::<bool>(), 1u64..4), 1..60),
    ) {
        let (mut unsteady, mut steady) = (World::hard(tally(max, period)), World::hard(tally(max, period)));
        let (mut now, mut latest) = (1_000u64, 0);
        for (step, back, cost) in hits {
            now = if back { now - step } else { now + step };
            latest = latest.max(now);
            let (decision, due) = (unsteady.ask(hit(cost), now), steady.ask(hit(cost), latest));
            prop_assert_eq!((decision.allowed(), decision.remaining), (due.allowed(), due.remaining));
            // The promise is for the same moment.
            prop_assert_eq!(now + decision.reset_after, latest + due.reset_after);
        }
    }

    #[test]
    fn whatever_the_others_say_a_tally_counts_and_the_others_are_charged_together_or_not_at_all(
        max in 0u64..8, other in 1u64..8, shadow in any::<bool>(), swapped in any::<bool>(),
        costs in prop::collection::vec(0u64..9, 1..20),
    ) {
        let mode = if shadow { Mode::Shadow } else { Mode::Hard };
        let mut plan = vec![step(tally(max, DAY), mode).of_rule(1), step(window(other, DAY), Mode::Hard)];
        let index = usize::from(swapped);
        if swapped {
            plan.reverse();
        }
        let mut world = World::of(plan);
        let (mut counted, mut used) = (0u64, 0u64);
        for cost in costs {
            let decision = world.answer(hit(cost), 0).expect("nobody refuses a hit").verdict;
            let tally_agrees = counted + cost <= max;
            let agreed = used + cost <= other && (shadow || tally_agrees);
            prop_assert_eq!(decision.is_allowed(), agreed);
            prop_assert_eq!(decision.shadow.map(|decision| decision.is_allowed()), shadow.then_some(tally_agrees));
            counted += cost;
            used += if agreed { cost } else { 0 };
            let count = match world.account.state(index) {
                Some(State::Tally(state)) => state.count,
                _ => 0,
            };
            prop_assert_eq!(count, counted);
        }
    }
}

#[test]
fn a_batch_that_does_not_fit_is_counted_in_full() {
    let mut world = World::hard(tally(10, MINUTE));
    assert!(world.allows(hit(8), 5));
    let denied = world.ask(hit(5), 5);
    assert_eq!((denied.retry_after(), denied.remaining), (Some(MINUTE - 5), Some(0)));
    assert!(!world.allows(hit(1), 5), "the count is 13");
    world.ask(Op::Refund { cost: 5 }, 5);
    assert!(world.allows(hit(1), 5), "9 and one more");
}

#[test]
fn nothing_passes_at_the_limit_and_not_beyond_it() {
    let mut world = World::hard(tally(2, MINUTE));
    assert!(world.allows(hit(2), 0));
    assert!(world.allows(hit(0), 0) && world.allows(peek(0), 0), "at the limit");
    assert!(!world.allows(hit(1), 0));
    let beyond = world.ask(hit(0), 7);
    assert_eq!((beyond.retry_after(), beyond.remaining), (Some(MINUTE - 7), Some(0)));
    assert_eq!(world.ask(peek(0), 7), beyond);
    assert!(world.allows(hit(0), MINUTE));
    assert!(world.allows(hit(2), MINUTE), "what was beyond is not carried over");
}

#[test]
fn what_can_never_pass_is_counted_too() {
    let mut world = World::hard(tally(5, MINUTE));
    assert_eq!(world.ask(hit(6), 0).outcome, Outcome::Never { max_cost: 5 });
    assert!(!world.allows(hit(1), 0));
    let mut none = World::hard(tally(0, MINUTE));
    assert!(none.allows(hit(0), 0));
    assert_eq!(none.ask(hit(1), 0).outcome, Outcome::Never { max_cost: 0 });
    assert_eq!(none.ask(hit(0), 0).retry_after(), Some(MINUTE));
    // Also by others, and where a log would not remember it.
    let counting = log(&[(3, 100)]).counting_denied().expect("small");
    let mut both = World::of(vec![
        step(tally(9, MINUTE), Mode::Hard),
        step(Limit::SlidingLog(counting), Mode::Hard),
    ]);
    assert_eq!(both.ask(hit(4), 0).outcome, Outcome::Never { max_cost: 3 });
    assert_eq!(both.ask(peek(1), 0).remaining, Some(3), "no attempt to the log");
    assert!(!both.allows(hit(6), 0) && !both.allows(peek(0), 0), "10 of 9");
}

#[test]
fn a_peek_a_refund_of_nothing_and_a_question_leave_no_trace() {
    let mut world = World::hard(tally(2, MINUTE));
    world.ask(peek(9), 0);
    world.ask(hit(0), 0);
    world.ask(Op::Refund { cost: 7 }, 0);
    assert!(world.account.is_new());
}

#[test]
fn an_excess_is_no_debt() {
    let mut world = World::hard(tally(5, MINUTE));
    let charged = world.ask(Op::Charge { cost: 50 }, 3);
    assert_eq!((charged.wait(), charged.remaining), (0, Some(0)));
    assert_eq!(world.ask(Op::Drain, 3).taken, Some(0));
    assert_eq!(world.ask(Op::Take { cost: 3 }, 3).taken, Some(0));
    assert_eq!(world.ask(peek(1), MINUTE).remaining, Some(5));
}

#[test]
fn what_needs_a_turn_or_a_receipt_is_refused_with_a_reason() {
    let mut world = World::hard(tally(5, MINUTE));
    let beyond = Op::Add { cost: 1, force: true };
    for op in [acquire(1, 9), reserve(1, 9, 7), commit(1, 7), cancel(7), beyond] {
        let Err(Refusal::Unsupported { op: kind, algorithm, reason }) = world.answer(op, 0) else {
            panic!("{op:?} was not refused");
        };
        assert_eq!((kind, algorithm), (op.kind(), "tally"));
        assert!(reason.contains("use `hit`") || reason.contains("`set_limit`"), "{reason}");
    }
    let refused = OpKind::ALL.into_iter().filter(|op| world.plan[0].limit().refuses(*op).is_some());
    assert_eq!(refused.count(), 5);
    assert!(world.account.is_new());
}

#[test]
fn a_slot_beside_a_tally_is_freed() {
    let mut world =
        World::of(vec![step(tally(9, MINUTE), Mode::Hard), step(slots(1, MINUTE), Mode::Hard)]);
    assert!(world.allows(hit_as(1, 7), 0));
    assert!(!world.allows(hit_as(1, 8), 0));
    assert_eq!(world.answer(cancel(7), 0).map(|answer| answer.returned), Ok(Some(1)));
    assert!(world.allows(hit_as(1, 8), 0));
    assert_eq!(world.answer(cancel(9), 0), Err(Refusal::UnknownHolder));
}

#[test]
fn a_soft_tally_marks_what_it_admits_above_its_limit() {
    let soft = step(tally(10, MINUTE), Mode::Soft { percent: 20 });
    let mut world = World::of(vec![soft]);
    let mut decision = |cost| {
        let verdict = world.answer(hit(cost), 0).expect("nobody refuses a hit").verdict;
        (verdict.is_allowed(), verdict.soft, verdict.remaining)
    };
    assert_eq!(decision(10), (true, false, Some(0)));
    assert_eq!(decision(1), (true, true, Some(0)), "an excess is no debt");
    assert_eq!(decision(1), (true, true, Some(0)));
    assert_eq!(decision(0), (true, false, Some(0)), "at the soft limit");
    assert_eq!(decision(1), (false, false, Some(0)), "counted, and not admitted");
    assert_eq!(decision(0), (false, false, Some(0)));
}

#[test]
fn what_others_deny_is_not_marked() {
    let soft = step(tally(1, MINUTE), Mode::Soft { percent: 500 });
    let mut world = World::of(vec![soft, step(bucket(1, SECOND, 1), Mode::Hard)]);
    let mut decision = || {
        let verdict = world.answer(hit(1), 0).expect("nobody refuses a hit").verdict;
        (verdict.is_allowed(), verdict.soft)
    };
    assert_eq!(decision(), (true, false));
    assert_eq!(decision(), (false, false), "counted above the limit, and denied by the bucket");
}

#[test]
fn a_shadow_tally_counts_and_says_what_it_would_have_said() {
    let mut world = World::of(vec![step(tally(1, MINUTE), Mode::Shadow)]);
    let mut decision = |cost| world.answer(hit(cost), 0).expect("nobody refuses a hit").verdict;
    assert!(decision(1).shadow.is_some_and(|shadow| shadow.is_allowed()));
    let second = decision(1);
    assert!(second.is_allowed() && second.shadow.is_some_and(|shadow| !shadow.is_allowed()));
    assert!(
        decision(0).shadow.is_some_and(|shadow| !shadow.is_allowed()),
        "the second was counted"
    );
}

#[test]
fn an_elastic_tally_has_no_meaning() {
    let gate = GateLevels::new(700, 850).expect("in order");
    let error = EnforcedLimit::new(tally(5, MINUTE), Mode::Elastic { up_to: 2_000, gate });
    assert!(matches!(error, Err(QuotaError::Unfit { mode: "elastic", algorithm: "tally", .. })));
}

#[test]
fn a_live_change_keeps_what_was_counted() {
    let change = |from: Limit, to: Limit, carry, now| {
        let mut world = World::hard(from);
        world.ask(hit(8), now);
        world.ask(hit(5), now);
        let plan = World::hard(to).plan;
        world.account.change(&world.plan, &plan, &[Some(0)], carry, at(now));
        World { plan, ..world }
    };
    let now = 61 * MINUTE;
    let raised = change(tally(10, MINUTE), tally(20, MINUTE), CarryOver::Used, now);
    assert_eq!(raised.would(peek(0), now).remaining, Some(7), "13 of 20");
    let left = change(tally(10, MINUTE), tally(20, MINUTE), CarryOver::Remaining, now);
    assert!(!left.would(peek(0), now).allowed(), "beyond the one, and the other");
    let part = change(tally(10, MINUTE), tally(20, MINUTE), CarryOver::Proportion, now);
    assert_eq!(part.would(Op::Refund { cost: 7 }, now).remaining, Some(1), "26 of 20");
    let anew = change(tally(10, MINUTE), tally(20, MINUTE), CarryOver::Nothing, now);
    assert!(anew.account.is_new());
    let unit = change(tally(10, MINUTE), tally(20, 60 * MINUTE), CarryOver::Used, now);
    let decision = unit.would(peek(0), now);
    assert_eq!((decision.remaining, decision.reset_after), (Some(7), 59 * MINUTE));
    let other = change(tally(10, MINUTE), window(20, MINUTE), CarryOver::Used, now);
    assert!(other.account.is_new(), "another algorithm");
    // Closed and opened again, it is as far beyond its limit as it was.
    let mut closed = change(tally(10, MINUTE), Limit::Closed, CarryOver::Used, now);
    let plan = World::hard(tally(15, MINUTE)).plan;
    closed.account.change(&closed.plan, &plan, &[Some(0)], CarryOver::Used, at(now));
    closed.plan = plan;
    assert_eq!(closed.would(peek(0), now).remaining, Some(2));
}

#[test]
fn a_clock_that_was_set_back_locks_nobody_out() {
    let mut world = World::hard(tally(1, MINUTE));
    assert!(world.allows(hit(1), 10 * DAY));
    assert!(!world.allows(hit(1), 9 * DAY), "the count has come along");
    assert!(world.allows(hit(1), 9 * DAY + MINUTE));
}
