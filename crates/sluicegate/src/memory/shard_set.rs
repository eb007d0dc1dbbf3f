//! The shards of a limiter or a throttle: locks, prefetch hints and round-robin upkeep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::time::{NOW_MAX, Timestamp};

use super::Store;
use super::prefetch::Hint;
use super::sync::{Mutex, MutexGuard};

/// Maximum number of bits of a hash that select its shard. More shards would make small stores
/// large: 256 cost 48 KB, and two threads meet on one of them every 256th time.
pub(crate) const SHARD_BITS: u32 = if cfg!(loom) { 2 } else { 8 };

/// Shards, each behind its own lock.
#[derive(Debug)]
pub(crate) struct ShardSet<S: ShardUpkeep> {
    shards: Box<[Padded<S>]>,
    hints: Box<[Hint]>,
    store: Arc<Store>,
    /// Index of the next shard to sweep or to reclaim from.
    next: AtomicUsize,
}

/// Two cache lines of its own, since processors fetch them in pairs: no false sharing.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<S>(Mutex<S>);

/// The upkeep of one shard.
pub(crate) trait ShardUpkeep {
    /// Lanes in use, live or not.
    fn used(&self) -> usize;

    /// Address and size of the table, for prefetching.
    fn extent(&self) -> (usize, usize);

    /// Releases memory that is no longer needed.
    fn sweep(&mut self, store: &Store, now: Timestamp);

    /// At the cap: drops expired lanes, where that is worth the time.
    fn reclaim(&mut self, store: &Store, now: Timestamp);
}

impl<S: ShardUpkeep> ShardSet<S> {
    pub(crate) fn new(store: Arc<Store>, bits: u32, shard: impl Fn() -> S) -> Self {
        Self {
            shards: (0..1 << bits).map(|_| Padded(Mutex::new(shard()))).collect(),
            hints: (0..1 << bits).map(|_| Hint::default()).collect(),
            store,
            next: AtomicUsize::new(0),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Lanes in use, live or not.
    pub(crate) fn used(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().used()).sum()
    }

    #[inline]
    pub(crate) fn shard(&self, index: usize) -> &Padded<S> {
        &self.shards[index]
    }

    #[inline]
    pub(crate) fn lock(&self, index: usize) -> MutexGuard<'_, S> {
        self.shards[index].lock()
    }

    /// Publishes where the table of a shard is, which may have been rebuilt.
    #[inline]
    pub(crate) fn update_hint(&self, index: usize, shard: &S) {
        self.hints[index].follow(shard.extent());
    }

    /// Prefetches the bucket where the probe for `name` begins.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize, name: u64) {
        self.hints[index].prefetch(name);
    }

    /// Releases memory that is no longer needed.
    pub(crate) fn sweep(&self, now: Timestamp) {
        (0..self.len()).for_each(|index| self.sweep_one(index, now));
    }

    #[cold]
    pub(crate) fn sweep_next(&self, now: Timestamp) {
        self.sweep_one(self.next(), now);
    }

    fn sweep_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.lock(index);
        shard.sweep(&self.store, now.min(NOW_MAX));
        self.update_hint(index, &shard);
    }

    /// Drops expired lanes, where that is worth the time.
    pub(crate) fn reclaim(&self, now: Timestamp) {
        (0..self.len()).for_each(|index| self.reclaim_one(index, now));
    }

    /// Reclaims from the next shard, and after all of them from another limiter of the store. So a
    /// newcomer that retries gets in once anything has expired, and each try is cheap.
    pub(crate) fn reclaim_next(&self, now: Timestamp) {
        let index = self.next();
        self.reclaim_one(index, now);
        if index == 0
            && let Some(limiter) = self.store.next_limiter()
        {
            limiter.reclaim();
        }
    }

    fn reclaim_one(&self, index: usize, now: Timestamp) {
        let mut shard = self.lock(index);
        shard.reclaim(&self.store, now.min(NOW_MAX));
        self.update_hint(index, &shard);
    }

    fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.len()
    }
}

impl<S: ShardUpkeep> Drop for ShardSet<S> {
    fn drop(&mut self) {
        let used: usize = self.shards.iter_mut().map(|shard| shard.0.get_mut().used()).sum();
        self.store.budget().release(used);
    }
}

impl<S> Padded<S> {
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock()
    }
}
