//! A concurrency limit that follows the capacity of the server behind it.
//!
//! ```text
//!            baseline: lowest latency          recent: latency now
//!   queue of the server = limit · (1 - baseline / recent)
//!
//!   queue < 3 · log10(limit)    the limit rises, if it is used
//!   queue > 6 · log10(limit)    the limit falls
//! ```
//!
//! As in TCP Vegas, the part of the latency that is above the baseline is time in a queue of the
//! server. There are no probing windows in which concurrency is pinned to find the baseline: it is
//! the lowest latency, and rises only if the latency does not depend on the concurrency. That is
//! the guard against the known fault of such limits: under a mild overload they take the latency
//! of a full queue for the baseline, and grow without end.
//!
//! Servers whose latency says nothing, such as those of long streams, are judged by their failures
//! (AIMD). Time is an argument; nothing here waits.

use std::collections::VecDeque;

use sluicegate_core::time::{Span, Timestamp};

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
    /// The last windows, the newest last.
    history: VecDeque<WindowSummary>,
    baseline: Option<f64>,
}

/// Samples since the last decision.
#[derive(Debug, Default)]
struct Window {
    began: Option<Timestamp>,
    latencies: Vec<u64>,
    count: usize,
    failures: usize,
    in_flight_sum: usize,
    in_flight_max: usize,
}

/// A window that is over.
#[derive(Debug, Clone, Copy)]
struct WindowSummary {
    /// In microseconds, of nine of ten requests.
    latency: f64,
    in_flight: f64,
    /// Successes per second.
    throughput: f64,
}

