//! What this node admitted by itself while the store could not be asked.
//!
//! It is kept as the store would keep it, identity by identity, and runs out in the same way. When the store is back it is told what still counts, so that nothing
//! that went by is forgotten: what was too much for a limit is a debt, which coming windows and refills pay first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;

use crate::redis::script::{AskPart, Charter};

/// The most identities that it is written down for; of others it is counted how much was not.
const ENTRIES_MAX: usize = 100_000;

/// What the store has to be told.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Mutex<HashMap<Arc<[u8]>, Entry>>,
    /// Looked at by whoever had an answer: nearly always there is nothing to tell.
    has_entries: AtomicBool,
    pub(super) written: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// What one identity was admitted to.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) charter: Arc<Charter>,
    pub(super) account: Account,
}

// === impl Journal ===

impl Journal {
    /// An identity was admitted without the store.
    pub(super) fn write(&self, part: &AskPart, now: Timestamp) {
        if part.cost == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&part.key) {
            self.dropped.fetch_add(part.cost, Ordering::Relaxed);
            return;
        }
        let new = || Entry { charter: part.charter.clone(), account: Account::default() };
        let entry = entries.entry(part.key.clone()).or_insert_with(new);
        if !Arc::ptr_eq(&entry.charter, &part.charter) {
            // What was admitted under limits that are gone is not held against the new ones.
            *entry = new();
        }
        // Slots are not charged, and refuse: they are given back to where they were taken.
        let charge = Op::Charge { cost: part.cost };
        if entry.account.apply(entry.charter.steps(), charge, Moment::at(now)).is_ok() {
            self.written.fetch_add(part.cost, Ordering::Relaxed);
            self.has_entries.store(true, Ordering::Release);
        }
    }

    /// Whether the store has anything to be told.
    pub(super) fn has_entries(&self) -> bool {
        self.has_entries.load(Ordering::Acquire)
    }

    /// Everything that still counts, in the order of its keys.
    pub(super) fn take(&self, now: Timestamp) -> Vec<(Arc<[u8]>, Entry)> {
        let mut entries = self.entries.lock();
        self.has_entries.store(false, Ordering::Release);
        let all = std::mem::take(&mut *entries);
        drop(entries);
        let counts = |entry: &Entry| entry.account.expires_at(entry.charter.steps()) > now;
        let mut all: Vec<_> = all.into_iter().filter(|(_, entry)| counts(entry)).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// The store could not be told: it has to be still.
    pub(super) fn put_back(&self, (key, entry): (Arc<[u8]>, Entry), now: Timestamp) {
        let mut entries = self.entries.lock();
        match entries.get_mut(&key) {
            // More was admitted meanwhile.
            Some(newer) if Arc::ptr_eq(&newer.charter, &entry.charter) => {
                newer.account.absorb(entry.charter.steps(), &entry.account, now);
            }
            Some(_) => {}
            None => {
                entries.insert(key, entry);
            }
        }
        self.has_entries.store(true, Ordering::Release);
    }
}
