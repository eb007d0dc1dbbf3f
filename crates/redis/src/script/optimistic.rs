//! The long way: read, apply, and write if nobody has written meanwhile.
//!
//! Every operation of the core goes this way, on whatever is found: records of other limits are brought over first. It takes two round
//! trips, and more where somebody else is faster.

mod reconcile;
mod swap;

use std::fmt;
use std::sync::Arc;

use sluicegate_core::account::{Account, Answer, Moment, Part, apply_to_each};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Verdict;

use super::{
    BadReply, Combine, RuleRegistry, ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest, ScriptRule,
};
use crate::call::CallError;
use crate::connection::Link;
pub(crate) use reconcile::{Changed, absorb, look, reassert};
use sluicegate::backend::UNCOUNTED;
pub(super) use swap::read_all;
use swap::{Seat, write_all};

/// How often an operation is tried again because somebody else was faster.
const TRIES_MAX: usize = 64;

/// One identity of a request.
#[derive(Debug, Clone)]
pub(crate) struct OptimisticPart {
    pub(crate) key: Arc<[u8]>,
    pub(crate) rule: Arc<ScriptRule>,
    /// Whether its elastic limits are open.
    pub(crate) open: bool,
    /// What it is asked for in index of the operation's cost.
    pub(crate) cost: Option<u64>,
    /// What is kept of a record of other limits.
    pub(crate) keep: CarryOver,
}

/// What became of it.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) answer: Answer,
    /// What each part said.
    pub(crate) each: Vec<Verdict>,
    /// Whether there was something in the index of a record that nobody of us has written. It counted as nothing.
    pub(crate) garbage: bool,
}

/// Answers to identical requests, decided by the core.
#[derive(Debug, Default)]
pub(crate) struct OptimisticAnswers {
    pub(crate) each: Vec<ScriptAnswer>,
    /// Whether a corrupt record was found. It counted as empty.
    pub(crate) garbage: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum OptimisticError {
    /// A limit has no meaning for the operation, or its id is not what it needs to be. Nothing has changed.
    Refused(Refusal),
    /// Somebody else was faster each time. Nothing has changed.
    Contended,
    /// The store gave none.
    Store(CallError),
    /// The store gave one that it cannot give.
    BadReply,
}

/// What is done to accounts that were read.
pub(super) struct Done<R> {
    pub(super) said: R,
    /// Whether anything may have changed.
    pub(super) writes: bool,
    /// Whether something was given back or made anew.
    pub(super) raises_epoch: bool,
}

/// Carries out `op` on all parts, each of another identity: all or nothing.
///
/// # Errors
/// When it was refused, or the store gave no answer.
pub(crate) async fn apply(
    link: &Link,
    registry: &RuleRegistry,
    parts: &[OptimisticPart],
    op: Op,
    clock: Option<Timestamp>,
) -> Result<Applied, OptimisticError> {
    let mut each = Vec::new();
    let (_, garbage, answer) = work(link, registry, parts, clock, |parts, now| {
        let answer = apply_to_each(parts, op, now, &mut each)?;
        let raises_epoch = matches!(
            op,
            Op::Refund { .. } | Op::Add { .. } | Op::Reset | Op::Cancel { .. } | Op::Commit { .. }
        );
        Ok(Done { said: answer, writes: !op.is_read_only(), raises_epoch })
    })
    .await?;
    Ok(Applied { answer, each, garbage })
}

/// Moves an identity to other limits that have the same fingerprint, so that nobody else would notice: the same ones, or other numbers of tallies.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn change(
    link: &Link,
    registry: &RuleRegistry,
    part: &OptimisticPart,
    old: &ScriptRule,
    clock: Option<Timestamp>,
) -> Result<(), OptimisticError> {
    let changed = work(link, registry, std::slice::from_ref(part), clock, |parts, now| {
        for Part { plan, account, .. } in parts {
            let from: Vec<Option<usize>> = (0..plan.len()).map(Some).collect();
            account.change(old.steps(), plan, &from, part.keep, now);
        }
        Ok(Done { said: (), writes: true, raises_epoch: true })
    });
    changed.await.map(|_| ())
}

/// Starts the leases of slots anew that are held under an id; how many slots that are.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn renew(
    link: &Link,
    registry: &RuleRegistry,
    part: &OptimisticPart,
    holder: Holder,
    clock: Option<Timestamp>,
) -> Result<u64, OptimisticError> {
    let renewed = work(link, registry, std::slice::from_ref(part), clock, |parts, now| {
        let each = parts.iter_mut().map(|part| part.account.renew(part.plan, holder, now));
        let renewed = each.sum();
        Ok(Done { said: renewed, writes: renewed > 0, raises_epoch: false })
    });
    Ok(renewed.await?.2)
}

/// Forgets a booking whose turn has come.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn forget(
    link: &Link,
    registry: &RuleRegistry,
    part: &OptimisticPart,
    holder: Holder,
    clock: Option<Timestamp>,
) -> Result<(), OptimisticError> {
    let forgotten = work(link, registry, std::slice::from_ref(part), clock, |parts, _| {
        parts.iter_mut().for_each(|part| part.account.forget(holder));
        Ok(Done { said: (), writes: true, raises_epoch: false })
    });
    forgotten.await.map(|_| ())
}

