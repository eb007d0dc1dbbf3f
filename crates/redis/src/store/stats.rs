//! What a store was asked, and what became of it.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_rules::rule::OnStoreFailure;

use super::{Inner, Store};
use crate::script;

/// What a store was asked, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreStats {
    /// Asks that went to the store.
    pub asked: u64,
    /// Denials that were known without asking.
    pub known: u64,
    /// Asks that went the long way.
    pub long: u64,
    /// Asks that the store did not answer.
    pub failed: u64,
    /// Hits that were admitted without the store, and are written down for it.
    pub owed: u64,
    /// Those that were not: there was no more room.
    pub unwritten: u64,
    /// Records that nobody of us has written. They counted as nothing, and were written over.
    pub garbage: u64,
    /// Counters that were told of hits that were admitted without the store.
    pub settled: u64,
    /// Counters that the store had forgotten something of, and were told again.
    pub reasserted: u64,
    /// How many nodes there are.
    pub nodes: u64,
    /// Whether rules with a local share are decided from it: the store is away, or other nodes have
    /// not reported yet what they admitted.
    pub is_local_mode: bool,
    /// Decisions of a script that the core would have made otherwise: always 0.
    pub disagreements: u64,
    fallbacks: [u64; POLICIES.len()],
}

pub(super) const POLICIES: [OnStoreFailure; 4] =
    [OnStoreFailure::Local, OnStoreFailure::Allow, OnStoreFailure::Deny, OnStoreFailure::Error];

// === impl Store ===

impl Store {
    /// What it was asked.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let Inner { asked, known, long, failed, journal, fallbacks, .. } = &*self.inner;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            asked: read(asked),
            known: read(known),
            long: read(long),
            failed: read(failed),
            owed: read(&journal.written),
            unwritten: read(&journal.dropped),
            garbage: read(&self.inner.garbage),
            settled: read(&self.inner.settled),
            reasserted: read(&self.inner.reasserted),
            nodes: self.nodes(),
            is_local_mode: self.is_local_mode(),
            disagreements: script::DISAGREEMENTS.load(Ordering::Relaxed),
            fallbacks: std::array::from_fn(|index| read(&fallbacks[index])),
        }
    }

    /// What a rule says took the index of an answer.
    pub(crate) fn fell_back(&self, policy: OnStoreFailure) {
        if let Some(index) = POLICIES.iter().position(|known| *known == policy) {
            self.inner.fallbacks[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === impl StoreStats ===

impl StoreStats {
    /// How often each policy took the index of an answer, by its name.
    pub fn fallbacks(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["local", "allow", "deny", "error"].into_iter().zip(self.fallbacks)
    }
}
