//! Series of the whole process: requests by outcome, and response times.
//!
//! A point has what happened between the tick before it and its own: 600 of about a second, and
//! 1,440 of a minute. All of it takes less than 200 kB.

use std::collections::VecDeque;

use sluicegate::{Span, Timestamp};

use crate::telemetry::{BUCKETS_MICROS, Endpoint, Telemetry};

/// Points of a second.
pub const SECONDS_MAX: usize = 600;
/// Points of a minute.
pub const MINUTES_MAX: usize = 1_440;
/// Ticks whose response times are one window.
const LATENCY_TICKS: usize = 60;

const BUCKETS: usize = BUCKETS_MICROS.len() + 1;

/// Requests by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// Allowed requests, also those that only rules in shadow mode would have denied.
    pub allowed: u64,
    /// Denied requests.
    pub denied: u64,
    /// The allowed ones that shadow mode would have denied.
    pub shadow_denied: u64,
}

/// Requests between two ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Start of the interval.
    pub from: Timestamp,
    /// End of the interval.
    pub to: Timestamp,
    /// Its requests.
    pub outcomes: Outcomes,
    /// Response times of its calls; none without a call.
    pub latency: Option<Quantiles>,
}

/// Quantiles of response times, as upper bounds of histogram buckets in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantiles {
    /// Half of the calls took at most this time.
    pub p50: u64,
    /// 90 % of the calls.
    pub p90: u64,
    /// 99 % of the calls.
    pub p99: u64,
}

/// Requests of the process over time.
#[derive(Debug, Default)]
pub struct ProcessSeries {
    /// The last ten minutes, by second.
    pub seconds: VecDeque<Point>,
    /// The last day, by minute.
    pub minutes: VecDeque<Point>,
    last: Option<(Timestamp, Outcomes)>,
    /// Start of the current minute, its requests so far, and its slowest quantiles.
    minute: Option<Point>,
}

/// Response times of the last minute, all endpoints together.
#[derive(Debug, Default)]
pub struct LatencyWindow {
    last: Option<[u64; BUCKETS]>,
    ticks: VecDeque<(Timestamp, [u64; BUCKETS])>,
}

impl Outcomes {
    /// All requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.allowed.saturating_add(self.denied)
    }

    fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed.wrapping_sub(before.allowed),
            denied: self.denied.wrapping_sub(before.denied),
            shadow_denied: self.shadow_denied.wrapping_sub(before.shadow_denied),
        }
    }

    fn add(&mut self, other: Self) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow_denied = self.shadow_denied.saturating_add(other.shadow_denied);
    }
}

impl ProcessSeries {
    /// Adds the point that ends now.
    pub(super) fn tick(&mut self, total: Outcomes, latency: Option<Quantiles>, now: Timestamp) {
        let Some((from, before)) = self.last.replace((now, total)) else { return };
        let point = Point { from, to: now, outcomes: total.since(before), latency };
        push(&mut self.seconds, point, SECONDS_MAX);
        let minute = |at: Timestamp| at.as_micros() / 60_000_000;
        match &mut self.minute {
            Some(current) if minute(current.from) == minute(from) => {
                current.to = now;
                current.outcomes.add(point.outcomes);
                current.latency = slowest(current.latency, latency);
            }
            current => {
                if let Some(done) = current.replace(point) {
                    push(&mut self.minutes, done, MINUTES_MAX);
                }
            }
        }
    }

    /// Requests of the last `span`, and the time that they were observed for.
    #[must_use]
    pub fn last(&self, span: Span) -> (Outcomes, Span) {
        let Some(newest) = self.seconds.back() else { return Default::default() };
        let mut sum = Outcomes::default();
        let mut from = newest.to;
        for point in self.seconds.iter().rev() {
            if newest.to.since(point.from) > span {
                break;
            }
            sum.add(point.outcomes);
            from = point.from;
        }
        (sum, newest.to.since(from))
    }
}

impl LatencyWindow {
    /// Reads the histograms; the quantiles of the calls since the last tick.
    pub(super) fn tick(&mut self, telemetry: &Telemetry, now: Timestamp) -> Option<Quantiles> {
        let mut total = [0; BUCKETS];
        for endpoint in Endpoint::ALL {
            let times = telemetry.response_times(endpoint);
            total.iter_mut().zip(times.buckets).for_each(|(sum, calls)| *sum += calls);
        }
        let before = self.last.replace(total)?;
        let mut calls = total;
        calls.iter_mut().zip(before).for_each(|(calls, before)| *calls -= before.min(*calls));
        push(&mut self.ticks, (now, calls), LATENCY_TICKS);
        quantiles(&calls)
    }

