//! A concurrency limit that follows the capacity of the server behind it.
//!
//! ```text
//!            baseline: latency without a queue     recent: latency now, p90
//!   queue of the server = limit · (1 - baseline / recent)
//!
//!   queue < 3 · log10(limit)    the limit rises, if it is used
//!   queue > 6 · log10(limit)    the limit falls
//! ```
//!
//! As in TCP Vegas, the part of the latency that is above the baseline is time in a queue of the
//! server. No concurrency is pinned to find the baseline: it is the lowest latency, and the
//! response of the throughput to the concurrency corrects it (`latency.rs`).
//!
//! Servers whose latency says nothing, such as those of long streams, are judged by their failures
//! (AIMD). Time is an argument; nothing here waits.

mod latency;
mod window;

use sluicegate_core::time::{Span, Timestamp};

use self::latency::LatencyControl;
use self::window::Window;

/// Bounds of an adaptive limit, and what it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveOptions {
    /// The lowest limit, at least 1.
    pub min: usize,
    /// The highest limit.
    pub max: usize,
    /// The limit before anything is known.
    pub start: usize,
    /// What it follows.
    pub signal: AdaptiveSignal,
}

/// What a limit follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdaptiveSignal {
    /// Latency, and failures.
    #[default]
    Latency,
    /// Failures alone.
    Failures,
}

/// A completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveSample {
    /// Time that the server took.
    pub latency: Span,
    /// Requests in flight when it began, itself included.
    pub in_flight: usize,
    /// Whether the server failed: a time-out, no response, or 502, 503 or 504.
    pub is_failure: bool,
}

/// A concurrency limit that follows the capacity of a server.
///
/// ```
/// use sluicegate::adaptive::{AdaptiveLimit, AdaptiveOptions, AdaptiveSample, AdaptiveSignal};
/// use sluicegate::{Span, Timestamp};
///
/// let signal = AdaptiveSignal::Latency;
/// let mut limit = AdaptiveLimit::new(AdaptiveOptions { min: 1, max: 100, start: 20, signal });
/// let mut now = Timestamp::EPOCH;
/// // A server that takes 10 ms, whatever the concurrency: it has capacity left.
/// for _ in 0..2_000 {
///     now = now.after(Span::from_millis(1));
///     let in_flight = limit.limit();
///     limit.record(now, AdaptiveSample { latency: Span::from_millis(10), in_flight, is_failure: false });
/// }
/// assert!(limit.limit() > 20);
/// ```
#[derive(Debug)]
pub struct AdaptiveLimit {
    options: AdaptiveOptions,
    limit: f64,
    window: Window,
    latency: LatencyControl,
}

/// Samples of a window, and its duration.
const SAMPLES_MIN: usize = 50;
const WINDOW_MIN: Span = Span::from_secs(1);
const WINDOW_MAX: Span = Span::from_secs(30);
/// Share of failures from which the limit falls.
const FAILURES_MAX: f64 = 0.1;
/// What is left of the limit then.
const BACKOFF: f64 = 0.9;
/// Share of the limit that has to be in use for it to rise.
const USED_MIN: f64 = 0.7;
/// The limit is not above so many times what is in use.
const UNUSED_MAX: f64 = 5.0;

impl AdaptiveLimit {
    /// A limit about which nothing is known.
    #[must_use]
    pub fn new(options: AdaptiveOptions) -> Self {
        let min = options.min.max(1);
        let options = AdaptiveOptions { min, max: options.max.max(min), ..options };
        let limit = options.start.clamp(options.min, options.max) as f64;
        let latency = LatencyControl::new(limit, options.max as f64);
        Self { options, limit, window: Window::default(), latency }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The latency without a queue, if it is known.
    #[must_use]
    pub fn baseline(&self) -> Option<Span> {
        self.latency.baseline().map(|micros| Span::from_micros(micros as u64))
    }

    /// Records a completed request; whether the limit was decided anew.
    pub fn record(&mut self, now: Timestamp, sample: AdaptiveSample) -> bool {
        self.add(now, sample, false)
    }

    /// Records a request whose client has gone before the response: its latency is at least that of
    /// the sample. Without such requests, the limit of a server that is slower than its clients
    /// wait would follow its fast responses alone. Whether the limit was decided anew.
    pub fn record_abandoned(&mut self, now: Timestamp, sample: AdaptiveSample) -> bool {
        let is_slow = self.baseline().is_some_and(|baseline| sample.latency > baseline);
        is_slow && self.add(now, sample, true)
    }

    fn add(&mut self, now: Timestamp, sample: AdaptiveSample, is_abandoned: bool) -> bool {
        let elapsed = self.window.add(now, sample, is_abandoned);
        let is_over = elapsed >= WINDOW_MIN && self.window.count() >= SAMPLES_MIN;
        if !is_over && elapsed < WINDOW_MAX {
            return false;
        }
        let window = std::mem::take(&mut self.window);
        self.decide(&window, elapsed);
        true
    }

    fn decide(&mut self, window: &Window, elapsed: Span) {
        let used = window.in_flight_max() as f64;
        let is_used = used >= self.limit * USED_MIN;
        let step = self.limit.log10().max(1.0);
        let summary = window.summary(elapsed);
        let next = match (window.failures() > FAILURES_MAX, self.options.signal, summary) {
            (true, ..) => {
                self.latency.interrupt();
                self.limit * BACKOFF
            }
            (false, AdaptiveSignal::Failures, _) if is_used => self.limit + step,
            (false, AdaptiveSignal::Latency, Some(summary)) => {
                self.latency.decide(self.limit, summary, is_used)
            }
            (false, ..) => self.limit,
        };
        let next = next.min((used * UNUSED_MAX).max(self.limit - step));
        self.limit = next.clamp(self.options.min as f64, self.options.max as f64);
    }
}

#[cfg(test)]
mod tests;
