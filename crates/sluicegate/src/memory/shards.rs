//! The shards of one limiter, and every operation on an identity.

mod together;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sluicegate_core::account::{Account, Answer, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict};

pub(crate) use together::{
    Target, apply_together, apply_together_to_each, apply_together_with_returned,
};

use super::lanes::Budget;
use super::shard::{FastPath, Known, Shard, Touched};
use super::shard_set::{SHARD_BITS, ShardSet};
use super::{Overflow, Store};
use crate::plan::Rule;

const FEW_SHARD_BITS: u32 = 2;
/// The identity that newcomers share when there is no room for their own.
const SHARED: u64 = u64::MAX;
/// Identities copied under one lock when all are read.
const AT_A_TIME: usize = 128;
/// Retry hint for a newcomer denied for lack of room; the actual time is unknown.
const NO_ROOM_RETRY_AFTER: Span = Span::from_secs(1);

/// The states of one limiter's identities.
#[derive(Debug)]
pub(crate) struct Shards {
    set: ShardSet<Shard>,
    /// Number of highest bits of a hash that select its shard.
    bits: u32,
    /// An [`Overflow`], which may be changed.
    overflow: AtomicU8,
}

/// The number of shards of a limiter.
///
/// A table knows an identity by 56 bits of its hash, and its shard adds the bits that select it. So
/// collisions are likelier with fewer shards: any two of a million identities collide with a
/// probability of 2 in a million, as any two of ten million do with all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ShardCount {
    /// One, for about one identity.
    One,
    /// A few, for one limiter among many.
    Few,
    /// All.
    #[default]
    Many,
}

/// An answer, and whether it came from the overflow policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) overflowed: bool,
}

impl Shards {
    pub(crate) fn new(
        store: Arc<Store>,
        rule: &Arc<Rule>,
        overflow: Overflow,
        bits: u32,
        now: Timestamp,
    ) -> Self {
        let plan = rule.plan_at(now);
        let set = ShardSet::new(store, bits, || Shard::new(plan.clone(), now));
        Self { set, bits, overflow: AtomicU8::new(overflow as u8) }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.set.store().hash(key)
    }

