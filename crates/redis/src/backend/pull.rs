//! Pulls peers' counts before an eventual step is decided, where this node's view is stale.

use sluicegate::backend::{Call, Operation, StoreError, first_same};
use sluicegate::{Level, Promise, Snapshot, Status};
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::{Consistency, OnStoreFailure};

use super::RedisBackend;
use super::local::{Local, LocalDecisions, LocalStep};
use super::steps::RedisStep;
use crate::CallError;

impl RedisBackend {
    /// Decides every eventual step of a request that is not decided yet.
    pub(super) async fn pull(
        &self,
        operation: Operation,
        call: Call<'_>,
        plan: &Plan,
        statuses: &mut [Status],
        local: &mut LocalDecisions,
    ) -> Result<(), StoreError> {
        let rules = call.rules;
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
                    let by = (rules, plan);
                    self.decide_without_peers(operation, &step, &remote, by, &error, statuses)?;
                    let is_denied = !statuses[index].verdict.is_allowed();
                    local.insert_final(index, operation == Operation::Hit && is_denied);
                }
            }
        }
        Ok(())
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
        by: (&Snapshot<'_>, &Plan),
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
