//! Demand rate of one leased identity, as this node measures it.

use sluicegate_core::time::{Span, Timestamp};

/// Shortest measuring interval.
const INTERVAL_MIN: Span = Span::from_millis(50);

/// Measured demand.
#[derive(Debug)]
pub(super) struct Demand {
    /// Start of the current interval, and the demand since then.
    since: Timestamp,
    amount: u64,
    per_second: u64,
    last: Timestamp,
}

impl Demand {
    /// Starts from an estimate.
    pub(super) const fn new(per_second: u64, ticks: Timestamp) -> Self {
        Self { since: ticks, amount: 0, per_second, last: ticks }
    }

    /// Demand per second, as last measured.
    pub(super) const fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Tick of the last hit.
    pub(super) const fn last(&self) -> Timestamp {
        self.last
    }

    /// Adds a hit of this cost.
    #[inline]
    pub(super) fn count(&mut self, cost: u64, ticks: Timestamp) {
        self.amount = self.amount.saturating_add(cost);
        self.last = ticks;
        if ticks.since(self.since) >= INTERVAL_MIN {
            self.measure(ticks);
        }
    }

    /// Ends the interval: follows a rise at once, and a fall by halves.
    pub(super) fn measure(&mut self, ticks: Timestamp) {
        let elapsed = ticks.since(self.since);
        if elapsed < INTERVAL_MIN {
            return;
        }
        let per_second = u128::from(self.amount) * 1_000_000 / u128::from(elapsed.as_micros());
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        self.per_second = per_second.max(self.per_second / 2 + per_second / 2);
        (self.since, self.amount) = (ticks, 0);
    }

    /// Demand within a span at this rate.
    pub(super) fn during(&self, span: Span) -> u64 {
        let amount = u128::from(self.per_second) * u128::from(span.as_micros()) / 1_000_000;
        u64::try_from(amount).unwrap_or(u64::MAX)
    }
}
