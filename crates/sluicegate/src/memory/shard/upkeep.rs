//! Releasing memory, rebasing times and moving to another plan.

use std::sync::Arc;

use sluicegate_core::account::Account;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_rules::limit::continued;

use super::{Budget, COLUMN_BITS, Shard, ShardUpkeep, Store, Touched, Whole, columns};
use crate::memory::word::Epoch;
use crate::plan::{ResolvedRule, Rule};

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
