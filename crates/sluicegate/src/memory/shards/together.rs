//! One operation on several identities, of one or several limiters: all or nothing.

use std::sync::Arc;

use sluicegate_core::account::{
    Account, Answer, Details, Part, apply_to_all, apply_to_each, apply_with_details,
};
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Verdict;

use super::{Answered, SHARED, Shards, UNCOUNTED, denied};
use crate::memory::Overflow;
use crate::memory::shard::{Known, Shard, Touched};
use crate::memory::shard_set::Padded;
use crate::memory::sync::MutexGuard;
use crate::plan::{ResolvedRule, Rule};

/// One identity of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) shards: &'a Shards,
    pub(crate) hash: u64,
    /// Whether its limiter's elastic limits are open.
    pub(crate) spare_capacity: bool,
    /// The rule to decide by, or a later generation of it; `None` for the current one.
    pub(crate) rule: Option<&'a Arc<Rule>>,
    /// Its cost, where that differs from the operation's.
    pub(crate) cost: Option<u64>,
}

/// A target whose shard is locked and whose account is taken out.
struct LockedTarget<'a> {
    target: Target<'a>,
    /// Index of its lock.
    lock: usize,
    plan: Arc<ResolvedRule>,
    account: Account,
    reserved: bool,
    /// Number of steps of the targets before it.
    before: usize,
}

