//! All shards of one limiter: which lock an identity is behind, and every operation on it.

mod together;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use sluicegate_core::account::{Account, Answer, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict};

pub(crate) use together::{Target, apply_together, apply_together_to_each};

use super::prefetch::Hint;
use super::shard::{Known, Shard, Short, Touched};
use super::sync::Mutex;
use super::{Overflow, Store};
use crate::plan::Rule;

/// The highest bits of a hash name its shard. More shards would make small stores large: 256 cost
/// 48 KB, and two threads meet on one of them every 256th time.
pub(super) const SHARD_BITS: u32 = if cfg!(loom) { 2 } else { 8 };
const FEW_SHARD_BITS: u32 = 2;
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
    /// How many bits of a hash name its shard.
    bits: u32,
    store: Arc<Store>,
    /// An [`Overflow`], which may be changed.
    overflow: AtomicU8,
    /// Which shard is looked through next for memory to give back.
    hand: AtomicUsize,
}

/// In how many shards the memory of a limiter is cut.
///
/// A table knows an identity by 56 bits of its hash and its shard by as many more as name one of them. So with fewer shards two
/// identities are more easily taken for one: among a million under one rule with a probability of 2 in a million, as among ten million with
/// all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardCount {
    /// One: there is hardly more than one identity.
    One,
    /// A few: one limiter among many.
    Few,
    /// As many as are useful.
    Many,
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
        bits: u32,
        now: Timestamp,
    ) -> Self {
        let plan = rule.plan_at(now);
        let shard = |_| Padded(Mutex::new(Shard::new(plan.clone(), now)));
        Self {
            shards: (0..1 << bits).map(shard).collect(),
            hints: (0..1 << bits).map(|_| Hint::default()).collect(),
            bits,
            store,
            overflow: AtomicU8::new(overflow as u8),
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
        self.hit_under(None, hash, cost, now, verdict)
    }

    /// The same, judged by a rule or a later one.
    #[inline]
    pub(crate) fn hit_under(
        &self,
        rule: Option<&Arc<Rule>>,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Option<bool> {
        let index = self.index(hash);
        let mut shard = self.shards[index].0.lock();
        if let Some(rule) = rule {
            shard.follow(&self.store.budget, rule, now);
        }
        let way = shard.hit(&self.store.budget, hash, cost, now, verdict);
        if way == Short::Added {
            self.hints[index].follow(shard.table().extent());
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
        *verdict = match self.overflow() {
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
        self.hints[self.index(hash)].prefetch(hash << 8);
    }

    /// Carries out any operation.
    pub(crate) fn apply(&self, hash: u64, op: Op, moment: Moment) -> Result<Answered, Refusal> {
        let Moment { now, spare_capacity } = moment;
        apply_together(
            &[Target { shards: self, hash, spare_capacity, rule: None, cost: None }],
            op,
            now,
        )
    }

    /// What each limit says to a cost of an identity, and the rule that they are of: `rule` or a later one. Leaves no trace.
    pub(crate) fn look(
        &self,
        rule: Option<&Arc<Rule>>,
        hash: u64,
        cost: u64,
        moment: Moment,
    ) -> (Arc<Rule>, Vec<Decision>) {
        let now = moment.now.min(NOW_MAX);
        let look = |hash| {
            let mut shard = self.shards[self.index(hash)].0.lock();
            if let Some(rule) = rule {
                shard.follow(&self.store.budget, rule, now);
            }
            let plan = shard.plan_to_look(now);
            let known = shard.knows(hash, now) == Known::Yes;
            (known, shard.look(&plan, hash, now), plan)
        };
        let (known, mut account, mut plan) = look(hash);
        // Whoever has no room of its own shares one.
        if !known && !self.store.budget.has_room() && self.overflow() == Overflow::Shared {
            (_, account, plan) = look(SHARED);
        }
        (plan.rule.clone(), account.evaluate(&plan.steps, cost, moment))
    }

    /// Starts the leases of the slots anew that are held under an id; whether there are any.
    pub(crate) fn renew(&self, hash: u64, holder: Holder, now: Timestamp) -> bool {
        let now = now.min(NOW_MAX);
        // There may have been no room for it: then its slot is one that all newcomers share.
        self.renew_at(hash, holder, now)
            || self.overflow() == Overflow::Shared && self.renew_at(SHARED, holder, now)
    }

    /// Forgets a booking whose turn has come.
    pub(crate) fn forget(&self, hash: u64, holder: Holder, now: Timestamp) {
        let now = now.min(NOW_MAX);
        // There may have been no room for it: then all newcomers share what it was booked with.
        let shared = (self.overflow() == Overflow::Shared).then_some(SHARED);
        for hash in std::iter::once(hash).chain(shared) {
            let mut shard = self.shards[self.index(hash)].0.lock();
            let budget = &self.store.budget;
            shard.plan_with_care(budget, now);
            let mut account = shard.take(hash, now);
            account.forget(holder);
            shard.put(budget, hash, account, Touched::Yes, now);
        }
    }

    /// Replaces what is kept of an identity. At the cap an identity that is not known yet stays so.
    pub(crate) fn replace(
        &self,
        rule: Option<&Arc<Rule>>,
        hash: u64,
        account: Account,
        now: Timestamp,
    ) {
        let now = now.min(NOW_MAX);
        let budget = &self.store.budget;
        let mut shard = self.shards[self.index(hash)].0.lock();
        if let Some(rule) = rule {
            shard.follow(budget, rule, now);
        }
        shard.plan_with_care(budget, now);
        if shard.knows(hash, now) == Known::Yes || budget.has_room() {
            shard.take(hash, now);
            shard.put(budget, hash, account, Touched::Yes, now);
        }
    }

    fn renew_at(&self, hash: u64, holder: Holder, now: Timestamp) -> bool {
        let mut shard = self.shards[self.index(hash)].0.lock();
        let budget = &self.store.budget;
        let plan = shard.plan_with_care(budget, now).clone();
        let mut account = shard.take(hash, now);
        let renewed = account.renew(&plan.steps, holder, now);
        shard.put(budget, hash, account, Touched::Yes, now);
        renewed > 0
    }

    /// Moves every identity to another plan.
    pub(crate) fn change(&self, rule: &Arc<Rule>, keep: CarryOver, now: Timestamp) {
        let now = now.min(NOW_MAX);
        let plan = rule.plan_at(now);
        for (index, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.0.lock();
            if shard.generation() < rule.generation {
                shard.change(&self.store.budget, &plan, keep, now);
            }
            self.hints[index].follow(shard.table().extent());
        }
    }

    /// What happens to newcomers for whom there is no room.
    pub(crate) fn overflow(&self) -> Overflow {
        match self.overflow.load(Ordering::Relaxed) {
            deny if deny == Overflow::Deny as u8 => Overflow::Deny,
            allow if allow == Overflow::Allow as u8 => Overflow::Allow,
            _ => Overflow::Shared,
        }
    }

    /// Changes what happens to newcomers for whom there is no room.
    pub(crate) fn set_overflow(&self, overflow: Overflow) {
        self.overflow.store(overflow as u8, Ordering::Relaxed);
    }

    /// How many bits of a hash name its shard.
    pub(crate) const fn bits(&self) -> u32 {
        self.bits
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
                    each(self.full_hash(index, hash), account)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps an account from a snapshot, if there is room.
    pub(crate) fn put_restored(&self, hash: u64, account: Account, now: Timestamp) {
        let index = self.index(hash);
        let mut shard = self.shards[index].0.lock();
        let budget = &self.store.budget;
        shard.plan_with_care(budget, now);
        if !account.is_new() && shard.reserve_at(budget, now) {
            shard.put(budget, hash, account, Touched::Yes, now);
            budget.release(1);
            self.hints[index].follow(shard.table().extent());
        }
    }

    /// Gives memory back that is not needed any more.
    pub(crate) fn sweep(&self, now: Timestamp) {
        for index in 0..self.shards.len() {
            self.sweep_one(index, now);
        }
    }

    pub(crate) fn sweep_next(&self, now: Timestamp) {
        let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        self.sweep_one(index, now);
    }

    fn sweep_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.shards[index].0.lock();
        shard.sweep(&self.store.budget, now.min(NOW_MAX));
        self.hints[index].follow(shard.table().extent());
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
        self.hints[index].follow(shard.table().extent());
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

impl Shards {
    /// The shard of an identity.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        // In two steps: no bit at all may be meant, and a shift by all bits has no meaning.
        (hash >> (u64::BITS - 1 - self.bits) >> 1) as usize
    }

    /// The hash of an identity, from the shard it is in and what the shard's table has of it.
    fn full_hash(&self, shard: usize, rest: u64) -> u64 {
        (shard as u64) << (u64::BITS - 1 - self.bits) << 1 | rest
    }
}

impl ShardCount {
    /// How many bits of a hash name the shard of a limiter of this name. What a snapshot knows fewer bits of is kept in fewer shards.
    pub(crate) fn bits(self, name: &str, store: &Store) -> u32 {
        let most = match self {
            Self::One => 0,
            Self::Few => FEW_SHARD_BITS,
            Self::Many => SHARD_BITS,
        };
        store.restored_bits(name).map_or(most, |known| most.min(known))
    }
}

/// A newcomer is denied.
fn denied() -> Verdict {
    let outcome = Outcome::Deny { retry_after: NO_ROOM_RETRY_AFTER };
    Verdict { outcome, ..UNCOUNTED }
}

/// What is said where no limit has a say.
pub const UNCOUNTED: Verdict = Verdict {
    outcome: Outcome::Allow { wait: Span::ZERO },
    decided_by: None,
    remaining: None,
    reset_after: Span::ZERO,
    beyond: 0,
    soft: false,
    elastic: false,
    shadow: None,
};

#[cfg(test)]
mod tests;
