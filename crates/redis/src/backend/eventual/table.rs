//! The identities that this node decides by itself, by their hashes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_core::time::{Span, Timestamp};

use super::book::Book;
use crate::backend::LevelCounters;
use crate::backend::levels::{add, subtract};

/// The most that are remembered.
const KNOWN_MAX: usize = 100_000;
/// How many more there may be, each forgotten as soon as the others have heard of it.
const GUESTS_MAX: usize = 10_000;
/// Who is asked for is told and heard of by itself for two intervals, and at least for so long: however short they are, it does not come and go.
const SYNCED_MIN: Span = Span::from_millis(100);
/// Parts of the table, each under a lock of its own.
pub(super) const SHARDS: usize = 64;

/// All of them.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<HashMap<u64, Entry, Hashed>>]>,
    len: AtomicUsize,
    serials: AtomicU64,
    known_max: usize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    identity: Box<[u8]>,
    pub(super) key: Arc<[u8]>,
    pub(super) book: Book,
    pub(super) counters: Arc<LevelCounters>,
    pub(super) interval: Span,
    /// When it was last asked for.
    pub(super) asked: Timestamp,
    /// Whether it is told and heard of by itself.
    pub(super) is_synced: bool,
    /// Whether a call that is under way has it with it.
    pub(super) is_under_way: bool,
    is_guest: bool,
}

/// Which entry: the slot that it can be asked in, when it came, and where it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) slot: Option<u16>,
    pub(super) serial: u64,
    hash: u64,
}

/// How an entry is told of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stays {
    pub(super) interval: Span,
    pub(super) is_under_way: bool,
}

/// Who comes new.
pub(super) struct Newcomer<'a> {
    pub(super) identity: &'a [u8],
    pub(super) hash: u64,
    pub(super) slot: Option<u16>,
    pub(super) key: Arc<[u8]>,
    pub(super) book: Book,
    pub(super) counters: &'a Arc<LevelCounters>,
    pub(super) interval: Span,
    pub(super) tick: Timestamp,
}

/// What is a hash already.
#[derive(Debug, Default)]
pub(super) struct Same(u64);

type Hashed = BuildHasherDefault<Same>;

// === impl Table ===

impl Table {
    pub(super) fn new() -> Self {
        Self::of(KNOWN_MAX)
    }

    pub(super) fn of(known_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::new(0),
            serials: AtomicU64::new(0),
            known_max,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// What is known of an identity, if anything is.
    #[inline]
    pub(super) fn find<R>(
        &self,
        identity: &[u8],
        hash: u64,
        act: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(hash).lock();
        // Two identities of one hash do not happen; the second is asked for each time.
        shard.get_mut(&hash).filter(|entry| *entry.identity == *identity).map(act)
    }

    /// The entry of this name, if it is still there.
    pub(super) fn with<R>(&self, name: Name, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut shard = self.shard(name.hash).lock();
        shard.get_mut(&name.hash).filter(|entry| entry.name == name).map(act)
    }

    /// Takes up an identity; `None` if there is no room, or another one of the same hash.
    pub(super) fn take_up(&self, new: Newcomer<'_>) -> Option<Name> {
        let mut shard = self.shard(new.hash).lock();
        if let Some(entry) = shard.get(&new.hash) {
            // Somebody else was faster.
            return (*entry.identity == *new.identity).then_some(entry.name);
        }
        let len = self.len.load(Ordering::Relaxed);
        if len >= self.known_max + GUESTS_MAX.min(self.known_max) {
            return None;
        }
        self.len.fetch_add(1, Ordering::Relaxed);
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let name = Name { slot: new.slot, serial, hash: new.hash };
        let entry = Entry {
            name,
            identity: new.identity.into(),
            key: new.key,
            book: new.book,
            counters: new.counters.clone(),
            interval: new.interval,
            asked: new.tick,
            is_synced: false,
            is_under_way: false,
            is_guest: len >= self.known_max,
        };
        shard.insert(new.hash, entry);
        Some(name)
    }

    /// How an entry goes on being told of by itself. `None` if it does not: nobody asks for it any more, and the others have heard everything. A guest goes then.
    pub(super) fn stays(&self, name: Name, tick: Timestamp) -> Option<Stays> {
        let mut shard = self.shard(name.hash).lock();
        let entry = shard.get_mut(&name.hash).filter(|entry| entry.name == name)?;
        if entry.wants_sync(tick) {
            let Entry { interval, is_under_way, .. } = *entry;
            return Some(Stays { interval, is_under_way });
        }
        entry.set_synced(false);
        if entry.is_guest && !entry.is_under_way {
            shard.remove(&name.hash);
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        None
    }

    /// Forgets everybody of a shard of whom nothing is of use any more.
    pub(super) fn sweep(&self, shard: usize, tick: Timestamp) {
        let mut shard = self.shards[shard % SHARDS].lock();
        let before = shard.len();
        let is_idle = |entry: &Entry| !entry.is_synced && !entry.is_under_way;
        shard.retain(|_, entry| !is_idle(entry) || !entry.is_forgotten(tick));
        self.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
    }

    /// All of whom the others have not heard everything, in the order in which they came.
    pub(super) fn untold(&self, tick: Timestamp) -> Vec<Name> {
        let mut untold = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let is_untold = |entry: &&Entry| entry.book.is_untold(tick);
            untold.extend(shard.values().filter(is_untold).map(|entry| entry.name));
        }
        untold.sort_unstable();
        untold
    }

    /// Everybody, in the order in which they came.
    pub(super) fn all(&self) -> Vec<Name> {
        let names = |shard: &Mutex<HashMap<u64, Entry, Hashed>>| {
            shard.lock().values().map(|entry| entry.name).collect::<Vec<_>>()
        };
        let mut all: Vec<Name> = self.shards.iter().flat_map(names).collect();
        all.sort_unstable();
        all
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<HashMap<u64, Entry, Hashed>> {
        // The map goes by the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

// === impl Entry ===

impl Entry {
    /// It was asked for, on these terms.
    #[inline]
    pub(super) fn is_asked(
        &mut self,
        counters: &Arc<LevelCounters>,
        interval: Span,
        tick: Timestamp,
    ) {
        self.asked = self.asked.max(tick);
        self.interval = interval;
        if !Arc::ptr_eq(&self.counters, counters) {
            let was_synced = self.is_synced;
            self.set_synced(false);
            self.counters = counters.clone();
            self.set_synced(was_synced);
        }
    }

    /// Whether it is to be told and heard of by itself: it was asked for lately, or something is untold.
    pub(super) fn wants_sync(&self, tick: Timestamp) -> bool {
        let lately = Span::from_micros(self.interval.as_micros().saturating_mul(2));
        tick.since(self.asked) <= lately.max(SYNCED_MIN) || self.book.is_untold(tick)
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
    fn is_forgotten(&self, tick: Timestamp) -> bool {
        !self.wants_sync(tick) && self.book.is_over(tick)
    }
}

// === impl Name ===

impl Name {
    /// None of this slot comes before.
    pub(super) const fn first_of(slot: Option<u16>) -> Self {
        Self { slot, serial: 0, hash: 0 }
    }
}

// === impl Same ===

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only hashes are hashed.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
