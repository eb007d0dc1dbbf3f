//! Table of replicas, by the hash of the identity.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_core::time::{Span, Timestamp};

use super::key_replica::KeyReplica;
use crate::backend::LevelCounters;
use crate::backend::levels::{add, subtract};
use crate::backend::local::BuildPrehashed;

/// Largest number of entries.
const ENTRIES_MAX: usize = 100_000;
/// Overflow entries beyond that, each removed as soon as its counts are pushed.
const OVERFLOW_MAX: usize = 10_000;
/// Shortest time for which an entry is synced after its last hit; otherwise two intervals.
const SYNCED_MIN: Span = Span::from_millis(100);
/// Shards, each with a lock.
pub(super) const SHARDS: usize = 64;

/// The replicas of this node.
#[derive(Debug)]
pub(super) struct ReplicaTable {
    shards: Box<[Mutex<HashMap<u64, Entry, BuildPrehashed>>]>,
    len: AtomicUsize,
    serials: AtomicU64,
    entries_max: usize,
}

/// An entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: EntryId,
    identity: Box<[u8]>,
    pub(super) key: Arc<[u8]>,
    pub(super) replica: KeyReplica,
    pub(super) counters: Arc<LevelCounters>,
    pub(super) interval: Span,
    /// Tick of the last access.
    pub(super) accessed: Timestamp,
    /// Whether it is synced periodically.
    pub(super) is_synced: bool,
    /// Whether a call in flight contains it.
    pub(super) is_in_flight: bool,
    is_overflow: bool,
}

/// Identifies an entry: Cluster slot, order of insertion, hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId {
    pub(super) slot: Option<u16>,
    pub(super) serial: u64,
    hash: u64,
}

/// How an entry is synced.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyncSchedule {
    pub(super) interval: Span,
    pub(super) is_in_flight: bool,
}

/// An entry to be inserted.
pub(super) struct NewEntry<'a> {
    pub(super) identity: &'a [u8],
    pub(super) hash: u64,
    pub(super) slot: Option<u16>,
    pub(super) key: Arc<[u8]>,
    pub(super) replica: KeyReplica,
    pub(super) counters: &'a Arc<LevelCounters>,
    pub(super) interval: Span,
    pub(super) tick: Timestamp,
}

impl ReplicaTable {
    pub(super) fn new() -> Self {
        Self::with_max(ENTRIES_MAX)
    }

    pub(super) fn with_max(entries_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::new(0),
            serials: AtomicU64::new(0),
            entries_max,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Accesses the entry of an identity.
    #[inline]
    pub(super) fn find<R>(
        &self,
        identity: &[u8],
        hash: u64,
        act: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(hash).lock();
        // On a hash collision only the first identity has an entry.
        shard.get_mut(&hash).filter(|entry| *entry.identity == *identity).map(act)
    }

    /// Accesses an entry by id, if it still exists.
    pub(super) fn with<R>(&self, id: EntryId, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut shard = self.shard(id.hash).lock();
        shard.get_mut(&id.hash).filter(|entry| entry.id == id).map(act)
    }

    /// Inserts an entry; `None` if the table is full, or on a hash collision.
    pub(super) fn insert(&self, new: NewEntry<'_>) -> Option<EntryId> {
        let mut shard = self.shard(new.hash).lock();
        if let Some(entry) = shard.get(&new.hash) {
            // Another thread was faster.
            return (*entry.identity == *new.identity).then_some(entry.id);
        }
        let len = self.len.load(Ordering::Relaxed);
        if len >= self.entries_max + OVERFLOW_MAX.min(self.entries_max) {
            return None;
        }
        self.len.fetch_add(1, Ordering::Relaxed);
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let id = EntryId { slot: new.slot, serial, hash: new.hash };
        let entry = Entry {
            id,
            identity: new.identity.into(),
            key: new.key,
            replica: new.replica,
            counters: new.counters.clone(),
            interval: new.interval,
            accessed: new.tick,
            is_synced: false,
            is_in_flight: false,
            is_overflow: len >= self.entries_max,
        };
        shard.insert(new.hash, entry);
        Some(id)
    }

    /// How an entry is synced further; `None` if it is idle and pushed. An overflow entry is
    /// removed then.
    pub(super) fn sync_schedule(&self, id: EntryId, tick: Timestamp) -> Option<SyncSchedule> {
        let mut shard = self.shard(id.hash).lock();
        let entry = shard.get_mut(&id.hash).filter(|entry| entry.id == id)?;
        if entry.needs_sync(tick) {
            let Entry { interval, is_in_flight, .. } = *entry;
            return Some(SyncSchedule { interval, is_in_flight });
        }
        entry.set_synced(false);
        if entry.is_overflow && !entry.is_in_flight {
            shard.remove(&id.hash);
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        None
    }

    /// Removes the expired entries of a shard.
    pub(super) fn sweep(&self, shard: usize, tick: Timestamp) {
        let mut shard = self.shards[shard % SHARDS].lock();
        let before = shard.len();
        let is_idle = |entry: &Entry| !entry.is_synced && !entry.is_in_flight;
        shard.retain(|_, entry| !is_idle(entry) || !entry.is_removable(tick));
        self.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
    }

    /// Entries with unpushed counts, in order of insertion.
    pub(super) fn unpushed(&self, tick: Timestamp) -> Vec<EntryId> {
        let mut unpushed = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let has_unpushed = |entry: &&Entry| entry.replica.has_unpushed(tick);
            unpushed.extend(shard.values().filter(has_unpushed).map(|entry| entry.id));
        }
        unpushed.sort_unstable();
        unpushed
    }

    /// All entries, in order of insertion.
    pub(super) fn ids(&self) -> Vec<EntryId> {
        let ids = |shard: &Mutex<HashMap<u64, Entry, BuildPrehashed>>| {
            shard.lock().values().map(|entry| entry.id).collect::<Vec<_>>()
        };
        let mut all: Vec<EntryId> = self.shards.iter().flat_map(ids).collect();
        all.sort_unstable();
        all
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<HashMap<u64, Entry, BuildPrehashed>> {
        // The map uses the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Entry {
    /// Records an access.
    #[inline]
    pub(super) fn touch(&mut self, counters: &Arc<LevelCounters>, interval: Span, tick: Timestamp) {
        self.accessed = self.accessed.max(tick);
        self.interval = interval;
        if !Arc::ptr_eq(&self.counters, counters) {
            let was_synced = self.is_synced;
            self.set_synced(false);
            self.counters = counters.clone();
            self.set_synced(was_synced);
        }
    }

    /// Whether it is to be synced: accessed recently, or with unpushed counts.
    pub(super) fn needs_sync(&self, tick: Timestamp) -> bool {
        let recent = Span::from_micros(self.interval.as_micros().saturating_mul(2));
        tick.since(self.accessed) <= recent.max(SYNCED_MIN) || self.replica.has_unpushed(tick)
    }

    pub(super) fn set_synced(&mut self, is_synced: bool) {
        match (self.is_synced, is_synced) {
            (false, true) => add(&self.counters.synced, 1),
            (true, false) => subtract(&self.counters.synced, 1),
            _ => {}
        }
        self.is_synced = is_synced;
    }

    /// Whether nothing is lost with it.
    fn is_removable(&self, tick: Timestamp) -> bool {
        !self.needs_sync(tick) && self.replica.is_expired(tick)
    }
}

impl EntryId {
    /// Sorts before all ids of a slot.
    pub(super) const fn first_of(slot: Option<u16>) -> Self {
        Self { slot, serial: 0, hash: 0 }
    }
}
