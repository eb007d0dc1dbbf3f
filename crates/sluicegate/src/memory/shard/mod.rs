//! One shard: the states of some of the identities, and the plan they are kept under, behind one lock.
//!
//! An identity is a hash of 64 bits. Its highest 8 name the shard; the others, and a *column* of 8 bits in
//! their place at the end, name a lane of the shard's table. So nothing of the hash is lost, and each lane
//! says which state of its identity it holds: column `2i` that of step `i`, `2i + 1` that of the boosted
//! limit beside an elastic one. An identity with bookings or reservations pending has a single lane, column
//! 0, which leads to the whole account.
//!
//! The plan lives in the shard, under the same lock as the states that were made by it. So a limit can be
//! changed live without anybody ever reading a state of the old limit as one of the new.

mod fast_path;
#[cfg(test)]
mod tests;
mod upkeep;

use std::sync::Arc;

use sluicegate_core::account::Account;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::time::Timestamp;

pub(crate) use fast_path::{Short, word_of};
#[cfg(test)]
pub(crate) use tests::Kept;

use super::budget::Budget;
use super::slab::{Slab, Whole};
use super::table::{Seat, Table};
use super::word::{Content, Epoch, Since, Word};
use crate::plan::ResolvedRule;

/// A shard, under its lock.
///
/// In this order, what every decision looks at lies in one cache line with the lock: two threads that come for the same
/// shard hand over that line, and that of the identity.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    plan: Arc<ResolvedRule>,
    /// What the times in the table count from.
    epoch: Epoch,
    table: Table,
    /// Operations until somebody looks for memory to give back.
    until_sweep: u32,
    slab: Slab,
    /// No search for what has run out is worth its time before.
    renew_after: Since,
}

/// Whether an identity has its lanes already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Yes,
    No,
}

/// Whether anything was done to an account while it was out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    Yes,
    No,
}

const COLUMN_BITS: u32 = 8;

// === impl Shard ===

impl Shard {
    pub(crate) fn new(plan: Arc<ResolvedRule>, now: Timestamp) -> Self {
        Self {
            plan,
            epoch: Epoch::around(now),
            table: Table::default(),
            slab: Slab::default(),
            until_sweep: upkeep::SWEEP_EVERY_MIN,
            renew_after: Since::default(),
        }
    }

    /// The plan at `now`, which becomes that of the shard.
    #[inline]
    pub(crate) fn plan_at(&mut self, now: Timestamp) -> &Arc<ResolvedRule> {
        if !self.plan.holds_at(now) {
            self.plan = self.plan.rule.plan_at(now);
        }
        &self.plan
    }

    /// The same, where there is time to look after the table too: when the clock is far from where it was, because it was set or
    /// because years have passed, times are counted anew from here.
    pub(crate) fn plan_with_care(&mut self, budget: &Budget, now: Timestamp) -> &Arc<ResolvedRule> {
        if !self.epoch.suits(now) {
            self.count_from(budget, Epoch::around(now), now);
        }
        self.plan_at(now)
    }

    /// The plan at `now`, without a trace.
    pub(crate) fn plan_to_look(&self, now: Timestamp) -> Arc<ResolvedRule> {
        if self.plan.holds_at(now) { self.plan.clone() } else { self.plan.rule.plan_at(now) }
    }

    /// How often the rule was changed that the states are kept under.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.plan.rule.generation
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Whether anything is kept of an identity.
    pub(crate) fn knows(&self, hash: u64, now: Timestamp) -> Known {
        let since = self.epoch.since(now);
        let taken = |column| matches!(self.table.seat(name(hash, column), since), Seat::Taken(_));
        let known = columns(&self.plan.steps).any(|(_, column)| taken(column));
        if known { Known::Yes } else { Known::No }
    }

