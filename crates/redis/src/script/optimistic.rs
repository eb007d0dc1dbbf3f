//! Optimistic updates: read, apply with the core, write by compare-and-swap.
//!
//! Supports every operation on every record; records of other limits are converted first. Takes two
//! round trips, and more under contention.

mod swap;

use std::fmt;
use std::sync::Arc;

use sluicegate::Returned;
use sluicegate::backend::UNCOUNTED;
use sluicegate_core::account::{Account, Answer, Details, Moment, Part, apply_with_details};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::{Decision, Verdict};
use swap::LoadedRecord;

use super::{
    BadReply, Combine, RuleRegistry, ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest, ScriptRule,
};
use crate::call::CallError;
use crate::connection::Link;
use crate::script::{ScriptOutcome, decode, encode};

/// Attempts before an operation fails with contention.
const ATTEMPTS_MAX: usize = 64;

/// Updates records by compare-and-swap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptimisticUpdates<'a> {
    pub(crate) link: &'a Link,
    pub(crate) registry: &'a RuleRegistry,
    /// The time, if it is not the store's.
    pub(crate) clock: Option<Timestamp>,
}

/// One identity of a request.
#[derive(Debug, Clone)]
pub(crate) struct OptimisticPart {
    pub(crate) key: Arc<[u8]>,
    pub(crate) rule: Arc<ScriptRule>,
    /// Whether elastic limits may exceed their base rate.
    pub(crate) spare_capacity: bool,
    /// Replaces the cost of the operation.
    pub(crate) cost: Option<u64>,
    /// How a record of other limits is converted.
    pub(crate) carry_over: CarryOver,
}

/// Outcome of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) answer: Answer,
    /// One per part.
    pub(crate) each: Vec<Verdict>,
    /// What each limit got back, of all parts in a row: see core's [`Details::returned`].
    pub(crate) returned: Vec<Option<u64>>,
    /// Whether a corrupt record was found. It counted as empty.
    pub(crate) is_corrupt: bool,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum OptimisticError {
    /// A limit does not support the operation, or the holder is invalid. Nothing has changed.
    Refused(Refusal),
    /// Other nodes wrote between each read and write. Nothing has changed.
    Contended,
    /// The call failed.
    Store(CallError),
    /// The reply is invalid.
    BadReply,
}

/// A record after an update.
#[derive(Debug)]
pub(crate) struct UpdatedRecord {
    /// By the store's clock.
    pub(crate) at: Timestamp,
    pub(crate) account: Account,
    pub(crate) epoch: u64,
}

/// Result of a modification of accounts.
struct Modified<R> {
    result: R,
    /// Whether anything may have changed.
    writes: bool,
    /// Whether quota was refunded or reset.
    raises_epoch: bool,
}

