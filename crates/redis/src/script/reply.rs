//! Decodes the reply of `decide.lua`, and replays the decision with the core.
//!
//! ```text
//!   time
//!   per request:   -1                        unsupported; nothing has changed
//!                  admitted, reports, ...    number admitted, and how often the state is reported
//!   per part:      record or nil, then its sorted sets
//!     log          groups, each with time, weight, and weight of denied hits
//!     slots        time and number of enough free slots; of the last others; of the holder's own
//! ```
//!
//! The state is reported before each of several identical requests if there are sets, else once.
//! The script reports the state that it found; the core derives the verdicts from that, so that one
//! implementation computes remaining quota and waiting times.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use sluicegate_core::account::{Account, Details, Moment, Part, apply_to_each, apply_with_details};
use sluicegate_core::algorithm::concurrency::{Holder, SlotLease};
use sluicegate_core::algorithm::sliding_log::Entry;
use sluicegate_core::limit::Limit;
use sluicegate_core::op::Op;
use sluicegate_core::record::{Found, Record, SetContents};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::{Combine, ScriptOp, ScriptPart, ScriptRequest};
use sluicegate::Returned;
use sluicegate::backend::UNCOUNTED;

/// How often script and core disagreed: never, unless one of them has a bug.
pub(crate) static DISAGREEMENTS: AtomicU64 = AtomicU64::new(0);

/// Outcome of a request.
#[derive(Debug, Clone)]
pub(crate) enum ScriptOutcome {
    /// The script decided.
    Decided {
        /// The store's time.
        now: Timestamp,
        /// One per identical request.
        answers: Vec<ScriptAnswer>,
        /// Index, record and epoch of each part afterwards.
        records: Vec<(usize, Account, u64)>,
        /// Whether a corrupt record was found. It counted as empty.
        is_corrupt: bool,
    },
    /// The script does not support it, and changed nothing.
    Unsupported,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptAnswer {
    pub(crate) allowed: bool,
    /// One per part.
    pub(crate) verdicts: Vec<Verdict>,
    /// What a refund gave back to the limits, by part.
    pub(crate) returned: Vec<Returned>,
}

/// A reply that the script cannot have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadReply;

/// Decodes the outcomes of all requests of a call.
pub(crate) fn decode(
    requests: &[ScriptRequest],
    reply: Value,
) -> Result<Vec<ScriptOutcome>, BadReply> {
    let mut reply = ReplyReader::new(reply)?;
    let now = Timestamp::from_micros(reply.number()?);
    requests.iter().map(|request| decode_one(request, now, &mut reply)).collect()
}

fn decode_one(
    request: &ScriptRequest,
    now: Timestamp,
    reply: &mut ReplyReader,
) -> Result<ScriptOutcome, BadReply> {
    let Ok(admitted) = u32::try_from(reply.signed()?) else {
        return Ok(ScriptOutcome::Unsupported);
    };
    let reports = reply.number()?;
    let mut replay = Replay::new(request, now);
    let mut answers: Vec<ScriptAnswer> = Vec::with_capacity(request.count as usize);
    for turn in 0..request.count {
        if u64::from(turn) < reports {
            replay.load(reply)?;
        } else if let (Some(last), true) = (answers.last(), replay.has_sets) {
            // Denied, so nothing changed.
            answers.push(last.clone());
            continue;
        }
        answers.push(replay.decide());
    }
    for (turn, answer) in (0..).zip(&mut answers) {
        let allowed = request.op != ScriptOp::Hit || turn < admitted;
        if answer.allowed != allowed {
            DISAGREEMENTS.fetch_add(1, Ordering::Relaxed);
            answer.overrule(allowed);
        }
    }
    let is_corrupt = replay.is_corrupt;
    let records = replay.into_records();
    Ok(ScriptOutcome::Decided { now, answers, records, is_corrupt })
}

/// Values of a reply, in order.
pub(super) struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    pub(super) fn new(value: Value) -> Result<Self, BadReply> {
        let Value::Array(values) = value else { return Err(BadReply) };
        Ok(Self(values.into_iter()))
    }

