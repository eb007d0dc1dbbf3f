//! What nodes hold is of use to somebody.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use sluicegate_sim::{LevelPlan, LimitPlan, RulePlan, Scenario, world};

/// Three nodes that are asked for more than a small bucket has, each hit for several; what passed.
fn passed(level: LevelPlan, rate: u64, burst: u64, cost: u64) -> u64 {
    let rule = RulePlan::fixed(vec![LimitPlan::Bucket { rate, per_ms: 1_000, burst }], level);
    let scenario = Scenario::steady(3, rule, 250, cost, 5_000);
    let history = world::run(&scenario, false).unwrap();
    history.hits.iter().filter(|hit| hit.allowed).map(|hit| hit.cost).sum()
}

/// A lease of one or two is worth nothing where each hit costs three, and keeps everybody else from
/// passing.
#[test]
fn a_lease_that_is_too_small_for_a_hit_is_given_back() {
    for (rate, burst, cost) in [(140, 3, 3), (140, 5, 3), (140, 8, 4), (50, 10, 5)] {
        let strict = passed(LevelPlan::Strict, rate, burst, cost);
        for level in [LevelPlan::Hot, LevelPlan::Leased] {
            let passed = passed(level, rate, burst, cost);
            let what = format!("{level:?} {rate}/s, burst {burst}, cost {cost}");
            assert!(passed * 10 >= strict * 9, "{what}: {passed} of {strict}");
        }
    }
}
