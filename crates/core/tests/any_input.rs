//! Any input: whatever the numbers, a constructor says yes or no and an operation answers. Debug builds
//! check every overflow, so a panic anywhere in the core fails here.

mod support;

use std::num::NonZeroU64;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::concurrency::Concurrency;
use sluicegate_core::algorithm::periodic::Edges;
use sluicegate_core::algorithm::sliding_log::SlidingLog;
use sluicegate_core::algorithm::warm_up::WarmUp;
use sluicegate_core::arithmetic::{muldiv, muldiv_ceil};
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Gate, GateLevels, Mode};
use sluicegate_core::quota::Rate;
use support::anything::{build, number, op, plan};
use support::{EXACT_MAX, at, cases, us};

fn carry() -> impl Strategy<Value = CarryOver> {
    prop_oneof![
        Just(CarryOver::Used),
        Just(CarryOver::Remaining),
        Just(CarryOver::Proportion),
        Just(CarryOver::Nothing)
    ]
}

fn clamp_signed(remaining: Option<i64>) -> bool {
    remaining.is_none_or(|left| left.unsigned_abs() <= EXACT_MAX)
}

proptest! {
    #![proptest_config(cases(2_500))]

    #[test]
    fn whatever_is_asked_of_whatever_limits_there_is_an_answer(
        plan in plan(),
        calls in prop::collection::vec((op(), number(), any::<bool>()), 1..40),
    ) {
        let mut account = Account::default();
        for (op, now, spare_capacity) in calls {
            let moment = Moment { now: at(now), spare_capacity };
            if let Ok(answer) = account.apply(&plan, op, moment) {
                prop_assert!(clamp_signed(answer.verdict.remaining), "{:?}", answer);
                prop_assert!(answer.verdict.reset_after.as_micros() <= EXACT_MAX);
            }
        }
    }

    #[test]
    fn whatever_is_asked_in_the_course_of_time_there_is_an_answer(
        plan in plan(),
        start in 0u64..(1 << 52),
        calls in prop::collection::vec((op(), 0u64..3_000_000, any::<bool>()), 1..60),
    ) {
        let mut account = Account::default();
        let mut now = start;
        for (op, pause, spare_capacity) in calls {
            now += pause;
            let moment = Moment { now: at(now), spare_capacity };
            if let Ok(answer) = account.apply(&plan, op, moment) {
                prop_assert!(clamp_signed(answer.verdict.remaining), "{:?}", answer);
            }
        }
    }

    #[test]
    fn any_limit_changes_to_any_other_with_whatever_was_used(
        plans in prop::collection::vec((plan(), carry()), 2..5),
        calls in prop::collection::vec((op(), number()), 1..12),
        indices in prop::collection::vec(prop::option::of(0usize..4), 4),
    ) {
        let mut account = Account::default();
        let mut old: Vec<EnforcedLimit> = Vec::new();
        for (plan, carry) in plans {
            let from: Vec<_> = indices.iter().copied().take(plan.len()).collect();
            account.change(&old, &plan, &from, carry, at(calls[0].1));
            for (op, now) in &calls {
                if let Ok(answer) = account.apply(&plan, *op, Moment::at(at(*now))) {
                    prop_assert!(clamp_signed(answer.verdict.remaining), "{:?}", answer);
                }
            }
            old = plan;
        }
    }

    #[test]
    fn constructors_say_yes_or_no_to_any_numbers(
        a in number(), b in number(), c in number(), d in number(), e in number(),
        many in prop::collection::vec((number(), number()), 0..12),
    ) {
        for kind in 0..16 {
            let built = build((kind, (a, b, c, d, e), many.clone()));
            if let (6.., Some(limit)) = (kind, built) {
                prop_assert!(limit.capacity().is_none_or(|capacity| capacity <= EXACT_MAX));
            }
        }
        let _ = WarmUp::new(Rate::new(a.max(1), us(b.max(1))).unwrap_or(support::rate(1, 1)), us(c), d);
        let _ = Concurrency::new(a, us(b));
        let _ = Edges::new([a, b, c, d].map(at), us(e));
        let _ = GateLevels::new(a, b);
        let _ = EnforcedLimit::new(Limit::Closed, Mode::Soft { percent: a });
        let rates: Vec<_> = many.iter().filter_map(|&(n, p)| Rate::new(n, us(p)).ok()).collect();
        let _ = SlidingLog::new(&rates).map(SlidingLog::counting_denied);
    }

    #[test]
    fn a_gate_hears_anything(
        below in number(), above in number(),
        observe in prop::collection::vec((number(), number()), 0..10), asked in number(),
    ) {
        if let Ok(levels) = GateLevels::new(below, above) {
            let gate = observe.iter().fold(Gate::default(), |gate, &(load, now)| {
                gate.observe(&levels, load, at(now))
            });
            let _ = gate.is_open(at(asked));
        }
    }

    #[test]
    fn muldiv_is_exact_for_any_numbers(a in number(), b in number(), divisor in 1u64..) {
        let wide = u128::from(a) * u128::from(b);
        let (quotient, rest) = (wide / u128::from(divisor), wide % u128::from(divisor));
        let divisor = NonZeroU64::new(divisor).expect("at least 1");
        let decision = muldiv(a, b, divisor);
        if quotient > EXACT_MAX.into() {
            prop_assert_eq!((decision.quotient, decision.remainder), (EXACT_MAX, 0));
        } else {
            prop_assert_eq!((u128::from(decision.quotient), u128::from(decision.remainder)), (quotient, rest));
        }
        let up = wide.div_ceil(u128::from(divisor.get())).min(EXACT_MAX.into());
        prop_assert_eq!(u128::from(muldiv_ceil(a, b, divisor)), up);
    }
}
