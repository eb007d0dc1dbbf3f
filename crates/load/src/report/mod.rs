//! Report of a run.

mod text;

pub(crate) use text::{count, time};

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::keys::KeyOrder;
use crate::plan::{Amount, Pace, Plan};
use crate::procfs;
use crate::request::RequestSpec;
use crate::run::Outcome;
use crate::schedule::{Arrivals, RateStep};
use crate::tally::Second;

/// Results of a run; JSON has the same field names.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `rls`, `http`, `http-get`, `http-post`, `resp` or `grpc`.
    pub target: &'static str,
    /// Address of the server.
    pub address: String,
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub pace: &'static str,
    /// Planned requests per second of an open loop; of steps, their mean.
    pub rate_wanted: Option<f64>,
    /// `constant` or `poisson`, in an open loop.
    pub arrivals: Option<&'static str>,
    /// Connections of all threads.
    pub connections: usize,
    /// Requests in flight per connection.
    pub at_once: usize,
    /// Load threads.
    pub threads: usize,
    /// Number of keys.
    pub keys: u64,
    /// `uniform`, `zipf` or `sequential`.
    pub order: &'static str,
    /// The exponent of Zipf.
    pub zipf: Option<f64>,
    /// Seed of keys and arrivals.
    pub seed: u64,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Duration of the warm-up, not counted.
    pub warm_up_seconds: f64,
    /// Answers and errors.
    pub requests: u64,
    /// Answers.
    pub answered: u64,
    /// Answers per second.
    pub per_second: f64,
    /// Allowed requests.
    pub allowed: u64,
    /// Denied requests.
    pub denied: u64,
    /// Requests without a valid response.
    pub errors: u64,
    /// Errors during fill and warm-up.
    pub errors_before: u64,
    /// All errors by text.
    pub errors_by_text: BTreeMap<String, u64>,
    /// Latency of all answers; in an open loop from the scheduled time.
    pub latency_us: Latency,
    /// That of allowed requests.
    pub allowed_latency_us: Latency,
    /// Requests sent more than a millisecond after the scheduled time.
    pub late_starts: u64,
    /// Maximum delay of a late start.
    pub latest_start_us: f64,
    /// Scheduled requests that could not be sent before the end.
    pub unsent: u64,
    /// Reconnections.
    pub reconnects: u64,
    /// Usage of the server's processes, if they are local and readable.
    pub server: Option<ServerUsage>,
    /// CPU utilization of the load: 1 is one core.
    pub load_busy: Option<f64>,
    /// Steal time: share of the machine's time given to other machines.
    pub stolen: Option<f64>,
    /// Time series by second.
    pub series: Vec<Point>,
    /// Percentile and microseconds.
    pub curve: Vec<(f64, f64)>,
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99_9")]
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// Resource usage of the server's processes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerUsage {
    /// Processes included in the sums.
    pub processes: Vec<u32>,
    /// User and system CPU time per answer.
    pub cpu_us_per_request: f64,
    /// CPU utilization: 1 is one core.
    pub busy: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
    /// Growth of resident memory.
    pub resident_grown_bytes: i64,
}

/// A second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Second since the start.
    pub second: u64,
    /// Length; the last second may be shorter.
    pub seconds: f64,
    /// Answers.
    pub answered: u64,
    /// Denied.
    pub denied: u64,
    /// Errors.
    pub errors: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// That of allowed requests.
    pub allowed_p99_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Elapsed time.
    pub elapsed: Duration,
    /// Estimated remaining time.
    pub left: Option<Duration>,
    /// Answers in the last complete second.
    pub per_second: Option<u64>,
    /// 99th percentile so far.
    pub p99_us: f64,
    /// Errors so far.
    pub errors: u64,
}

