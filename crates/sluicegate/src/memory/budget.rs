//! How much all tables of a store may keep together.

use super::sync::{AtomicUsize, Ordering};

/// Lanes in use, and how many there may be.
///
/// An identity that is known may take another lane at any time (a second limit of its plan), so the count may pass the cap
/// by as many lanes as the identities below it are short of; a newcomer never does.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
}

// === impl Budget ===

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// Sets a lane aside for a newcomer, if there is one. It is released once the newcomer has its own.
    pub(crate) fn reserve(&self) -> bool {
        let more = |used| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Whether there is one, as far as can be told.
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