    pub(super) fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    pub(super) fn signed(&mut self) -> Result<i64, BadReply> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(BadReply),
        }
    }

    fn number(&mut self) -> Result<u64, BadReply> {
        u64::try_from(self.signed()?).map_err(|_| BadReply)
    }

    pub(super) fn moment(&mut self) -> Result<Timestamp, BadReply> {
        self.number().map(Timestamp::from_micros)
    }

    pub(super) fn text(&mut self) -> Result<Option<Vec<u8>>, BadReply> {
        match self.0.next() {
            Some(Value::BulkString(text)) => Ok(Some(text)),
            Some(Value::Nil) => Ok(None),
            _ => Err(BadReply),
        }
    }

    fn log(&mut self) -> Result<SetContents, BadReply> {
        let mut entries = Vec::new();
        for _ in 0..self.number()? {
            let at = self.moment()?;
            for denied in [false, true] {
                entries.push(Entry { at, weight: self.number()?, denied });
            }
        }
        Ok(SetContents::Log(entries))
    }

    fn slots(&mut self, holder: Option<Holder>) -> Result<SetContents, BadReply> {
        let own = holder.unwrap_or(Holder(0));
        // Arbitrary other holders represent the rest.
        let holders = [Holder(own.0.wrapping_add(1)), Holder(own.0.wrapping_add(2)), own];
        let mut leases = Vec::new();
        for holder in holders {
            let (until, slots) = (self.moment()?, self.number()?);
            if slots > 0 {
                leases.push(SlotLease { holder, slots, until });
            }
        }
        Ok(SetContents::Slots(leases))
    }
}

/// A request applied to the reported records by the core.
struct Replay<'a> {
    request: &'a ScriptRequest,
    now: Timestamp,
    /// One per part.
    accounts: Vec<Account>,
    /// Epochs of existing records.
    epochs: Vec<Option<u64>>,
    has_sets: bool,
    is_corrupt: bool,
}

impl<'a> Replay<'a> {
    fn new(request: &'a ScriptRequest, now: Timestamp) -> Self {
        let accounts = vec![Account::default(); request.parts.len()];
        let has_sets = request.sent().any(|part| part.rule.params.sets() > 0);
        let epochs = vec![None; request.parts.len()];
        Self { request, now, accounts, epochs, has_sets, is_corrupt: false }
    }

    /// The records afterwards. Each refund raises the epoch of an existing record.
    fn into_records(self) -> Vec<(usize, Account, u64)> {
        let refunds =
            if self.request.op == ScriptOp::Refund { u64::from(self.request.count) } else { 0 };
        let all = self.accounts.into_iter().zip(self.epochs).enumerate();
        all.map(|(index, (account, epoch))| {
            (index, account, epoch.map_or(0, |epoch| epoch.saturating_add(refunds)))
        })
        .collect()
    }

    /// Reads the reported records, in the order in which the script evaluates parts.
    fn load(&mut self, reply: &mut ReplyReader) -> Result<(), BadReply> {
        let is_last = |part: &ScriptPart| {
            part.combine == Combine::AllOrNothing && self.request.op == ScriptOp::Hit
        };
        let parts =
            || self.request.parts.iter().enumerate().filter(|(_, part)| !self.request.skips(part));
        let first = parts().filter(|(_, part)| !is_last(part));
        let mut found = Vec::new();
        for (index, part) in first.chain(parts().filter(|(_, part)| is_last(part))) {
            let text = reply.text()?;
            let beside = self.beside(part, reply)?;
            let record = text.map(|text| {
                Record::read(&text, &beside, part.rule.steps(), &part.rule.params.layout)
            });
            self.is_corrupt |= matches!(record, Some(Found::Garbage));
            let (account, epoch) = match record {
                Some(Found::Record(record)) => (record.account, Some(record.epoch)),
                Some(Found::Other(_) | Found::Garbage) | None => (Account::default(), None),
            };
            found.push((index, account, epoch));
        }
        for (index, account, epoch) in found {
            self.accounts[index] = account;
            self.epochs[index] = epoch;
        }
        Ok(())
    }

    fn beside(
        &self,
        part: &ScriptPart,
        reply: &mut ReplyReader,
    ) -> Result<Vec<SetContents>, BadReply> {
        let limits = part.rule.steps().iter().flat_map(|step| [Some(step.limit()), step.boost()]);
        let mut beside = Vec::new();
        for limit in limits.flatten() {
            match limit {
                Limit::SlidingLog(_) | Limit::SlidingSlices(_) => beside.push(reply.log()?),
                Limit::Concurrency(_) => beside.push(reply.slots(self.request.holder)?),
                _ => {}
            }
        }
        Ok(beside)
    }

