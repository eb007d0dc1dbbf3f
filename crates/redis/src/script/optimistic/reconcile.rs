//! Inspects a record, and reconciles it with a node's observations.

use sluicegate_core::account::{Account, Moment, Part};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Decision;

use super::{Modified, OptimisticError, OptimisticPart, OptimisticUpdates, UpdatedRecord};
use crate::script::{Combine, ScriptOp, ScriptOutcome, ScriptPart, ScriptRequest, decode, encode};

/// Attempts of a compare-and-swap before the record is charged without being read. Requests wait
/// for this.
const SWAPS_MAX: usize = 8;

impl OptimisticUpdates<'_> {
    /// The decision of each limit of a part on its own. Changes nothing.
    pub(crate) async fn inspect(
        &self,
        part: &OptimisticPart,
    ) -> Result<Vec<Decision>, OptimisticError> {
        let cost = part.cost.unwrap_or(0);
        let inspect = |parts: &mut [Part<'_>], now| {
            let moment = |part: &Part<'_>| Moment { now, spare_capacity: part.spare_capacity };
            let each =
                parts.iter().flat_map(|part| part.account.evaluate(part.plan, cost, moment(part)));
            Ok(Modified { result: each.collect(), writes: false, raises_epoch: false })
        };
        Ok(self.read_modify_write(std::slice::from_ref(part), inspect).await?.1)
    }

    /// Adds the admissions made without the store to its record, into debt if need be.
    pub(crate) async fn absorb(
        &self,
        part: &OptimisticPart,
        admitted: &Account,
    ) -> Result<UpdatedRecord, OptimisticError> {
        self.registry.publish(self.link, &part.rule).await?;
        let (parts, steps) = (std::slice::from_ref(part), part.rule.steps());
        let mut now = Timestamp::EPOCH;
        for _ in 0..SWAPS_MAX {
            let (read_at, mut records) = self.read_all(parts).await?;
            now = read_at.min(NOW_MAX);
            let Some(record) = records.first_mut() else { break };
            record.account.absorb(steps, admitted, now);
            if self.write_all(&mut records, parts, false, now).await?
                && let Some(record) = records.pop()
            {
                return Ok(UpdatedRecord { at: now, account: record.account, epoch: record.epoch });
            }
        }
        // Too much contention. One call charges the maximum use over all limits, which is never too
        // little.
        self.charge(part, admitted.used(steps, now)).await
    }

    /// Raises the use in the record to an observation at `epoch`. Returns whether data had been
    /// lost.
    pub(crate) async fn reassert(
        &self,
        part: &OptimisticPart,
        observed: &Account,
        epoch: u64,
    ) -> Result<bool, OptimisticError> {
        let (parts, steps) = (std::slice::from_ref(part), part.rule.steps());
        let mut deficit = 0;
        for _ in 0..SWAPS_MAX {
            let (read_at, mut records) = self.read_all(parts).await?;
            let now = read_at.min(NOW_MAX);
            let Some(record) = records.first_mut() else { return Ok(false) };
            // The record has a refund that this node did not observe.
            if !record.raise_epoch(epoch) {
                return Ok(false);
            }
            let mut current = record.account.clone();
            current.reassert(steps, &Account::default(), now);
            record.account.reassert(steps, observed, now);
            if record.account == current {
                return Ok(false);
            }
            deficit = record.account.used(steps, now).saturating_sub(current.used(steps, now));
            if self.write_all(&mut records, parts, false, now).await? {
                return Ok(true);
            }
        }
        // As above. If several nodes charge the same deficit, less is admitted than allowed.
        self.charge(part, deficit).await.map(|_| true)
    }

    /// Charges a record, into debt if need be. Contention if the script does not support it.
    async fn charge(
        &self,
        part: &OptimisticPart,
        cost: u64,
    ) -> Result<UpdatedRecord, OptimisticError> {
        let OptimisticPart { key, rule, .. } = part.clone();
        let combine = Combine::Independent;
        let parts = vec![ScriptPart { key, rule, cost, spare_capacity: false, combine }];
        let requests = [ScriptRequest { parts, op: ScriptOp::Charge, holder: None, count: 1 }];
        let reply = self.link.call(&encode(&requests, self.clock)).await?;
        let outcome = decode(&requests, reply)?.pop();
        if let Some(ScriptOutcome::Decided { now, records, .. }) = outcome
            && let Some((_, account, epoch)) = records.into_iter().next()
        {
            return Ok(UpdatedRecord { at: now, account, epoch });
        }
        Err(OptimisticError::Contended)
    }
}
