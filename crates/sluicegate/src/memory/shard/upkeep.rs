//! Making budget, giving memory back, and moving to another plan.

use std::sync::Arc;

use sluicegate_core::account::Account;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_rules::limit::continued;

use super::{Budget, COLUMN_BITS, Shard, Slab, Touched, Whole, columns};
use crate::memory::word::{Content, Epoch, Since, Word};
use crate::plan::{ResolvedRule, Rule};

/// The fewest operations between two looks for memory to give back.
pub(super) const SWEEP_EVERY_MIN: u32 = 1_024;
/// At the cap, the part of the lanes that must have run out before looking for them is worth it.
const WORTH_RECLAIMING: usize = 8;
/// How many lanes are looked at to guess when that will be.
const SAMPLE: usize = 64;
const COLUMN_MASK: u64 = (1 << COLUMN_BITS) - 1;

/// Everybody, taken out; and the lanes they had, which are counted until all are put back.
struct All {
    accounts: Vec<(u64, Account)>,
    lanes: usize,
}

impl Shard {
    /// Makes the table anew, with room for `more`.
    pub(super) fn renew(&mut self, budget: &Budget, more: usize, since: Since) {
        let used = self.table.used();
        let slab = &mut self.slab;
        self.table.renew(more, since, |word| {
            if let Some(place) = word.place() {
                slab.take(place);
            }
        });
        budget.release(used.saturating_sub(self.table.used()));
    }

    /// The same as [`Shard::reclaim`], at `now`.
    pub(crate) fn reclaim_at(&mut self, budget: &Budget, now: Timestamp) {
        self.reclaim(budget, self.epoch.since(now));
    }

    /// At the cap: drops what has run out, unless there cannot be enough of it to be worth the time. So a
    /// flood of newcomers costs a bounded number of looks each, however many lanes there are.
    pub(super) fn reclaim(&mut self, budget: &Budget, since: Since) {
        if since < self.renew_after || self.table.used() == 0 {
            return;
        }
        self.renew(budget, 0, since);
        let step = (self.table.used() / SAMPLE).max(1);
        let mut ends: Vec<Since> =
            self.table.live(since).step_by(step).map(|(_, word)| word.until()).collect();
        ends.sort_unstable();
        self.renew_after = ends.get(ends.len() / WORTH_RECLAIMING).copied().unwrap_or(since);
    }

    /// Counts an operation; whether it is time to look for memory to give back.
    #[inline]
    pub(crate) fn sweep_due(&mut self) -> bool {
        self.until_sweep = self.until_sweep.wrapping_sub(1);
        if self.until_sweep > 0 {
            return false;
        }
        let lanes = u32::try_from(self.table.lanes()).unwrap_or(u32::MAX);
        self.until_sweep = lanes.max(SWEEP_EVERY_MIN);
        true
    }

    /// Moves to the limits of a rule, if that is later than the one the states are kept under.
    #[inline]
    pub(crate) fn follow(&mut self, budget: &Budget, rule: &Arc<Rule>, now: Timestamp) {
        if self.generation() < rule.generation {
            let now = now.min(NOW_MAX);
            self.change(budget, &rule.plan_at(now), CarryOver::Used, now);
        }
    }

    /// Gives memory back that is not needed any more.
    pub(crate) fn sweep(&mut self, budget: &Budget, now: Timestamp) {
        if !self.epoch.suits(now) {
            self.count_from(budget, Epoch::around(now), now);
        }
        let since = self.epoch.since(now);
        if self.table.is_sparse(since) {
            self.renew(budget, 0, since);
        } else if self.slab.len() > 0 {
            self.drop_run_out(since);
        }
        if self.slab.is_sparse() {
            self.pack_slab(since);
        }
    }

    /// Gives up whole states that have run out; their lanes stay.
    fn drop_run_out(&mut self, since: Since) {
        let slab = &mut self.slab;
        self.table.replace(|_, word| match word.place() {
            Some(place) if !word.is_live(since) => {
                slab.take(place);
                Word::GONE
            }
            _ => word,
        });
    }

    /// Moves the whole states together.
    fn pack_slab(&mut self, since: Since) {
        let mut packed = Slab::default();
        let slab = &mut self.slab;
        self.table.replace(|_, word| {
            let Some(whole) = word.place().and_then(|place| slab.take(place)) else {
                return word;
            };
            if word.is_live(since) { word.moved_to(packed.keep(whole)) } else { Word::GONE }
        });
        self.slab = packed;
    }

    /// The identities of which anything is kept, without the bits that name the shard.
    pub(crate) fn identities(&self, now: Timestamp) -> Vec<u64> {
        let live = self.table.live(self.epoch.since(now));
        let mut all: Vec<u64> = live.map(|(name, _)| name >> COLUMN_BITS).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Moves every identity to another plan, which becomes that of the shard.
    pub(crate) fn change(
        &mut self,
        budget: &Budget,
        new: &Arc<ResolvedRule>,
        keep: CarryOver,
        now: Timestamp,
    ) {
        let old = self.plan_with_care(budget, now).clone();
        let from = continued(&new.rule.limits, &old.rule.limits);
        let mut all = self.take_all(now);
        for (_, account) in &mut all.accounts {
            account.change(&old.steps, &new.steps, &from, keep, now);
        }
        self.plan = new.clone();
        self.put_all(budget, all, now);
    }

    /// Counts times from another epoch.
    ///
    /// Whatever fits is moved as it stands: under this plan, which is that of now, a state of another time might not be understood.
    pub(super) fn count_from(&mut self, budget: &Budget, epoch: Epoch, now: Timestamp) {
        self.renew(budget, 0, self.epoch.since(now));
        let old = std::mem::replace(&mut self.epoch, epoch);
        self.renew_after = Since::default();
        let today = self.plan_to_look(now);
        let (plan, slab) = (&self.plan, &mut self.slab);
        self.table.replace(|name, word| match word.content(old) {
            // It was too far ahead to be told, and may be near now.
            Content::Whole(place) if word.is_never() => {
                let expires_at = match slab.get(place) {
                    Some(Whole::State(state)) => {
                        limit_of(&today, name).map(|l| l.expires_at(state))
                    }
                    Some(Whole::Account(account)) => Some(account.expires_at(&today.steps)),
                    None => None,
                };
                Word::whole(place, expires_at.unwrap_or_default(), epoch)
            }
            Content::Whole(place) => Word::whole(place, old.at(word.until()), epoch),
            Content::Packed(packed) => Word::packed(packed, epoch).unwrap_or_else(|| {
                let state = limit_of(plan, name).map_or(State::New, |limit| limit.unpack(packed));
                Word::whole(slab.keep(Whole::State(state)), packed.expires_at, epoch)
            }),
        });
    }

    fn take_all(&mut self, now: Timestamp) -> All {
        let identities = self.identities(now);
        let accounts = identities.into_iter().map(|hash| (hash, self.take(hash, now))).collect();
        let lanes = std::mem::take(&mut self.table).used();
        self.slab = Slab::default();
        All { accounts, lanes }
    }

    fn put_all(&mut self, budget: &Budget, all: All, now: Timestamp) {
        self.renew_after = Since::default();
        for (hash, account) in all.accounts {
            self.put(budget, hash, account, Touched::Yes, now);
        }
        // Not before: newcomers elsewhere would take the room of those who are out for the moment.
        budget.release(all.lanes);
    }
}

/// The limit that a lane of this name belongs to.
fn limit_of(plan: &ResolvedRule, name: u64) -> Option<&Limit> {
    columns(&plan.steps).find(|(_, column)| *column == name & COLUMN_MASK).map(|(limit, _)| limit)
}
