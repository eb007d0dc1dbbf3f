//! Demand for one identity, per second, as one node measures it.

use sluicegate_core::time::{Span, Timestamp};

/// Over at least so long demand is measured.
const MEASURED: Span = Span::from_millis(50);

/// Measured demand.
#[derive(Debug)]
pub(super) struct Demand {
    /// Since when, and how much since.
    since: Timestamp,
    asked: u64,
    per_second: u64,
    last: Timestamp,
}

// === impl Demand ===

impl Demand {
    /// So much a second, as far as is known.
    pub(super) const fn new(per_second: u64, ticks: Timestamp) -> Self {
        Self { since: ticks, asked: 0, per_second, last: ticks }
    }

    /// How much a second, as last measured.
    pub(super) const fn per_second(&self) -> u64 {
        self.per_second
    }

    /// When something was asked for last.
    pub(super) const fn last(&self) -> Timestamp {
        self.last
    }

    /// So much was asked for.
    #[inline]
    pub(super) fn count(&mut self, cost: u64, ticks: Timestamp) {
        self.asked = self.asked.saturating_add(cost);
        self.last = ticks;
        if ticks.since(self.since) >= MEASURED {
            self.measure(ticks);
        }
    }

    /// Follows a rise at once, and a fall by halves.
    pub(super) fn measure(&mut self, ticks: Timestamp) {
        let elapsed = ticks.since(self.since);
        if elapsed < MEASURED {
            return;
        }
        let per_second = u128::from(self.asked) * 1_000_000 / u128::from(elapsed.as_micros());
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        self.per_second = per_second.max(self.per_second / 2 + per_second / 2);
        (self.since, self.asked) = (ticks, 0);
    }

    /// How much in so long, at this rate.
    pub(super) fn during(&self, span: Span) -> u64 {
        let amount = u128::from(self.per_second) * u128::from(span.as_micros()) / 1_000_000;
        u64::try_from(amount).unwrap_or(u64::MAX)
    }
}
