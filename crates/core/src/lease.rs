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

use std::num::NonZeroU64;

use crate::algorithm::Algorithm;
use crate::algorithm::gcra::{self, Gcra, GcraState};
use crate::algorithm::periodic::PeriodicVariant;
use crate::arithmetic::{EXACT_MAX, clamp_amount, muldiv, signed};
use crate::limit::{Kernel, Limit, State};
use crate::mode::EnforcedLimit;
use crate::quota::ExactTime;
use crate::time::{CLOCK_SLACK, Span, Timestamp};

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

impl EnforcedLimit {
    /// Whether this step can be leased: a hard limit of a leasable kind.
    #[must_use]
    pub fn is_leasable(&self) -> bool {
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        hard && self.limit.is_leasable()
    }
}

impl Limit {
    /// Whether quota of this limit can be leased without admitting more: greedy token buckets,
    /// fixed and sliding windows.
    ///
    /// ```
    /// use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::Span;
    ///
    /// let bucket = TokenBucket::new(Rate::new(5, Span::from_secs(1)).unwrap(), 9).unwrap();
    /// assert!(Limit::TokenBucket(bucket).is_leasable());
    /// assert!(!Limit::TokenBucket(bucket.with_refill(Refill::Interval).unwrap()).is_leasable());
    /// ```
    #[must_use]
    pub fn is_leasable(&self) -> bool {
        match self.kernel() {
            Kernel::Gcra(gcra) => gcra.variant == gcra::Variant::Bucket,
            Kernel::Periodic(periodic) => periodic.variant == PeriodicVariant::Window,
            Kernel::Counter(_) => true,
            _ => false,
        }
    }

    /// Keeps at least the leased quota in use, and what expired leases may have used.
    pub(crate) fn enforce_leases(&self, state: &mut State, leases: &NodeLeases, now: Timestamp) {
        match (self.kernel(), state) {
            (Kernel::Gcra(gcra), State::Gcra(state)) if gcra.variant == gcra::Variant::Bucket => {
                let leased = gcra.leased_tat(leases, now);
                if leased > state.tat {
                    state.tat = leased;
                    gcra.stamp(state, now);
                }
            }
            // Forced additions beyond the window stay.
            (Kernel::Periodic(periodic), State::Periodic(state))
                if periodic.variant == PeriodicVariant::Window
                    && state.level <= periodic.capacity_signed() =>
            {
                let max =
                    periodic.capacity_signed().saturating_sub(signed(leases.outstanding(now)));
                state.level = state.level.min(max);
            }
            // Nothing passes before a booked window.
            (Kernel::Counter(_), State::Counter(state)) if state.start <= now => {
                state.current = state.current.max(leases.outstanding(now));
            }
            _ => {}
        }
    }

    /// When leases have no effect any more, if all are used as late as possible.
    pub(crate) fn leased_until(&self, leases: &NodeLeases) -> Timestamp {
        match self.kernel() {
            Kernel::Gcra(gcra) => gcra.leased_tat(leases, Timestamp::MAX).ceil(),
            _ => leases.nodes().last().map(|lease| lease.until).unwrap_or_default(),
        }
    }

    /// The leasable quota of an open state. Extra units of a bucket are not leased.
    pub(crate) fn leasable(&self, state: &State, now: Timestamp) -> u64 {
        match (self.kernel(), state) {
            (Kernel::Gcra(gcra), State::Gcra(state)) => {
                gcra.available(&GcraState { extra: 0, ..*state }, EXACT_MAX, now)
            }
            _ => self.available(state, EXACT_MAX, now),
        }
    }

    /// Charges leased quota.
    pub(crate) fn charge_lease(&self, state: &mut State, amount: u64, now: Timestamp) {
        if let (Kernel::Gcra(gcra), State::Gcra(state)) = (self.kernel(), &mut *state) {
            let (extra, seen) = (state.extra, state.seen);
            state.extra = 0;
            gcra.spend(state, amount, now, now);
            if extra > 0 {
                (state.extra, state.seen) = (extra, seen);
                gcra.stamp(state, now);
            }
            return;
        }
        self.spend(state, amount, now, now);
    }

    /// When quota leased now expires, if the limit determines it.
    pub(crate) fn lease_ends(&self, state: &State) -> Option<Timestamp> {
        match (self.kernel(), state) {
            (Kernel::Periodic(periodic), State::Periodic(state)) => {
                Some(periodic.period.nth_after(state.anchor, 1))
            }
            (Kernel::Counter(window), State::Counter(state)) => {
                Some(state.start.after(window.window_span()))
            }
            _ => None,
        }
    }
}

impl Gcra {
    /// The TAT due to leases: at each expiry so far, and now, as much is in use as was held until
    /// then.
    fn leased_tat(&self, leases: &NodeLeases, now: Timestamp) -> ExactTime {
        let marks = leases.ends().filter(|(_, held)| *held > 0).map(|(until, held)| {
            self.rate.later(ExactTime::at(until.min(now)), self.rate.time_of(held))
        });
        marks.max().unwrap_or_default()
    }
}
