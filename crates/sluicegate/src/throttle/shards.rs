//! All shards of a throttle: which lock a key is behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluicegate_core::limit::State;
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Verdict;

use super::NoRoom;
use super::params::Terms;
use super::shard::{Shard, Wanted, Way};
use crate::memory::prefetch::Hint;
use crate::memory::sync::Mutex;
use crate::memory::{Store, UNCOUNTED};

/// The highest bits of a hash name its shard, as in a limiter's.
pub(super) const SHARD_BITS: u32 = 8;
/// How many keys are looked at under one lock when all are.
const AT_A_TIME: usize = 128;
/// How many shards a newcomer for whom there is no room looks through for some.
const LOOKS_FOR_ROOM: usize = 8;

/// The keys of a throttle.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Padded]>,
    hints: Box<[Hint]>,
    store: Arc<Store>,
    /// Which shard is looked through next for memory to give back.
    hand: AtomicUsize,
    /// A time, in microseconds, that somebody named lately.
    told: AtomicU64,
}

/// Cache lines of its own, in pairs, as processors fetch them: neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

// === impl Shards ===

impl Shards {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self {
            shards: (0..1 << SHARD_BITS).map(|_| Padded(Mutex::new(Shard::new()))).collect(),
            hints: (0..1 << SHARD_BITS).map(|_| Hint::default()).collect(),
            store,
            hand: AtomicUsize::new(0),
            told: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.store.hash(key)
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Sends for the memory that a hit on `hash` will read first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.hints[index(hash)].prefetch(name(hash));
    }

    #[inline]
    pub(super) fn hit(
        &self,
        hash: u64,
        terms: &Terms,
        cost: u64,
        now: Timestamp,
    ) -> Result<Verdict, NoRoom> {
        let wanted = Wanted { name: name(hash), terms, cost, now };
        let mut verdict = UNCOUNTED;
        match self.hit_once(index(hash), wanted, &mut verdict) {
            Way::NoRoom => self.hit_without_room(hash, wanted),
            Way::Decided | Way::Added => Ok(verdict),
        }
    }

    #[inline]
    fn hit_once(&self, index: usize, wanted: Wanted<'_>, verdict: &mut Verdict) -> Way {
        let mut shard = self.shards[index].0.lock();
        let way = shard.hit(&self.store, wanted, verdict);
        if way == Way::Added {
            self.hints[index].follow(shard.extent());
            self.told.store(wanted.now.as_micros(), Ordering::Relaxed);
        }
        let sweep = shard.sweep_due();
        drop(shard);
        if sweep {
            self.sweep_next(wanted.now);
        }
        way
    }

    /// The key's own shard had no room to give. Others may have some, and after all of them another part of the store: so
    /// who comes again gets in once something has run out anywhere, and each try costs a few looks.
    #[cold]
    fn hit_without_room(&self, hash: u64, wanted: Wanted<'_>) -> Result<Verdict, NoRoom> {
        for _ in 0..LOOKS_FOR_ROOM {
            let turn = self.next();
            self.reclaim_one(turn, wanted.now);
            if turn == 0
                && let Some(limiter) = self.store.next_limiter()
            {
                limiter.reclaim();
            }
            if self.store.budget().has_room() {
                let mut verdict = UNCOUNTED;
                match self.hit_once(index(hash), wanted, &mut verdict) {
                    Way::NoRoom => {}
                    Way::Decided | Way::Added => return Ok(verdict),
                }
            }
        }
        Err(NoRoom { most: self.store.budget().most() })
    }

    pub(super) fn forget(&self, hash: u64) {
        self.shards[index(hash)].0.lock().forget(&self.store, name(hash));
    }

    pub(super) fn entries(&self) -> usize {
        self.shards.iter().map(|padded| padded.0.lock().used()).sum()
    }

    /// Hands a copy of every live key to `each`. A few at a time are locked, so each is as it stood at some moment.
    pub(super) fn each_kept<E>(
        &self,
        mut each: impl FnMut(u64, Terms, State) -> Result<(), E>,
    ) -> Result<(), E> {
        for padded in &self.shards {
            let names = padded.0.lock().names(self.told());
            for some in names.chunks(AT_A_TIME) {
                let shard = padded.0.lock();
                let kept: Vec<_> = some.iter().map(|name| (*name, shard.kept(*name))).collect();
                drop(shard);
                for (name, kept) in kept {
                    if let Some((terms, state)) = kept {
                        each(hash_of(name), terms, state)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Keeps what a snapshot has of a key, if there is room.
    pub(super) fn restore(&self, hash: u64, terms: &Terms, state: State) {
        let mut shard = self.shards[index(hash)].0.lock();
        shard.restore(&self.store, name(hash), terms, state);
        self.hints[index(hash)].follow(shard.extent());
    }

    /// Gives memory back that is not needed any more.
    pub(super) fn sweep(&self, now: Timestamp) {
        for index in 0..self.shards.len() {
            self.sweep_one(index, now);
        }
    }

    #[cold]
    fn sweep_next(&self, now: Timestamp) {
        self.sweep_one(self.next(), now);
    }

    fn sweep_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.shards[index].0.lock();
        shard.sweep(&self.store, now.min(NOW_MAX));
        self.hints[index].follow(shard.extent());
        self.told.store(now.as_micros(), Ordering::Relaxed);
    }

    /// Drops what had run out when somebody last told the time, where that is worth it.
    pub(super) fn reclaim_all(&self) {
        for index in 0..self.shards.len() {
            self.reclaim_one(index, self.told());
        }
    }

    fn reclaim_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.shards[index].0.lock();
        shard.reclaim_at(&self.store, now.min(NOW_MAX));
        self.hints[index].follow(shard.extent());
    }

    /// Looks at every shard.
    #[cfg(test)]
    pub(super) fn inspect<T>(&self, look: impl FnMut(&mut Shard) -> T) -> Vec<T> {
        let mut look = look;
        self.shards.iter().map(|padded| look(&mut padded.0.lock())).collect()
    }

    fn told(&self) -> Timestamp {
        Timestamp::from_micros(self.told.load(Ordering::Relaxed))
    }

    /// The shard whose turn it is.
    fn next(&self) -> usize {
        self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len()
    }
}

impl Drop for Shards {
    /// What it kept is counted no longer: others may have the room.
    fn drop(&mut self) {
        let kept: usize = self.shards.iter_mut().map(|padded| padded.0.get_mut().used()).sum();
        self.store.budget().release(kept);
    }
}

/// The shard of a key.
#[inline]
const fn index(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARD_BITS)) as usize
}

/// The name of a key in its shard's table, which looks at the highest bits first.
#[inline]
const fn name(hash: u64) -> u64 {
    hash.rotate_left(SHARD_BITS)
}

const fn hash_of(name: u64) -> u64 {
    name.rotate_right(SHARD_BITS)
}