    /// Decides one request.
    fn decide(&mut self) -> ScriptAnswer {
        let mut verdicts = vec![UNCOUNTED; self.request.parts.len()];
        let mut returned = Vec::new();
        let request = self.request;
        for (index, part) in request.parts.iter().enumerate() {
            if part.combine == Combine::AllOrNothing && request.op == ScriptOp::Hit
                || request.skips(part)
            {
                continue;
            }
            verdicts[index] = match request.op {
                ScriptOp::Refund => self.refund(index, part.cost, &mut returned),
                op => self.apply(index, op.on(part.cost, request.holder)),
            };
        }
        let mut allowed = request.may_pass(&verdicts);
        if request.op == ScriptOp::Hit {
            allowed = self.decide_together(allowed, &mut verdicts);
        }
        ScriptAnswer { allowed, verdicts, returned }
    }

    fn refund(&mut self, index: usize, cost: u64, returned: &mut Vec<Returned>) -> Verdict {
        let ScriptPart { rule, spare_capacity, .. } = &self.request.parts[index];
        let (plan, spare_capacity) = (rule.steps(), *spare_capacity);
        let part = Part { plan, account: &mut self.accounts[index], spare_capacity, cost: None };
        let mut details = Details::default();
        let op = Op::Refund { cost };
        let answer = apply_with_details(&mut [part], op, self.now, &mut details);
        returned.extend(Returned::of_limits(index, &details.returned));
        self.share(index);
        answer.map_or(UNCOUNTED, |answer| answer.verdict)
    }

    fn apply(&mut self, index: usize, op: Op) -> Verdict {
        let part = &self.request.parts[index];
        let moment = Moment { now: self.now, spare_capacity: part.spare_capacity };
        let answer = self.accounts[index].apply(part.rule.steps(), op, moment);
        self.share(index);
        answer.map_or(UNCOUNTED, |answer| answer.verdict)
    }

    /// Copies an account to the other parts of the same identity. With sets, the script reports
    /// each of them.
    fn share(&mut self, index: usize) {
        let parts = &self.request.parts;
        if self.has_sets || parts.len() == 1 {
            return;
        }
        for other in 0..parts.len() {
            if other != index && parts[other].key == parts[index].key {
                self.accounts[other] = self.accounts[index].clone();
            }
        }
    }

    /// Applies the all-or-nothing parts; peeks at them if the request is denied already.
    fn decide_together(&mut self, allowed: bool, verdicts: &mut [Verdict]) -> bool {
        let request = self.request;
        let is_together =
            |part: &ScriptPart| part.combine == Combine::AllOrNothing && !request.skips(part);
        let indices: Vec<usize> =
            (0..request.parts.len()).filter(|index| is_together(&request.parts[*index])).collect();
        let cost = indices.iter().map(|index| request.parts[*index].cost).max().unwrap_or(0);
        let op = if allowed { request.op.on(cost, request.holder) } else { Op::Peek { cost } };
        match indices.as_slice() {
            [] => return allowed,
            [only] => verdicts[*only] = self.apply(*only, op),
            _ => {
                let accounts = self.accounts.iter_mut().zip(&request.parts);
                let mut parts: Vec<Part<'_>> = accounts
                    .filter(|(_, part)| is_together(part))
                    .map(|(account, part)| Part {
                        plan: part.rule.steps(),
                        account,
                        spare_capacity: part.spare_capacity,
                        cost: Some(part.cost),
                    })
                    .collect();
                let mut each = Vec::with_capacity(parts.len());
                let answered = apply_to_each(&mut parts, op, self.now, &mut each);
                for (index, verdict) in indices.iter().zip(each) {
                    verdicts[*index] = verdict;
                }
                for index in &indices {
                    self.share(*index);
                }
                return allowed && answered.is_ok_and(|answer| answer.verdict.is_allowed());
            }
        }
        allowed && indices.iter().all(|index| verdicts[*index].is_allowed())
    }
}

impl ScriptOp {
    pub(super) const fn on(self, cost: u64, holder: Option<Holder>) -> Op {
        match self {
            Self::Hit => Op::Hit { cost, holder },
            Self::Charge => Op::Charge { cost },
            Self::Refund => Op::Refund { cost },
        }
    }
}

impl ScriptAnswer {
    /// The decision of the script overrides the core's.
    fn overrule(&mut self, allowed: bool) {
        let outcome = match allowed {
            true => Outcome::Allow { wait: Span::ZERO },
            false => Outcome::Deny { retry_after: Span::from_secs(1) },
        };
        self.allowed = allowed;
        for verdict in self.verdicts.iter_mut().filter(|verdict| verdict.is_allowed() != allowed) {
            verdict.outcome = outcome;
        }
    }
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unexpected reply to a script: is another program listening there?")
    }
}

impl std::error::Error for BadReply {}
