//! Decisions without the store, for steps that it did not answer: each rule's failure policy.
//!
//! The order of decisions is that of every request (`sluicegate::backend::Admission`): policies
//! that admit or deny come first, then steps that are charged by themselves, then those that are
//! charged all or nothing. A request that these verdicts deny is denied; otherwise one step of a
//! rule with `error` makes it an error, and nothing is charged. What `local` admits is charged to
//! this node's share of the quota that it last observed in the store, and reconciled with the store
//! afterwards (`reconcile`).

use std::sync::Arc;

use sluicegate::backend::{
    Call, Combine, DENIED_WITHOUT_STORE, Operation, StoreError, UNCOUNTED, apply_each, limits_of,
    repeat,
};
use sluicegate::{Snapshot, Status};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::OnStoreFailure;
use sluicegate_rules::set::RuleNo;

use super::RedisBackend;
use super::levels::rule_state;
use super::steps::RedisStep;
use crate::CallError;
use crate::store::RuleWeight;

impl RedisBackend {
    /// The most that this node admits for one key of a rule while the store does not answer: its
    /// share of the limit. `None` where another policy applies, or nothing is counted.
    #[must_use]
    pub fn outage_bound(&self, rules: &Snapshot<'_>, no: RuleNo) -> Option<u64> {
        let config = rules.rules().rule(no);
        if config.on_store_failure != OnStoreFailure::Local {
            return None;
        }
        let (limits, now) = (limits_of(config), self.clock.now());
        let capacity = limits.iter().filter_map(|limit| limit.at(now).capacity()).min()?;
        let weight = self.rule_weight(rules, no).get().for_limit(capacity, 1, self.store.nodes());
        let share = weight.part_of(i64::try_from(capacity).unwrap_or(i64::MAX));
        // Of a limit that cannot be divided each node has one.
        Some(u64::try_from(share).unwrap_or(0).max(capacity.min(1)))
    }