    /// Quantiles of the last minute, and the number of calls; none without a call.
    #[must_use]
    pub fn last_minute(&self) -> Option<(Quantiles, u64)> {
        let mut sum = [0; BUCKETS];
        for (_, calls) in &self.ticks {
            sum.iter_mut().zip(calls).for_each(|(sum, calls)| *sum += calls);
        }
        Some((quantiles(&sum)?, sum.iter().sum()))
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T, max: usize) {
    if points.len() >= max {
        points.pop_front();
    }
    points.push_back(point);
}

fn slowest(one: Option<Quantiles>, other: Option<Quantiles>) -> Option<Quantiles> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    Some(Quantiles {
        p50: one.p50.max(other.p50),
        p90: one.p90.max(other.p90),
        p99: one.p99.max(other.p99),
    })
}

/// Upper bounds of the buckets that the quantiles fall in; of the unbounded bucket, `u64::MAX`.
fn quantiles(buckets: &[u64; BUCKETS]) -> Option<Quantiles> {
    let calls: u64 = buckets.iter().sum();
    let quantile = |percent: u64| {
        let rank = (u128::from(calls) * u128::from(percent)).div_ceil(100);
        let mut seen = 0u128;
        let bucket = buckets.iter().position(|calls| {
            seen += u128::from(*calls);
            seen >= rank
        });
        bucket.and_then(|bucket| BUCKETS_MICROS.get(bucket)).copied().unwrap_or(u64::MAX)
    };
    (calls > 0).then(|| Quantiles { p50: quantile(50), p90: quantile(90), p99: quantile(99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros((1_794_744_000 + second) * 1_000_000)
    }

    fn total(allowed: u64, denied: u64) -> Outcomes {
        Outcomes { allowed, denied, shadow_denied: 0 }
    }

    #[test]
    fn points_have_what_was_counted_between_ticks() {
        let mut series = ProcessSeries::default();
        series.tick(total(100, 7), None, at(0));
        assert_eq!(series.last(Span::from_secs(10)), Default::default(), "nothing was observed");
        for second in 1..=3_000u64 {
            series.tick(total(100 + second * 5, 7 + second), None, at(second));
        }
        assert_eq!((series.seconds.len(), series.minutes.len()), (SECONDS_MAX, 49));
        assert!(series.seconds.iter().all(|point| point.outcomes == total(5, 1)));
        assert!(series.minutes.iter().all(|point| point.outcomes == total(300, 60)));
        assert_eq!(series.last(Span::from_secs(10)), (total(50, 10), Span::from_secs(10)));
        assert_eq!(series.last(Span::from_secs(3_600)), (total(3_000, 600), Span::from_secs(600)));
    }

    #[test]
    fn a_late_tick_is_a_longer_point() {
        let mut series = ProcessSeries::default();
        series.tick(total(0, 0), None, at(0));
        series.tick(total(9, 0), None, at(3));
        let point = series.seconds[0];
        assert_eq!((point.from, point.to, point.outcomes), (at(0), at(3), total(9, 0)));
    }

    #[test]
    fn quantiles_are_upper_bounds_of_buckets() {
        let telemetry = Telemetry::default();
        let mut window = LatencyWindow::default();
        let respond = |micros, calls| {
            telemetry.record_responses(Endpoint::Check, Span::from_micros(micros), calls);
        };
        respond(9_000, 1_000);
        assert_eq!(window.tick(&telemetry, at(0)), None, "before the first tick");
        assert_eq!((window.tick(&telemetry, at(1)), window.last_minute()), (None, None));
        respond(20, 95);
        respond(400, 4);
        respond(20_000_000, 1);
        let quantiles = Quantiles { p50: 25, p90: 25, p99: 500 };
        assert_eq!(window.tick(&telemetry, at(2)), Some(quantiles));
        assert_eq!(window.last_minute(), Some((quantiles, 100)));
        respond(20_000_000, 99);
        assert_eq!(window.tick(&telemetry, at(3)).unwrap().p50, u64::MAX);
        for second in 4..64 {
            window.tick(&telemetry, at(second));
        }
        assert_eq!(window.last_minute(), None, "all of them are older than a minute");
    }
}
