//! The storage of one shard: its table, the states that do not fit a lane, and their upkeep.

use sluicegate_core::limit::State;
use sluicegate_core::packed::Packed;
use sluicegate_core::time::Timestamp;

use super::slab::{Slab, Whole};
use super::sync::{AtomicUsize, Ordering};
use super::table::{LaneEntry, LaneExtra, Table};
use super::word::{Content, Epoch, Since, Word};

/// Minimum number of operations between two sweeps.
const SWEEP_EVERY_MIN: u32 = 1_024;
/// At the cap, a search for expired lanes is worth it once one lane in so many has expired.
const WORTH_RECLAIMING: usize = 8;
/// Lanes sampled to estimate when that will be.
const SAMPLE: usize = 64;

/// A table with the states that its words refer to. The fields of the hot path come first.
///
/// `release` is called with the extra data of each dropped lane.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lanes<X, const LANES: usize> {
    /// Origin of the times in the table.
    pub(crate) epoch: Epoch,
    pub(crate) table: Table<X, LANES>,
    /// Operations until the next sweep.
    until_sweep: u32,
    /// Searching for expired lanes is not worth it before.
    reclaim_after: Since,
    pub(crate) slab: Slab,
}

impl<X: LaneExtra, const LANES: usize> Lanes<X, LANES> {
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            table: Table::default(),
            until_sweep: SWEEP_EVERY_MIN,
            reclaim_after: Since::default(),
            slab: Slab::default(),
        }
    }

    /// Counts an operation; whether a sweep is due.
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

    /// Reserves a lane for a newcomer; at the cap, drops expired lanes first if that may help.
    pub(crate) fn reserve(
        &mut self,
        budget: &Budget,
        since: Since,
        release: impl FnMut(X),
    ) -> bool {
        budget.reserve() || {
            self.reclaim(budget, since, release);
            budget.reserve()
        }
    }

    /// Rebuilds the table with room for `more`.
    pub(crate) fn rebuild(
        &mut self,
        budget: &Budget,
        more: usize,
        since: Since,
        mut release: impl FnMut(X),
    ) {
        let used = self.table.used();
        let slab = &mut self.slab;
        self.table.rebuild(more, since, |entry| {
            release(entry.extra);
            slab.drop_state(entry.word);
        });
        budget.release(used.saturating_sub(self.table.used()));
    }

    /// At the cap: drops expired lanes, unless there cannot be enough of them. So a flood of
    /// newcomers costs a bounded number of lookups each, however many lanes there are.
    pub(crate) fn reclaim(&mut self, budget: &Budget, since: Since, release: impl FnMut(X)) {
        if since < self.reclaim_after || self.table.used() == 0 {
            return;
        }
        self.rebuild(budget, 0, since, release);
        let step = (self.table.used() / SAMPLE).max(1);
        let mut ends: Vec<Since> =
            self.table.live(since).step_by(step).map(|entry| entry.word.until()).collect();
        ends.sort_unstable();
        self.reclaim_after = ends.get(ends.len() / WORTH_RECLAIMING).copied().unwrap_or(since);
    }

    /// Drops the states of expired lanes that `which` selects; the lanes stay.
    pub(crate) fn drop_expired(
        &mut self,
        since: Since,
        which: impl Fn(Word) -> bool,
        mut release: impl FnMut(X),
    ) {
        let slab = &mut self.slab;
        self.table.replace(|entry| {
            if entry.word.is_live(since) || !which(entry.word) {
                return entry;
            }
            release(entry.extra);
            slab.drop_state(entry.word);
            entry.gone()
        });
    }

    /// Compacts the slab if most of it is free.
    pub(crate) fn compact_slab(&mut self) {
        if !self.slab.is_sparse() {
            return;
        }
        let mut packed = Slab::default();
        let slab = &mut self.slab;
        self.table.replace(|entry| match entry.word.index().and_then(|index| slab.take(index)) {
            Some(whole) => LaneEntry { word: entry.word.moved_to(packed.insert(whole)), ..entry },
            None => entry,
        });
        self.slab = packed;
    }

    /// Counts times from another epoch; every state stays as it is. `expires_at` is that of a whole
    /// state, `unpack` makes a whole state of one that no longer fits its lane.
    pub(crate) fn rebase(
        &mut self,
        epoch: Epoch,
        expires_at: impl Fn(LaneEntry<X>, &Whole) -> Timestamp,
        unpack: impl Fn(LaneEntry<X>, Packed) -> State,
    ) {
        let old = std::mem::replace(&mut self.epoch, epoch);
        self.reclaim_after = Since::default();
        let slab = &mut self.slab;
        self.table.replace(|entry| {
            if entry.word == Word::GONE {
                return entry;
            }
            let word = match entry.word.content(old) {
                // The expiry was too far ahead to be stored, and may be representable now.
                Content::Whole(index) if entry.word.is_never() => {
                    let expires_at = slab.get(index).map(|whole| expires_at(entry, whole));
                    Word::whole(index, expires_at.unwrap_or_default(), epoch)
                }
                Content::Whole(index) => Word::whole(index, old.at(entry.word.until()), epoch),
                Content::Packed(packed) => Word::packed(packed, epoch).unwrap_or_else(|| {
                    let state = Whole::State(unpack(entry, packed));
                    Word::whole(slab.insert(state), packed.expires_at, epoch)
                }),
            };
            LaneEntry { word, ..entry }
        });
    }

    /// Removes all lanes; how many were in use.
    pub(crate) fn clear(&mut self) -> usize {
        self.reclaim_after = Since::default();
        self.slab = Slab::default();
        std::mem::take(&mut self.table).used()
    }
}

/// Lanes in use, and their maximum.
///
/// A known identity may take another lane at any time (for a second limit of its plan), so the
/// count may exceed the cap by the lanes that known identities lack; a newcomer never does.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// Reserves a lane for a new identity, if one is free. Released once the identity has its lane.
    pub(crate) fn reserve(&self) -> bool {
        let more = |used| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Whether there is room; approximate under concurrency.
    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.max
    }

    pub(crate) fn charge(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, lanes: usize) {
        self.used.fetch_sub(lanes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) const fn max(&self) -> usize {
        self.max
    }
}
