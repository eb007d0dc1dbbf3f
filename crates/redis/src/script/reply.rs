//! What the script says, and the answer that is in it.
//!
//! ```text
//!   the time
//!   of each ask:   -1                         it goes the long way; nothing has happened
//!                  admitted, told, …          how many were admitted, and how often it tells what it found
//!   of each part:  record or nil, then of each set beside it
//!     a log        groups, and for each its time, weight, and weight of denied ones
//!     slots        when enough are free, how many that are; when the last is, how many others; when the holder's own are, and how many
//! ```
//!
//! It tells every time where there are sets; else once, and the node knows how it goes on.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use sluicegate_core::account::{Account, Moment, Part, apply_to_each};
use sluicegate_core::algorithm::concurrency::{Holder, Lease};
use sluicegate_core::algorithm::sliding_log::Entry;
use sluicegate_core::limit::Limit;
use sluicegate_core::op::Op;
use sluicegate_core::record::{Found, Record, SetContents};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::{Combine, ScriptOp, ScriptPart, ScriptRequest};
use sluicegate::backend::UNCOUNTED;

/// How often script and core have said something else. Never, or there is a mistake in one of them.
pub(crate) static DISAGREEMENTS: AtomicU64 = AtomicU64::new(0);

/// What became of an ask.
#[derive(Debug, Clone)]
pub(crate) enum ScriptOutcome {
    /// It was decided.
    Decided {
        /// The store's time.
        now: Timestamp,
        /// One for each of those that were the same.
        each: Vec<ScriptAnswer>,
        /// The records of all parts after it, and their epochs.
        after: Vec<(usize, Account, u64)>,
        /// Whether there was something in the index of a record that nobody of us has written. It counted as nothing.
        garbage: bool,
    },
    /// Nothing has happened: it has to go the long way.
    Unsupported,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptAnswer {
    pub(crate) allowed: bool,
    /// One for each part.
    pub(crate) verdicts: Vec<Verdict>,
}

/// An answer that the script does not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadReply;

/// The answers to all asks of one call.
pub(crate) fn decode(asks: &[ScriptRequest], reply: Value) -> Result<Vec<ScriptOutcome>, BadReply> {
    let mut reply = Reply::of(reply)?;
    let now = Timestamp::from_micros(reply.number()?);
    asks.iter().map(|ask| one(ask, now, &mut reply)).collect()
}

fn one(ask: &ScriptRequest, now: Timestamp, reply: &mut Reply) -> Result<ScriptOutcome, BadReply> {
    let Ok(admitted) = u32::try_from(reply.signed()?) else {
        return Ok(ScriptOutcome::Unsupported);
    };
    let times = reply.number()?;
    let mut replay = Replay::new(ask, now);
    let mut each: Vec<ScriptAnswer> = Vec::with_capacity(ask.count as usize);
    for turn in 0..ask.count {
        if u64::from(turn) < times {
            replay.found(reply)?;
        } else if let (Some(last), true) = (each.last(), replay.has_sets) {
            // Denied, and as it was.
            each.push(last.clone());
            continue;
        }
        each.push(replay.once());
    }
    for (turn, answered) in (0..).zip(&mut each) {
        let allowed = ask.op != ScriptOp::Hit || turn < admitted;
        if answered.allowed != allowed {
            DISAGREEMENTS.fetch_add(1, Ordering::Relaxed);
            answered.overrule(allowed);
        }
    }
    let garbage = replay.garbage;
    let after = replay.after();
    Ok(ScriptOutcome::Decided { now, each, after, garbage })
}

// === what it said ===

pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(super) fn of(value: Value) -> Result<Self, BadReply> {
        let Value::Array(values) = value else { return Err(BadReply) };
        Ok(Self(values.into_iter()))
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
        // Whose the others are does not matter, as long as they are others.
        let holders = [Holder(own.0.wrapping_add(1)), Holder(own.0.wrapping_add(2)), own];
        let mut leases = Vec::new();
        for holder in holders {
            let (until, slots) = (self.moment()?, self.number()?);
            if slots > 0 {
                leases.push(Lease { holder, slots, until });
            }
        }
        Ok(SetContents::Slots(leases))
    }
}

// === the same by the core ===

/// An ask, carried out on what was found.
struct Replay<'a> {
    ask: &'a ScriptRequest,
    now: Timestamp,
    /// One for each part; of those that are the same identity the first has it.
    accounts: Vec<Account>,
    /// Of the records that were there.
    epochs: Vec<Option<u64>>,
    has_sets: bool,
    garbage: bool,
}

impl<'a> Replay<'a> {
    fn new(ask: &'a ScriptRequest, now: Timestamp) -> Self {
        let accounts = vec![Account::default(); ask.parts.len()];
        let has_sets = ask.sent().any(|part| part.rule.params.sets() > 0);
        let epochs = vec![None; ask.parts.len()];
        Self { ask, now, accounts, epochs, has_sets, garbage: false }
    }

