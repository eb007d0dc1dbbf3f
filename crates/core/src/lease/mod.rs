//! Leases: quota that nodes have bought ahead from one identity's limits, to decide locally.
//!
//! A lease is charged to every limit when it is granted. The store then does not know when it is
//! used, only when it expires, so it counts as used at the latest possible moment:
//!
//! ```text
//!   level
//!   burst |          ________________           a bucket with 4 leased refills to burst - 4;
//!       4 |--.  .---'                :\.---     when the lease expires, it is as if the 4 had been
//!         |  '--' leased             : until    taken at that moment
//!         +---------------------------------> time
//! ```
//!
//! Hence level + outstanding <= burst at any time, and any span admits at most burst + rate x time,
//! whichever node admits: quota held when the span begins is in use by then, and the rest is
//! charged within the span. Quota leased from a window must be used in that window.
//!
//! **Expiry** is lazy: every operation on the identity counts expired leases as used and removes
//! them (`Account::open`). How long a new one lasts is computed in `account/lease.rs`.
//!
//! Greedy token buckets, fixed and sliding windows can be leased
//! ([`Limit::is_leasable`](crate::limit::Limit::is_leasable)).

mod limit;

use crate::arithmetic::{clamp_amount, muldiv};
use crate::time::{CLOCK_SLACK, Span, Timestamp};
use std::num::NonZeroU64;

/// Maximum number of nodes that hold leases of one identity at a time.
pub const NODES_MAX: usize = 64;
/// Maximum lease duration. Longer requests are shortened to it.
pub const TTL_MAX: Span = Span::from_secs(600);
/// Maximum weight of one node's demand when nodes share the available quota.
pub const WEIGHT_MAX: u64 = 1 << 40;

/// The lease of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLease {
    /// The node.
    pub node: u64,
    /// Serial of the last call processed. Older calls change nothing.
    pub serial: u64,
    /// Upper bound of the quota it still holds.
    pub amount: u64,
    /// Its demand.
    pub weight: u64,
    /// When the lease expires.
    pub until: Timestamp,
}

/// The leases of all nodes, by expiry.
///
/// ```
/// use sluicegate_core::lease::{NodeLease, NodeLeases};
/// use sluicegate_core::time::Timestamp;
///
/// let until = |s: u64| Timestamp::from_micros(s * 1_000_000);
/// let lease = |node, amount, s| NodeLease { node, serial: 1, amount, weight: 1, until: until(s) };
/// let leases = NodeLeases::new([lease(7, 20, 9), lease(8, 5, 3)]).unwrap();
/// assert_eq!([2, 3, 9].map(|s| leases.outstanding(until(s))), [25, 20, 0]);
/// assert_eq!(NodeLeases::new([lease(7, 20, 9), lease(7, 5, 3)]), None, "one lease per node");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeLeases(Vec<NodeLease>);

/// One lease call of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDemand {
    /// The node.
    pub node: u64,
    /// Higher than in its previous calls.
    pub serial: u64,
    /// Unused quota it returns.
    pub give: u64,
    /// Quota it holds after that.
    pub hold: u64,
    /// Quota it wants in addition.
    pub want: u64,
    /// Requested duration.
    pub ttl: Span,
}

/// The reply to a lease call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseReply {
    /// The call was processed.
    Granted(Grant),
    /// A later call was processed already. Nothing has changed.
    Stale,
    /// A limit of the plan cannot be leased. Nothing has changed.
    Unfit,
}

/// What a node is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Additional quota.
    pub granted: u64,
    /// When the grant and the quota held expire (exclusive).
    pub until: Timestamp,
    /// Whether the quota that the node holds is still valid.
    pub valid: bool,
    /// Whether quota was returned to the limits.
    pub returned: bool,
    /// Quota left for all nodes.
    pub remaining: u64,
}

impl NodeLeases {
    /// `None` if there are too many leases, or two of one node.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeLease>) -> Option<Self> {
        let mut leases = Self::default();
        for lease in nodes {
            let is_known = leases.0.iter().any(|known| known.node == lease.node);
            (!is_known && leases.0.len() < NODES_MAX).then_some(())?;
            leases.insert(lease);
        }
        Some(leases)
    }

    /// The leases, by expiry.
    #[must_use]
    pub fn nodes(&self) -> &[NodeLease] {
        &self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Upper bound of the quota that all nodes hold at `now`.
    #[must_use]
    pub fn outstanding(&self, now: Timestamp) -> u64 {
        let live = self.0.iter().filter(|lease| lease.until > now);
        live.fold(0, |sum, lease| clamp_amount(sum.saturating_add(lease.amount)))
    }

    /// The expiry of each lease, latest first, with the quota that all nodes may hold just before
    /// it.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.0.iter().rev().scan(0u64, |held, lease| {
            *held = clamp_amount(held.saturating_add(lease.amount));
            Some((lease.until, *held))
        })
    }

    /// The lease of a node, if it has not expired.
    pub(crate) fn of_node(&self, node: u64, now: Timestamp) -> Option<&NodeLease> {
        self.0.iter().find(|lease| lease.node == node && lease.until > now)
    }

    /// Removes the lease of a node.
    pub(crate) fn take(&mut self, node: u64) -> Option<NodeLease> {
        let index = self.0.iter().position(|lease| lease.node == node)?;
        Some(self.0.remove(index))
    }

    /// Inserts a lease in order of expiry.
    pub(crate) fn insert(&mut self, lease: NodeLease) {
        let order = |lease: &NodeLease| (lease.until, lease.node);
        let index = self.0.partition_point(|before| order(before) < order(&lease));
        self.0.insert(index, lease);
    }

    /// Whether there is no room for another node.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= NODES_MAX
    }

    /// The grant for a demand of `want`: a share of half of `room`, by demand.
    pub(crate) fn share(&self, room: u64, want: u64) -> u64 {
        let own = want.min(WEIGHT_MAX);
        let all = self.0.iter().fold(own, |sum, lease| sum.saturating_add(lease.weight));
        // A foreign record may hold any weight; ours are far below the bound.
        let all = clamp_amount(all.saturating_mul(2));
        NonZeroU64::new(all).map_or(0, |all| muldiv(room, own, all).quotient.min(want))
    }

    /// After the clock was set back: no lease lasts longer than [`TTL_MAX`].
    pub(crate) fn clamp_expiry(&mut self, now: Timestamp) {
        let latest = now.after(TTL_MAX);
        if self.0.last().is_some_and(|last| last.until > latest.after(CLOCK_SLACK)) {
            for lease in std::mem::take(&mut self.0) {
                self.insert(NodeLease { until: lease.until.min(latest), ..lease });
            }
        }
    }

    /// Removes expired leases.
    pub(crate) fn remove_expired(&mut self, now: Timestamp) {
        self.0.retain(|lease| lease.until > now);
    }

    /// Merges the latest lease of each node.
    pub(crate) fn join(&mut self, seen: &Self) {
        for lease in &seen.0 {
            match self.0.iter().find(|own| own.node == lease.node) {
                Some(own) if own.serial >= lease.serial => continue,
                None if self.is_full() => continue,
                _ => {}
            }
            self.take(lease.node);
            self.insert(*lease);
        }
    }
}