impl Report {
    pub(crate) fn new(plan: &Plan, outcome: &Outcome) -> Self {
        let Outcome { seconds, whole, before, after, .. } = outcome;
        let mut failures = whole.failures.clone();
        failures.merge(&outcome.failures_before);
        let busy = |from: Option<procfs::ProcessUsage>, to: Option<procfs::ProcessUsage>| {
            Some((to?.cpu_seconds - from?.cpu_seconds) / seconds)
        };
        let answered = whole.answered();
        let server = match (before.server, after.server) {
            (Some(from), Some(to)) if answered > 0 => Some(ServerUsage {
                processes: outcome.processes.clone(),
                cpu_us_per_request: 1e6 * (to.cpu_seconds - from.cpu_seconds) / answered as f64,
                busy: (to.cpu_seconds - from.cpu_seconds) / seconds,
                resident_bytes: to.resident_bytes,
                resident_grown_bytes: to.resident_bytes as i64 - from.resident_bytes as i64,
            }),
            _ => None,
        };
        let (rate_wanted, arrivals) = match &plan.pace {
            Pace::Closed => (None, None),
            Pace::Open(rate, arrivals) => (Some(rate.as_per_second()), Some(*arrivals)),
            Pace::Steps(steps, arrivals) => (Some(RateStep::mean(steps)), Some(*arrivals)),
        };
        Self {
            target: target(&plan.request),
            address: plan.address.to_string(),
            pace: if rate_wanted.is_some() { "open" } else { "closed" },
            rate_wanted,
            arrivals: arrivals.map(|arrivals| match arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "poisson",
            }),
            connections: plan.connections,
            at_once: plan.at_once,
            threads: plan.threads,
            keys: plan.keys.count,
            order: match plan.keys.order {
                KeyOrder::Uniform => "uniform",
                KeyOrder::Zipf(_) => "zipf",
                KeyOrder::Sequential => "sequential",
            },
            zipf: match plan.keys.order {
                KeyOrder::Zipf(exponent) => Some(exponent),
                _ => None,
            },
            seed: plan.keys.seed,
            seconds: *seconds,
            warm_up_seconds: plan.warm_up.as_secs_f64(),
            requests: answered + whole.failures.count(),
            answered,
            per_second: answered as f64 / seconds,
            allowed: whole.allowed,
            denied: whole.denied,
            errors: whole.failures.count(),
            errors_before: outcome.failures_before.count(),
            errors_by_text: failures.0,
            latency_us: Latency::of(&whole.took),
            allowed_latency_us: Latency::of(&whole.took_allowed()),
            late_starts: whole.late,
            latest_start_us: whole.latest.as_secs_f64() * 1e6,
            unsent: outcome.unsent,
            reconnects: whole.reconnects,
            server,
            load_busy: busy(before.own, after.own),
            stolen: procfs::stolen(before.machine, after.machine),
            series: outcome.points.clone(),
            curve: curve(&whole.took),
        }
    }

    /// Whether every request was answered, and at least one.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0 && self.errors_before == 0 && self.answered > 0
    }

    /// Whether an open loop was on schedule: all sent, at most one of a thousand late.
    #[must_use]
    pub const fn is_on_schedule(&self) -> bool {
        self.unsent == 0 && self.late_starts <= self.requests / 1_000
    }

    /// A human-readable table.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::table(self)
    }

    /// One JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn target(request: &RequestSpec) -> &'static str {
    match request {
        RequestSpec::Rls { .. } => "rls",
        RequestSpec::Check { .. } => "http",
        RequestSpec::Get { .. } => "http-get",
        RequestSpec::Post { .. } => "http-post",
        RequestSpec::Command { .. } => "resp",
        RequestSpec::Grpc(_) => "grpc",
    }
}

/// Percentiles whose distance to 100 % halves every four steps.
fn curve(took: &Histogram<u64>) -> Vec<(f64, f64)> {
    const STEPS_PER_HALVING: u32 = 4;
    let count = took.len() as f64;
    if took.is_empty() {
        return Vec::new();
    }
    let steps = (count.log2().ceil() as u32 + 1) * STEPS_PER_HALVING;
    let point = |step: u32| {
        let quantile = 1.0 - 0.5f64.powf(f64::from(step) / f64::from(STEPS_PER_HALVING));
        (100.0 * quantile, us(took.value_at_quantile(quantile)))
    };
    (0..=steps).map(point).collect()
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl Latency {
    fn of(took: &Histogram<u64>) -> Self {
        let at = |quantile| us(took.value_at_quantile(quantile));
        Self {
            mean: took.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: us(took.max()),
        }
    }
}

impl Point {
    pub(crate) fn of(second: &Second) -> Self {
        Self {
            second: second.index,
            seconds: 1.0,
            answered: second.answered(),
            denied: second.denied,
            errors: second.failures.count(),
            p50_us: us(second.took.value_at_quantile(0.5)),
            p99_us: us(second.took.value_at_quantile(0.99)),
            allowed_p99_us: us(second.took_allowed().value_at_quantile(0.99)),
            max_us: us(second.took.max()),
        }
    }

    /// Shortens the last second to the end of the run.
    pub(crate) fn clipped(mut self, seconds: f64) -> Self {
        self.seconds = (seconds - self.second as f64).clamp(0.001, 1.0);
        self
    }
}

impl Progress {
    pub(crate) fn new(
        plan: &Plan,
        elapsed: Duration,
        whole: &Second,
        last: Option<&Point>,
    ) -> Self {
        let completed = whole.answered() + whole.failures.count();
        let left = match plan.amount {
            Amount::Time(time) => Some(time.saturating_sub(elapsed)),
            Amount::Count(_) if completed == 0 => None,
            Amount::Count(count) => {
                let each = elapsed.as_secs_f64() / completed as f64;
                Duration::try_from_secs_f64(each * count.saturating_sub(completed) as f64).ok()
            }
        };
        Self {
            elapsed,
            left,
            per_second: last.map(|last| last.answered),
            p99_us: us(whole.took.value_at_quantile(0.99)),
            errors: whole.failures.count(),
        }
    }

    /// A line for a terminal.
    #[must_use]
    pub fn to_line(&self) -> String {
        text::progress(self)
    }
}
