//! Metrics of routes. Routes of the same name share them, and they survive a change of the file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use sluicegate::striped::Striped;
use sluicegate_server::metrics::{Labels, MetricsSource, Page};
use sluicegate_server::telemetry::{BUCKETS_MICROS, ResponseTimes};

use crate::active::Active;
use crate::error::ProxyError;
use crate::shape::Queues;
use crate::tokens::{TokenReport, TokenUsage};

/// Name of the requests without a route.
pub(crate) const UNMATCHED: &str = "unmatched";

/// Routes on the metrics page; further ones are left out.
const LISTED_MAX: usize = 1_000;

/// What the limits decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RequestVerdict {
    /// Nothing: no limit applies to it, or it was answered before its limits.
    #[default]
    None,
    /// Every limit that applies to it admits it.
    Passed,
    /// A limit denies it.
    Denied,
    /// A limit in shadow mode would deny it.
    DryRunDenied,
    /// A limit denies it, and it is forwarded with a header.
    Marked,
    /// An access list, or an allow list of the rules, exempts it.
    Exempt,
    /// The store did not answer for a limit, and no other one denies it.
    Undecided,
    /// Every limit admits it, after it has waited.
    Delayed,
    /// A limit denies it, and it is stored to be processed later.
    Deferred,
}

/// How a request with a reservation was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleOutcome {
    /// By its response.
    Settled,
    /// No case fits the response: the estimate.
    Estimate,
    /// The response does not have its cost: the estimate.
    Unreadable,
    /// Nothing could be reserved: the estimate.
    Unreserved,
    /// The store did not answer when it was settled.
    Failed,
}

/// Counters of a route, striped by thread.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    name: Box<str>,
    counters: Striped<[AtomicU64; COUNT]>,
}

/// A completed request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSample {
    pub(crate) status: u16,
    pub(crate) verdict: RequestVerdict,
    pub(crate) elapsed: Duration,
    /// Time that it has waited for its turn.
    pub(crate) delay: Duration,
    pub(crate) bytes: u64,
}

/// Metrics of the routes of the configuration in force.
#[derive(Debug)]
pub(crate) struct RoutesPage {
    pub(crate) active: Arc<ArcSwap<Active>>,
    pub(crate) queues: Arc<Queues>,
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Classes of tokens.
const TOKEN_CLASSES: [&str; 4] = ["input", "cached", "cache_write", "output"];
const UPSTREAM_ERRORS: [ProxyError; 3] =
    [ProxyError::BadGateway, ProxyError::Timeout, ProxyError::Unavailable];

// Indices of the counters: requests by class and verdict, errors, and the others.
const ERRORS: usize = CLASSES.len() * RequestVerdict::ALL.len();
const OVERLOAD: usize = ERRORS + UPSTREAM_ERRORS.len();
const IN_FLIGHT: usize = OVERLOAD + 1;
const BYTES: usize = IN_FLIGHT + 1;
const DELAY_MICROS: usize = BYTES + 1;
const MICROS: usize = DELAY_MICROS + 1;
const BUCKETS: usize = MICROS + 1;
const SETTLED: usize = BUCKETS + BUCKETS_MICROS.len() + 1;
const TOKENS: usize = SETTLED + SettleOutcome::ALL.len();
const REPORTS: usize = TOKENS + TOKEN_CLASSES.len();
const MONEY: usize = REPORTS + TokenReport::ALL.len();
const STREAMS_ENDED: usize = MONEY + 1;
const COUNT: usize = STREAMS_ENDED + 1;

impl RequestVerdict {
    pub(crate) const ALL: [Self; 9] = [
        Self::None,
        Self::Passed,
        Self::Denied,
        Self::DryRunDenied,
        Self::Marked,
        Self::Exempt,
        Self::Undecided,
        Self::Delayed,
        Self::Deferred,
    ];

    /// Its name, in logs and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Passed => "passed",
            Self::Denied => "denied",
            Self::DryRunDenied => "dry_run_denied",
            Self::Marked => "marked",
            Self::Exempt => "exempt",
            Self::Undecided => "undecided",
            Self::Delayed => "delayed",
            Self::Deferred => "deferred",
        }
    }
}

impl SettleOutcome {
    const ALL: [Self; 5] =
        [Self::Settled, Self::Estimate, Self::Unreadable, Self::Unreserved, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Estimate => "estimate",
            Self::Unreadable => "unreadable",
            Self::Unreserved => "unreserved",
            Self::Failed => "failed",
        }
    }
}