    /// What became of all parts. Each refund raises the epoch of a record that was there.
    fn after(self) -> Vec<(usize, Account, u64)> {
        let refunds = if self.ask.op == ScriptOp::Refund { u64::from(self.ask.count) } else { 0 };
        let all = self.accounts.into_iter().zip(self.epochs).enumerate();
        all.map(|(index, (account, epoch))| {
            (index, account, epoch.map_or(0, |epoch| epoch.saturating_add(refunds)))
        })
        .collect()
    }

    /// Takes in what the script found, in the order in which it asks.
    fn found(&mut self, reply: &mut Reply) -> Result<(), BadReply> {
        let is_last = |part: &ScriptPart| {
            part.combine == Combine::AllOrNothing && self.ask.op == ScriptOp::Hit
        };
        let parts =
            || self.ask.parts.iter().enumerate().filter(|(_, part)| !self.ask.refuses(part));
        let first = parts().filter(|(_, part)| !is_last(part));
        let mut garbage = false;
        let mut found = Vec::new();
        for (index, part) in first.chain(parts().filter(|(_, part)| is_last(part))) {
            let text = reply.text()?;
            let beside = self.beside(part, reply)?;
            let record =
                text.map(|text| Record::read(&text, &beside, part.rule.steps(), &part.rule.params));
            garbage |= matches!(record, Some(Found::Garbage));
            let (account, epoch) = match record {
                Some(Found::Record(record)) => (record.account, Some(record.epoch)),
                Some(Found::Other(_) | Found::Garbage) | None => (Account::default(), None),
            };
            found.push((index, account, epoch));
        }
        self.garbage |= garbage;
        for (index, account, epoch) in found {
            self.accounts[index] = account;
            self.epochs[index] = epoch;
        }
        Ok(())
    }

    fn beside(&self, part: &ScriptPart, reply: &mut Reply) -> Result<Vec<SetContents>, BadReply> {
        let limits = part.rule.steps().iter().flat_map(|step| [Some(step.limit()), step.boost()]);
        let mut beside = Vec::new();
        for limit in limits.flatten() {
            match limit {
                Limit::SlidingLog(_) => beside.push(reply.log()?),
                Limit::Concurrency(_) => beside.push(reply.slots(self.ask.holder)?),
                _ => {}
            }
        }
        Ok(beside)
    }

    /// Asks once.
    fn once(&mut self) -> ScriptAnswer {
        let mut verdicts = vec![UNCOUNTED; self.ask.parts.len()];
        let ask = self.ask;
        for (index, part) in ask.parts.iter().enumerate() {
            if part.combine == Combine::AllOrNothing && ask.op == ScriptOp::Hit || ask.refuses(part)
            {
                continue;
            }
            verdicts[index] = self.apply(index, ask.op.on(part.cost, ask.holder));
        }
        let mut allowed = ask.may_go(&verdicts);
        if ask.op == ScriptOp::Hit {
            allowed = self.together(allowed, &mut verdicts);
        }
        ScriptAnswer { allowed, verdicts }
    }

    fn apply(&mut self, index: usize, op: Op) -> Verdict {
        let part = &self.ask.parts[index];
        let moment = Moment { now: self.now, spare_capacity: part.open };
        let answer = self.accounts[index].apply(part.rule.steps(), op, moment);
        self.share(index);
        answer.map_or(UNCOUNTED, |answer| answer.verdict)
    }

    /// What became of an identity is so for all parts that name it; where there are sets, the script tells it each time.
    fn share(&mut self, index: usize) {
        let parts = &self.ask.parts;
        if self.has_sets || parts.len() == 1 {
            return;
        }
        for other in 0..parts.len() {
            if other != index && parts[other].key == parts[index].key {
                self.accounts[other] = self.accounts[index].clone();
            }
        }
    }

    /// Asks those who are charged only if all agree; looks at them if the ask is denied already.
    fn together(&mut self, allowed: bool, verdicts: &mut [Verdict]) -> bool {
        let ask = self.ask;
        let is_together =
            |part: &ScriptPart| part.combine == Combine::AllOrNothing && !ask.refuses(part);
        let indices: Vec<usize> =
            (0..ask.parts.len()).filter(|index| is_together(&ask.parts[*index])).collect();
        let cost = indices.iter().map(|index| ask.parts[*index].cost).max().unwrap_or(0);
        let op = if allowed { ask.op.on(cost, ask.holder) } else { Op::Peek { cost } };
        match indices.as_slice() {
            [] => return allowed,
            [only] => verdicts[*only] = self.apply(*only, op),
            _ => {
                let accounts = self.accounts.iter_mut().zip(&ask.parts);
                let mut parts: Vec<Part<'_>> = accounts
                    .filter(|(_, part)| is_together(part))
                    .map(|(account, part)| Part {
                        plan: part.rule.steps(),
                        account,
                        spare_capacity: part.open,
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

// === impl ScriptAnswer ===

impl ScriptAnswer {
    /// The script has decided, whatever the core says.
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

// === impl BadReply ===

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store gave an answer that the script does not give: is another program in its place?")
    }
}

impl std::error::Error for BadReply {}
