//! Granting leases: see [`crate::lease`].

use super::Account;
use crate::arithmetic::{EXACT_MAX, clamp_amount};
use crate::lease::{Grant, LeaseDemand, LeaseReply, NodeLease, NodeLeases, TTL_MAX, WEIGHT_MAX};
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::time::{NOW_MAX, Timestamp};

impl Account {
    /// The leases of this identity.
    #[must_use]
    pub const fn leases(&self) -> &NodeLeases {
        &self.leases
    }

    /// The same account with these leases.
    #[must_use]
    pub fn with_leases(self, leases: NodeLeases) -> Self {
        Self { leases, ..self }
    }

    /// Processes a lease call of a node.
    ///
    /// The grant is at most half of the remaining quota, shared with other nodes by demand. It is
    /// charged to every limit at once and expires after its TTL, or with the first window of any
    /// limit that ends.
    ///
    /// ```
    /// use sluicegate_core::account::{Account, Moment};
    /// use sluicegate_core::algorithm::token_bucket::TokenBucket;
    /// use sluicegate_core::lease::{LeaseDemand, LeaseReply};
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::op::Op;
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let rate = Rate::new(10, Span::from_secs(1)).unwrap();
    /// let plan = [EnforcedLimit::hard(Limit::TokenBucket(TokenBucket::new(rate, 100).unwrap()))];
    /// let mut account = Account::default();
    /// let ttl = Span::from_secs(10);
    /// let demand = LeaseDemand { node: 7, serial: 1, give: 0, hold: 0, want: 60, ttl };
    /// let now = Timestamp::EPOCH;
    /// let LeaseReply::Granted(grant) = account.lease(&plan, &demand, now) else { panic!() };
    /// assert_eq!((grant.granted, grant.remaining), (50, 50), "half of it");
    /// let LeaseReply::Granted(retried) = account.lease(&plan, &demand, now) else { panic!() };
    /// assert_eq!(retried.granted, 50, "the same call again has the same grant");
    ///
    /// // Five seconds would fill the bucket, but half of it is leased.
    /// let later = Moment::at(Timestamp::EPOCH.after(Span::from_secs(9)));
    /// let peek = account.apply(&plan, Op::Peek { cost: 1 }, later).unwrap();
    /// assert_eq!(peek.verdict.remaining, Some(50));
    /// ```
    pub fn lease(
        &mut self,
        plan: &[EnforcedLimit],
        demand: &LeaseDemand,
        now: Timestamp,
    ) -> LeaseReply {
        let now = now.min(NOW_MAX);
        if plan.is_empty() || !plan.iter().all(EnforcedLimit::is_leasable) {
            return LeaseReply::Unfit;
        }
        match self.leases.of_node(demand.node, now).copied() {
            Some(own) if own.serial > demand.serial => return LeaseReply::Stale,
            Some(own) if own.serial == demand.serial => {
                return self.repeat(plan, own, demand, now);
            }
            _ => {}
        }
        self.open(plan, now);
        let grant = self.process_lease(plan, demand, now);
        self.close(plan, now);
        LeaseReply::Granted(grant)
    }

    /// The grant of a call that was processed before, for a node that lost the reply. Nothing
    /// changes.
    fn repeat(
        &self,
        plan: &[EnforcedLimit],
        own: NodeLease,
        demand: &LeaseDemand,
        now: Timestamp,
    ) -> LeaseReply {
        let mut copy = self.clone();
        copy.open(plan, now);
        let granted = own.amount.checked_sub(demand.hold);
        LeaseReply::Granted(Grant {
            granted: granted.unwrap_or(0),
            until: own.until,
            // Otherwise the quota held was no longer valid.
            valid: granted.is_some(),
            returned: false,
            remaining: copy.min(plan, |limit, state| limit.available(state, EXACT_MAX, now)),
        })
    }

    fn process_lease(
        &mut self,
        plan: &[EnforcedLimit],
        demand: &LeaseDemand,
        now: Timestamp,
    ) -> Grant {
        let own = self.leases.take(demand.node);
        let nothing = Grant { granted: 0, until: now, valid: false, returned: false, remaining: 0 };
        // A node without a lease and without demand leaves no trace.
        if own.is_none() && (demand.want == 0 || self.leases.is_full()) {
            return Grant {
                remaining: self.min(plan, |limit, state| limit.available(state, EXACT_MAX, now)),
                ..nothing
            };
        }
        // A node that reports more than its lease has it from a store that lost data.
        let decision = demand.give.saturating_add(demand.hold);
        let valid = own.is_some_and(|own| decision <= own.amount);
        let returned = valid && demand.give > 0;
        if returned {
            self.each(plan, |limit, state| limit.refund(state, demand.give, now));
        }
        let granted = match self.lease_ends(plan, demand, now) > now {
            true => {
                let room = self.min(plan, |limit, state| limit.leasable(state, now));
                self.leases.share(room, demand.want)
            }
            false => 0,
        };
        if granted > 0 {
            self.each(plan, |limit, state| limit.charge_lease(state, granted, now));
        }
        // A window aligned to the first hit begins with this charge.
        let until = self.lease_ends(plan, demand, now);
        if until > now {
            let hold = if valid { demand.hold } else { 0 };
            self.leases.insert(NodeLease {
                node: demand.node,
                serial: demand.serial,
                amount: clamp_amount(hold.saturating_add(granted)),
                weight: demand.want.min(WEIGHT_MAX),
                until,
            });
        }
        let remaining = self.min(plan, |limit, state| limit.available(state, EXACT_MAX, now));
        Grant { granted, until, valid, returned, remaining }
    }

    /// When a lease granted now expires.
    fn lease_ends(
        &self,
        plan: &[EnforcedLimit],
        demand: &LeaseDemand,
        now: Timestamp,
    ) -> Timestamp {
        let states = plan.iter().zip(&self.states);
        let ends = states.filter_map(|(step, state)| step.limit.lease_ends(&state.plain));
        ends.fold(now.after(demand.ttl.min(TTL_MAX)), Timestamp::min)
    }

    fn min(&self, plan: &[EnforcedLimit], of: impl Fn(&Limit, &State) -> u64) -> u64 {
        let states = plan.iter().zip(&self.states);
        states.map(|(step, state)| of(&step.limit, &state.plain)).min().unwrap_or(0)
    }

    /// Keeps at least the leased quota in use.
    pub(super) fn enforce_leases(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        if self.leases.is_empty() {
            return;
        }
        let leases = std::mem::take(&mut self.leases);
        self.each(plan, |limit, state| limit.enforce_leases(state, &leases, now));
        self.leases = leases;
    }

    /// When the last lease has no effect any more.
    pub(super) fn leased_until(&self, plan: &[EnforcedLimit]) -> Timestamp {
        if self.leases.is_empty() {
            return Timestamp::EPOCH;
        }
        let limits = plan.iter().flat_map(|step| [Some(&step.limit), step.boost.as_ref()]);
        let last = self.leases.nodes().last().map(|lease| lease.until).unwrap_or_default();
        limits.flatten().map(|limit| limit.leased_until(&self.leases)).fold(last, Timestamp::max)
    }
}
