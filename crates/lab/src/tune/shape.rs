//! Limits with one number left open: a token bucket of a rate, whose burst is open, or a window of
//! a length, whose number is open.
//!
//! A limit that never denies a client charges each of its requests, so its state follows from the
//! requests alone. The largest usage that it reaches is the smallest number that admits all of
//! them: one pass over the client's requests, without a search. For a token bucket that is the
//! largest backlog of a queue drained at the rate; the arithmetic is that of the core, so the
//! smallest burst is exact.

use std::collections::VecDeque;

use sluicegate_config::units::{show_rate, show_span};
use sluicegate_core::algorithm::Slot;
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::sliding_log::SlidingLog;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::quota::{ExactTime, QuotaError, Rate};
use sluicegate_core::time::{Span, Timestamp};

use crate::arrival::Arrival;

/// A limit whose size is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitShape {
    /// Its burst is open.
    TokenBucket(Rate),
    /// The number in any rolling window of this length, exactly.
    SlidingLog(Span),
    /// The same by two counts.
    SlidingWindow(Span),
    /// The number per clock-aligned window.
    FixedWindow(Span),
}

impl LimitShape {
    /// The limit of this size.
    ///
    /// # Errors
    /// When the core does not support the size, such as a log of more than 10,000 entries.
    pub fn limit(self, size: u64) -> Result<Limit, QuotaError> {
        Ok(match self {
            Self::TokenBucket(rate) => Limit::TokenBucket(TokenBucket::new(rate, size)?),
            Self::SlidingLog(window) => {
                Limit::SlidingLog(SlidingLog::new(&[Rate::new(size, window)?])?)
            }
            Self::SlidingWindow(window) => {
                Limit::SlidingWindow(SlidingWindow::new(Rate::new(size, window)?, Rounding::Floor))
            }
            Self::FixedWindow(window) => {
                Limit::FixedWindow(FixedWindow::new(Rate::new(size, window)?, Align::Clock))
            }
        })
    }

    /// The smallest size under which none of a client's requests is denied, wherever within their
    /// units of `resolution` they were made.
    ///
    /// ```
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::{Span, Timestamp};
    /// use sluicegate_lab::arrival::Arrival;
    /// use sluicegate_lab::tune::shape::LimitShape;
    ///
    /// let at = |ms: u64| Arrival { at: Timestamp::from_micros(ms * 1_000), client: 0, cost: 1 };
    /// let requests = [at(0), at(100), at(200), at(5_000)];
    /// let bucket = LimitShape::TokenBucket(Rate::new(5, Span::from_secs(1)).unwrap());
    /// assert_eq!(bucket.needed_size(&requests, Span::ZERO), 2);
    /// let log = LimitShape::SlidingLog(Span::from_secs(1));
    /// assert_eq!(log.needed_size(&requests, Span::ZERO), 3);
    /// ```
    #[must_use]
    pub fn needed_size(self, requests: &[Arrival], resolution: Span) -> u64 {
        match self {
            Self::TokenBucket(rate) => needed_burst(&rate, requests, resolution),
            Self::SlidingLog(window) => {
                let resolution = resolution.as_micros();
                let window = window.as_micros().saturating_add(resolution);
                rolling_peak(requests, Span::from_micros(window))
            }
            Self::SlidingWindow(window) => needed_estimate(requests, window),
            Self::FixedWindow(window) => needed_per_window(requests, window),
        }
    }

    /// The most that a client can be admitted in any span of this length.
    #[must_use]
    pub fn admitted_max(self, size: u64, span: Span) -> u64 {
        let windows = |window: Span| span.as_micros().div_ceil(window.as_micros().max(1));
        match self {
            Self::TokenBucket(rate) => size.saturating_add(rate.units_in(ExactTime::span(span))),
            Self::SlidingLog(window) => size.saturating_mul(windows(window)),
            Self::SlidingWindow(window) | Self::FixedWindow(window) => {
                size.saturating_mul(windows(window).saturating_add(1))
            }
        }
    }

    /// The limit as it is written in rules.
    ///
    /// ```
    /// use sluicegate_core::time::Span;
    /// use sluicegate_lab::tune::shape::LimitShape;
    ///
    /// let window = LimitShape::FixedWindow(Span::from_secs(60));
    /// assert_eq!(window.rule(100), "{ algorithm: fixed_window, rate: 100/m }");
    /// ```
    #[must_use]
    pub fn rule(self, size: u64) -> String {
        match self {
            Self::TokenBucket(rate) => {
                let rate = show_rate(rate.count(), rate.period());
                format!("{{ algorithm: token_bucket, rate: {rate}, burst: {size} }}")
            }
            Self::SlidingLog(window) => windowed("sliding_log", size, window),
            Self::SlidingWindow(window) => windowed("sliding_window", size, window),
            Self::FixedWindow(window) => windowed("fixed_window", size, window),
        }
    }