    /// A hit of `cost` on the fast path, under a rule or a later generation of it; whether the
    /// overflow policy decided. `None` if the slow path must be taken.
    #[inline]
    pub(crate) fn hit(
        &self,
        rule: Option<&Arc<Rule>>,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Option<bool> {
        let index = self.index(hash);
        let mut shard = self.set.lock(index);
        if let Some(rule) = rule {
            shard.follow(self.budget(), rule, now);
        }
        let outcome = shard.hit(self.budget(), hash, cost, now, verdict);
        if outcome == FastPath::Added {
            self.set.update_hint(index, &shard);
        }
        let sweep = shard.sweep_due();
        drop(shard);
        if sweep {
            self.set.sweep_next(now);
        }
        match outcome {
            FastPath::Decided | FastPath::Added => Some(false),
            FastPath::Fallback => None,
            FastPath::NoRoom => self.no_room(now, verdict),
        }
    }

    #[cold]
    fn no_room(&self, now: Timestamp, verdict: &mut Verdict) -> Option<bool> {
        *verdict = match self.overflow() {
            Overflow::Shared => return None,
            Overflow::Deny => denied(),
            Overflow::Allow => UNCOUNTED,
        };
        self.set.reclaim_next(now);
        Some(true)
    }

    /// Prefetches the memory that a decision on `hash` reads first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.set.prefetch(self.index(hash), hash << 8);
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

    /// The decision of each limit on a cost, and the rule they belong to: `rule` or a later
    /// generation. Changes nothing.
    pub(crate) fn evaluate(
        &self,
        rule: Option<&Arc<Rule>>,
        hash: u64,
        cost: u64,
        moment: Moment,
    ) -> (Arc<Rule>, Vec<Decision>) {
        let now = moment.now.min(NOW_MAX);
        let read = |hash| {
            let mut shard = self.set.lock(self.index(hash));
            if let Some(rule) = rule {
                shard.follow(self.budget(), rule, now);
            }
            let plan = shard.plan_for_read(now);
            let known = shard.knows(hash, now) == Known::Yes;
            (known, shard.read(&plan, hash, now), plan)
        };
        let (known, mut account, mut plan) = read(hash);
        // An identity without room uses the shared one.
        if !known && !self.budget().has_room() && self.overflow() == Overflow::Shared {
            (_, account, plan) = read(SHARED);
        }
        (plan.rule.clone(), account.evaluate(&plan.steps, cost, moment))
    }

    /// Renews the leases of the slots held by `holder`; whether there are any.
    pub(crate) fn renew(&self, hash: u64, holder: Holder, now: Timestamp) -> bool {
        let now = now.min(NOW_MAX);
        // Without room it holds a slot of the shared identity.
        self.renew_at(hash, holder, now)
            || self.overflow() == Overflow::Shared && self.renew_at(SHARED, holder, now)
    }

    /// Drops a booking after its turn.
    pub(crate) fn forget(&self, hash: u64, holder: Holder, now: Timestamp) {
        let now = now.min(NOW_MAX);
        // Without room it was booked with the shared identity.
        let shared = (self.overflow() == Overflow::Shared).then_some(SHARED);
        for hash in std::iter::once(hash).chain(shared) {
            let mut shard = self.set.lock(self.index(hash));
            let budget = self.budget();
            shard.plan_with_upkeep(budget, now);
            let mut account = shard.take(hash, now);
            account.forget(holder);
            shard.put(budget, hash, account, Touched::Yes, now);
        }
    }

    /// Replaces the account of an identity. At the cap a newcomer is not added.
    pub(crate) fn replace(
        &self,
        rule: Option<&Arc<Rule>>,
        hash: u64,
        account: Account,
        now: Timestamp,
    ) {
        let now = now.min(NOW_MAX);
        let budget = self.budget();
        let mut shard = self.set.lock(self.index(hash));
        if let Some(rule) = rule {
            shard.follow(budget, rule, now);
        }
        shard.plan_with_upkeep(budget, now);
        if shard.knows(hash, now) == Known::Yes || budget.has_room() {
            shard.take(hash, now);
            shard.put(budget, hash, account, Touched::Yes, now);
        }
    }

    fn renew_at(&self, hash: u64, holder: Holder, now: Timestamp) -> bool {
        let mut shard = self.set.lock(self.index(hash));
        let budget = self.budget();
        let plan = shard.plan_with_upkeep(budget, now).clone();
        let mut account = shard.take(hash, now);
        let renewed = account.renew(&plan.steps, holder, now);
        shard.put(budget, hash, account, Touched::Yes, now);
        renewed > 0
    }

    /// Moves every identity to another plan.
    pub(crate) fn change(&self, rule: &Arc<Rule>, carry: CarryOver, now: Timestamp) {
        let now = now.min(NOW_MAX);
        let plan = rule.plan_at(now);
        for index in 0..self.set.len() {
            let mut shard = self.set.lock(index);
            if shard.generation() < rule.generation {
                shard.change(self.budget(), &plan, carry, now);
            }
            self.set.update_hint(index, &shard);
        }
    }

    /// The policy for newcomers without room.
    pub(crate) fn overflow(&self) -> Overflow {
        match self.overflow.load(Ordering::Relaxed) {
            deny if deny == Overflow::Deny as u8 => Overflow::Deny,
            allow if allow == Overflow::Allow as u8 => Overflow::Allow,
            _ => Overflow::Shared,
        }
    }

    /// Changes the policy for newcomers without room.
    pub(crate) fn set_overflow(&self, overflow: Overflow) {
        self.overflow.store(overflow as u8, Ordering::Relaxed);
    }

    /// Number of bits of a hash that select its shard.
    pub(crate) const fn bits(&self) -> u32 {
        self.bits
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.set.store()
    }

    /// Calls `each` with a copy of every account. A few are copied at a time, so that accounts are
    /// consistent one by one, not with each other.
    pub(crate) fn each_account<E>(
        &self,
        now: Timestamp,
        mut each: impl FnMut(u64, Account) -> Result<(), E>,
    ) -> Result<(), E> {
        for index in 0..self.set.len() {
            let identities = self.set.lock(index).identities(now);
            for some in identities.chunks(AT_A_TIME) {
                let shard = self.set.lock(index);
                let plan = shard.plan_for_read(now);
                let accounts: Vec<(u64, Account)> =
                    some.iter().map(|hash| (*hash, shard.read(&plan, *hash, now))).collect();
                drop(shard);
                for (hash, account) in accounts.into_iter().filter(|(_, account)| !account.is_new())
                {
                    each(self.full_hash(index, hash), account)?;
                }
            }
        }
        Ok(())
    }

    /// Stores an account from a snapshot, if there is room.
    pub(crate) fn put_restored(&self, hash: u64, account: Account, now: Timestamp) {
        let index = self.index(hash);
        let mut shard = self.set.lock(index);
        let budget = self.budget();
        shard.plan_with_upkeep(budget, now);
        if !account.is_new() && shard.reserve_at(budget, now) {
            shard.put(budget, hash, account, Touched::Yes, now);
            budget.release(1);
            self.set.update_hint(index, &shard);
        }
    }

    /// Releases memory that is no longer needed.
    pub(crate) fn sweep(&self, now: Timestamp) {
        self.set.sweep(now);
    }

    pub(crate) fn sweep_next(&self, now: Timestamp) {
        self.set.sweep_next(now);
    }

    /// Drops expired lanes, where that is worth the time.
    pub(crate) fn reclaim(&self, now: Timestamp) {
        self.set.reclaim(now);
    }

    fn budget(&self) -> &Budget {
        self.set.store().budget()
    }
}

impl Shards {
    /// The shard of an identity.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        // In two steps: `bits` may be 0, and a shift by 64 is not defined.
        (hash >> (u64::BITS - 1 - self.bits) >> 1) as usize
    }

    /// The hash of an identity from its shard and the rest in the shard's table.
    fn full_hash(&self, shard: usize, rest: u64) -> u64 {
        (shard as u64) << (u64::BITS - 1 - self.bits) << 1 | rest
    }
}

impl ShardCount {
    /// The bits that select a shard of the limiter of this name: at most those that a snapshot
    /// knows.
    pub(crate) fn bits(self, name: &str, store: &Store) -> u32 {
        let max = match self {
            Self::One => 0,
            Self::Few => FEW_SHARD_BITS,
            Self::Many => SHARD_BITS,
        };
        store.restored_bits(name).map_or(max, |known| max.min(known))
    }
}

/// The verdict of [`Overflow::Deny`].
fn denied() -> Verdict {
    let outcome = Outcome::Deny { retry_after: NO_ROOM_RETRY_AFTER };
    Verdict { outcome, ..UNCOUNTED }
}

/// The verdict where no limit applies.
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
