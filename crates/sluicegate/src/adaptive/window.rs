//! Requests of a window, and the last windows.

use std::collections::VecDeque;

use sluicegate_core::time::{Span, Timestamp};

use super::AdaptiveSample;

/// Samples since the last decision.
#[derive(Debug, Default)]
pub(super) struct Window {
    began: Option<Timestamp>,
    latencies: Vec<u64>,
    count: usize,
    failures: usize,
    responses: usize,
    in_flight_sum: usize,
    in_flight_max: usize,
}

/// A window that is over, or the mean of several.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowSummary {
    /// In microseconds, of nine of ten requests.
    pub(super) latency: f64,
    /// Mean of the requests.
    pub(super) in_flight: f64,
    /// Responses per second.
    pub(super) throughput: f64,
    /// Number of requests.
    pub(super) count: usize,
}

/// The last windows, the newest last.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<WindowSummary>);

/// Latencies that are kept of a window.
const LATENCIES_MAX: usize = 1_000;
/// Windows that are kept, and the least that a correlation needs.
const WINDOWS_MAX: usize = 50;
const WINDOWS_MIN: usize = 10;

impl Window {
    /// Adds a request; the age of the window.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        sample: AdaptiveSample,
        is_abandoned: bool,
    ) -> Span {
        let began = *self.began.get_or_insert(now);
        self.count += 1;
        self.in_flight_sum = self.in_flight_sum.saturating_add(sample.in_flight);
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        if sample.is_failure {
            self.failures += 1;
        } else {
            self.responses += usize::from(!is_abandoned);
            let micros = sample.latency.as_micros();
            match self.latencies.len() < LATENCIES_MAX {
                true => self.latencies.push(micros),
                // Later ones replace earlier ones in turn, so that all parts of a window count.
                false => self.latencies[self.count % LATENCIES_MAX] = micros,
            }
        }
        now.since(began)
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Share of the failures.
    pub(super) fn failures(&self) -> f64 {
        self.failures as f64 / self.count.max(1) as f64
    }

    pub(super) const fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    /// `None` without a response.
    pub(super) fn summary(&self, elapsed: Span) -> Option<WindowSummary> {
        let mut latencies = self.latencies.clone();
        let at = latencies.len() * 9 / 10;
        if self.responses == 0 || latencies.is_empty() {
            return None;
        }
        let (_, p90, _) = latencies.select_nth_unstable(at.min(self.latencies.len() - 1));
        let seconds = (elapsed.as_micros().max(1)) as f64 / 1e6;
        Some(WindowSummary {
            latency: (*p90 as f64).max(1.0),
            in_flight: (self.in_flight_sum as f64 / self.count.max(1) as f64).max(1.0),
            throughput: self.responses as f64 / seconds,
            count: self.count,
        })
    }
}

impl History {
    pub(super) fn push(&mut self, summary: WindowSummary) {
        if self.0.len() == WINDOWS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(summary);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The median latency of the last windows.
    pub(super) fn latency(&self, windows: usize) -> f64 {
        median(self.0.iter().rev().take(windows).map(|one| one.latency))
    }

    /// The mean of the last windows.
    pub(super) fn mean(&self, windows: usize) -> WindowSummary {
        let last = || self.0.iter().rev().take(windows);
        let number = last().count().max(1) as f64;
        let mean = |of: fn(&WindowSummary) -> f64| last().map(of).sum::<f64>() / number;
        WindowSummary {
            latency: mean(|one| one.latency),
            in_flight: mean(|one| one.in_flight),
            throughput: mean(|one| one.throughput),
            count: last().map(|one| one.count).sum(),
        }
    }

    /// The median change of the latency from window to window, as a logarithm.
    pub(super) fn latency_change(&self) -> f64 {
        let (old, new) = (self.0.iter(), self.0.iter().skip(1));
        median(new.zip(old).map(|(new, old)| (new.latency / old.latency).ln().abs()))
    }

    /// Correlation of the latency with the concurrency; `None` if the concurrency was too even to
    /// tell.
    pub(super) fn latency_correlation(&self) -> Option<f64> {
        /// Standard deviation of the concurrency, relative to its mean.
        const VARIATION_MIN: f64 = 0.05;

        let count = self.0.len() as f64;
        if self.0.len() < WINDOWS_MIN {
            return None;
        }
        let mean = |of: fn(&WindowSummary) -> f64| self.0.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|one| one.in_flight), mean(|one| one.latency));
        let sum = |term: fn(f64, f64) -> f64| {
            let terms = self.0.iter().map(|one| term(one.in_flight - x, one.latency - y));
            terms.sum::<f64>()
        };
        let (xx, yy, xy) = (sum(|x, _| x * x), sum(|_, y| y * y), sum(|x, y| x * y));
        if (xx / count).sqrt() < x * VARIATION_MIN {
            return None;
        }
        // What does not vary at all does not depend on anything.
        Some(if yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 })
    }
}

/// The median; 0 of nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