    /// The limit in words.
    #[must_use]
    pub fn words(self, size: u64) -> String {
        match self {
            Self::TokenBucket(rate) => {
                format!("{} with bursts of {size}", show_rate(rate.count(), rate.period()))
            }
            Self::SlidingLog(window) => format!("{size} in any {}", show_span(window)),
            Self::SlidingWindow(window) => {
                format!("{size} in any {} by two counts", show_span(window))
            }
            Self::FixedWindow(window) => {
                format!("{size} per {} of the clock", show_span(window))
            }
        }
    }
}

fn windowed(algorithm: &str, size: u64, window: Span) -> String {
    format!("{{ algorithm: {algorithm}, rate: {} }}", show_rate(size, window))
}

/// The largest backlog. With a resolution, the time between requests of different units may be
/// shorter by as much; between requests of one unit it is taken as zero already.
fn needed_burst(rate: &Rate, requests: &[Arrival], resolution: Span) -> u64 {
    let mut tat = ExactTime::default();
    // The state before the first request of the current moment, moved on by the resolution.
    let (mut moment, mut late_tat) = (Timestamp::EPOCH, ExactTime::default());
    let mut backlog = ExactTime::default();
    for request in requests {
        let now = ExactTime::at(request.at);
        let cost = rate.time_of(u64::from(request.cost));
        if request.at > moment {
            moment = request.at;
            late_tat = if tat == ExactTime::default() {
                tat
            } else {
                rate.later(tat, ExactTime::span(resolution))
            };
        }
        tat = rate.later(tat.max(now), cost);
        late_tat = rate.later(late_tat.max(now), cost);
        backlog = backlog.max(rate.earlier(tat.max(late_tat), now));
    }
    rate.units_covering(backlog).max(1)
}

/// The largest cost of requests in a rolling window, of which an entry as old as the window is no
/// longer part.
pub(super) fn rolling_peak(requests: &[Arrival], window: Span) -> u64 {
    let (mut sum, mut peak, mut oldest) = (0_u64, 1_u64, requests.iter());
    for request in requests {
        sum += u64::from(request.cost);
        while let Some(entry) = oldest.as_slice().first() {
            if request.at.since(entry.at) < window {
                break;
            }
            sum -= u64::from(entry.cost);
            oldest.next();
        }
        peak = peak.max(sum);
    }
    peak
}

/// The cost of requests in a rolling window that ends now.
#[derive(Debug, Clone)]
pub(super) struct RollingSum {
    window: Span,
    entries: VecDeque<(Timestamp, u64)>,
    sum: u64,
}

impl RollingSum {
    pub(super) fn new(window: Span) -> Self {
        Self { window, entries: VecDeque::new(), sum: 0 }
    }

    /// Adds a request; the sum with it.
    pub(super) fn add(&mut self, at: Timestamp, cost: u64) -> u64 {
        while let Some((oldest, cost)) = self.entries.front() {
            if at.since(*oldest) < self.window {
                break;
            }
            self.sum -= cost;
            self.entries.pop_front();
        }
        match self.entries.back_mut() {
            Some((last, sum)) if *last == at => *sum += cost,
            _ => self.entries.push_back((at, cost)),
        }
        self.sum += cost;
        self.sum
    }
}

fn needed_per_window(requests: &[Arrival], window: Span) -> u64 {
    let number = |at: Timestamp| at.as_micros() / window.as_micros().max(1);
    let sums = requests.chunk_by(|one, next| number(one.at) == number(next.at));
    let sum = |chunk: &[Arrival]| chunk.iter().map(|request| u64::from(request.cost)).sum();
    sums.map(sum).max().unwrap_or(1).max(1)
}

/// The largest estimate of two counts. A resolution that divides the window needs nothing more: the
/// weight of the previous window is largest at the beginning of a unit.
fn needed_estimate(requests: &[Arrival], window: Span) -> u64 {
    let length = window.as_micros().max(1);
    let (mut number, mut previous, mut current, mut needed) = (0, 0_u64, 0_u64, 1);
    for request in requests {
        let at = request.at.as_micros();
        if at / length != number {
            previous = if at / length == number + 1 { current } else { 0 };
            (number, current) = (at / length, 0);
        }
        let overlap = length - at % length;
        let weighted = u128::from(previous) * u128::from(overlap) / u128::from(length);
        current += u64::from(request.cost);
        needed = needed.max(current + weighted as u64);
    }
    needed
}

/// Decides a request as the engine does; a denial changes nothing.
pub(super) fn decide(limit: &Limit, state: &mut State, request: &Arrival) -> bool {
    let cost = u64::from(request.cost);
    if cost == 0 {
        return true;
    }
    limit.open(state, request.at);
    let admits = limit.slot(state, cost, request.at) == Slot::At(request.at);
    if admits {
        limit.spend(state, cost, request.at, request.at);
    }
    limit.close(state, request.at);
    admits
}

#[cfg(test)]
mod tests;
