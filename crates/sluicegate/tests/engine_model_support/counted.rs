//! What became of hits, counted naively.

use std::collections::HashMap;

use sluicegate::Stats;
use sluicegate_core::account::Account;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::State;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::rule::{Limits, RuleConfig};

use super::matching::Lasting;

/// The counts of all rules, and those of limits that came with requests.
#[derive(Debug, Default)]
pub struct Counts {
    pub rules: HashMap<Lasting, Stats>,
    pub overrides: Stats,
}

/// Four fifths, rounded down.
const fn near(limit: u64) -> u64 {
    limit * 4 / 5
}

fn is_over(verdict: &Verdict) -> bool {
    !verdict.outcome.is_allowed() || verdict.shadow.is_some_and(|said| !said.is_allowed())
}

/// A hit on a counter that counts everything, in the words of envoyproxy/ratelimit.
pub fn on_counter(stats: &mut Stats, limit: u32, cost: u64, account: &Account, verdict: &Verdict) {
    let limit = u64::from(limit);
    let hits = cost.min(EXACT_MAX);
    let Some(State::Tally(state)) = account.state(0) else {
        assert_eq!(hits, 0, "a hit leaves something");
        return;
    };
    if hits == 0 {
        return;
    }
    let after = state.count;
    let before = after.saturating_sub(hits);
    stats.total_hits += hits;
    if is_over(verdict) {
        let over = if before >= limit { hits } else { after - limit };
        stats.over_limit += over;
        if before < limit {
            stats.near_limit += limit - near(limit).max(before);
        }
        if verdict.shadow.is_some() {
            stats.shadow_mode += over;
        }
    } else {
        stats.within_limit += hits;
        if after > near(limit) {
            stats.near_limit += if before >= near(limit) { hits } else { after - near(limit) };
        }
    }
}

/// A hit on limits that are charged all or not at all.
pub fn on_rule(stats: &mut Stats, rule: &RuleConfig, cost: u64, verdict: &Verdict, now: Timestamp) {
    let cost = cost.min(EXACT_MAX);
    stats.total_hits += cost;
    if is_over(verdict) {
        stats.over_limit += cost;
        stats.shadow_mode += if verdict.shadow.is_some() { cost } else { 0 };
        return;
    }
    stats.within_limit += cost;
    let Limits::Native(limits) = &rule.limits else { panic!("{rule:?}") };
    let least = verdict.decided_by.and_then(|place| limits[place].at(now).capacity());
    if let (Some(quota), Some(left)) = (least, verdict.remaining)
        && i128::from(quota) - i128::from(left) > i128::from(near(quota))
    {
        stats.near_limit += cost;
    }
}
