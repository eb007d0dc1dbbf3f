//! Admissions of this node without the store.
//!
//! They are stored as accounts per identity and expire in the same way. Before the store decides on
//! an identity again it absorbs the unexpired use: use above a limit is a debt, which coming
//! windows and refills pay first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate_core::account::Account;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::time::Timestamp;

use crate::script::{ScriptPart, ScriptRule};

/// Identities in the journal. Admissions of further ones are only counted.
const ENTRIES_MAX: usize = 100_000;

/// Admissions that the store has to absorb.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Mutex<HashMap<Arc<[u8]>, JournalEntry>>,
    /// Read by every request, and nearly always false.
    has_entries: AtomicBool,
    pub(super) written: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// Admissions of one identity. An entry that is being absorbed stays until the store has confirmed
/// that.
#[derive(Debug)]
struct JournalEntry {
    rule: Arc<ScriptRule>,
    account: Account,
}

impl Journal {
    /// Records an admission.
    pub(super) fn write(&self, part: &ScriptPart, holder: Option<Holder>, now: Timestamp) {
        if part.cost == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&part.key) {
            self.dropped.fetch_add(part.cost, Ordering::Relaxed);
            return;
        }
        let new = || JournalEntry { rule: part.rule.clone(), account: Account::default() };
        let entry = entries.entry(part.key.clone()).or_insert_with(new);
        if !Arc::ptr_eq(&entry.rule, &part.rule) {
            // Admissions under old limits do not count against new ones.
            *entry = new();
        }
        entry.account.record_admission(entry.rule.steps(), part.cost, holder, now);
        self.written.fetch_add(part.cost, Ordering::Relaxed);
        self.has_entries.store(true, Ordering::Release);
    }

    /// Whether the store has anything to absorb.
    #[inline]
    pub(super) fn has_entries(&self) -> bool {
        self.has_entries.load(Ordering::Acquire)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.entries.lock().contains_key(key)
    }

    /// All identities, sorted.
    pub(super) fn keys(&self) -> Vec<Arc<[u8]>> {
        let mut keys: Vec<_> = self.entries.lock().keys().cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// Takes the admissions of an identity. [`Journal::absorbed`] or [`Journal::put_back`] must
    /// follow; only one caller at a time may do this for an identity.
    pub(super) fn take(&self, key: &[u8]) -> Option<(Arc<ScriptRule>, Account)> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(key)?;
        Some((entry.rule.clone(), std::mem::take(&mut entry.account)))
    }

    /// The store has absorbed the taken admissions. Later ones remain.
    pub(super) fn absorbed(&self, key: &[u8]) {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|entry| entry.account.is_new()) {
            entries.remove(key);
        }
        if entries.is_empty() {
            self.has_entries.store(false, Ordering::Release);
        }
    }

    /// The store has not absorbed the taken admissions.
    pub(super) fn put_back(
        &self,
        key: &[u8],
        rule: &Arc<ScriptRule>,
        account: &Account,
        now: Timestamp,
    ) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(key)
            && Arc::ptr_eq(&entry.rule, rule)
        {
            // More may have been admitted meanwhile.
            entry.account.absorb(entry.rule.steps(), account, now);
        }
    }
}
