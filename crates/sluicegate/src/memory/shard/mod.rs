//! One shard: the states of some identities and the plan they belong to, behind one lock.
//!
//! An identity is a 64-bit hash. Its highest 8 bits select the shard; the others, followed by a
//! *column* of 8 bits, name a lane of the shard's table. Column `2i` holds the state of step `i`,
//! `2i + 1` that of the boosted limit of an elastic one. An identity with bookings or reservations
//! pending has a single lane, column 0, which refers to the whole account.
//!
//! The plan is under the same lock as its states, so no state of an old limit is ever read as one
//! of a new limit.

mod fast_path;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use fast_path::{FastPath, word_of};
use sluicegate_core::account::Account;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_rules::limit::continued;
#[cfg(test)]
pub(crate) use tests::ShardUsage;

use super::Store;
use super::lanes::{Budget, Lanes};
use super::shard_set::ShardUpkeep;
use super::slab::Whole;
use super::table::{Lane, LaneEntry, Probe};
use super::word::{Content, Epoch, Since, Word};
use crate::plan::{ResolvedRule, Rule};

/// A shard, under its lock.
///
/// In this order, every decision reads one cache line that also holds the lock: two threads on one
/// shard exchange that line and the identity's.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    plan: Arc<ResolvedRule>,
    lanes: Lanes<(), 4>,
}

/// Whether an identity has a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Yes,
    No,
}

/// Whether an account was changed between [`Shard::take`] and [`Shard::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    Yes,
    No,
}

const COLUMN_BITS: u32 = 8;

impl Shard {
    pub(crate) fn new(plan: Arc<ResolvedRule>, now: Timestamp) -> Self {
        Self { plan, lanes: Lanes::new(Epoch::around(now)) }
    }

    /// The plan at `now`, which becomes that of the shard.
    #[inline]
    pub(crate) fn plan_at(&mut self, now: Timestamp) -> &Arc<ResolvedRule> {
        if !self.plan.holds_at(now) {
            self.plan = self.plan.rule.plan_at(now);
        }
        &self.plan
    }

    /// The same, outside the fast path: also rebases the table when the clock is far from its
    /// epoch, because it was set or because years have passed.
    pub(crate) fn plan_with_upkeep(
        &mut self,
        budget: &Budget,
        now: Timestamp,
    ) -> &Arc<ResolvedRule> {
        if !self.lanes.epoch.suits(now) {
            self.rebase(budget, Epoch::around(now), now);
        }
        self.plan_at(now)
    }

    /// The plan at `now`; the shard does not change.
    pub(crate) fn plan_for_read(&self, now: Timestamp) -> Arc<ResolvedRule> {
        if self.plan.holds_at(now) { self.plan.clone() } else { self.plan.rule.plan_at(now) }
    }