/// All methods fail if a call to the store fails.
impl OptimisticUpdates<'_> {
    /// Applies `op` to all parts, which have different identities, or to none.
    pub(crate) async fn apply(
        &self,
        parts: &[OptimisticPart],
        op: Op,
    ) -> Result<Applied, OptimisticError> {
        let mut details = Details::default();
        let modify = |parts: &mut [Part<'_>], now: Timestamp| {
            let answer = apply_with_details(parts, op, now, &mut details)?;
            let raises_epoch = matches!(
                op,
                Op::Refund { .. }
                    | Op::Add { .. }
                    | Op::Reset
                    | Op::Cancel { .. }
                    | Op::Commit { .. }
            );
            Ok(Modified { result: answer, writes: !op.is_read_only(), raises_epoch })
        };
        let (is_corrupt, answer) = self.read_modify_write(parts, modify).await?;
        let Details { verdicts: each, returned } = details;
        Ok(Applied { answer, each, returned, is_corrupt })
    }

    /// Converts an identity to other limits with the same fingerprint.
    pub(crate) async fn convert(
        &self,
        part: &OptimisticPart,
        old: &ScriptRule,
    ) -> Result<(), OptimisticError> {
        let modify = |parts: &mut [Part<'_>], now| {
            for Part { plan, account, .. } in parts {
                let from: Vec<Option<usize>> = (0..plan.len()).map(Some).collect();
                account.change(old.steps(), plan, &from, part.carry_over, now);
            }
            Ok(Modified { result: (), writes: true, raises_epoch: true })
        };
        self.read_modify_write(std::slice::from_ref(part), modify).await.map(|_| ())
    }

    /// Renews the slots of a holder, and returns their number.
    pub(crate) async fn renew(
        &self,
        part: &OptimisticPart,
        holder: Holder,
    ) -> Result<u64, OptimisticError> {
        let modify = |parts: &mut [Part<'_>], now| {
            let each = parts.iter_mut().map(|part| part.account.renew(part.plan, holder, now));
            let renewed = each.sum();
            Ok(Modified { result: renewed, writes: renewed > 0, raises_epoch: false })
        };
        Ok(self.read_modify_write(std::slice::from_ref(part), modify).await?.1)
    }

    /// Removes a due booking.
    pub(crate) async fn forget(
        &self,
        part: &OptimisticPart,
        holder: Holder,
    ) -> Result<(), OptimisticError> {
        let modify = |parts: &mut [Part<'_>], _| {
            parts.iter_mut().for_each(|part| part.account.forget(holder));
            Ok(Modified { result: (), writes: true, raises_epoch: false })
        };
        self.read_modify_write(std::slice::from_ref(part), modify).await.map(|_| ())
    }

    /// Decides one request that the script does not support: independent parts one by one, then the
    /// all-or-nothing parts. After an error, earlier charges remain. Also returns whether a corrupt
    /// record was found.
    pub(crate) async fn decide(
        &self,
        request: &ScriptRequest,
    ) -> Result<(ScriptAnswer, bool), OptimisticError> {
        let mut verdicts = vec![UNCOUNTED; request.parts.len()];
        let mut is_corrupt = false;
        let (mut all_or_nothing, mut returned) = (Vec::new(), Vec::new());
        for (index, part) in request.parts.iter().enumerate() {
            if request.skips(part) {
                continue;
            }
            if part.combine == Combine::AllOrNothing && request.op == ScriptOp::Hit {
                all_or_nothing.push(index);
                continue;
            }
            let op = request.op.on(part.cost, request.holder);
            let applied = self.apply(&[OptimisticPart::new(part)], op).await?;
            verdicts[index] = applied.answer.verdict;
            is_corrupt |= applied.is_corrupt;
            returned.extend(Returned::of_limits(index, &applied.returned));
        }
        let mut allowed = request.may_pass(&verdicts);
        if !all_or_nothing.is_empty() {
            let parts = all_or_nothing.iter().map(|index| &request.parts[*index]);
            let parts: Vec<_> = parts.map(OptimisticPart::new).collect();
            let cost = parts.iter().filter_map(|part| part.cost).max().unwrap_or(0);
            let op = if allowed { request.op.on(cost, request.holder) } else { Op::Peek { cost } };
            let mut applied = self.apply(&parts, op).await?;
            is_corrupt |= applied.is_corrupt;
            allowed &= applied.answer.verdict.is_allowed();
            // A single part has the verdict of the whole.
            if let [only] = applied.each.as_mut_slice() {
                *only = applied.answer.verdict;
            }
            for (index, verdict) in all_or_nothing.into_iter().zip(applied.each) {
                verdicts[index] = verdict;
            }
        }
        Ok((ScriptAnswer { allowed, verdicts, returned }, is_corrupt))
    }

    /// Reads, modifies and writes records; repeats while the compare-and-swap fails. Also returns
    /// whether a corrupt record was found.
    async fn read_modify_write<R>(
        &self,
        parts: &[OptimisticPart],
        mut modify: impl FnMut(&mut [Part<'_>], Timestamp) -> Result<Modified<R>, Refusal>,
    ) -> Result<(bool, R), OptimisticError> {
        for part in parts {
            self.registry.publish(self.link, &part.rule).await?;
        }
        for _ in 0..ATTEMPTS_MAX {
            let (read_at, mut records) = self.read_all(parts).await?;
            let now = read_at.min(NOW_MAX);
            let is_corrupt = records.iter().any(|record| record.is_corrupt);
            let is_converted = records.iter().any(|record| record.is_converted);
            let modified = {
                let mut accounts: Vec<Part<'_>> =
                    records.iter_mut().zip(parts).map(part_of).collect();
                modify(&mut accounts, now)
            };
            // A converted record is written even if the operation is rejected.
            let (writes, raises_epoch) = match &modified {
                Ok(modified) => (modified.writes, modified.raises_epoch),
                Err(_) => (false, false),
            };
            let is_written = !(writes || is_converted)
                || self.write_all(&mut records, parts, raises_epoch, now).await?;
            match (is_written, modified) {
                (true, Ok(modified)) => return Ok((is_corrupt, modified.result)),
                (true, Err(refusal)) => return Err(OptimisticError::Refused(refusal)),
                (false, _) => {}
            }
        }
        Err(OptimisticError::Contended)
    }
}

fn part_of<'a>((record, part): (&'a mut LoadedRecord, &'a OptimisticPart)) -> Part<'a> {
    Part {
        plan: part.rule.steps(),
        account: &mut record.account,
        spare_capacity: part.spare_capacity,
        cost: part.cost,
    }
}

impl OptimisticPart {
    pub(crate) fn new(part: &ScriptPart) -> Self {
        let ScriptPart { key, rule, cost, spare_capacity, .. } = part.clone();
        Self { spare_capacity, cost: Some(cost), ..Self::of_record(key, rule) }
    }

    /// A record under this rule, with the cost of the operation.
    pub(crate) const fn of_record(key: Arc<[u8]>, rule: Arc<ScriptRule>) -> Self {
        Self { key, rule, spare_capacity: false, cost: None, carry_over: CarryOver::Used }
    }
}

/// Account of an identity whose limits are unknown: all quota is used, and refills from now on.
/// Slots cannot be used without a holder: limits that have some start empty.
fn exhausted(rule: &ScriptRule, now: Timestamp) -> Account {
    let mut account = Account::default();
    let drained = account.apply(rule.steps(), Op::Drain, Moment::at(now));
    if drained.is_ok() { account } else { Account::default() }
}

impl From<CallError> for OptimisticError {
    fn from(error: CallError) -> Self {
        Self::Store(error)
    }
}

impl From<BadReply> for OptimisticError {
    fn from(_: BadReply) -> Self {
        Self::BadReply
    }
}

impl fmt::Display for OptimisticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Contended => {
                write!(f, "the counter changed during {ATTEMPTS_MAX} attempts to update it: retry")
            }
            Self::Store(error) => error.fmt(f),
            Self::BadReply => BadReply.fmt(f),
        }
    }
}

impl std::error::Error for OptimisticError {}

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
