//! Counters of local decisions per rule, with the promised bounds beside the observed errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sluicegate::Snapshot;
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::RuleNo;

use crate::store::RuleWeight;

/// Local decisions of this node under one rule, and their error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleLevel {
    /// Consistency level of the rule.
    pub consistency: Consistency,
    /// Hits decided without the store.
    pub local: u64,
    /// Hits decided by the store.
    pub remote: u64,
    /// Identities leased by this node.
    pub leases: u64,
    /// Unspent leased quota: the shortfall if this node crashes now.
    pub short_bound: u64,
    /// Leased quota that expired unspent: the observed shortfall.
    pub short_observed: u64,
    /// Calls that acquired, renewed or released leases.
    pub lease_calls: u64,
    /// Identities that became leased.
    pub promoted: u64,
    /// Identities whose lease ended.
    pub demoted: u64,
    /// Identities synced with other nodes.
    pub synced: u64,
    /// Pushes of counts.
    pub pushes: u64,
    /// Failed pushes; the next one repeats their counts.
    pub pushes_failed: u64,
    /// Largest number of hits that other nodes admitted to one identity between two syncs: the
    /// bound of the overshoot.
    pub over_bound: u64,
    /// Largest excess of a window's total over its limit: the observed overshoot.
    pub over_observed: u64,
}

/// Counters behind [`RuleLevel`].
#[derive(Debug, Default)]
pub(crate) struct LevelCounters {
    pub(super) local: AtomicU64,
    pub(super) remote: AtomicU64,
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

impl LevelCounters {
    /// Current values.
    pub(super) fn read(&self, consistency: Consistency) -> RuleLevel {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuleLevel {
            consistency,
            local: read(&self.local),
            remote: read(&self.remote),
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

/// Subtracts from a gauge.
pub(super) fn subtract(counter: &AtomicU64, amount: u64) {
    counter.fetch_sub(amount, Ordering::Relaxed);
}
