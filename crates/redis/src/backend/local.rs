//! Decisions of this node, without a call of the store.
//!
//! ```text
//!   leased      covered by the lease of the identity        otherwise the store is called
//!   eventual    own count plus the peers' last counts       if those are stale, they are pulled first
//!   strict      the store is called
//! ```
//!
//! They precede the store: a denial saves the call of all-or-nothing steps, and an admission is
//! undone if the store denies. The store always decides steps that are charged independently.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use sluicegate::backend::{
    BoundStep, Call, ChargedLimits, Combine, Operation, Rule, StoreError, first_same, largest_cost,
};
use sluicegate::{Level, Promise, Snapshot, Status};
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::{Consistency, OnStoreFailure, RuleConfig};
use sluicegate_rules::set::RuleNo;

use super::eventual::Eventual;
use super::levels::{add, rule_state};
use super::steps::RedisStep;
use super::{Group, LevelCounters, RedisBackend};
use crate::CallError;

/// A step that this node may decide.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalStep<'a> {
    pub(super) no: RuleNo,
    pub(super) identity: &'a [u8],
    /// Keyed hash of the identity.
    pub(super) hash: u64,
    pub(super) rule: &'a Arc<Rule>,
    pub(super) consistency: Consistency,
    pub(super) counters: &'a Arc<LevelCounters>,
    pub(super) cost: u64,
}

/// Decision of this node on a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Local {
    /// Decided.
    Decided(Verdict, Promise),
    /// This node has too little information.
    Unknown,
}

/// The steps of a request that this node has decided. The store decides those beyond the 128th.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LocalDecisions {
    decided: u128,
    admitted: u128,
    /// Whether any of them is denied.
    pub(super) denies: bool,
    /// Whether all limited steps are decided.
    pub(super) is_complete: bool,
}

/// Builds hashers of tables that are keyed by the hash of an identity.
pub(super) type BuildPrehashed = BuildHasherDefault<Prehashed>;

/// Passes on keys that are hashes already.
#[derive(Debug, Default)]
pub(super) struct Prehashed(u64);

/// Bits of the sets.
const STEPS_MAX: usize = 128;

impl RedisBackend {
    /// Decides every step that this node can.
    #[inline]
    pub(super) fn decide_locally(
        &self,
        operation: Operation,
        rules: &Snapshot<'_>,
        plan: &Plan,
        statuses: &mut [Status],
        ticks: Timestamp,
    ) -> LocalDecisions {
        let mut local = LocalDecisions { is_complete: true, ..LocalDecisions::default() };
        let is_only = plan.steps().len() == 1;
        for (index, (step, status)) in plan.steps().iter().zip(statuses).enumerate() {
            let is_limited = rules.charge_mode(operation, step).is_some();
            if !is_limited || first_same(plan, index) < index {
                continue;
            }
            let decision = match self.local_step(operation, rules, plan, index) {
                Some(step) => self.decide_step(operation, &step, is_only, ticks),
                None => Local::Unknown,
            };
            match decision {
                Local::Decided(verdict, promise) => {
                    local.insert(index, verdict.is_allowed());
                    (status.verdict, status.promise) = (verdict, promise);
                }
                Local::Unknown => local.is_complete = false,
            }
        }
        local
    }

    /// Decides a step by its lease, or by the counts of all nodes.
    #[inline]
    pub(super) fn decide_step(
        &self,
        operation: Operation,
        step: &LocalStep<'_>,
        is_only: bool,
        ticks: Timestamp,
    ) -> Local {
        match (operation, step.consistency) {
            (Operation::Hit, Consistency::Leased | Consistency::StrictUntilHot) => match is_only {
                true => self.leases.hit(step, ticks),
                false => self.leases.try_hit(step, ticks),
            },
            (Operation::Peek, Consistency::Leased | Consistency::StrictUntilHot) => {
                self.leases.peek(step, ticks)
            }
            (Operation::Hit, Consistency::Eventual { sync_interval }) => {
                let decision = self.eventual.hit(step, sync_interval, ticks);
                add(&step.counters.local, u64::from(decision != Local::Unknown));
                decision
            }
            (Operation::Peek, Consistency::Eventual { sync_interval }) => {
                self.eventual.peek(step, sync_interval, ticks)
            }
            _ => Local::Unknown,
        }
    }

