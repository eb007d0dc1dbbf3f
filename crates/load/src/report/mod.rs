//! What came out of a run.

mod text;

pub(crate) use text::{count, time};

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::request::Ask;
use crate::procfs;
use crate::keys::KeyOrder;
use crate::plan::{Amount, Pace, Plan};
use crate::run::Outcome;
use crate::schedule::Arrivals;
use crate::tally::Second;

/// The whole of it; as JSON it has the same names.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `rls`, `http`, `http-get`, `http-post`, `resp` or `grpc`.
    pub target: &'static str,
    /// Who was asked.
    pub address: String,
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub pace: &'static str,
    /// Requests per second that were meant, in an open loop.
    pub rate_wanted: Option<f64>,
    /// `constant` or `poisson`, in an open loop.
    pub arrivals: Option<&'static str>,
    /// Of all threads.
    pub connections: usize,
    /// Requests under way on each of them.
    pub at_once: usize,
    /// Of the load.
    pub threads: usize,
    /// How many.
    pub keys: u64,
    /// `uniform`, `zipf` or `sequential`.
    pub order: &'static str,
    /// The exponent of Zipf.
    pub zipf: Option<f64>,
    /// Of keys and arrivals.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// Before it, and not counted.
    pub warm_up_seconds: f64,
    /// Answers and errors.
    pub requests: u64,
    /// Answers.
    pub answered: u64,
    /// Answers per second.
    pub per_second: f64,
    /// It may go.
    pub allowed: u64,
    /// It may not.
    pub denied: u64,
    /// Requests without an answer, or with one that is none.
    pub errors: u64,
    /// The same while it filled and warmed up.
    pub errors_before: u64,
    /// Both by their words.
    pub errors_by_text: BTreeMap<String, u64>,
    /// Of all answers, in an open loop from when they were due.
    pub latency_us: Latency,
    /// Requests that were sent more than a millisecond after they were due.
    pub late_starts: u64,
    /// How much the latest of them was behind.
    pub latest_start_us: f64,
    /// Requests that were due before the end and could not be sent.
    pub unsent: u64,
    /// Connections that had to be made again.
    pub reconnects: u64,
    /// The server's processes, if they are here and may be looked at.
    pub server: Option<Used>,
    /// CPU time of the load over time: 1 is a whole core.
    pub load_busy: Option<f64>,
    /// How much of the machine's time the hypervisor gave to others.
    pub stolen: Option<f64>,
    /// Second by second.
    pub series: Vec<Point>,
    /// Percentiles and microseconds, for a curve.
    pub curve: Vec<(f64, f64)>,
}

/// How long answers took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// The mean, which no request sees.
    pub mean: f64,
    /// Half of all took no longer.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    #[serde(rename = "p99_9")]
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What the server's processes used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Used {
    /// All of them together are counted.
    pub processes: Vec<u32>,
    /// CPU time, in user and in system mode, for each answer.
    pub cpu_us_per_request: f64,
    /// CPU time over time: 1 is a whole core.
    pub busy: f64,
    /// At the end.
    pub resident_bytes: u64,
    /// More than before.
    pub resident_grown_bytes: i64,
}

/// A second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// From the beginning.
    pub second: u64,
    /// The last one may be shorter than a second.
    pub seconds: f64,
    /// Answers.
    pub answered: u64,
    /// Those that say no.
    pub denied: u64,
    /// Requests without one.
    pub errors: u64,
    /// Half of all took no longer.
    pub p50_us: f64,
    /// 99 of a hundred.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Since the beginning.
    pub elapsed: Duration,
    /// Until the end, if that is known.
    pub left: Option<Duration>,
    /// Answers in the last second that is over, if one is.
    pub per_second: Option<u64>,
    /// So far.
    pub p99_us: f64,
    /// So far.
    pub errors: u64,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(plan: &Plan, outcome: &Outcome) -> Self {
        let Outcome { seconds, whole, before, after, .. } = outcome;
        let mut failures = whole.failures.clone();
        failures.merge(&outcome.failures_before);
        let busy = |from: Option<procfs::Books>, to: Option<procfs::Books>| {
            Some((to?.cpu_seconds - from?.cpu_seconds) / seconds)
        };
        let answered = whole.answered();
        let server = match (before.server, after.server) {
            (Some(from), Some(to)) if answered > 0 => Some(Used {
                processes: outcome.processes.clone(),
                cpu_us_per_request: 1e6 * (to.cpu_seconds - from.cpu_seconds) / answered as f64,
                busy: (to.cpu_seconds - from.cpu_seconds) / seconds,
                resident_bytes: to.resident_bytes,
                resident_grown_bytes: to.resident_bytes as i64 - from.resident_bytes as i64,
            }),
            _ => None,
        };
        let (rate_wanted, arrivals) = match plan.pace {
            Pace::Closed => (None, None),
            Pace::Open(rate, arrivals) => (Some(rate.as_per_second()), Some(arrivals)),
        };
        Self {
            target: target(&plan.ask),
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

    /// Whether every request got an answer, and there was one at all.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0 && self.errors_before == 0 && self.answered > 0
    }

    /// Whether an open loop was what it was meant to be: at most one of a thousand late, and all sent.
    #[must_use]
    pub const fn kept_up(&self) -> bool {
        self.unsent == 0 && self.late_starts <= self.requests / 1_000
    }

    /// A table for a person.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::table(self)
    }

    /// One object for a program.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers and texts only: nothing that JSON does not have.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn target(ask: &Ask) -> &'static str {
    match ask {
        Ask::Rls { .. } => "rls",
        Ask::Check { .. } => "http",
        Ask::Get { .. } => "http-get",
        Ask::Post { .. } => "http-post",
        Ask::Command { .. } => "resp",
        Ask::Grpc(_) => "grpc",
    }
}

/// Half of what is left, again and again: each step a percentile that takes twice as many requests.
fn curve(took: &Histogram<u64>) -> Vec<(f64, f64)> {
    const STEPS_PER_HALVING: u32 = 4;
    let most = took.len() as f64;
    if took.is_empty() {
        return Vec::new();
    }
    let steps = (most.log2().ceil() as u32 + 1) * STEPS_PER_HALVING;
    let point = |step: u32| {
        let quantile = 1.0 - 0.5f64.powf(f64::from(step) / f64::from(STEPS_PER_HALVING));
        (100.0 * quantile, us(took.value_at_quantile(quantile)))
    };
    (0..=steps).map(point).collect()
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

// === impl Latency ===

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

// === impl Point ===

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
            max_us: us(second.took.max()),
        }
    }

    /// The last second of a run may be shorter.
    pub(crate) fn of_run(mut self, seconds: f64) -> Self {
        self.seconds = (seconds - self.second as f64).clamp(0.001, 1.0);
        self
    }
}

// === impl Progress ===

impl Progress {
    pub(crate) fn new(
        plan: &Plan,
        elapsed: Duration,
        whole: &Second,
        last: Option<&Point>,
    ) -> Self {
        let heard = whole.answered() + whole.failures.count();
        let left = match plan.amount {
            Amount::Time(time) => Some(time.saturating_sub(elapsed)),
            Amount::Count(_) if heard == 0 => None,
            Amount::Count(count) => {
                let each = elapsed.as_secs_f64() / heard as f64;
                Duration::try_from_secs_f64(each * count.saturating_sub(heard) as f64).ok()
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

    /// One line for a terminal.
    #[must_use]
    pub fn to_line(&self) -> String {
        text::progress(self)
    }
}
