//! One operation on identities of one or several limiters, as if they were one.

use std::sync::Arc;

use sluicegate_core::account::{Account, Answer, Part, apply_to_all, apply_to_each};
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Verdict;

use super::{Answered, Padded, SHARED, Shards, UNCOUNTED, denied};
use crate::memory::Overflow;
use crate::memory::shard::{Known, Shard, Touched};
use crate::memory::sync::MutexGuard;
use crate::plan::{ResolvedRule, Rule};

/// One identity of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) shards: &'a Shards,
    pub(crate) hash: u64,
    /// Whether its limiter's elastic limits are open.
    pub(crate) spare_capacity: bool,
    /// The rule that it is to be judged by, or a later one; `None` for whichever there is.
    pub(crate) rule: Option<&'a Arc<Rule>>,
    /// What it is asked for in place of the operation's cost.
    pub(crate) cost: Option<u64>,
}

/// The same, behind its lock and taken out.
struct Seated<'a> {
    target: Target<'a>,
    /// Which of the locks it is behind.
    lock: usize,
    plan: Arc<ResolvedRule>,
    account: Account,
    reserved: bool,
    /// How many steps all those have together who were named before it.
    before: usize,
}

/// Carries out `op` on several identities: all or nothing.
pub(crate) fn apply_together(
    targets: &[Target<'_>],
    op: Op,
    now: Timestamp,
) -> Result<Answered, Refusal> {
    let mut request = Request::of(targets);
    let ended = request.apply(op, now.min(NOW_MAX), apply_to_all)?;
    Ok(Answered { answer: ended.answer(op), overflowed: request.overflowed })
}

/// The same, and in `each` what every target said on its own, in their order: see core's [`apply_to_each`].
///
/// An identity named twice says the same twice. One that has no room says what the overflow policy says; where that is no,
/// nobody was charged, also no limit that counts first, and the others say what they would have said.
pub(crate) fn apply_together_to_each(
    targets: &[Target<'_>],
    op: Op,
    now: Timestamp,
    each: &mut Vec<Verdict>,
) -> Result<Answered, Refusal> {
    let now = now.min(NOW_MAX);
    let mut request = Request::of(targets);
    each.clear();
    let ended = request.apply(op, now, |parts, op, now| apply_to_each(parts, op, now, each))?;
    let answered = Answered { answer: ended.answer(op), overflowed: request.overflowed };
    let mut without_room = ended.without_room();
    while let Some(place) = without_room {
        request.left_out.push((place, no_room(op)));
        let look = Op::Peek { cost: if asks_to_pass(op) { op.cost() } else { 0 } };
        let ended =
            request.apply(look, now, |parts, op, now| apply_to_each(parts, op, now, each))?;
        without_room = ended.without_room();
    }
    request.spread(each);
    Ok(answered)
}

/// Who is asked: whoever has no room is sent elsewhere, or left out.
struct Request<'a> {
    targets: Vec<Target<'a>>,
    /// Who is not asked, by its place, and what is said instead.
    left_out: Vec<(usize, Verdict)>,
    overflowed: bool,
}

/// How far it came.
enum Ended {
    /// Everybody was asked who was not left out.
    Asked(Answer),
    /// Nobody was: this one has no room, and newcomers are denied.
    NoRoom(usize),
    /// Nobody was: all are left out.
    Nobody,
}

// === impl Request ===

impl<'a> Request<'a> {
    fn of(targets: &[Target<'a>]) -> Self {
        Self { targets: targets.to_vec(), left_out: Vec::new(), overflowed: false }
    }

    fn apply(
        &mut self,
        op: Op,
        now: Timestamp,
        mut ask: impl FnMut(&mut [Part<'_>], Op, Timestamp) -> Result<Answer, Refusal>,
    ) -> Result<Ended, Refusal> {
        // Each round, whoever has no room of its own is sent to the shared identity, which always has.
        loop {
            if !self.left_out.is_empty() && self.left_out.len() == self.targets.len() {
                return Ok(Ended::Nobody);
            }
            let place = match self.try_all(op, now, &mut ask) {
                Ok(answer) => return answer.map(Ended::Asked),
                Err(place) => place,
            };
            self.overflowed = true;
            let Some(target) = self.targets.get_mut(place) else { continue };
            target.shards.reclaim_next(now);
            match target.shards.overflow() {
                Overflow::Shared => target.hash = SHARED,
                // Nothing is always granted, whatever the others are asked for.
                Overflow::Deny if target.cost == Some(0) => {
                    self.left_out.push((place, UNCOUNTED));
                }
                Overflow::Deny => return Ok(Ended::NoRoom(place)),
                Overflow::Allow => self.left_out.push((place, UNCOUNTED)),
            }
        }
    }

    /// The same once; or which identity has no room.
    fn try_all(
        &self,
        op: Op,
        now: Timestamp,
        ask: &mut impl FnMut(&mut [Part<'_>], Op, Timestamp) -> Result<Answer, Refusal>,
    ) -> Result<Result<Answer, Refusal>, usize> {
        let targets = &self.targets;
        let no_trace = op.is_read_only();
        let mut locks = lock_all(targets);
        let mut seated: Vec<Seated<'_>> = Vec::with_capacity(targets.len());
        let mut steps = 0;
        // First room for everybody, while all are in their lanes: a lane that is empty for the moment is not a newcomer's.
        for (place, target) in targets.iter().enumerate() {
            let Target { shards, hash, .. } = *target;
            let padded = &shards.shards[shards.index(hash)];
            let lock = locks.iter().position(|(at, _)| std::ptr::eq(*at, padded)).unwrap_or(0);
            let shard = &mut locks[lock].1;
            let budget = &shards.store.budget;
            if let Some(rule) = target.rule {
                shard.follow(budget, rule, now);
            }
            let plan = match no_trace {
                true => shard.plan_to_look(now),
                false => shard.plan_with_care(budget, now).clone(),
            };
            let before = steps;
            steps += plan.steps.len();
            if self.leaves_out(place).is_some() {
                continue;
            }
            let repeated = |one: &&mut Seated<'_>| one.lock == lock && one.target.hash == hash;
            if let Some(one) = seated.iter_mut().find(repeated) {
                // Once, for the most that is asked of it: a smaller cost in front must not hide a larger one.
                one.target.cost = one.target.cost.max(target.cost);
                continue;
            }
            let known = hash == SHARED || shard.knows(hash, now) == Known::Yes;
            let settles = matches!(op, Op::Cancel { .. } | Op::Commit { .. });
            let asks_nothing = target.cost == Some(0);
            let reserves = !known && !no_trace && !settles && !asks_nothing;
            let has_room = match reserves {
                true => shard.reserve_at(budget, now),
                // Who is not known holds nothing of its own: what it has to settle was held by the shared identity.
                false if settles => known || shards.overflow() != Overflow::Shared,
                false => known || budget.has_room(),
            };
            if !has_room {
                seated.iter().for_each(Seated::release);
                return Err(place);
            }
            let account = Account::default();
            seated.push(Seated {
                target: *target,
                lock,
                plan,
                account,
                reserved: reserves,
                before,
            });
        }
        for one in &mut seated {
            let shard = &mut locks[one.lock].1;
            let hash = one.target.hash;
            one.account = match no_trace {
                true => shard.look(&one.plan, hash, now),
                false => shard.take(hash, now),
            };
        }
        let mut parts: Vec<Part<'_>> = seated.iter_mut().map(Seated::part).collect();
        let mut answer = ask(&mut parts, op, now);
        drop(parts);
        if let Ok(answer) = &mut answer {
            let decided_by = &mut answer.verdict.decided_by;
            *decided_by = decided_by.and_then(|place| place_in_row(&seated, place));
        }
        let touched = if answer.is_ok() { Touched::Yes } else { Touched::No };
        let due: Vec<&Shards> = seated
            .iter()
            .filter_map(|one| locks[one.lock].1.sweep_due().then_some(one.target.shards))
            .collect();
        if !no_trace {
            put_back(seated, &mut locks, touched, now);
        }
        drop(locks);
        due.into_iter().for_each(|shards| shards.sweep_next(now));
        Ok(answer)
    }

    /// What is said instead of asking, if one is left out.
    fn leaves_out(&self, place: usize) -> Option<Verdict> {
        self.left_out.iter().find(|(at, _)| *at == place).map(|(_, verdict)| *verdict)
    }

    /// From what everybody said who was asked, each once, to what is said of everybody who was named.
    fn spread(&self, each: &mut Vec<Verdict>) {
        if each.len() == self.targets.len() {
            return;
        }
        let asked = std::mem::take(each);
        let mut seated: Vec<(*const Shards, u64)> = Vec::with_capacity(asked.len());
        for (place, target) in self.targets.iter().enumerate() {
            if let Some(verdict) = self.leaves_out(place) {
                each.push(verdict);
                continue;
            }
            let who = (std::ptr::from_ref(target.shards), target.hash);
            let seat = seated.iter().position(|one| *one == who).unwrap_or(seated.len());
            if seat == seated.len() {
                seated.push(who);
            }
            each.push(asked.get(seat).copied().unwrap_or(UNCOUNTED));
        }
    }
}

// === impl Ended ===

impl Ended {
    fn answer(&self, op: Op) -> Answer {
        match self {
            Self::Asked(answer) => *answer,
            Self::NoRoom(_) => no_room(op).into(),
            Self::Nobody => UNCOUNTED.into(),
        }
    }

    const fn without_room(&self) -> Option<usize> {
        match self {
            Self::NoRoom(place) => Some(*place),
            Self::Asked(_) | Self::Nobody => None,
        }
    }
}

/// What a newcomer is told who is denied for want of room.
fn no_room(op: Op) -> Verdict {
    // Nothing is always granted.
    let asks_nothing = op.is_read_only() && !matches!(op, Op::Peek { cost: 1.. });
    if asks_nothing { UNCOUNTED } else { denied() }
}

/// Whether an operation is about being admitted.
const fn asks_to_pass(op: Op) -> bool {
    matches!(
        op,
        Op::Hit { .. }
            | Op::Peek { .. }
            | Op::Acquire { .. }
            | Op::Reserve { .. }
            | Op::Take { .. }
    )
}

/// A place among the steps of those who were asked, as one among the steps of all who were named.
fn place_in_row(seated: &[Seated<'_>], mut place: usize) -> Option<usize> {
    for one in seated {
        if place < one.plan.steps.len() {
            return Some(one.before + place);
        }
        place -= one.plan.steps.len();
    }
    None
}

type Locked<'a> = (&'a Padded, MutexGuard<'a, Shard>);

/// The locks of all targets, each once, in one order for everybody: nobody waits for somebody who waits for him.
fn lock_all<'a>(targets: &[Target<'a>]) -> Vec<Locked<'a>> {
    let mut all: Vec<&Padded> = targets
        .iter()
        .map(|target| &target.shards.shards[target.shards.index(target.hash)])
        .collect();
    all.sort_unstable_by_key(|padded| std::ptr::from_ref(*padded));
    all.dedup_by_key(|padded| std::ptr::from_ref(*padded));
    all.into_iter().map(|padded| (padded, padded.0.lock())).collect()
}

fn put_back(seated: Vec<Seated<'_>>, locks: &mut [Locked<'_>], touched: Touched, now: Timestamp) {
    for Seated { target: Target { shards, hash, .. }, lock, account, reserved, .. } in seated {
        let shard = &mut locks[lock].1;
        let budget = &shards.store.budget;
        shard.put(budget, hash, account, touched, now);
        // It has its own lane from here on, or needs none. Not before: somebody else would take what was set aside.
        budget.release(usize::from(reserved));
        shards.hints[shards.index(hash)].follow(shard.table().extent());
    }
}

impl Seated<'_> {
    /// Gives up the lane that was set aside.
    fn release(&self) {
        self.target.shards.store.budget.release(usize::from(self.reserved));
    }

    fn part(&mut self) -> Part<'_> {
        let spare_capacity = self.target.spare_capacity;
        let cost = self.target.cost;
        Part { plan: &self.plan.steps, account: &mut self.account, spare_capacity, cost }
    }
}
