//! The in-memory store, at 20 to 30 bytes per entry.

mod hash;
pub(crate) mod lanes;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod prefetch;
mod shard;
pub(crate) mod shard_set;
mod shards;
pub(crate) mod slab;
pub(crate) mod sync;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod word;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::snapshot::{Restored, Sink};
pub(crate) use hash::HashKey;
use lanes::Budget;
pub(crate) use prefetch::prefetch;
pub(crate) use shard::word_of;
pub use shards::UNCOUNTED;
pub(crate) use shards::{
    Answered, ShardCount, Shards, Target, apply_together, apply_together_to_each,
    apply_together_with_returned,
};
use sluicegate_core::packed::Packed;
use sluicegate_core::time::Timestamp;
pub use sluicegate_rules::rule::Overflow;
use word::{Epoch, Word};

/// Default cap of a store in entries: about half a gigabyte.
pub const ENTRIES_MAX: usize = 16_000_000;

/// A store in this process's memory.
///
/// A limiter has a separate store by default. Limiters that share a store share its cap.
///
/// Identities are stored as 64-bit hashes under a secret key, never as text. Two with the same hash
/// share a quota: among ten million identities any two collide with a probability of 3 in a
/// million.
///
/// ```
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::{Limiter, Memory};
///
/// let memory = Memory::with_entries(1_000_000);
/// assert_eq!((memory.entries(), memory.entries_max()), (0, 1_000_000));
/// let per_user = Limiter::builder().limit(TokenBucket::per_second(10)).memory(&memory).build()?;
/// let per_ip = Limiter::builder().limit(TokenBucket::per_second(50)).memory(&memory).build()?;
/// per_user.hit("alice");
/// per_ip.hit("192.0.2.7");
/// assert_eq!(memory.entries(), 2);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Memory {
    pub(crate) store: Arc<Store>,
}

/// The part that all tables of a store share.
pub(crate) struct Store {
    key: HashKey,
    budget: Budget,
    limiters: Mutex<Vec<Weak<dyn Section>>>,
    /// Index of the next limiter to reclaim from.
    turn: AtomicUsize,
    /// The restored snapshot, until limiters have taken over all of it.
    restored: Mutex<Option<Restored>>,
}

/// A limiter, as its store sees it.
pub(crate) trait Section: Send + Sync {
    fn name(&self) -> &str;
    fn write_to(&self, sink: &mut Sink<'_>) -> std::io::Result<()>;

    /// Whether it is no longer saved: it only serves requests in progress.
    fn is_retired(&self) -> bool;

    /// Drops expired lanes, where that is worth the time: another limiter needs the room.
    fn reclaim(&self);
}

/// Whether a state fits the eight bytes of a lane, in a store first used at `now`.
pub(crate) fn fits_a_word(packed: Packed, now: Timestamp) -> bool {
    Word::packed(packed, Epoch::around(now)).is_some()
}

impl Memory {
    /// A store of at most [`ENTRIES_MAX`] entries.
    #[must_use]
    pub fn new() -> Self {
        Self::with_entries(ENTRIES_MAX)
    }

    /// A store of at most `max` entries: one for each limit of each identity that has not expired.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Memory, Overflow};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit(FixedWindow::per_day(10))
    ///     .memory(&Memory::with_entries(1))
    ///     .overflow(Overflow::Deny)
    ///     .build()?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// assert!(!limiter.hit("bob").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[must_use]
    pub fn with_entries(max: usize) -> Self {
        Self::with_key(max, HashKey::random().words)
    }

    pub(crate) fn with_key(max: usize, key: [u64; 2]) -> Self {
        let store = Store {
            key: HashKey { words: key },
            budget: Budget::new(max),
            limiters: Mutex::default(),
            turn: AtomicUsize::new(0),
            restored: Mutex::default(),
        };
        Self { store: Arc::new(store) }
    }

    /// Number of entries, including expired ones that have not been reused yet.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.store.budget.used()
    }

    /// Maximum number of entries.
    #[must_use]
    pub fn entries_max(&self) -> usize {
        self.store.budget.max()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// The hash of some bytes.
    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        self.key.hash(bytes)
    }

    /// The budget of all tables.
    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) const fn key(&self) -> [u64; 2] {
        self.key.words
    }

    /// The live limiters that a snapshot includes.
    pub(crate) fn limiters(&self) -> Vec<Arc<dyn Section>> {
        let alive: Vec<_> = self.limiters.lock().iter().filter_map(Weak::upgrade).collect();
        // Not under the lock: this may drop the last reference to a limiter.
        alive.into_iter().filter(|limiter| !limiter.is_retired()).collect()
    }

    /// The limiters, round-robin.
    pub(crate) fn next_limiter(&self) -> Option<Arc<dyn Section>> {
        let limiters = self.limiters.lock();
        let index = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(limiters.len())?;
        limiters.get(index)?.upgrade()
    }

    pub(crate) fn add_limiter(&self, limiter: &Arc<dyn Section>) {
        let mut limiters = self.limiters.lock();
        // Dropped limiters are removed whenever the list would grow, which keeps this amortised
        // constant.
        if limiters.len() == limiters.capacity() {
            limiters.retain(|limiter| limiter.strong_count() > 0);
            let live = limiters.len();
            limiters.reserve(live.max(4));
        }
        limiters.push(Arc::downgrade(limiter));
    }

    pub(crate) fn remember(&self, restored: Restored) {
        *self.restored.lock() = Some(restored);
    }

    /// Whether a part of a snapshot has not been taken over yet.
    pub(crate) fn has_restored(&self) -> bool {
        self.restored.lock().is_some()
    }

    pub(crate) fn restored_bits(&self, name: &str) -> Option<u32> {
        self.restored.lock().as_ref()?.bits(name)
    }

    pub(crate) fn with_restored(&self, take_over: impl FnOnce(&mut Restored)) {
        let mut restored = self.restored.lock();
        if let Some(some) = &mut *restored {
            take_over(some);
            if some.is_used_up() {
                *restored = None;
            }
        }
    }
}

impl std::fmt::Debug for Store {
    /// The key is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("budget", &self.budget).finish_non_exhaustive()
    }
}