    /// The generation of the rule that the states belong to.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.plan.rule.generation
    }

    /// Whether an identity has a live lane.
    pub(crate) fn knows(&self, hash: u64, now: Timestamp) -> Known {
        let since = self.lanes.epoch.since(now);
        let taken = |column| {
            matches!(self.lanes.table.probe(name(hash, column), since), Probe::Occupied(_))
        };
        let known = columns(&self.plan.steps).any(|(_, column)| taken(column));
        if known { Known::Yes } else { Known::No }
    }

    /// A copy of an account, under the plan of that time.
    pub(crate) fn read(&self, plan: &ResolvedRule, hash: u64, now: Timestamp) -> Account {
        let since = self.lanes.epoch.since(now);
        if let Some(Whole::Account(account)) = self.whole(hash, 0, since) {
            return (**account).clone();
        }
        let state = |column, limit: &Limit| match self.whole(hash, column, since) {
            Some(Whole::State(state)) => state.clone(),
            Some(Whole::Account(_)) => State::New,
            None => self.unpacked(hash, column, limit, since),
        };
        let states = plan.steps.iter().enumerate().map(|(index, step)| {
            let boost = step.boost().map(|boost| state(column(index) + 1, boost));
            (state(column(index), step.limit()), boost.unwrap_or_default())
        });
        Account::from_states(states)
    }

    /// Takes an account out. Its lanes stay until [`Shard::put`]; whole states are removed.
    pub(crate) fn take(&mut self, hash: u64, now: Timestamp) -> Account {
        let since = self.lanes.epoch.since(now);
        if let Some(Whole::Account(_)) = self.whole(hash, 0, since)
            && let Some(Whole::Account(account)) = self.take_whole(hash, 0, since)
        {
            return *account;
        }
        let plan = self.plan.clone();
        let mut take = |column, limit: &Limit| match self.take_whole(hash, column, since) {
            Some(Whole::State(state)) => state,
            Some(Whole::Account(_)) => State::New,
            None => self.unpacked(hash, column, limit, since),
        };
        let states = plan.steps.iter().enumerate().map(|(index, step)| {
            let plain = take(column(index), step.limit());
            let boost = step.boost().map(|boost| take(column(index) + 1, boost));
            (plain, boost.unwrap_or_default())
        });
        Account::from_states(states)
    }

    fn whole(&self, hash: u64, column: u64, since: Since) -> Option<&Whole> {
        let Probe::Occupied(lane) = self.lanes.table.probe(name(hash, column), since) else {
            return None;
        };
        self.lanes.slab.get(self.lanes.table.word(lane).index()?)
    }

    fn take_whole(&mut self, hash: u64, column: u64, since: Since) -> Option<Whole> {
        let Probe::Occupied(lane) = self.lanes.table.probe(name(hash, column), since) else {
            return None;
        };
        let index = self.lanes.table.word(lane).index()?;
        self.put_word(lane, name(hash, column), Word::GONE);
        self.lanes.slab.take(index)
    }

    fn unpacked(&self, hash: u64, column: u64, limit: &Limit, since: Since) -> State {
        let Probe::Occupied(lane) = self.lanes.table.probe(name(hash, column), since) else {
            return State::New;
        };
        match self.lanes.table.word(lane).content(self.lanes.epoch) {
            Content::Packed(packed) => limit.unpack(packed),
            Content::Whole(_) => State::New,
        }
    }

    /// Stores an account that was taken under the same lock.
    pub(crate) fn put(
        &mut self,
        budget: &Budget,
        hash: u64,
        account: Account,
        touched: Touched,
        now: Timestamp,
    ) {
        let since = self.lanes.epoch.since(now);
        let plan = self.plan.clone();
        let expires_at = account.expires_at(&plan.steps);
        let states = match account.into_states() {
            Ok(states) => states,
            Err(account) => {
                for (_, column) in columns(&plan.steps).skip(1) {
                    self.forget(hash, column, since);
                }
                let index = self.lanes.slab.insert(Whole::Account(Box::new(account)));
                let word = Word::whole(index, expires_at, self.lanes.epoch);
                self.write(budget, name(hash, 0), word, since);
                return;
            }
        };
        for (index, (step, (plain, boost))) in plan.steps.iter().zip(states).enumerate() {
            self.put_state(budget, (hash, column(index)), step.limit(), plain, touched, since);
            if let Some(limit) = step.boost() {
                let index = (hash, column(index) + 1);
                self.put_state(budget, index, limit, boost, touched, since);
            }
        }
    }

    fn put_state(
        &mut self,
        budget: &Budget,
        (hash, column): (u64, u64),
        limit: &Limit,
        state: State,
        touched: Touched,
        since: Since,
    ) {
        if touched == Touched::No {
            // Only whole states were taken out of their lanes.
            let in_lane =
                matches!(self.lanes.table.probe(name(hash, column), since), Probe::Occupied(_));
            if in_lane || state == State::New {
                return;
            }
        } else if state == State::New {
            self.forget(hash, column, since);
            return;
        }
        let word = word_of(&mut self.lanes.slab, self.lanes.epoch, limit, state);
        self.write(budget, name(hash, column), word, since);
    }

    fn forget(&mut self, hash: u64, column: u64, since: Since) {
        let name = name(hash, column);
        if let Probe::Occupied(lane) | Probe::Expired(lane) = self.lanes.table.probe(name, since)
            && self.lanes.table.entry(lane).name == name
        {
            // Expired ones too: they would be live again if the clock stepped back.
            self.lanes.slab.drop_state(self.lanes.table.word(lane));
            self.put_word(lane, name, Word::GONE);
        }
    }

    #[inline]
    fn put_word(&mut self, lane: Lane, name: u64, word: Word) {
        self.lanes.table.put(lane, LaneEntry { name, word, extra: () });
    }

    /// Writes a word under a name, in any lane.
    fn write(&mut self, budget: &Budget, name: u64, word: Word, since: Since) {
        let mut probe = self.lanes.table.probe(name, since);
        if probe == Probe::Full {
            self.lanes.rebuild(budget, 1, since, |()| {});
            probe = self.lanes.table.probe(name, since);
        }
        match probe {
            Probe::Occupied(lane) | Probe::Expired(lane) => {
                self.lanes.slab.drop_state(self.lanes.table.word(lane));
                self.put_word(lane, name, word);
            }
            Probe::Empty(lane) => {
                budget.charge();
                self.put_word(lane, name, word);
            }
            // A table that was just rebuilt has room.
            Probe::Full => self.lanes.slab.drop_state(word),
        }
    }
}

/// The lane name of an identity's column.
#[inline]
fn name(hash: u64, column: u64) -> u64 {
    hash << COLUMN_BITS | column
}

