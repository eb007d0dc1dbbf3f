//! What nodes decided by themselves, counted by rule: what was promised beside what was seen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sluicegate::Snapshot;
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::RuleNo;

use crate::store::RuleWeight;

/// What this node decided by itself under one rule, and how far it was off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleLevel {
    /// What the rule says.
    pub consistency: Consistency,
    /// Hits that were decided without asking the store.
    pub local: u64,
    /// Hits that the store was asked for all the same.
    pub asked: u64,
    /// How many identities this node has leased now.
    pub leases: u64,
    /// What it holds unspent: as much less may pass if it dies now.
    pub short_bound: u64,
    /// What ran out unspent: as much less has passed.
    pub short_observed: u64,
    /// Calls that bought or gave back.
    pub lease_calls: u64,
    /// Identities that came to be leased.
    pub promoted: u64,
    /// Identities that ceased to be.
    pub demoted: u64,
    /// Identities that are told to the others, and theirs heard.
    pub synced: u64,
    /// How often counts were told to the others.
    pub pushes: u64,
    /// How often that failed, and was said again.
    pub pushes_failed: u64,
    /// The most that others admitted to one identity between two syncs: as much more may have passed.
    pub over_bound: u64,
    /// The most that the total of one window was above its limit, as heard.
    pub over_observed: u64,
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(crate) struct LevelCounters {
    pub(super) local: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) leases: AtomicU64,
    pub(super) short_bound: AtomicU64,
    pub(super) short_observed: AtomicU64,
    pub(super) lease_calls: AtomicU64,
    pub(super) promoted: AtomicU64,
    pub(super) demoted: AtomicU64,
    pub(super) synced: AtomicU64,
    pub(super) pushes: AtomicU64,
    pub(super) pushes_failed: AtomicU64,
    pub(super) over_bound: AtomicU64,
    pub(super) over_observed: AtomicU64,
}

// === impl LevelCounters ===

impl LevelCounters {
    /// As they stand.
    pub(super) fn read(&self, consistency: Consistency) -> RuleLevel {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuleLevel {
            consistency,
            local: read(&self.local),
            asked: read(&self.asked),
            leases: read(&self.leases),
            short_bound: read(&self.short_bound),
            short_observed: read(&self.short_observed),
            lease_calls: read(&self.lease_calls),
            promoted: read(&self.promoted),
            demoted: read(&self.demoted),
            synced: read(&self.synced),
            pushes: read(&self.pushes),
            pushes_failed: read(&self.pushes_failed),
            over_bound: read(&self.over_bound),
            over_observed: read(&self.over_observed),
        }
    }
}

/// State of this backend that a rule carries over reloads.
#[derive(Debug, Default)]
pub(super) struct RuleState {
    pub(super) levels: Arc<LevelCounters>,
    /// Cost of a hit in this node's memory while the store does not answer.
    pub(super) weight: OnceLock<Arc<RuleWeight>>,
}

/// State of this backend for a rule.
#[inline]
pub(super) fn rule_state<'a>(rules: &'a Snapshot<'_>, no: RuleNo) -> &'a RuleState {
    rules.rule_state(no).extension().get_or_init(RuleState::default)
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Takes from one that says how much there is.
pub(super) fn take(counter: &AtomicU64, amount: u64) {
    counter.fetch_sub(amount, Ordering::Relaxed);
}