/// An ask that the script did not take: its parts one by one where they combine alone, then those that combine together.
///
/// # Errors
/// When the store gave no answer. What was charged until then stays charged.
pub(crate) async fn decide_optimistically(
    link: &Link,
    registry: &RuleRegistry,
    ask: &ScriptRequest,
    clock: Option<Timestamp>,
) -> Result<OptimisticAnswers, OptimisticError> {
    let mut answers = OptimisticAnswers::default();
    for _ in 0..ask.count {
        let answered = ask_once(link, registry, ask, clock, &mut answers.garbage).await?;
        answers.each.push(answered);
    }
    Ok(answers)
}

async fn ask_once(
    link: &Link,
    registry: &RuleRegistry,
    ask: &ScriptRequest,
    clock: Option<Timestamp>,
    garbage: &mut bool,
) -> Result<ScriptAnswer, OptimisticError> {
    let mut verdicts = vec![UNCOUNTED; ask.parts.len()];
    let mut together = Vec::new();
    for (index, part) in ask.parts.iter().enumerate().filter(|(_, part)| !ask.refuses(part)) {
        if part.combine == Combine::AllOrNothing && ask.op == ScriptOp::Hit {
            together.push(index);
            continue;
        }
        let op = ask.op.on(part.cost, ask.holder);
        let said = apply(link, registry, &[OptimisticPart::of(part)], op, clock).await?;
        verdicts[index] = said.answer.verdict;
        *garbage |= said.garbage;
    }
    let mut allowed = ask.may_go(&verdicts);
    if !together.is_empty() {
        let parts: Vec<OptimisticPart> =
            together.iter().map(|index| OptimisticPart::of(&ask.parts[*index])).collect();
        let cost = parts.iter().filter_map(|part| part.cost).max().unwrap_or(0);
        let op = if allowed { ask.op.on(cost, ask.holder) } else { Op::Peek { cost } };
        let Applied { answer, mut each, garbage: found } =
            apply(link, registry, &parts, op, clock).await?;
        *garbage |= found;
        allowed &= answer.verdict.is_allowed();
        // Where nobody stands beside it, its word is that of all.
        if let [only] = each.as_mut_slice() {
            *only = answer.verdict;
        }
        for (index, verdict) in together.into_iter().zip(each) {
            verdicts[index] = verdict;
        }
    }
    Ok(ScriptAnswer { allowed, verdicts })
}

/// Reads, lets `act` do its work, and writes; again while somebody else is faster.
async fn work<R>(
    link: &Link,
    registry: &RuleRegistry,
    parts: &[OptimisticPart],
    clock: Option<Timestamp>,
    mut act: impl FnMut(&mut [Part<'_>], Timestamp) -> Result<Done<R>, Refusal>,
) -> Result<(Timestamp, bool, R), OptimisticError> {
    for part in parts {
        registry.publish(link, &part.rule).await?;
    }
    for _ in 0..TRIES_MAX {
        let (read_at, mut seats) = read_all(link, registry, parts, clock).await?;
        let now = read_at.min(NOW_MAX);
        let garbage = seats.iter().any(|seat| seat.garbage);
        let brought_over = seats.iter().any(|seat| seat.brought_over);
        let done = {
            let mut accounts: Vec<Part<'_>> = seats.iter_mut().zip(parts).map(part_of).collect();
            act(&mut accounts, now)
        };
        // Also who is refused has been brought over.
        let (writes, raises_epoch) = match &done {
            Ok(done) => (done.writes, done.raises_epoch),
            Err(_) => (false, false),
        };
        let saved = if writes || brought_over {
            write_all(link, &mut seats, parts, raises_epoch, now, clock.is_some()).await?
        } else {
            true
        };
        match (saved, done) {
            (true, Ok(done)) => return Ok((now, garbage, done.said)),
            (true, Err(refusal)) => return Err(OptimisticError::Refused(refusal)),
            (false, _) => {}
        }
    }
    Err(OptimisticError::Contended)
}

fn part_of<'a>((seat, part): (&'a mut Seat, &'a OptimisticPart)) -> Part<'a> {
    Part {
        plan: part.rule.steps(),
        account: &mut seat.account,
        spare_capacity: part.open,
        cost: part.cost,
    }
}

// === impl OptimisticPart ===

impl OptimisticPart {
    /// The same part, the long way.
    pub(crate) fn of(part: &ScriptPart) -> Self {
        Self {
            key: part.key.clone(),
            rule: part.rule.clone(),
            open: part.open,
            cost: Some(part.cost),
            keep: CarryOver::Used,
        }
    }
}

/// What is kept of an identity whose limits nobody knows any more: it was limited, so all that can be used up is, and comes back from now
/// on. Slots cannot be held without an id: of a plan that has some, it starts anew.
fn used_up(rule: &ScriptRule, now: Timestamp) -> Account {
    let mut account = Account::default();
    let drained = account.apply(rule.steps(), Op::Drain, Moment::at(now));
    if drained.is_ok() { account } else { Account::default() }
}

// === impl OptimisticError ===

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
                write!(
                    f,
                    "others have changed the same counter {TRIES_MAX} times in a row: ask again"
                )
            }
            Self::Store(error) => error.fmt(f),
            Self::BadReply => BadReply.fmt(f),
        }
    }
}

impl std::error::Error for OptimisticError {}
