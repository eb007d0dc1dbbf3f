//! A listener that counts, as an exporter of metrics would.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluicegate::{Event, Listener};

/// One counter for each thread, or nearly: a single one would be a hot key of the bench's own making.
const STRIPES: usize = 16;

/// Counts what it hears of.
#[derive(Debug, Default)]
pub(crate) struct Count {
    stripes: [Stripe; STRIPES],
}

/// Two cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

thread_local! {
    static MINE: Cell<usize> = Cell::new(next());
}

fn next() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES
}

impl Count {
    /// Over all threads.
    pub(crate) fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

impl Listener for Count {
    #[inline]
    fn decided(&self, _event: &Event<'_>) {
        self.stripes[MINE.get()].0.fetch_add(1, Ordering::Relaxed);
    }
}