impl RouteMetrics {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        let counters = Striped::new(|| std::array::from_fn(|_| AtomicU64::new(0)));
        Arc::new(Self { name: name.into(), counters })
    }

    /// Name of the route.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A request has begun.
    pub(crate) fn begin(&self) {
        self.add(IN_FLIGHT, 1);
    }

    /// A request that has begun is complete.
    pub(crate) fn complete(&self, sample: RequestSample) {
        let class = usize::from(sample.status / 100).clamp(1, CLASSES.len()) - 1;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (micros, delay) = (micros(sample.elapsed), micros(sample.delay));
        let bucket = BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        // The sum of all stripes wraps to the right number.
        self.add(IN_FLIGHT, u64::MAX);
        self.add(class * RequestVerdict::ALL.len() + sample.verdict as usize, 1);
        self.add(BYTES, sample.bytes);
        if delay > 0 {
            self.add(DELAY_MICROS, delay);
        }
        self.add(MICROS, micros);
        self.add(BUCKETS + bucket, 1);
    }

    /// A request got no response of the upstream; errors of clients are not counted.
    pub(crate) fn fail(&self, error: ProxyError) {
        if error == ProxyError::Overload {
            self.add(OVERLOAD, 1);
        }
        if let Some(index) = UPSTREAM_ERRORS.iter().position(|known| *known == error) {
            self.add(ERRORS + index, 1);
        }
    }

    /// A request was charged by its response, or not.
    pub(crate) fn settle(&self, outcome: SettleOutcome) {
        self.add(SETTLED + outcome as usize, 1);
    }

    /// A request to a model has ended.
    pub(crate) fn use_tokens(&self, usage: &TokenUsage) {
        let tokens = &usage.tokens;
        let counts = [tokens.input, tokens.cached, tokens.cache_write, tokens.output];
        for (class, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            self.add(TOKENS + class, count);
        }
        self.add(REPORTS + usage.report as usize, 1);
        if let Some(money) = usage.money {
            self.add(MONEY, money);
        }
        if usage.is_ended {
            self.add(STREAMS_ENDED, 1);
        }
    }

    fn add(&self, index: usize, count: u64) {
        self.counters.mine()[index].fetch_add(count, Relaxed);
    }

    fn sum(&self, index: usize) -> u64 {
        self.counters.sum(|counters| &counters[index])
    }

    fn times(&self) -> ResponseTimes {
        let buckets = std::array::from_fn(|bucket| self.sum(BUCKETS + bucket));
        ResponseTimes { buckets, sum_micros: self.sum(MICROS) }
    }
}

/// Metrics of each name; those of `previous` continue.
pub(crate) fn of_names<'a>(
    names: impl Iterator<Item = &'a str>,
    previous: &BTreeMap<Box<str>, Arc<RouteMetrics>>,
) -> BTreeMap<Box<str>, Arc<RouteMetrics>> {
    let metrics = |name: &str| match previous.get(name) {
        Some(known) => known.clone(),
        None => RouteMetrics::new(name),
    };
    names.chain([UNMATCHED]).map(|name| (name.into(), metrics(name))).collect()
}

impl MetricsSource for RoutesPage {
    fn put(&self, page: &mut Page) {
        let active = self.active.load();
        let routes: Vec<_> = active.route_metrics().take(LISTED_MAX).collect();
        let route = |one: &RouteMetrics| Labels::new("route", &one.name);
        let help = "Completed requests, by status class and by what the limits decided. A client that went away counts as 4xx.";
        let mut family = page.counter("sluicegate_gateway_requests_total", help);
        for one in &routes {
            for (class, name) in CLASSES.iter().enumerate() {
                for verdict in RequestVerdict::ALL {
                    let count = one.sum(class * RequestVerdict::ALL.len() + verdict as usize);
                    let labels = route(one).and("status", name).and("verdict", verdict.name());
                    if count > 0 {
                        family.labeled(&labels, count);
                    }
                }
            }
        }
        let help = "Time from the head of a request to the end of its response.";
        let mut family = page.histogram("sluicegate_gateway_request_duration_seconds", help);
        for one in &routes {
            family.histogram(&route(one), &one.times());
        }
        let help = "Requests whose response has not ended.";
        let mut family = page.gauge("sluicegate_gateway_requests_in_flight", help);
        for one in &routes {
            family.labeled(&route(one), one.sum(IN_FLIGHT));
        }
        let help = "Time that requests have waited for their turn, in seconds.";
        let mut family = page.counter("sluicegate_gateway_delay_seconds_total", help);
        for one in &routes {
            family.labeled(&route(one), Duration::from_micros(one.sum(DELAY_MICROS)).as_secs_f64());
        }
        let help = "Requests that wait for their turn.";
        page.gauge("sluicegate_gateway_waiting_requests", help).value(self.queues.waiting() as u64);
        let help = "Bytes of the bodies of responses.";
        let mut family = page.counter("sluicegate_gateway_response_bytes_total", help);
        for one in &routes {
            family.labeled(&route(one), one.sum(BYTES));
        }
        let help = "Requests without a response of the upstream, by reason.";
        let mut family = page.counter("sluicegate_gateway_upstream_errors_total", help);
        for one in &routes {
            for (index, error) in UPSTREAM_ERRORS.iter().enumerate() {
                family.labeled(&route(one).and("reason", error.code()), one.sum(ERRORS + index));
            }
        }
        let help = "Requests with `settle`, by what they were charged: the cost of the response, the estimate, or what the store last knew.";
        let mut family = page.counter("sluicegate_gateway_settled_total", help);
        for one in &routes {
            for outcome in SettleOutcome::ALL {
                let count = one.sum(SETTLED + outcome as usize);
                if count > 0 {
                    family.labeled(&route(one).and("outcome", outcome.name()), count);
                }
            }
        }
        put_tokens(page, &routes);
        let help = "Requests rejected because too many were in flight.";
        page.counter("sluicegate_gateway_overload_total", help)
            .value(active.unmatched.sum(OVERLOAD));
        if let Some(log) = active.access_log.as_ref() {
            let help =
                "Lines of the access log that were dropped because it is written too slowly.";
            page.counter("sluicegate_gateway_access_log_dropped_total", help).value(log.dropped());
        }
    }
}

