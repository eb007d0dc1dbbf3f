//! Totals and series of the process.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde_json::{Value, json};
use sluicegate::{RULES_OBSERVED_MAX, Span};

use super::query::Query;
use super::{AdminInner, Caller, Refused, optional_time, time, traffic, unix_ms};
use crate::admin;
use crate::app::App;
use crate::health::StoreState;
use crate::telemetry::BUCKETS_MICROS;
use crate::traffic::series::{Outcomes, Point, Quantiles};
use crate::traffic::{Traffic, TrafficSeries};

/// The time that rates of now are of.
const NOW: Span = Span::from_secs(10);

/// Which series are part of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum SeriesChoice {
    Both,
    Seconds,
    Minutes,
    None,
}

pub(super) async fn overview(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Refused> {
    let statistics = traffic(&admin, &caller)?;
    let query = Query::read(uri.query(), &["series"])?;
    let choices = [
        ("both", SeriesChoice::Both),
        ("seconds", SeriesChoice::Seconds),
        ("minutes", SeriesChoice::Minutes),
        ("none", SeriesChoice::None),
    ];
    let choice = query.choice("series", &choices)?.unwrap_or(SeriesChoice::Both);
    Ok(admin::json(&page(&admin.app, statistics, choice)))
}

/// The overview.
pub(in crate::admin) fn page(app: &App, statistics: &Traffic, choice: SeriesChoice) -> Value {
    let mut body = summary(app, statistics);
    let (seconds, minutes) = statistics.read(|state| {
        let TrafficSeries { process, .. } = state;
        let with = |one| choice == SeriesChoice::Both || choice == one;
        (
            with(SeriesChoice::Seconds).then(|| series(1, &process.seconds)),
            with(SeriesChoice::Minutes).then(|| series(60, &process.minutes)),
        )
    });
    body["series"] = json!({ "seconds": seconds, "minutes": minutes });
    body
}

/// The overview without series, which an event of each second has too.
pub(crate) fn summary(app: &App, statistics: &Traffic) -> Value {
    let engine = app.engine();
    let rules = engine.snapshot();
    let total = statistics.outcomes();
    let (last, span, latency) = statistics.read(|state| {
        let (last, span) = state.process.last(NOW);
        (last, span, state.latency.last_minute())
    });
    let seconds = span.as_micros() as f64 / 1_000_000.0;
    let per_second = |count: u64| match span.is_zero() {
        true => Value::Null,
        false => json!((count as f64 / seconds * 100.0).round() / 100.0),
    };
    json!({
        "scope": "node",
        "at": time(engine.now()),
        "observed_since": optional_time(rules.traffic_observed_since()),
        "totals": outcomes(total),
        "now": {
            "seconds": seconds,
            "requests_per_second": per_second(last.requests()),
            "allowed_per_second": per_second(last.allowed),
            "denied_per_second": per_second(last.denied),
            "shadow_denied_per_second": per_second(last.shadow_denied),
            "unknown": span.is_zero().then_some("the first second has not ended"),
        },
        "latency": latency_json(latency),
        "rules": {
            "count": rules.rules().rules().len(),
            "hash": format!("{:016x}", rules.rules().digest()),
            "detailed_max": RULES_OBSERVED_MAX,
        },
        "store": store(app),
        "shadow_mode": app.options().shadow_mode,
        "ready": app.health().state().is_ready(),
        "unready_reason": app.health().state().unready_reason(),
    })
}

fn outcomes(outcomes: Outcomes) -> Value {
    let Outcomes { allowed, denied, shadow_denied } = outcomes;
    json!({
        "requests": outcomes.requests(),
        "allowed": allowed,
        "denied": denied,
        "shadow_denied": shadow_denied,
    })
}

fn store(app: &App) -> Value {
    let state = app.health().state().store;
    let state = state.map(|state| match state {
        StoreState::Connecting => "connecting",
        StoreState::Up => "up",
        StoreState::Down => "down",
    });
    let kind = if app.is_local() { "memory" } else { "redis" };
    json!({ "kind": kind, "state": state.unwrap_or("up") })
}

/// Upper bounds of buckets; `null` for one above the largest.
fn bound(micros: u64) -> Value {
    if micros == u64::MAX { Value::Null } else { micros.into() }
}

fn latency_json(latency: Option<(Quantiles, u64)>) -> Value {
    let largest = BUCKETS_MICROS[BUCKETS_MICROS.len() - 1];
    match latency {
        None => json!({
            "calls": 0,
            "p50_us_max": null,
            "p90_us_max": null,
            "p99_us_max": null,
            "bucket_us_max": largest,
            "unknown": "no call of the last minute has a response time; a gateway has its own metrics",
        }),
        Some((Quantiles { p50, p90, p99 }, calls)) => json!({
            "calls": calls,
            "p50_us_max": bound(p50),
            "p90_us_max": bound(p90),
            "p99_us_max": bound(p99),
            "bucket_us_max": largest,
            "unknown": null,
        }),
    }
}

/// A series as columns. Each point is of the interval between the time before and its own.
fn series(step_seconds: u64, points: &VecDeque<Point>) -> Value {
    let column = |of: fn(&Point) -> Value| points.iter().map(of).collect::<Vec<_>>();
    json!({
        "step_seconds": step_seconds,
        "from_ms": points.front().map(|point| unix_ms(point.from)),
        "to_ms": column(|point| unix_ms(point.to).into()),
        "allowed": column(|point| point.outcomes.allowed.into()),
        "denied": column(|point| point.outcomes.denied.into()),
        "shadow_denied": column(|point| point.outcomes.shadow_denied.into()),
        "p50_us_max": column(|point| point.latency.map_or(Value::Null, |times| bound(times.p50))),
        "p99_us_max": column(|point| point.latency.map_or(Value::Null, |times| bound(times.p99))),
    })
}