/// Samples of a window, and its duration.
const SAMPLES_MIN: usize = 50;
const SAMPLES_MAX: usize = 1_000;
const WINDOW_MIN: Span = Span::from_secs(1);
const WINDOW_MAX: Span = Span::from_secs(30);
/// Windows that correlations are of, and the least that they need.
const HISTORY_MAX: usize = 50;
const HISTORY_MIN: usize = 10;
/// Correlation of latency and concurrency from which latency is time in a queue.
const QUEUEING: f64 = 0.3;
/// Correlations that show that more concurrency only harms.
const HARM_LATENCY: f64 = 0.7;
const HARM_THROUGHPUT: f64 = -0.3;
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
        let (window, history) = (Window::default(), VecDeque::with_capacity(HISTORY_MAX));
        Self { options, limit, window, history, baseline: None }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The latency without a queue, if it is known.
    #[must_use]
    pub fn baseline(&self) -> Option<Span> {
        self.baseline.map(|micros| Span::from_micros(micros as u64))
    }

    /// Records a completed request; whether the limit was decided anew.
    pub fn record(&mut self, now: Timestamp, sample: AdaptiveSample) -> bool {
        let began = *self.window.began.get_or_insert(now);
        self.window.add(sample);
        let elapsed = now.since(began);
        let is_over = elapsed >= WINDOW_MIN && self.window.count >= SAMPLES_MIN;
        if !is_over && elapsed < WINDOW_MAX {
            return false;
        }
        let window = std::mem::take(&mut self.window);
        self.decide(&window, elapsed);
        true
    }

    fn decide(&mut self, window: &Window, elapsed: Span) {
        let used = window.in_flight_max as f64;
        let is_used = used >= self.limit * USED_MIN;
        let step = self.limit.log10().max(1.0);
        let failed = window.failures as f64 > window.count as f64 * FAILURES_MAX;
        let next = match (failed, self.options.signal) {
            (true, _) => self.limit * BACKOFF,
            (false, AdaptiveSignal::Failures) if is_used => self.limit + step,
            (false, AdaptiveSignal::Failures) => self.limit,
            (false, AdaptiveSignal::Latency) => self.by_latency(window, elapsed, step, is_used),
        };
        let next = next.min((used * UNUSED_MAX).max(self.limit - step));
        self.limit = next.clamp(self.options.min as f64, self.options.max as f64);
    }

    fn by_latency(&mut self, window: &Window, elapsed: Span, step: f64, is_used: bool) -> f64 {
        let Some(summary) = window.summary(elapsed) else { return self.limit };
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(summary);
        // A single window may be disturbed: the median of three.
        let mut last: Vec<f64> = self.history.iter().rev().take(3).map(|one| one.latency).collect();
        last.sort_by(f64::total_cmp);
        let recent = last[last.len() / 2].max(1.0);
        let by_latency = self.correlation(|one| one.latency);
        let by_throughput = self.correlation(|one| one.throughput);
        let baseline = self.update_baseline(recent, by_latency, is_used);
        let harms = by_latency.is_some_and(|one| one > HARM_LATENCY)
            && by_throughput.is_some_and(|one| one < HARM_THROUGHPUT);
        let queue = self.limit * (1.0 - baseline / recent).max(0.0);
        let (low, high) = (3.0 * step, 6.0 * step);
        if queue > high || harms {
            // Faster, the longer the queue is; never by more than a quarter at once.
            return self.limit - (step * (queue / high).max(1.0)).min(self.limit / 4.0);
        }
        if queue < low && is_used { self.limit + step } else { self.limit }
    }

    /// The lowest latency. It rises to that of the last windows only if latency does not depend on
    /// concurrency, or little of the limit is in use, so that the latency is not that of a queue.
    fn update_baseline(&mut self, recent: f64, by_latency: Option<f64>, is_used: bool) -> f64 {
        let is_independent = by_latency.is_some_and(|one| one < QUEUEING);
        let lowest = || self.history.iter().map(|one| one.latency).fold(f64::INFINITY, f64::min);
        let baseline = match self.baseline {
            None => recent,
            Some(known) if recent < known => recent,
            Some(known) if is_independent || (!is_used && self.history.len() == HISTORY_MAX) => {
                known.max(lowest().min(recent))
            }
            Some(known) => known,
        };
        *self.baseline.insert(baseline)
    }

    /// Correlation of a value with the concurrency over the last windows; `None` if the concurrency
    /// was too even to tell.
    fn correlation(&self, value: impl Fn(&WindowSummary) -> f64) -> Option<f64> {
        /// Standard deviation of the concurrency, relative to its mean.
        const VARIATION_MIN: f64 = 0.05;

        let count = self.history.len() as f64;
        if self.history.len() < HISTORY_MIN {
            return None;
        }
        let mean = |value: &dyn Fn(&WindowSummary) -> f64| {
            self.history.iter().map(value).sum::<f64>() / count
        };
        let (x, y) = (mean(&|one| one.in_flight), mean(&value));
        let sum = |term: &dyn Fn(f64, f64) -> f64| {
            let terms = self.history.iter().map(|one| term(one.in_flight - x, value(one) - y));
            terms.sum::<f64>()
        };
        let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
        if (xx / count).sqrt() < x * VARIATION_MIN {
            return None;
        }
        // What does not vary at all does not depend on anything.
        Some(if yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 })
    }
}

impl Window {
    fn add(&mut self, sample: AdaptiveSample) {
        self.count += 1;
        self.in_flight_sum = self.in_flight_sum.saturating_add(sample.in_flight);
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        if sample.is_failure {
            self.failures += 1;
            return;
        }
        let micros = sample.latency.as_micros();
        match self.latencies.len() < SAMPLES_MAX {
            true => self.latencies.push(micros),
            // Later ones replace earlier ones in turn, so that all parts of a window count.
            false => self.latencies[self.count % SAMPLES_MAX] = micros,
        }
    }

    fn summary(&self, elapsed: Span) -> Option<WindowSummary> {
        let mut latencies = self.latencies.clone();
        let at = latencies.len() * 9 / 10;
        if latencies.is_empty() {
            return None;
        }
        let (_, p90, _) = latencies.select_nth_unstable(at.min(self.latencies.len() - 1));
        let seconds = (elapsed.as_micros().max(1)) as f64 / 1e6;
        let successes = self.count.saturating_sub(self.failures);
        Some(WindowSummary {
            latency: *p90 as f64,
            in_flight: self.in_flight_sum as f64 / self.count.max(1) as f64,
            throughput: successes as f64 / seconds,
        })
    }
}

#[cfg(test)]
mod tests;
