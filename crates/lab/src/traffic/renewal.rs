//! Arrivals at random distances, at a rate that varies over time.
//!
//! Intervals are drawn in *operational time*, in which one arrival is expected per unit; the rate
//! says how fast it passes. So a burst of a bursty client is a burst at any rate, and a rate of
//! twice as much halves all distances.

use fastrand::Rng;
use sluicegate_random::{IntervalDistribution, Zipf};

use super::SourceArrival;
use super::rate::RateProfile;

/// The client of each arrival.
#[derive(Debug, Clone)]
pub(super) enum ClientChoice {
    /// Any of these, equally likely.
    Uniform { from: u32, count: u32 },
    /// One after the other.
    InTurn { next: u32, count: u32 },
    /// Client 0 most often.
    Zipf(Zipf),
}

#[derive(Debug, Clone)]
pub(super) struct RenewalSource {
    intervals: IntervalDistribution,
    rate: RateProfile,
    choice: ClientChoice,
    rng: Rng,
    /// The last arrival, in microseconds.
    us: f64,
    /// Whether there was one.
    has_begun: bool,
}

impl RenewalSource {
    pub(super) const fn new(
        intervals: IntervalDistribution,
        rate: RateProfile,
        choice: ClientChoice,
        rng: Rng,
    ) -> Self {
        Self { intervals, rate, choice, rng, us: 0.0, has_begun: false }
    }

    pub(super) fn next(&mut self) -> Option<SourceArrival> {
        let mut interval = self.intervals.draw(&mut self.rng);
        if !self.has_begun {
            self.has_begun = true;
            // Somewhere within an interval, so that several sources do not begin together; even
            // arrivals begin at the start.
            interval *= match self.intervals {
                IntervalDistribution::Constant => 0.0,
                _ => self.rng.f64(),
            };
        }
        self.us = self.rate.advance(self.us, interval)?;
        let client = self.choice.draw(&mut self.rng);
        Some(SourceArrival { us: self.us as u64, client })
    }
}

impl ClientChoice {
    fn draw(&mut self, rng: &mut Rng) -> u32 {
        match self {
            Self::Uniform { from, count: 1 } => *from,
            Self::Uniform { from, count } => *from + rng.u32(..*count),
            Self::InTurn { next, count } => {
                let client = *next;
                *next = if client + 1 == *count { 0 } else { client + 1 };
                client
            }
            Self::Zipf(zipf) => zipf.draw(rng) as u32,
        }
    }
}
