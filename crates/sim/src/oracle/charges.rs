//! At every time the remaining, leased and admitted quota of a window sum to at most its limit.
//!
//! This is stronger than the observable property: an uncharged lease, or a missing re-push after
//! data loss, is a violation before any excess passes.

use super::Case;
use super::allowance::{Allowance, synced_by};
use crate::scenario::{Fault, LevelPlan, LimitPlan, Policy};
use crate::world::Sample;

/// The first violating sample, if any.
pub(super) fn judge(case: &Case<'_>, limit: LimitPlan) -> Option<String> {
    let first = case.hits.first()?;
    let is_eventual = matches!(case.plan.level, LevelPlan::Eventual { .. });
    // Local shares are charged later, and reloaded limits have other counts.
    let is_other = case.plan.policy == Policy::Local && !case.scenario.is_fault_free();
    if is_eventual || is_other || case.scenario.fault_plan.reloads() {
        return None;
    }
    let allowance = Allowance::new(case, limit);
    let unsynced: Vec<(u64, u64)> = case
        .history
        .faults
        .iter()
        .filter(|(_, fault)| matches!(fault, Fault::FailOver(_) | Fault::LoseAll))
        .map(|(at, _)| (*at, synced_by(case, *at)))
        .collect();
    let is_synced = |at: u64| !unsynced.iter().any(|(from, to)| (*from..=*to).contains(&at));
    let is_wrong = |sample: &&Sample| {
        // Leases acquired before the re-push are excess too, and may still be held.
        let has_lost_data = unsynced.iter().any(|(from, _)| *from <= sample.at_us);
        let held = if has_lost_data { 0 } else { sample.held };
        let known = i128::from(sample.passed) + i128::from(held) + i128::from(sample.left);
        let beyond = allowance.between(0, sample.at_us);
        known > i128::from(limit.capacity()) + i128::from(beyond)
    };
    let samples = case.history.samples.iter().filter(|sample| {
        (sample.rule, sample.identity, sample.limit) == (first.rule, first.identity, limit)
            && is_synced(sample.at_us)
    });
    samples.into_iter().find(is_wrong).map(|sample| {
        format!(
            "at {} {} had passed in this window, {} were held and {} left, of {}",
            sample.at_us,
            sample.passed,
            sample.held,
            sample.left,
            limit.capacity()
        )
    })
}
