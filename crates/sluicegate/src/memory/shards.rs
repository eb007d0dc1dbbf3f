//! All shards of one limiter: which lock an identity is behind, and every operation on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::account::{Account, Answer, Moment, Part, apply_to_all};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::Keep;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::prefetch::Hint;
use super::shard::{Known, Shard, Short, Touched};
use super::sync::{Mutex, MutexGuard};
use super::{Overflow, Store};
use crate::plan::{Plan, Rule};

/// The highest bits of a hash name its shard. More shards would make small stores large: 256 cost
/// 48 KB, and two threads meet on one of them every 256th time.
const SHARD_BITS: u32 = if cfg!(loom) { 2 } else { 8 };
/// Whom newcomers share an identity with when there is no room for their own.
const SHARED: u64 = u64::MAX;
/// How many identities are looked at under one lock when all are.
const AT_A_TIME: usize = 128;
/// What a newcomer is told to wait who is denied for want of room: nobody knows how long that will be.
const NO_ROOM_RETRY_AFTER: Span = Span::from_secs(1);

/// The states of one limiter's identities.
#[derive(Debug)]
pub(crate) struct Shards {
    shards: Box<[Padded]>,
    hints: Box<[Hint]>,
    store: Arc<Store>,
    overflow: Overflow,
    /// Which shard is looked through next for memory to give back.
    hand: AtomicUsize,
}

/// Two cache lines of its own, since processors fetch them in pairs: neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// An answer, and whether there was no room for who asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) overflowed: bool,
}

// === impl Shards ===

