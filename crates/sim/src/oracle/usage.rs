//! Never much less than there is; nobody locked out; nodes with the same demand have about the
//! same.
//!
//! What there is, is said by the same rules on one node with its own memory.

use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Engine, Timestamp, rules_of};

use super::Case;
use crate::scenario::{LevelPlan, LimitPlan, Pattern};
use crate::world::Hit;

/// What of it must pass at least, in hundredths, and how many hits may be missing beside.
const fn floor(level: LevelPlan) -> (u64, u64) {
    match level {
        // A bucket that holds hardly more than one hit is full now and then while the hit is on its
        // way.
        LevelPlan::Strict => (90, 3),
        // What is held when the demand or the window ends passes for nobody.
        LevelPlan::Hot | LevelPlan::Leased => (75, 20),
        // What passed above a window counts in the next one, where that slides.
        LevelPlan::Eventual { .. } => (75, 20),
    }
}

/// How much of an even share each node has at least, in hundredths, if enough passed to tell.
const EVEN_SHARE: u64 = 40;
const ENOUGH: u64 = 60;

/// What is wrong with how much passed.
pub(super) fn judge(case: &Case<'_>) -> Vec<String> {
    if case.scenario.trouble.reloads() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if case.scenario.is_calm() {
        found.extend(too_little(case, 0, floor(case.plan.level)));
        found.extend(unfair(case));
    } else {
        let well_us = case.history.span_us.0 + case.scenario.well_ms() * 1_000;
        let (hundredths, missing) = floor(case.plan.level);
        found.extend(too_little(case, well_us, (hundredths, missing + lost_for_good(case))));
    }
    found
}

/// What was charged and did not pass is missing in a bucket until it is full again, and one that is
/// always wanted never is.
fn lost_for_good(case: &Case<'_>) -> u64 {
    let each = case.plan.limits.iter().map(|limit| match *limit {
        LimitPlan::Bucket { burst, .. } => burst,
        LimitPlan::Window { .. } | LimitPlan::Sliding { .. } => 0,
    });
    each.max().unwrap_or(0)
}

/// Of what is asked from a moment on.
fn too_little(case: &Case<'_>, from_us: u64, (hundredths, missing): (u64, u64)) -> Option<String> {
    let later = case.hits.iter().filter(|hit| hit.requested_us >= from_us);
    let passed: u64 = later.filter(|hit| hit.allowed).map(|hit| hit.cost).sum();
    let might = on_one_node(case, from_us)?;
    let max_cost = case.hits.iter().map(|hit| hit.cost).max().unwrap_or(1);
    let least = (might * hundredths / 100).saturating_sub(missing + 2 * max_cost);
    (passed < least)
        .then(|| format!("only {passed} of {might} passed that might, from {from_us} on"))
}

/// What passes if one node is asked for all of it, after what passed before.
fn on_one_node(case: &Case<'_>, from_us: u64) -> Option<u64> {
    let counts = |hit: &&Hit| hit.allowed || hit.requested_us >= from_us;
    let mut hits: Vec<Hit> = case.hits.iter().filter(counts).copied().collect();
    // What passed before did so at the latest when it was answered: it may be of a later window
    // than it was asked in.
    let at =
        |hit: &Hit| if hit.requested_us < from_us { hit.answered_us } else { hit.requested_us };
    hits.sort_by_key(at);
    let clock = ManualClock::new();
    let rules = rules_of(&case.scenario.yaml(false)).ok()?;
    let engine = Engine::builder(rules).clock(clock.clone()).build().ok()?;
    let mut passed = 0;
    for hit in &hits {
        clock.set(Timestamp::from_micros(at(hit)));
        let (key, value) = (format!("rule{}", hit.rule), format!("who{}", hit.identity));
        let entries = [Entry::new(&key, &value)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "sim", descriptors: &descriptors, hits: hit.cost };
        if engine.check(&request).allowed && hit.requested_us >= from_us {
            passed += hit.cost;
        }
    }
    Some(passed)
}

/// Of nodes that are asked the same, at an even pace.
fn unfair(case: &Case<'_>) -> Option<String> {
    let first = case.hits.first()?;
    let streams = case.scenario.streams.iter();
    let mut streams =
        streams.filter(|stream| stream.rule == first.rule && stream.identity == first.identity);
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
    is_unfair
        .then(|| format!("of {total} that passed, nodes that were asked the same had {shares:?}"))
}
