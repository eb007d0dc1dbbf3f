//! What some generated scenarios have on top: a circuit breaker, a Cluster, a store clock that
//! steps, quota that is returned, and requests under two rules.
//!
//! Their random numbers are a stream of their own: a seed without them is the same scenario as
//! before they were added.

use super::Scenario;
use super::faults::Fault;
use super::rules::LevelPlan;
use super::traffic::{RequestPlan, Stream, Usage};
use crate::rng::SimRng;

/// Adds features to a generated scenario.
pub(super) fn add(scenario: &mut Scenario) {
    let mut rng = SimRng::new(scenario.seed, "features");
    scenario.store.has_breaker = rng.permille(300);
    if rng.permille(150) {
        scenario.store.shards = 3;
    }
    let is_eventual = |scenario: &Scenario| {
        scenario.rules.iter().any(|rule| matches!(rule.level, LevelPlan::Eventual { .. }))
    };
    if rng.permille(150) && !is_eventual(scenario) {
        // Nodes re-push what they observed of hits, not reservations.
        let is_strict = scenario.rules.iter().all(|rule| rule.level == LevelPlan::Strict)
            && !scenario.fault_plan.loses_data();
        let usage = Usage {
            refunds: rng.choose(&[20, 100, 300]),
            is_reserved: is_strict && rng.permille(500),
        };
        scenario.streams.iter_mut().for_each(|stream| stream.usage = usage);
    }
    if rng.permille(400) && scenario.rules.len() == 2 {
        add_pairs(scenario, &mut rng);
    }
    let over = scenario.length_ms * 6 / 10;
    if rng.permille(80) {
        let from = rng.within(300, over);
        let to = from + rng.within(50, 800);
        add_faults(scenario, &[(from, Fault::Down(None)), (to, Fault::Back)]);
    }
    if rng.permille(60) {
        let by = i64::try_from(rng.within(1, 2_000)).unwrap_or(1);
        add_faults(scenario, &[(rng.within(300, over), Fault::StoreStep(by))]);
    }
}

/// Some requests meet both rules, all or nothing.
fn add_pairs(scenario: &mut Scenario, rng: &mut SimRng) {
    let of = |rule: usize| {
        scenario.requests.iter().find(|request| request.steps[0].rule == rule).cloned()
    };
    let (Some(one), Some(other)) = (of(0), of(1)) else { return };
    let request = scenario.requests.len();
    let rate = scenario.rules.iter().map(|rule| rule.per_second()).min().unwrap_or(1);
    let share = rng.choose(&[2, 5]);
    scenario.requests.push(RequestPlan {
        domain: one.domain,
        descriptors: [one.descriptors, other.descriptors].concat(),
        steps: [one.steps, other.steps].concat(),
    });
    let rate = (rate / share).max(1);
    for node in 0..scenario.clocks.len() {
        scenario.streams.push(Stream::steady(node, request, 1, rate, scenario.length_ms));
    }
}

fn add_faults(scenario: &mut Scenario, faults: &[(u64, Fault)]) {
    let plan = &mut scenario.fault_plan;
    plan.faults.extend(faults);
    plan.faults.sort_by_key(|(at, _)| *at);
    let last = faults.iter().map(|(at, _)| *at).max().unwrap_or(0);
    plan.over_ms = plan.over_ms.max(last);
}