/// Carries out `op` on several identities: all or nothing.
pub(crate) fn apply_together(
    targets: &[Target<'_>],
    op: Op,
    now: Timestamp,
) -> Result<Answered, Refusal> {
    let mut request = JointOperation::new(targets);
    let ended = request.apply(op, now.min(NOW_MAX), apply_to_all)?;
    Ok(Answered { answer: ended.answer(op), overflowed: request.overflowed })
}

/// The same, with what each limit got back: see core's [`Details::returned`].
pub(crate) fn apply_together_with_returned(
    targets: &[Target<'_>],
    op: Op,
    now: Timestamp,
    returned: &mut Vec<Option<u64>>,
) -> Result<Answered, Refusal> {
    let mut request = JointOperation::new(targets);
    let mut details = Details::default();
    let ended = request.apply(op, now.min(NOW_MAX), |parts, op, now| {
        apply_with_details(parts, op, now, &mut details)
    })?;
    *returned = details.returned;
    Ok(Answered { answer: ended.answer(op), overflowed: request.overflowed })
}

/// The same, with the verdict of every target in `each`: see core's [`apply_to_each`].
///
/// An identity named twice has the same verdict twice. One without a lane has the verdict of the
/// overflow policy; if that denies, nothing is charged, and the others report the decision they
/// would have made.
pub(crate) fn apply_together_to_each(
    targets: &[Target<'_>],
    op: Op,
    now: Timestamp,
    each: &mut Vec<Verdict>,
) -> Result<Answered, Refusal> {
    let now = now.min(NOW_MAX);
    let mut request = JointOperation::new(targets);
    each.clear();
    let ended = request.apply(op, now, |parts, op, now| apply_to_each(parts, op, now, each))?;
    let answered = Answered { answer: ended.answer(op), overflowed: request.overflowed };
    let mut without_room = ended.without_room();
    while let Some(index) = without_room {
        request.excluded_targets.push((index, no_room(op)));
        let look = Op::Peek { cost: if is_admission(op) { op.cost() } else { 0 } };
        let ended =
            request.apply(look, now, |parts, op, now| apply_to_each(parts, op, now, each))?;
        without_room = ended.without_room();
    }
    request.spread(each);
    Ok(answered)
}

/// An operation in progress: targets without room are redirected or excluded.
struct JointOperation<'a> {
    targets: Vec<Target<'a>>,
    /// Excluded targets by index, with the substituted verdict.
    excluded_targets: Vec<(usize, Verdict)>,
    overflowed: bool,
}

/// How a joint operation ended.
enum JointOutcome {
    /// It was applied to all targets that were not excluded.
    Applied(Answer),
    /// Not applied: this target has no room, and its policy denies.
    NoRoom(usize),
    /// Not applied: all targets are excluded.
    AllExcluded,
}

impl<'a> JointOperation<'a> {
    fn new(targets: &[Target<'a>]) -> Self {
        Self { targets: targets.to_vec(), excluded_targets: Vec::new(), overflowed: false }
    }

    fn apply(
        &mut self,
        op: Op,
        now: Timestamp,
        mut ask: impl FnMut(&mut [Part<'_>], Op, Timestamp) -> Result<Answer, Refusal>,
    ) -> Result<JointOutcome, Refusal> {
        // Each round redirects a target without room to the shared identity, which always has room.
        loop {
            if !self.excluded_targets.is_empty()
                && self.excluded_targets.len() == self.targets.len()
            {
                return Ok(JointOutcome::AllExcluded);
            }
            let index = match self.try_all(op, now, &mut ask) {
                Ok(answer) => return answer.map(JointOutcome::Applied),
                Err(index) => index,
            };
            self.overflowed = true;
            let Some(target) = self.targets.get_mut(index) else { continue };
            target.shards.set.reclaim_next(now);
            match target.shards.overflow() {
                Overflow::Shared => target.hash = SHARED,
                // A cost of 0 always passes.
                Overflow::Deny if target.cost == Some(0) => {
                    self.excluded_targets.push((index, UNCOUNTED));
                }
                Overflow::Deny => return Ok(JointOutcome::NoRoom(index)),
                Overflow::Allow => self.excluded_targets.push((index, UNCOUNTED)),
            }
        }
    }

    /// One attempt; the error is the index of a target without room.
    fn try_all(
        &self,
        op: Op,
        now: Timestamp,
        ask: &mut impl FnMut(&mut [Part<'_>], Op, Timestamp) -> Result<Answer, Refusal>,
    ) -> Result<Result<Answer, Refusal>, usize> {
        let targets = &self.targets;
        let read_only = op.is_read_only();
        let mut locks = lock_all(targets);
        let mut locked: Vec<LockedTarget<'_>> = Vec::with_capacity(targets.len());
        let mut steps = 0;
        // Reserve room first, while all accounts are in their lanes: a lane that is empty only
        // because its account was taken out must not be reused.
        for (index, target) in targets.iter().enumerate() {
            let Target { shards, hash, .. } = *target;
            let padded = shards.set.shard(shards.index(hash));
            let lock = locks.iter().position(|(at, _)| std::ptr::eq(*at, padded)).unwrap_or(0);
            let shard = &mut locks[lock].1;
            let budget = shards.budget();
            if let Some(rule) = target.rule {
                shard.follow(budget, rule, now);
            }
            let plan = match read_only {
                true => shard.plan_for_read(now),
                false => shard.plan_with_upkeep(budget, now).clone(),
            };
            let before = steps;
            steps += plan.steps.len();
            if self.excluded(index).is_some() {
                continue;
            }
            let repeated =
                |one: &&mut LockedTarget<'_>| one.lock == lock && one.target.hash == hash;
            if let Some(one) = locked.iter_mut().find(repeated) {
                // Once, with the largest cost: a smaller one first must not hide it.
                one.target.cost = one.target.cost.max(target.cost);
                continue;
            }
            let known = hash == SHARED || shard.knows(hash, now) == Known::Yes;
            let settles = matches!(
                op,
                Op::Cancel { .. } | Op::Commit { .. } | Op::CommitPart { .. } | Op::Renew { .. }
            );
            let is_zero_cost = target.cost == Some(0);
            let reserves = !known && !read_only && !settles && !is_zero_cost;
            let has_room = match reserves {
                true => shard.reserve_at(budget, now),
                // An unknown identity settles the charges of the shared identity.
                false if settles => known || shards.overflow() != Overflow::Shared,
                false => known || budget.has_room(),
            };
            if !has_room {
                locked.iter().for_each(LockedTarget::release);
                return Err(index);
            }
            let account = Account::default();
            locked.push(LockedTarget {
                target: *target,
                lock,
                plan,
                account,
                reserved: reserves,
                before,
            });
        }
        for one in &mut locked {
            let shard = &mut locks[one.lock].1;
            let hash = one.target.hash;
            one.account = match read_only {
                true => shard.read(&one.plan, hash, now),
                false => shard.take(hash, now),
            };
        }
        let mut parts: Vec<Part<'_>> = locked.iter_mut().map(LockedTarget::part).collect();
        let mut answer = ask(&mut parts, op, now);
        drop(parts);
        if let Ok(answer) = &mut answer {
            let decided_by = &mut answer.verdict.decided_by;
            *decided_by = decided_by.and_then(|index| step_index(&locked, index));
        }
        let touched = if answer.is_ok() { Touched::Yes } else { Touched::No };
        let due: Vec<&Shards> = locked
            .iter()
            .filter_map(|one| locks[one.lock].1.sweep_due().then_some(one.target.shards))
            .collect();
        if !read_only {
            put_back(locked, &mut locks, touched, now);
        }
        drop(locks);
        due.into_iter().for_each(|shards| shards.sweep_next(now));
        Ok(answer)
    }

    /// The verdict of an excluded target.
    fn excluded(&self, index: usize) -> Option<Verdict> {
        self.excluded_targets.iter().find(|(at, _)| *at == index).map(|(_, verdict)| *verdict)
    }

    /// Expands the verdicts of distinct, included targets to those of all targets.
    fn spread(&self, each: &mut Vec<Verdict>) {
        if each.len() == self.targets.len() {
            return;
        }
        let verdicts = std::mem::take(each);
        let mut distinct: Vec<(*const Shards, u64)> = Vec::with_capacity(verdicts.len());
        for (index, target) in self.targets.iter().enumerate() {
            if let Some(verdict) = self.excluded(index) {
                each.push(verdict);
                continue;
            }
            let identity = (std::ptr::from_ref(target.shards), target.hash);
            let found = distinct.iter().position(|one| *one == identity).unwrap_or(distinct.len());
            if found == distinct.len() {
                distinct.push(identity);
            }
            each.push(verdicts.get(found).copied().unwrap_or(UNCOUNTED));
        }
    }
}

impl JointOutcome {
    fn answer(&self, op: Op) -> Answer {
        match self {
            Self::Applied(answer) => *answer,
            Self::NoRoom(_) => no_room(op).into(),
            Self::AllExcluded => UNCOUNTED.into(),
        }
    }

    const fn without_room(&self) -> Option<usize> {
        match self {
            Self::NoRoom(index) => Some(*index),
            Self::Applied(_) | Self::AllExcluded => None,
        }
    }
}

/// The verdict of a denied newcomer.
fn no_room(op: Op) -> Verdict {
    // A cost of 0 always passes.
    let is_zero_cost = op.is_read_only() && !matches!(op, Op::Peek { cost: 1.. });
    if is_zero_cost { UNCOUNTED } else { denied() }
}

/// Whether an operation requests admission.
const fn is_admission(op: Op) -> bool {
    matches!(
        op,
        Op::Hit { .. }
            | Op::Peek { .. }
            | Op::Acquire { .. }
            | Op::Reserve { .. }
            | Op::Take { .. }
    )
}

/// Maps a step index among the included targets to one among all targets.
fn step_index(locked: &[LockedTarget<'_>], mut index: usize) -> Option<usize> {
    for one in locked {
        if index < one.plan.steps.len() {
            return Some(one.before + index);
        }
        index -= one.plan.steps.len();
    }
    None
}

type Locked<'a> = (&'a Padded<Shard>, MutexGuard<'a, Shard>);

/// Locks the shards of all targets, each once, in address order: no deadlocks.
fn lock_all<'a>(targets: &[Target<'a>]) -> Vec<Locked<'a>> {
    let mut all: Vec<&Padded<Shard>> = targets
        .iter()
        .map(|target| target.shards.set.shard(target.shards.index(target.hash)))
        .collect();
    all.sort_unstable_by_key(|padded| std::ptr::from_ref(*padded));
    all.dedup_by_key(|padded| std::ptr::from_ref(*padded));
    all.into_iter().map(|padded| (padded, padded.lock())).collect()
}

fn put_back(
    locked: Vec<LockedTarget<'_>>,
    locks: &mut [Locked<'_>],
    touched: Touched,
    now: Timestamp,
) {
    for LockedTarget { target: Target { shards, hash, .. }, lock, account, reserved, .. } in locked
    {
        let shard = &mut locks[lock].1;
        let budget = shards.budget();
        shard.put(budget, hash, account, touched, now);
        // Not earlier: another newcomer would take the reservation.
        budget.release(usize::from(reserved));
        shards.set.update_hint(shards.index(hash), shard);
    }
}

impl LockedTarget<'_> {
    /// Releases the reservation.
    fn release(&self) {
        self.target.shards.budget().release(usize::from(self.reserved));
    }

    fn part(&mut self) -> Part<'_> {
        let spare_capacity = self.target.spare_capacity;
        let cost = self.target.cost;
        Part { plan: &self.plan.steps, account: &mut self.account, spare_capacity, cost }
    }
}
