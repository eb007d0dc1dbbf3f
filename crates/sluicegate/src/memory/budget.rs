//! The budget of entries that all tables of a store share.

use super::sync::{AtomicUsize, Ordering};

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