    /// Confirms the admissions of this node, or undoes them if the request is denied.
    pub(super) fn finish_local(
        &self,
        local: LocalDecisions,
        is_admitted: bool,
        rules: &Snapshot<'_>,
        plan: &Plan,
        ticks: Timestamp,
    ) {
        if plan.steps().len() == 1 {
            return;
        }
        for index in local.admitted() {
            let Some(step) = self.local_step(Operation::Hit, rules, plan, index) else { continue };
            match (step.consistency, is_admitted) {
                (Consistency::Eventual { .. }, true) => {}
                (Consistency::Eventual { .. }, false) => self.eventual.undo(&step, ticks),
                (_, true) => self.leases.commit(&step),
                (_, false) => self.leases.undo(&step, ticks),
            }
        }
    }

    /// Removes the steps that this node has decided; and, where it denies, those that are charged
    /// all or nothing.
    pub(super) fn drop_decided(
        &self,
        operation: Operation,
        local: LocalDecisions,
        rules: &Snapshot<'_>,
        plan: &Plan,
        steps: &mut Vec<RedisStep<'_>>,
    ) {
        if !rules.has_local() {
            return;
        }
        let is_in_vain = |step: &RedisStep<'_>| {
            let is_together = step.mode.combine == Combine::AllOrNothing;
            operation == Operation::Hit && local.denies && is_together
        };
        steps.retain(|step| !local.contains(step.index) && !is_in_vain(step));
        if operation == Operation::Hit {
            let ticks = self.clock.ticks();
            for step in steps {
                if let Some(step) = self.local_step(operation, rules, plan, step.index) {
                    self.leases.record_miss(&step, ticks);
                }
            }
        }
    }

    /// Passes the store's verdicts to the leases of steps that this node would decide if it could.
    pub(super) fn observe_replies(
        &self,
        operation: Operation,
        rules: &Snapshot<'_>,
        plan: &Plan,
        groups: &[Group<'_>],
    ) {
        if !rules.has_local() || operation == Operation::Peek {
            return;
        }
        let ticks = self.clock.ticks();
        for group in groups {
            let Ok(answer) = &group.reply else { continue };
            for (step, verdict) in group.steps.iter().zip(&answer.verdicts) {
                let Some(step) = self.local_step(operation, rules, plan, step.index) else {
                    continue;
                };
                match operation {
                    Operation::Hit => self.leases.record_verdict(&step, verdict, ticks),
                    _ => self.leases.clear_denial(step.hash),
                }
            }
        }
    }

    /// A step that this node may decide.
    #[inline]
    pub(super) fn local_step<'a>(
        &self,
        operation: Operation,
        rules: &'a Snapshot<'_>,
        plan: &'a Plan,
        index: usize,
    ) -> Option<LocalStep<'a>> {
        let step = &plan.steps()[index];
        let mode = rules.charge_mode(operation, step).filter(|mode| mode.is_once)?;
        let ChargedLimits::Rule(no) = mode.limits else { return None };
        let config = rules.rules().rule(no);
        if index >= STEPS_MAX || !config.is_decided_locally() {
            return None;
        }
        let identity = plan.identity(step);
        let rule = rules.counter(mode.limits, identity).rule?;
        if is_of_eventual(config) && !Eventual::supports(rule) {
            return None;
        }
        Some(LocalStep {
            no,
            identity,
            hash: self.store.hash_of(identity),
            rule,
            consistency: config.consistency,
            counters: &rule_state(rules, no).levels,
            cost: largest_cost(plan, index),
        })
    }
}

/// Whether the counts of a step are exchanged between nodes.
pub(super) fn is_eventual(rules: &Snapshot<'_>, step: &BoundStep<'_>) -> bool {
    let ChargedLimits::Rule(no) = step.mode.limits else { return false };
    let config = rules.rules().rule(no);
    config.is_decided_locally()
        && is_of_eventual(config)
        && step.counter.rule.is_some_and(|rule| Eventual::supports(rule))
}

fn is_of_eventual(config: &RuleConfig) -> bool {
    matches!(config.consistency, Consistency::Eventual { .. })
}

impl LocalDecisions {
    /// A step is decided for good: there is nothing to undo.
    pub(super) fn insert_final(&mut self, index: usize, is_denied: bool) {
        self.decided |= 1 << index;
        self.denies |= is_denied;
    }

    /// Whether a step is decided.
    pub(super) const fn contains(&self, index: usize) -> bool {
        index < STEPS_MAX && self.decided & (1 << index) != 0
    }

    pub(super) fn insert(&mut self, index: usize, is_admitted: bool) {
        self.decided |= 1 << index;
        self.admitted |= u128::from(is_admitted) << index;
        self.denies |= !is_admitted;
    }

