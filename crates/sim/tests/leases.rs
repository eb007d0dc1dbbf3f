//! What nodes hold is of use to somebody.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use sluicegate_sim::{
    Conditions, FaultPlan, LevelPlan, LimitPlan, Pattern, Policy, RulePlan, Scenario, Stream, world,
};

/// Three nodes that are asked for more than a small bucket has, each hit for several; what passed.
fn passed(level: LevelPlan, rate: u64, burst: u64, cost: u64) -> u64 {
    let limits = vec![LimitPlan::Bucket { rate, burst }];
    let pattern = Pattern::Steady(250);
    let scenario = Scenario {
        length_ms: 5_000,
        clocks: vec![(0, 0); 3],
        rules: vec![RulePlan { limits, level, policy: Policy::Deny, identities: 1 }],
        streams: (0..3).map(|node| Stream { node, rule: 0, identity: 0, cost, pattern }).collect(),
        fault_plan: FaultPlan { conditions: Conditions::NORMAL, faults: Vec::new(), over_ms: 0 },
        ..Scenario::new(1)
    };
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
