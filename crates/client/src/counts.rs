//! What a client did.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a client did since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that went out to the service, further tries included.
    pub sent: u64,
    /// Further tries.
    pub retried: u64,
    /// Requests that were not answered.
    pub failed: u64,
    /// Denials that were known, so that the service was not asked.
    pub remembered: u64,
    /// Calls that were not made because too many had failed.
    pub barred: u64,
    /// Answers by [`WhenAway`](crate::WhenAway).
    pub by_policy: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: Counter,
    pub(crate) retried: Counter,
    pub(crate) failed: Counter,
    pub(crate) remembered: Counter,
    pub(crate) barred: Counter,
    pub(crate) by_policy: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            sent: self.sent.read(),
            retried: self.retried.read(),
            failed: self.failed.read(),
            remembered: self.remembered.read(),
            barred: self.barred.read(),
            by_policy: self.by_policy.read(),
        }
    }
}
