//! Counters of a store, and whether it accepts writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate_rules::rule::OnStoreFailure;

use super::Store;
use crate::call::CallError;
use crate::script;

/// Counters of a [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreStats {
    /// Requests sent to the store.
    pub requests: u64,
    /// Denials from the cache.
    pub cached_denials: u64,
    /// Optimistic updates: operations that no script supports.
    pub optimistic: u64,
    /// Requests that the store did not answer.
    pub failed: u64,
    /// Hits admitted without the store and journaled for it.
    pub journaled: u64,
    /// Hits admitted without the store that the journal had no room for.
    pub journal_dropped: u64,
    /// Corrupt records. They counted as empty and were overwritten.
    pub corrupt: u64,
    /// Counters whose journaled hits the store has absorbed.
    pub settled: u64,
    /// Counters re-asserted after the store lost data.
    pub reasserted: u64,
    /// Number of nodes.
    pub nodes: u64,
    /// Whether rules with a local share are decided from it: the store is down, or other nodes have
    /// not yet reported their admissions.
    pub is_local_mode: bool,
    /// Decisions on which script and core disagreed: always 0.
    pub disagreements: u64,
    fallbacks: [u64; POLICIES.len()],
}

const POLICIES: [OnStoreFailure; 4] =
    [OnStoreFailure::Local, OnStoreFailure::Allow, OnStoreFailure::Deny, OnStoreFailure::Error];

#[derive(Debug, Default)]
pub(super) struct StoreCounters {
    pub(super) requests: AtomicU64,
    pub(super) cached_denials: AtomicU64,
    pub(super) optimistic: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) corrupt: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) reasserted: AtomicU64,
    fallbacks: [AtomicU64; POLICIES.len()],
}

/// Whether the store refuses writes although it is reachable: out of memory, or read-only.
#[derive(Debug, Default)]
pub(super) struct WriteStatus {
    is_refusing: AtomicBool,
    error: Mutex<Option<Box<str>>>,
}

impl Store {
    /// Current counters.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, journal) = (&self.inner.counters, &self.inner.journal);
        StoreStats {
            requests: read(&counters.requests),
            cached_denials: read(&counters.cached_denials),
            optimistic: read(&counters.optimistic),
            failed: read(&counters.failed),
            journaled: read(&journal.written),
            journal_dropped: read(&journal.dropped),
            corrupt: read(&counters.corrupt),
            settled: read(&counters.settled),
            reasserted: read(&counters.reasserted),
            nodes: self.nodes(),
            is_local_mode: self.is_local_mode(),
            disagreements: script::DISAGREEMENTS.load(Ordering::Relaxed),
            fallbacks: std::array::from_fn(|index| read(&counters.fallbacks[index])),
        }
    }

    /// Counts a decision by the failure policy of a rule.
    pub(crate) fn fell_back(&self, policy: OnStoreFailure) {
        if let Some(index) = POLICIES.iter().position(|known| *known == policy) {
            self.inner.counters.fallbacks[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl StoreStats {
    /// Decisions by each failure policy, with its name.
    pub fn fallbacks(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["local", "allow", "deny", "error"].into_iter().zip(self.fallbacks)
    }
}

impl WriteStatus {
    pub(super) fn failed(&self, error: &CallError) {
        if let CallError::Refused(why) = error {
            *self.error.lock() = Some(why.clone());
            self.is_refusing.store(true, Ordering::Release);
        }
    }

    /// A write was executed.
    #[inline]
    pub(super) fn accepted(&self) {
        if self.is_refusing.load(Ordering::Relaxed) {
            self.is_refusing.store(false, Ordering::Release);
        }
    }

    /// The error of the store while it refuses writes.
    pub(super) fn refusal(&self) -> Option<Box<str>> {
        if self.is_refusing.load(Ordering::Acquire) { self.error.lock().clone() } else { None }
    }
}
