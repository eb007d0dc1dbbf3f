//! Bursts: a number of requests of every client within a short time.
//!
//! The times of a burst are uniform in it. They are drawn in their order, one from the one before
//! (the smallest of `n` uniform numbers is `1 - u^(1/n)`), so that a burst of any size takes no
//! memory.

use fastrand::Rng;
use sluicegate_core::time::Span;

use super::SourceArrival;

/// When bursts begin.
#[derive(Debug, Clone, Copy)]
pub(super) enum BurstTimes {
    /// One that ends at every second edge of windows, from the first after the start, and one that
    /// begins there: each window has one burst, so that all of it may be admitted.
    Edges { window: Span, spread: Span },
    /// One at each multiple of `every`, and each of its repetitions.
    Retries { every: Span, retries: u64, backoff: Span, spread: Span },
}

/// Bursts one after the other, without end.
#[derive(Debug, Clone)]
pub(super) struct BurstSource {
    times: BurstTimes,
    clients: u32,
    rng: Rng,
    /// Number of the burst, and its first microsecond.
    burst: u64,
    begin_us: u64,
    /// Requests of all clients in one burst, and those that are left of this one.
    size: u64,
    left: u64,
    /// The last time in this burst, as a part of its length.
    part: f64,
    /// Client of the next request.
    client: u32,
}

impl BurstSource {
    pub(super) fn new(times: BurstTimes, clients: u32, each: u64, rng: Rng) -> Self {
        let size = each * u64::from(clients);
        let begin_us = times.begin_us(0);
        Self { times, clients, rng, burst: 0, begin_us, size, left: size, part: 0.0, client: 0 }
    }

    pub(super) fn next(&mut self) -> SourceArrival {
        if self.left == 0 {
            self.burst += 1;
            self.begin_us = self.times.begin_us(self.burst);
            (self.left, self.part) = (self.size, 0.0);
        }
        let smallest = 1.0 - (1.0 - self.rng.f64()).powf(1.0 / self.left as f64);
        self.part += (1.0 - self.part) * smallest;
        self.left -= 1;
        let client = self.client;
        self.client = if client + 1 == self.clients { 0 } else { client + 1 };
        let spread = self.times.spread().as_micros();
        let after = ((self.part * spread as f64) as u64).min(spread.saturating_sub(1));
        SourceArrival { us: self.begin_us.saturating_add(after), client }
    }
}

impl BurstTimes {
    const fn spread(self) -> Span {
        match self {
            Self::Edges { spread, .. } | Self::Retries { spread, .. } => spread,
        }
    }

    const fn begin_us(self, burst: u64) -> u64 {
        match self {
            Self::Edges { window, spread } => {
                let is_before = burst.is_multiple_of(2);
                let edge = (burst / 2 * 2 + 1).saturating_mul(window.as_micros());
                if is_before { edge.saturating_sub(spread.as_micros()) } else { edge }
            }
            Self::Retries { every, retries, backoff, .. } => {
                let (moment, retry) = (burst / (retries + 1), burst % (retries + 1));
                // Pauses of 1, 2, 4 … backoffs. The first moment is not the start.
                let pauses = ((1_u64 << retry) - 1).saturating_mul(backoff.as_micros());
                moment.saturating_add(1).saturating_mul(every.as_micros()).saturating_add(pauses)
            }
        }
    }
}
