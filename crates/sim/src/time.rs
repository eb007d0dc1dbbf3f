//! Clocks: true time, which is the store's, and the skewed clocks of nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sluicegate::Timestamp;
use sluicegate::clock::Clock;
use tokio::time::Instant;

/// True time: tokio's paused clock, which advances in milliseconds when all tasks are idle. Each
/// event adds a microsecond, so that event times are unique.
#[derive(Debug)]
pub(crate) struct WorldClock {
    start: Instant,
    start_us: u64,
    last_us: AtomicU64,
}

/// Clock of a node, with offset and drift.
#[derive(Debug)]
pub(crate) struct NodeClock {
    truth: Arc<WorldClock>,
    off_us: AtomicI64,
    /// Drift in microseconds per second.
    gain_us: i64,
    ticks_from_us: u64,
}

impl WorldClock {
    /// Starts at this time of the epoch, in microseconds.
    #[must_use]
    pub(crate) fn new(start_us: u64) -> Self {
        Self { start: Instant::now(), start_us, last_us: AtomicU64::new(0) }
    }

    /// Now, in microseconds of the epoch.
    #[must_use]
    pub(crate) fn now_us(&self) -> u64 {
        let elapsed = self.start.elapsed().as_micros();
        let now = self.start_us.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX));
        now.max(self.last_us.load(Ordering::Relaxed))
    }

    /// The unique time of an event, later than all previous ones.
    pub(crate) fn event_us(&self) -> u64 {
        let now = self.now_us() + 1;
        self.last_us.store(now, Ordering::Relaxed);
        now
    }

    /// Time since the start, in microseconds.
    #[must_use]
    pub(crate) fn age_us(&self) -> u64 {
        self.now_us() - self.start_us
    }
}

impl NodeClock {
    /// A clock with this offset and drift.
    #[must_use]
    pub(crate) fn new(
        truth: &Arc<WorldClock>,
        off_us: i64,
        gain_us: i64,
        ticks_from_us: u64,
    ) -> Self {
        Self { truth: truth.clone(), off_us: AtomicI64::new(off_us), gain_us, ticks_from_us }
    }

    /// Steps the clock.
    pub(crate) fn step(&self, by_us: i64) {
        self.off_us.fetch_add(by_us, Ordering::Relaxed);
    }

    fn gained(&self) -> i64 {
        let age = i64::try_from(self.truth.age_us()).unwrap_or(i64::MAX);
        (age / 1_000).saturating_mul(self.gain_us) / 1_000
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let off = self.off_us.load(Ordering::Relaxed).saturating_add(self.gained());
        Timestamp::from_micros(self.truth.now_us().saturating_add_signed(off))
    }

    fn ticks(&self) -> Timestamp {
        let age = self.truth.age_us().saturating_add_signed(self.gained());
        Timestamp::from_micros(self.ticks_from_us.saturating_add(age))
    }
}
