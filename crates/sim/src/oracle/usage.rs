//! Utilization: nearly all of the quota is used, no identity starves, and nodes with equal demand
//! have about equal shares.
//!
//! The reference is the same rules on one node with a memory store.

use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Engine, Timestamp, rules_of};

use super::Case;
use crate::scenario::{LevelPlan, LimitPlan, Pattern};
use crate::world::Hit;

/// Minimum share of the reference that must pass, in percent, and a tolerance in hits.
const fn floor(level: LevelPlan) -> (u64, u64) {
    match level {
        // A bucket of hardly more than one hit overflows at times while the hit is in transit.
        LevelPlan::Strict => (90, 3),
        // Quota leased when the demand or the window ends is not used.
        LevelPlan::Hot | LevelPlan::Leased => (75, 20),
        // The excess of a sliding window counts in the next one.
        LevelPlan::Eventual { .. } => (75, 20),
    }
}

/// Minimum part of an even share per node, in percent, if enough hits passed.
const EVEN_SHARE: u64 = 40;
const ENOUGH: u64 = 60;

/// Violations of utilization and fairness.
pub(super) fn judge(case: &Case<'_>) -> Vec<String> {
    if case.scenario.fault_plan.reloads() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if case.scenario.is_fault_free() {
        found.extend(too_little(case, 0, floor(case.plan.level)));
        found.extend(unfair(case));
    } else {
        let recovered_us = case.history.span_us.0 + case.scenario.recovered_ms() * 1_000;
        let (hundredths, missing) = floor(case.plan.level);
        found.extend(too_little(case, recovered_us, (hundredths, missing + lost_for_good(case))));
    }
    found
}

/// Quota charged for hits that did not pass is missing until the bucket is full, which under
/// constant demand never happens.
fn lost_for_good(case: &Case<'_>) -> u64 {
    let each = case.plan.limits.iter().map(|limit| match *limit {
        LimitPlan::Bucket { burst, .. } => burst,
        LimitPlan::Window { .. } | LimitPlan::Sliding { .. } => 0,
    });
    each.max().unwrap_or(0)
}

/// Checks hits requested from a time on.
fn too_little(case: &Case<'_>, from_us: u64, (hundredths, missing): (u64, u64)) -> Option<String> {
    let later = case.hits.iter().filter(|hit| hit.requested_us >= from_us);
    let passed: u64 = later.filter(|hit| hit.allowed).map(|hit| hit.cost).sum();
    let might = on_one_node(case, from_us)?;
    let max_cost = case.hits.iter().map(|hit| hit.cost).max().unwrap_or(1);
    let least = (might * hundredths / 100).saturating_sub(missing + 2 * max_cost);
    (passed < least)
        .then(|| format!("only {passed} of {might} passed that might, from {from_us} on"))
}

/// Hits that pass on a single node, after the previously admitted ones.
fn on_one_node(case: &Case<'_>, from_us: u64) -> Option<u64> {
    let counts = |hit: &&Hit| hit.allowed || hit.requested_us >= from_us;
    let mut hits: Vec<Hit> = case.hits.iter().filter(counts).copied().collect();
    // Previous hits count from their answers: they may belong to a later window than their
    // requests.
    let at =
        |hit: &Hit| if hit.requested_us < from_us { hit.answered_us } else { hit.requested_us };
    hits.sort_by_key(at);
    let clock = ManualClock::new();
    let rules = rules_of(&case.scenario.revisions[0]).ok()?;
    let engine = Engine::builder(rules).clock(clock.clone()).build().ok()?;
    let mut passed = 0;
    for hit in &hits {
        clock.set(Timestamp::from_micros(at(hit)));
        let request = &case.scenario.requests[hit.request];
        let (key, value) = &request.descriptors[0][0];
        let entries = [Entry::new(key, value)];
        let descriptors = [Descriptor::of(&entries)];
        let request =
            Request { domain: &request.domain, descriptors: &descriptors, hits: hit.cost };
        if engine.check(&request).allowed && hit.requested_us >= from_us {
            passed += hit.cost;
        }
    }
    Some(passed)
}

/// Checks nodes with equal, steady demand.
fn unfair(case: &Case<'_>) -> Option<String> {
    let first = case.hits.first()?;
    let streams = case.scenario.streams.iter();
    let mut streams = streams.filter(|stream| stream.request == first.request);
    let pattern = streams.next()?.pattern;
    if !matches!(pattern, Pattern::Steady(_)) || streams.any(|stream| stream.pattern != pattern) {
        return None;
    }
    let nodes = case.scenario.clocks.len();
    let mut shares = vec![0; nodes];
    for hit in case.hits.iter().filter(|hit| hit.allowed) {
        shares[hit.node] += hit.cost;
    }
    let total: u64 = shares.iter().sum();
    let least = *shares.iter().min()?;
    let is_unfair =
        total >= ENOUGH * nodes as u64 && least * nodes as u64 * 100 < total * EVEN_SHARE;
    is_unfair.then(|| format!("of {total} that passed, nodes with equal demand had {shares:?}"))
}