    /// Decides steps that the store did not answer. `statuses` has the verdicts of all others.
    ///
    /// # Errors
    /// When a rule has `on_store_failure: error` and no verdict denies the request. Its step counts
    /// as admitted in `statuses`: unknown, it denies nothing.
    pub(super) fn fall_back(
        &self,
        operation: Operation,
        (&Call { rules, holder, .. }, plan): (&Call<'_>, &Plan),
        steps: &[&RedisStep<'_>],
        error: &CallError,
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        steps.iter().for_each(|step| self.store.fell_back(step.on_store_failure));
        let can_deny = matches!(operation, Operation::Hit | Operation::Peek);
        for step in steps {
            statuses[step.index].verdict = match step.on_store_failure {
                OnStoreFailure::Local => continue,
                OnStoreFailure::Deny if !step.is_shadow && can_deny => DENIED_WITHOUT_STORE,
                OnStoreFailure::Allow | OnStoreFailure::Deny | OnStoreFailure::Error => UNCOUNTED,
            };
        }
        let local = || steps.iter().filter(|step| step.on_store_failure == OnStoreFailure::Local);
        let now = self.store.store_time();
        // A rule in shadow mode decides nothing, not even that there is an error.
        let fails = |step: &&&RedisStep<'_>| {
            step.on_store_failure == OnStoreFailure::Error && !step.is_shadow
        };
        if let Some(step) = steps.iter().find(fails) {
            repeat(rules, operation, plan, statuses);
            let local: Vec<&RedisStep<'_>> = local().copied().collect();
            let shares_deny = || self.shares_deny((rules, plan), &local, now, statuses);
            if !can_deny || rules.admits(statuses) && !shares_deny() {
                return Err(StoreError { failure: error.into(), descriptor: step.index });
            }
        }
        if local().next().is_some() {
            self.store.decides_locally();
        }
        let (together, independent): (Vec<&RedisStep<'_>>, Vec<&RedisStep<'_>>) =
            local().partition(|step| step.mode.combine == Combine::AllOrNothing);
        for step in independent {
            self.apply_to_share(operation, &[step], now, holder, statuses);
        }
        repeat(rules, operation, plan, statuses);
        let is_denied = operation == Operation::Hit && !rules.admits(statuses);
        let operation = if is_denied { Operation::Peek } else { operation };
        self.apply_to_share(operation, &together, now, holder, statuses);
        Ok(())
    }

    /// Whether this node's shares would deny a request. Nothing is charged.
    fn shares_deny(
        &self,
        (rules, plan): (&Snapshot<'_>, &Plan),
        steps: &[&RedisStep<'_>],
        now: Timestamp,
        statuses: &[Status],
    ) -> bool {
        let mut statuses = statuses.to_vec();
        for (place, step) in steps.iter().enumerate() {
            self.seed_share(step, now);
            // A counter that is charged more than once has to have room for all of it.
            let same = steps[..=place].iter().filter(|other| other.script.key == step.script.key);
            let charges = same.map(|step| self.charge_of(Operation::Peek, step));
            let cost = charges.fold(0, u64::saturating_add);
            statuses[step.index].verdict = step.counter.apply(Op::Peek { cost }, now);
        }
        repeat(rules, Operation::Peek, plan, &mut statuses);
        !rules.admits(&statuses)
    }

    /// Starts this node's share of a counter from the record that it last observed in the store.
    fn seed_share(&self, step: &RedisStep<'_>, now: Timestamp) {
        if let Some(observed) = self.store.local_seed(&step.script) {
            step.counter.replace(observed, now);
            self.charge_peers_leases(step, now);
        }
    }

    /// Applies an operation to this node's share, all or nothing: each hit costs as much as if it
    /// came to all nodes at once.
    fn apply_to_share(
        &self,
        operation: Operation,
        steps: &[&RedisStep<'_>],
        now: Timestamp,
        holder: Option<Holder>,
        statuses: &mut [Status],
    ) {
        if steps.is_empty() {
            return;
        }
        steps.iter().for_each(|step| self.seed_share(step, now));
        let counters: Vec<_> =
            steps.iter().map(|step| (step.counter, self.charge_of(operation, step))).collect();
        let (nodes, mut verdicts) = (self.store.nodes(), Vec::new());
        // No algorithm refuses a peek, or a hit that brings its own id.
        let op = |cost| operation.op(cost, holder);
        let _ = apply_each(&counters, &op, now, &mut verdicts);
        let is_admitted = operation == Operation::Hit && verdicts.iter().all(Verdict::is_allowed);
        for ((step, verdict), (_, charge)) in steps.iter().zip(verdicts).zip(&counters) {
            if is_admitted {
                self.carry_over(step, *charge, now);
            }
            let remaining = verdict.remaining.map(|left| step.weight(nodes).part_of(left));
            statuses[step.index].verdict = Verdict { remaining, ..verdict };
        }
    }

    /// A record that was observed when this node last acquired a lease lacks what its peers
    /// acquired since. By demand that is as much as this node holds, for each of them.
    fn charge_peers_leases(&self, step: &RedisStep<'_>, now: Timestamp) {
        let held = self.leases.held(self.store.hash_of(step.counter.key));
        let peers = step.weight(self.store.nodes()).whole(held).saturating_sub(held);
        if peers > 0 {
            let _ = step.counter.apply(Op::Take { cost: peers }, now);
        }
    }

    /// Weight of a hit on this node: the limit divided by the node's share of it, which follows
    /// the demand from the first hit on.
    pub(super) fn rule_weight<'a>(&self, rules: &'a Snapshot<'_>, no: RuleNo) -> &'a RuleWeight {
        rule_state(rules, no).weight.get_or_init(|| {
            let state = Arc::downgrade(rules.rule_state(no));
            let hits = move || Some(state.upgrade()?.stats().total_hits);
            self.store.watch_demand(&rules.rules().stable_key(no), hits)
        })
    }

    /// The charge of a step in this node's memory.
    fn charge_of(&self, operation: Operation, step: &RedisStep<'_>) -> u64 {
        let weight = step.weight(self.store.nodes());
        let charge = match operation {
            Operation::Hit | Operation::Peek | Operation::Reset => {
                self.store.would_charge(&step.script, weight)
            }
            Operation::Refund => weight.whole(step.script.cost),
        };
        cap_charge(step, charge)
    }

    /// Carries the rounding of a charge over to the next hit of the identity. Only after a charge:
    /// otherwise just the hits that are rounded down would pass a limit in constant use.
    fn carry_over(&self, step: &RedisStep<'_>, charged: u64, now: Timestamp) {
        let weight = step.weight(self.store.nodes());
        let due = cap_charge(step, self.store.charge(&step.script, weight));
        // Another request may have been charged meanwhile.
        match due.checked_sub(charged) {
            Some(0) => {}
            Some(more) => {
                let _ = step.counter.apply(Op::Charge { cost: more }, now);
            }
            None => {
                let _ = step.counter.apply(Op::Refund { cost: charged - due }, now);
            }
        }
    }
}

/// Of a limit that is smaller than the weight of a hit each node has one.
fn cap_charge(step: &RedisStep<'_>, charge: u64) -> u64 {
    charge.min(step.script.capacity().max(step.script.cost))
}