/// Metrics of the routes with requests to models.
fn put_tokens(page: &mut Page, routes: &[&RouteMetrics]) {
    let has_requests = |one: &&&RouteMetrics| {
        (0..TokenReport::ALL.len()).any(|report| one.sum(REPORTS + report) > 0)
    };
    let routes: Vec<&RouteMetrics> = routes.iter().filter(has_requests).copied().collect();
    let route = |one: &RouteMetrics| Labels::new("route", &one.name);
    let help = "Tokens of models that requests were charged for, by class.";
    let mut family = page.counter("sluicegate_gateway_llm_tokens_total", help);
    for one in &routes {
        for (class, name) in TOKEN_CLASSES.iter().enumerate() {
            family.labeled(&route(one).and("class", name), one.sum(TOKENS + class));
        }
    }
    let help = "Requests to models, by where their tokens were read: `underreported` and `invalid` are mistakes of the provider.";
    let mut family = page.counter("sluicegate_gateway_llm_reports_total", help);
    for one in &routes {
        for report in TokenReport::ALL {
            let labels = route(one).and("report", report.name());
            family.labeled(&labels, one.sum(REPORTS + report as usize));
        }
    }
    let help = "Price of the tokens that requests were charged for, in millionths of the currency.";
    let mut family = page.counter("sluicegate_gateway_llm_cost_micros_total", help);
    for one in &routes {
        family.labeled(&route(one), one.sum(MONEY));
    }
    let help = "Streams that were ended because their budget was used up.";
    let mut family = page.counter("sluicegate_gateway_llm_streams_ended_total", help);
    for one in &routes {
        family.labeled(&route(one), one.sum(STREAMS_ENDED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(status: u16, verdict: RequestVerdict) -> RequestSample {
        RequestSample {
            status,
            verdict,
            elapsed: Duration::from_millis(3),
            delay: Duration::ZERO,
            bytes: 10,
        }
    }

    #[test]
    fn requests_are_counted_by_class_and_verdict() {
        let metrics = RouteMetrics::new("/");
        for _ in 0..3 {
            metrics.begin();
        }
        metrics.complete(sample(200, RequestVerdict::Passed));
        metrics.complete(sample(429, RequestVerdict::Denied));
        metrics.fail(ProxyError::Timeout);
        metrics.fail(ProxyError::NoRoute);
        assert_eq!(metrics.sum(IN_FLIGHT), 1);
        let count = |class: usize, verdict: RequestVerdict| {
            metrics.sum(class * RequestVerdict::ALL.len() + verdict as usize)
        };
        assert_eq!(count(1, RequestVerdict::Passed), 1, "2xx");
        assert_eq!(count(3, RequestVerdict::Denied), 1, "4xx");
        assert_eq!((metrics.sum(BYTES), metrics.sum(MICROS)), (20, 6_000));
        assert_eq!(metrics.times().count(), 2);
        let errors: Vec<u64> =
            (0..UPSTREAM_ERRORS.len()).map(|at| metrics.sum(ERRORS + at)).collect();
        assert_eq!(errors, [0, 1, 0]);
    }

    #[test]
    fn every_verdict_has_counters_of_its_own() {
        for (index, verdict) in RequestVerdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, index, "{verdict:?}");
        }
    }

    #[test]
    fn a_name_has_one_set_of_counters_across_changes() {
        let first = of_names(["/a", "/a", "/b"].into_iter(), &BTreeMap::new());
        assert_eq!(first.len(), 3, "two names, and the requests without a route");
        let second = of_names(["/a"].into_iter(), &first);
        assert!(Arc::ptr_eq(&first["/a"], &second["/a"]));
        assert!(!second.contains_key("/b"));
    }
}