    /// A copy of an account, under the plan of that time.
    pub(crate) fn look(&self, plan: &ResolvedRule, hash: u64, now: Timestamp) -> Account {
        let since = self.epoch.since(now);
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

    /// Takes an account out. Its lanes stay until it is put back; what is kept whole is gone until then.
    pub(crate) fn take(&mut self, hash: u64, now: Timestamp) -> Account {
        let since = self.epoch.since(now);
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
        let Seat::Taken(lane) = self.table.seat(name(hash, column), since) else { return None };
        self.slab.get(self.table.word(lane).place()?)
    }

    fn take_whole(&mut self, hash: u64, column: u64, since: Since) -> Option<Whole> {
        let Seat::Taken(lane) = self.table.seat(name(hash, column), since) else { return None };
        let place = self.table.word(lane).place()?;
        self.table.put(lane, name(hash, column), Word::GONE);
        self.slab.take(place)
    }

    fn unpacked(&self, hash: u64, column: u64, limit: &Limit, since: Since) -> State {
        let Seat::Taken(lane) = self.table.seat(name(hash, column), since) else {
            return State::New;
        };
        match self.table.word(lane).content(self.epoch) {
            Content::Packed(packed) => limit.unpack(packed),
            Content::Whole(_) => State::New,
        }
    }

    /// Puts an account back that was taken out under the same lock.
    pub(crate) fn put(
        &mut self,
        budget: &Budget,
        hash: u64,
        account: Account,
        touched: Touched,
        now: Timestamp,
    ) {
        let since = self.epoch.since(now);
        let plan = self.plan.clone();
        let expires_at = account.expires_at(&plan.steps);
        let states = match account.into_states() {
            Ok(states) => states,
            Err(account) => {
                for (_, column) in columns(&plan.steps).skip(1) {
                    self.forget(hash, column, since);
                }
                let place = self.slab.keep(Whole::Account(Box::new(account)));
                let word = Word::whole(place, expires_at, self.epoch);
                self.write(budget, name(hash, 0), word, since);
                return;
            }
        };
        for (index, (step, (plain, boost))) in plan.steps.iter().zip(states).enumerate() {
            self.put_state(budget, (hash, column(index)), step.limit(), plain, touched, since);
            if let Some(limit) = step.boost() {
                let place = (hash, column(index) + 1);
                self.put_state(budget, place, limit, boost, touched, since);
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
            // Only what was kept whole was taken out of its lane.
            let in_lane = matches!(self.table.seat(name(hash, column), since), Seat::Taken(_));
            if in_lane || state == State::New {
                return;
            }
        } else if state == State::New {
            self.forget(hash, column, since);
            return;
        }
        let word = word_of(&mut self.slab, self.epoch, limit, state);
        self.write(budget, name(hash, column), word, since);
    }

    fn forget(&mut self, hash: u64, column: u64, since: Since) {
        let name = name(hash, column);
        if let Seat::Taken(lane) | Seat::Free(lane) = self.table.seat(name, since)
            && self.table.name(lane) == name
        {
            // Also where it has run out: should the clock step back, it would be live again.
            self.drop_whole(self.table.word(lane));
            self.table.put(lane, name, Word::GONE);
        }
    }

    /// Writes a word under a name, wherever it finds a seat.
    fn write(&mut self, budget: &Budget, name: u64, word: Word, since: Since) {
        let mut seat = self.table.seat(name, since);
        if seat == Seat::Full {
            self.renew(budget, 1, since);
            seat = self.table.seat(name, since);
        }
        match seat {
            Seat::Taken(lane) | Seat::Free(lane) => {
                self.drop_whole(self.table.word(lane));
                self.table.put(lane, name, word);
            }
            Seat::Fresh(lane) => {
                budget.charge();
                self.table.put(lane, name, word);
            }
            // A table just made anew has room.
            Seat::Full => self.drop_whole(word),
        }
    }

    /// Gives up the whole state that a word leads to, if it does.
    #[inline]
    fn drop_whole(&mut self, word: Word) {
        if let Some(place) = word.place() {
            self.slab.take(place);
        }
    }
}

/// The name of a lane: an identity's column.
#[inline]
fn name(hash: u64, column: u64) -> u64 {
    hash << COLUMN_BITS | column
}

/// The column of a step's state; the one after it is that of its boosted limit.
#[inline]
fn column(step: usize) -> u64 {
    2 * step as u64
}

/// All columns of a plan, with the limit that each belongs to.
fn columns(steps: &[EnforcedLimit]) -> impl Iterator<Item = (&Limit, u64)> {
    steps.iter().enumerate().flat_map(|(index, step)| {
        let boost = step.boost().map(|limit| (limit, column(index) + 1));
        std::iter::once((step.limit(), column(index))).chain(boost)
    })
}