impl Shards {
    pub(crate) fn new(
        store: Arc<Store>,
        rule: &Arc<Rule>,
        overflow: Overflow,
        now: Timestamp,
    ) -> Self {
        let plan = rule.plan_at(now);
        let shard = |_| Padded(Mutex::new(Shard::new(plan.clone(), now)));
        Self {
            shards: (0..1 << SHARD_BITS).map(shard).collect(),
            hints: (0..1 << SHARD_BITS).map(|_| Hint::default()).collect(),
            store,
            overflow,
            hand: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.store.hash(key)
    }

    /// A hit of `cost`, if it can go the short way; whether the verdict is the overflow policy's. `None` if
    /// the long way has to be taken.
    #[inline]
    pub(crate) fn hit(
        &self,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Option<bool> {
        let index = index(hash);
        let mut shard = self.shards[index].0.lock();
        let way = shard.hit(&self.store.budget, hash, cost, now, verdict);
        if way == Short::Added {
            self.hints[index].follow(shard.table());
        }
        let sweep = shard.sweep_due();
        drop(shard);
        if sweep {
            self.sweep_next(now);
        }
        match way {
            Short::Decided | Short::Added => Some(false),
            Short::TakeLong => None,
            Short::NoRoom => self.no_room(now, verdict),
        }
    }

    #[cold]
    fn no_room(&self, now: Timestamp, verdict: &mut Verdict) -> Option<bool> {
        *verdict = match self.overflow {
            Overflow::Shared => return None,
            Overflow::Deny => denied(),
            Overflow::Allow => UNCOUNTED,
        };
        self.reclaim_next(now);
        Some(true)
    }

    /// Sends for the memory that a decision on `hash` will read first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.hints[index(hash)].prefetch(hash << 8);
    }

    /// Carries out any operation.
    pub(crate) fn apply(&self, hash: u64, op: Op, moment: Moment) -> Result<Answered, Refusal> {
        let Moment { now, spare_capacity } = moment;
        apply_together(&[Target { shards: self, hash, spare_capacity }], op, now)
    }

    /// Starts the leases of the slots anew that are held under an id; whether there are any.
    pub(crate) fn renew(&self, hash: u64, holder: Holder, now: Timestamp) -> bool {
        let now = now.min(NOW_MAX);
        // There may have been no room for it: then its slot is one that all newcomers share.
        self.renew_at(hash, holder, now)
            || self.overflow == Overflow::Shared && self.renew_at(SHARED, holder, now)
    }

    /// Forgets a booking whose turn has come.
    pub(crate) fn forget(&self, hash: u64, holder: Holder, now: Timestamp) {
        let now = now.min(NOW_MAX);
        // There may have been no room for it: then all newcomers share what it was booked with.
        let shared = (self.overflow == Overflow::Shared).then_some(SHARED);
        for hash in std::iter::once(hash).chain(shared) {
            let mut shard = self.shards[index(hash)].0.lock();
            let budget = &self.store.budget;
            shard.plan_with_care(budget, now);
            let mut account = shard.take(hash, now);
            account.forget(holder);
            shard.put(budget, hash, account, Touched::Yes, now);
        }
    }

    fn renew_at(&self, hash: u64, holder: Holder, now: Timestamp) -> bool {
        let mut shard = self.shards[index(hash)].0.lock();
        let budget = &self.store.budget;
        let plan = shard.plan_with_care(budget, now).clone();
        let mut account = shard.take(hash, now);
        let renewed = account.renew(&plan.steps, holder, now);
        shard.put(budget, hash, account, Touched::Yes, now);
        renewed > 0
    }

    /// Moves every identity to another plan.
    pub(crate) fn change(&self, rule: &Arc<Rule>, keep: Keep, now: Timestamp) {
        let now = now.min(NOW_MAX);
        let plan = rule.plan_at(now);
        for (index, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.0.lock();
            shard.change(&self.store.budget, &plan, keep, now);
            self.hints[index].follow(shard.table());
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Hands a copy of every account to `each`. A few at a time are locked, so each is as it stood at some moment.
    pub(crate) fn each_account<E>(
        &self,
        now: Timestamp,
        mut each: impl FnMut(u64, Account) -> Result<(), E>,
    ) -> Result<(), E> {
        for (index, padded) in self.shards.iter().enumerate() {
            let identities = padded.0.lock().identities(now);
            for some in identities.chunks(AT_A_TIME) {
                let shard = padded.0.lock();
                let plan = shard.plan_to_look(now);
                let accounts: Vec<(u64, Account)> =
                    some.iter().map(|hash| (*hash, shard.look(&plan, *hash, now))).collect();
                drop(shard);
                for (hash, account) in accounts.into_iter().filter(|(_, account)| !account.is_new())
                {
                    each(full_hash(index, hash), account)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps an account from a snapshot, if there is room.
    pub(crate) fn put_restored(&self, hash: u64, account: Account, now: Timestamp) {
        let index = index(hash);
        let mut shard = self.shards[index].0.lock();
        let budget = &self.store.budget;
        shard.plan_with_care(budget, now);
        if !account.is_new() && shard.reserve_at(budget, now) {
            shard.put(budget, hash, account, Touched::Yes, now);
            budget.release(1);
            self.hints[index].follow(shard.table());
        }
    }

    /// Gives memory back that is not needed any more.
    pub(crate) fn sweep(&self, now: Timestamp) {
        for index in 0..self.shards.len() {
            self.sweep_one(index, now);
        }
    }

    fn sweep_next(&self, now: Timestamp) {
        let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        self.sweep_one(index, now);
    }

    fn sweep_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.shards[index].0.lock();
        shard.sweep(&self.store.budget, now.min(NOW_MAX));
        self.hints[index].follow(shard.table());
    }

    /// There was no room for a newcomer, and its own shard had none to give: the next one may have, and after all of them
    /// another limiter of the store. So who comes again gets in once something has run out anywhere, and each try costs a look
    /// or two.
    fn reclaim_next(&self, now: Timestamp) {
        let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        self.reclaim_one(index, now);
        if index == 0
            && let Some(limiter) = self.store.next_limiter()
        {
            limiter.reclaim();
        }
    }

    /// Drops what has run out, where that is worth the time.
    pub(crate) fn reclaim(&self, now: Timestamp) {
        for index in 0..self.shards.len() {
            self.reclaim_one(index, now);
        }
    }

    fn reclaim_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.shards[index].0.lock();
        shard.reclaim_at(&self.store.budget, now.min(NOW_MAX));
        self.hints[index].follow(shard.table());
    }
}

impl Drop for Shards {
    /// What it kept is counted no longer: others may have the room.
    fn drop(&mut self) {
        let kept: usize =
            self.shards.iter_mut().map(|padded| padded.0.get_mut().table().used()).sum();
        self.store.budget.release(kept);
    }
}

#[inline]
fn index(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARD_BITS)) as usize
}

/// The hash of an identity, from the shard it is in and what the shard's table has of it.
fn full_hash(shard: usize, rest: u64) -> u64 {
    (shard as u64) << (u64::BITS - SHARD_BITS) | rest
}

// === one operation on identities of several limiters ===

/// One identity of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) shards: &'a Shards,
    pub(crate) hash: u64,
    /// Whether its limiter's elastic limits are open.
    pub(crate) spare_capacity: bool,
}

/// The same, behind its lock and taken out.
struct Seated<'a> {
    target: Target<'a>,
    /// Which of the locks it is behind.
    lock: usize,
    plan: Arc<Plan>,
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
    let now = now.min(NOW_MAX);
    let mut targets = targets.to_vec();
    let mut uncounted = Vec::new();
    let mut overflowed = false;
    // Each round, whoever has no room of its own is sent to the shared identity, which always has.
    loop {
        let place = match try_together(&targets, &uncounted, op, now) {
            Ok(answer) => return answer.map(|answer| Answered { answer, overflowed }),
            Err(place) => place,
        };
        overflowed = true;
        let Some(target) = targets.get_mut(place) else { continue };
        target.shards.reclaim_next(now);
        match target.shards.overflow {
            Overflow::Shared => target.hash = SHARED,
            // Nothing is always granted.
            Overflow::Deny if op.leaves_no_trace() && !matches!(op, Op::Peek { cost: 1.. }) => {
                return Ok(Answered { answer: UNCOUNTED.into(), overflowed });
            }
            Overflow::Deny => return Ok(Answered { answer: denied().into(), overflowed }),
            Overflow::Allow => {
                uncounted.push(place);
                if uncounted.len() == targets.len() {
                    return Ok(Answered { answer: UNCOUNTED.into(), overflowed });
                }
            }
        }
    }
}

/// The same; or which identity has no room.
fn try_together(
    targets: &[Target<'_>],
    uncounted: &[usize],
    op: Op,
    now: Timestamp,
) -> Result<Result<Answer, Refusal>, usize> {
    let no_trace = op.leaves_no_trace();
    let mut locks = lock_all(targets);
    let mut seated: Vec<Seated<'_>> = Vec::with_capacity(targets.len());
    let mut steps = 0;
    // First room for everybody, while all are in their lanes: a lane that is empty for the moment is not a newcomer's.
    for (place, target) in targets.iter().enumerate() {
        let Target { shards, hash, .. } = *target;
        let padded = &shards.shards[index(hash)];
        let lock = locks.iter().position(|(at, _)| std::ptr::eq(*at, padded)).unwrap_or(0);
        let shard = &mut locks[lock].1;
        let budget = &shards.store.budget;
        let plan = match no_trace {
            true => shard.plan_to_look(now),
            false => shard.plan_with_care(budget, now).clone(),
        };
        let before = steps;
        steps += plan.steps.len();
        let repeated = |one: &Seated<'_>| one.lock == lock && one.target.hash == hash;
        if uncounted.contains(&place) || seated.iter().any(repeated) {
            continue;
        }
        let known = hash == SHARED || shard.knows(hash, now) == Known::Yes;
        let settles = matches!(op, Op::Cancel { .. } | Op::Commit { .. });
        let reserves = !known && !no_trace && !settles;
        let has_room = match reserves {
            true => shard.reserve_at(budget, now),
            // Who is not known holds nothing of its own: what it has to settle was held by the shared identity.
            false if settles => known || shards.overflow != Overflow::Shared,
            false => known || budget.has_room(),
        };
        if !has_room {
            seated.iter().for_each(Seated::release);
            return Err(place);
        }
        let account = Account::default();
        seated.push(Seated { target: *target, lock, plan, account, reserved: reserves, before });
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
    let mut answer = apply_to_all(&mut parts, op, now);
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
    let mut all: Vec<&Padded> =
        targets.iter().map(|target| &target.shards.shards[index(target.hash)]).collect();
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
        shards.hints[index(hash)].follow(shard.table());
    }
}

impl Seated<'_> {
    /// Gives up the lane that was set aside.
    fn release(&self) {
        self.target.shards.store.budget.release(usize::from(self.reserved));
    }

    fn part(&mut self) -> Part<'_> {
        let spare_capacity = self.target.spare_capacity;
        Part { plan: &self.plan.steps, account: &mut self.account, spare_capacity }
    }
}

/// A newcomer is denied.
fn denied() -> Verdict {
    let outcome = Outcome::Deny { retry_after: NO_ROOM_RETRY_AFTER };
    Verdict { outcome, ..UNCOUNTED }
}

/// What is said where no limit has a say.
pub(crate) const UNCOUNTED: Verdict = Verdict {
    outcome: Outcome::Allow { wait: Span::ZERO },
    decided_by: None,
    remaining: None,
    reset_after: Span::ZERO,
    soft: false,
    elastic: false,
    shadow: None,
};

#[cfg(test)]
mod tests;