/// The column of a step's state; the one after it is that of its boosted limit.
#[inline]
fn column(step: usize) -> u64 {
    2 * step as u64
}

/// All columns of a plan with their limits.
fn columns(steps: &[EnforcedLimit]) -> impl Iterator<Item = (&Limit, u64)> {
    steps.iter().enumerate().flat_map(|(index, step)| {
        let boost = step.boost().map(|limit| (limit, column(index) + 1));
        std::iter::once((step.limit(), column(index))).chain(boost)
    })
}

const COLUMN_MASK: u64 = (1 << COLUMN_BITS) - 1;

/// All accounts of a shard, and the lanes they had: these stay charged until all are stored again.
struct TakenAccounts {
    accounts: Vec<(u64, Account)>,
    lanes: usize,
}

impl Shard {
    /// Moves to the limits of a rule if that is a later generation.
    #[inline]
    pub(crate) fn follow(&mut self, budget: &Budget, rule: &Arc<Rule>, now: Timestamp) {
        if self.generation() < rule.generation {
            let now = now.min(NOW_MAX);
            self.change(budget, &rule.plan_at(now), CarryOver::Used, now);
        }
    }

    /// The identities that have live lanes, without the bits that select the shard.
    pub(crate) fn identities(&self, now: Timestamp) -> Vec<u64> {
        let live = self.lanes.table.live(self.lanes.epoch.since(now));
        let mut all: Vec<u64> = live.map(|entry| entry.name >> COLUMN_BITS).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Moves every identity to another plan.
    pub(crate) fn change(
        &mut self,
        budget: &Budget,
        new: &Arc<ResolvedRule>,
        carry: CarryOver,
        now: Timestamp,
    ) {
        let old = self.plan_with_upkeep(budget, now).clone();
        let from = continued(&new.rule.limits, &old.rule.limits);
        let mut all = self.take_all(now);
        for (_, account) in &mut all.accounts {
            account.change(&old.steps, &new.steps, &from, carry, now);
        }
        self.plan = new.clone();
        self.put_all(budget, all, now);
    }

    /// Counts times from another epoch.
    ///
    /// Packed states are moved as they are: they belong to the current plan, which may not be that
    /// of `now`.
    pub(super) fn rebase(&mut self, budget: &Budget, epoch: Epoch, now: Timestamp) {
        let since = self.lanes.epoch.since(now);
        self.lanes.rebuild(budget, 0, since, |()| {});
        let plan_now = self.plan_for_read(now);
        let plan = &self.plan;
        self.lanes.rebase(
            epoch,
            |entry, whole| match whole {
                Whole::State(state) => limit_of(&plan_now, entry.name)
                    .map_or(Timestamp::EPOCH, |limit| limit.expires_at(state)),
                Whole::Account(account) => account.expires_at(&plan_now.steps),
            },
            |entry, packed| {
                limit_of(plan, entry.name).map_or(State::New, |limit| limit.unpack(packed))
            },
        );
    }

    fn take_all(&mut self, now: Timestamp) -> TakenAccounts {
        let identities = self.identities(now);
        let accounts = identities.into_iter().map(|hash| (hash, self.take(hash, now))).collect();
        TakenAccounts { accounts, lanes: self.lanes.clear() }
    }

    fn put_all(&mut self, budget: &Budget, all: TakenAccounts, now: Timestamp) {
        for (hash, account) in all.accounts {
            self.put(budget, hash, account, Touched::Yes, now);
        }
        // Not earlier: newcomers of other shards would take the room.
        budget.release(all.lanes);
    }
}

impl ShardUpkeep for Shard {
    fn used(&self) -> usize {
        self.lanes.table.used()
    }

    fn extent(&self) -> (usize, usize) {
        self.lanes.table.extent()
    }

    fn sweep(&mut self, store: &Store, now: Timestamp) {
        let budget = store.budget();
        if !self.lanes.epoch.suits(now) {
            self.rebase(budget, Epoch::around(now), now);
        }
        let since = self.lanes.epoch.since(now);
        if self.lanes.table.is_sparse(since) {
            self.lanes.rebuild(budget, 0, since, |()| {});
        } else if self.lanes.slab.len() > 0 {
            self.lanes.drop_expired(since, |word| word.index().is_some(), |()| {});
        }
        self.lanes.compact_slab();
    }

    fn reclaim(&mut self, store: &Store, now: Timestamp) {
        self.lanes.reclaim(store.budget(), self.lanes.epoch.since(now), |()| {});
    }
}

/// The limit of the lane with this name.
fn limit_of(plan: &ResolvedRule, name: u64) -> Option<&Limit> {
    columns(&plan.steps).find(|(_, column)| *column == name & COLUMN_MASK).map(|(limit, _)| limit)
}