    fn admitted(self) -> impl Iterator<Item = usize> {
        (0..STEPS_MAX).filter(move |index| self.admitted & (1 << index) != 0)
    }
}

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl RedisBackend {
    /// Decides every eventual step of a request that is not decided yet.
    ///
    /// # Errors
    /// The first error of a step, which leaves the request undecided: another step may deny it.
    pub(super) async fn pull(
        &self,
        operation: Operation,
        call: Call<'_>,
        plan: &Plan,
        statuses: &mut [Status],
        local: &mut LocalDecisions,
    ) -> Result<(), StoreError> {
        let (rules, mut failed) = (call.rules, Ok(()));
        for index in 0..statuses.len() {
            if local.contains(index) || first_same(plan, index) < index {
                continue;
            }
            // A denied request need not be decided further.
            if operation == Operation::Hit && local.denies {
                return Ok(());
            }
            let Some(step) = self.local_step(operation, rules, plan, index) else { continue };
            if !matches!(step.consistency, Consistency::Eventual { .. }) {
                continue;
            }
            match self.pull_and_decide(operation, &step).await {
                Ok((verdict, promise)) => {
                    let status = &mut statuses[index];
                    (status.verdict, status.promise) = (verdict, promise);
                    match operation {
                        Operation::Hit => local.insert(index, verdict.is_allowed()),
                        _ => local.insert_final(index, false),
                    }
                }
                Err(error) => {
                    let Some(bound) = rules.bind(operation, plan, index) else { continue };
                    let remote = self.step(rules, bound, call.now);
                    let by = (&call, plan);
                    let decided =
                        self.decide_without_peers(operation, &step, &remote, by, &error, statuses);
                    if decided.is_err() && matches!(operation, Operation::Refund | Operation::Reset)
                    {
                        return decided;
                    }
                    failed = failed.and(decided);
                    let is_denied = !statuses[index].verdict.is_allowed();
                    local.insert_final(index, operation == Operation::Hit && is_denied);
                }
            }
        }
        failed
    }

    /// Decides a step after pulling the peers' counts.
    async fn pull_and_decide(
        &self,
        operation: Operation,
        step: &LocalStep<'_>,
    ) -> Result<(Verdict, Promise), CallError> {
        let Consistency::Eventual { sync_interval } = step.consistency else {
            return Err(CallError::Busy);
        };
        let promise = Promise { level: Level::Eventual, over: 0 };
        match operation {
            Operation::Refund => Ok((self.eventual.refund(step, sync_interval).await?, promise)),
            Operation::Reset => Ok((self.eventual.reset(step, sync_interval).await?, promise)),
            Operation::Hit | Operation::Peek => {
                self.eventual.pull(step, sync_interval).await?;
                match self.decide_step(operation, step, false, self.clock.ticks()) {
                    Local::Decided(verdict, promise) => Ok((verdict, promise)),
                    Local::Unknown => Err(CallError::Busy),
                }
            }
        }
    }

    /// Decides a step by its rule's failure policy when its peers' counts cannot be pulled.
    fn decide_without_peers(
        &self,
        operation: Operation,
        step: &LocalStep<'_>,
        remote: &RedisStep<'_>,
        by: (&Call<'_>, &Plan),
        error: &CallError,
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let ticks = self.clock.ticks();
        let is_local = remote.on_store_failure == OnStoreFailure::Local;
        if operation == Operation::Hit && is_local {
            self.charge_own_count(step, remote, self.store.store_time(), ticks);
        }
        self.fall_back(operation, by, &[remote], error, statuses)?;
        let is_admitted = statuses[remote.index].verdict.is_allowed();
        if operation == Operation::Hit && is_local && is_admitted {
            self.eventual.record(step, ticks);
        }
        Ok(())
    }

    /// Charges this node's own count to its share of the limit, as far as the share lacks it.
    fn charge_own_count(
        &self,
        step: &LocalStep<'_>,
        remote: &RedisStep<'_>,
        now: Timestamp,
        ticks: Timestamp,
    ) {
        let capacities = step.rule.limits.iter().filter_map(|limit| limit.at(now).capacity());
        let Some(capacity) = capacities.min() else { return };
        let weight = remote.weight(self.store.nodes());
        let counted = weight.whole(self.eventual.own_count(step, ticks)).min(capacity);
        let left = remote.counter.apply(Op::Peek { cost: 0 }, now).remaining.unwrap_or(0);
        let used = capacity.saturating_sub(u64::try_from(left).unwrap_or(0));
        if counted > used {
            let _ = remote.counter.apply(Op::Take { cost: counted - used }, now);
        }
    }
}
