//! `POST /api/v1/traffic/what-if`: other rules on the sample of recent requests, and the usage
//! that a threshold is suggested by.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sluicegate::config::rules::{Options, Source, load};
use sluicegate::rules::resolve::resolve;
use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Snapshot, Timestamp};

use super::query::refuse;
use super::rules::rule_of;
use super::{AdminInner, Caller, Refused, share, time, traffic};
use crate::admin::{self, error};
use crate::app::App;
use crate::traffic::Traffic;
use crate::traffic::sample::SampleView;
use crate::traffic::usage::{IDENTITIES_MIN, UsageQuantiles, usage};
use crate::traffic::what_if::{RuleComparison, RuleTally, WhatIf, what_if};

/// Bytes of a request.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;

/// Either the files of a whole set, or one rule and its changed limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfBody {
    files: Option<Vec<FileBody>>,
    rule: Option<String>,
    /// Limits as in a rule file: YAML as a text, or the same as JSON.
    limits: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBody {
    name: String,
    text: String,
}

pub(super) async fn post(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    body: Bytes,
) -> Result<Response, Refused> {
    traffic(&admin, &caller)?;
    let body: WhatIfBody = serde_json::from_slice(&body).map_err(|error| {
        refuse(&format!(
            "the body must be an object with `files`, or with `rule` and `limits`: {error}"
        ))
    })?;
    let compared = replayed(&admin, body).await?;
    Ok(admin::json(&compared))
}

/// Compares the rules of files with the enforced ones, for the editor.
pub(in crate::admin) async fn compare_files(
    admin: &AdminInner,
    files: Vec<Source>,
) -> Result<Value, Box<Response>> {
    let files = files.into_iter().map(|Source { name, text }| FileBody { name, text }).collect();
    replayed(admin, WhatIfBody { files: Some(files), rule: None, limits: None }).await
}

/// Compares other limits of a rule with the enforced ones; the message if they are invalid.
pub(in crate::admin) async fn compare_limits(
    admin: &AdminInner,
    rule: &str,
    limits: &str,
) -> Result<Value, String> {
    let written = sluicegate::config::limit::limits("limits", limits);
    written.map_err(|problems| problems.to_string())?;
    let (rule, limits) = (Some(rule.to_owned()), Some(limits.into()));
    let compared = replayed(admin, WhatIfBody { files: None, rule, limits }).await;
    compared.map_err(|response| format!("refused, with status {}", response.status()))
}

/// A replay of the whole sample takes a while: not on a thread of the runtime.
async fn replayed(admin: &AdminInner, body: WhatIfBody) -> Result<Value, Box<Response>> {
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    let rendered = admin.render(move |app| {
        *place.lock() = Some(compare(app, body));
        String::new()
    });
    rendered.await.map_err(Box::new)?;
    result.lock().take().unwrap_or(Ok(Value::Null))
}

fn compare(app: &App, body: WhatIfBody) -> Result<Value, Box<Response>> {
    let Some(statistics) = app.traffic() else { return Ok(Value::Null) };
    let rules = app.engine().snapshot();
    let changed = changed_rules(&rules, statistics.options(), app.engine().now(), body)?;
    let sample = statistics.sample();
    let unfit = |message: String| refuse(&message);
    let compared = what_if(&sample, &rules, changed, !app.is_local()).map_err(unfit)?;
    Ok(what_if_json(app, &sample, &compared))
}

fn changed_rules(
    rules: &Snapshot<'_>,
    options: Options,
    now: Timestamp,
    body: WhatIfBody,
) -> Result<RuleSet, Box<Response>> {
    match body {
        WhatIfBody { files: Some(files), rule: None, limits: None } => {
            let source = |FileBody { name, text }| Source { name, text };
            let sources: Vec<Source> = files.into_iter().map(source).collect();
            let loaded =
                load(&sources, &options).map_err(|invalid| invalid_rules(&invalid.to_string()))?;
            // Schedules and overrides as of now.
            let resolved = resolve(loaded.domains, now);
            let resolved = resolved.map_err(|error| invalid_rules(&error.to_string()))?;
            RuleSet::new(resolved.domains).map_err(|error| invalid_rules(&error.to_string()))
        }
        WhatIfBody { files: None, rule: Some(rule), limits: Some(limits) } => {
            let no = rule_of(rules.rules(), &rule)?;
            let text = limits.as_str().map_or_else(|| limits.to_string(), str::to_owned);
            let limits = sluicegate::config::limit::limits("limits", &text);
            let limits = limits.map_err(|problems| invalid_rules(&problems.to_string()))?;
            Ok(rules.rules().with_limits(no, Limits::Native(limits.into())))
        }
        _ => Err(refuse("write either `files`, or `rule` and `limits`")),
    }
}

fn invalid_rules(message: &str) -> Box<Response> {
    Box::new(error(StatusCode::UNPROCESSABLE_ENTITY, "invalid_rules", message))
}

fn what_if_json(app: &App, sample: &SampleView, compared: &WhatIf) -> Value {
    let WhatIf { requests, recorded_denied, denied_before, denied_after, rules, notes } = compared;
    let rules: Vec<Value> = rules.iter().map(|(id, rule)| rule_json(id, rule)).collect();
    let is_part = denied_before.is_none();
    json!({
        "scope": "node",
        "at": time(app.engine().now()),
        "sample": sample_json(sample),
        "requests": {
            "requests": requests,
            "recorded_denied": recorded_denied,
            "denied_before": denied_before,
            "denied_after": denied_after,
            "unknown": is_part.then_some("the sample has a part of the requests: see each rule"),
        },
        "rules": rules,
        "notes": notes,
    })
}

fn sample_json(sample: &SampleView) -> Value {
    json!({
        "from": sample.requests.first().map(|request| time(request.at)),
        "to": sample.requests.last().map(|request| time(request.at)),
        "span_seconds": sample.span().as_micros() as f64 / 1_000_000.0,
        "requests": sample.requests.len(),
        "one_identity_in": 1u64 << sample.level,
        "too_long_requests": sample.too_long,
        "missed_requests": sample.missed,
    })
}

fn rule_json(id: &str, rule: &RuleComparison) -> Value {
    let tally = |tally: &RuleTally| {
        let RuleTally { requests, denied, identities, denied_identities, unjudged } = *tally;
        json!({
            "requests": requests,
            "denied": denied,
            "denied_share": share(denied, requests),
            "identities": identities,
            "denied_identities": denied_identities,
            "unjudged_requests": unjudged,
        })
    };
    json!({
        "rule": id,
        "before": rule.before.as_ref().map(tally),
        "after": rule.after.as_ref().map(tally),
        "notes": rule.notes,
    })
}

/// The usage of a rule's identities in the window of its first limit, with the sample it is from.
pub(super) fn usage_json(statistics: &Traffic, rules: &Snapshot<'_>, no: RuleNo) -> Value {
    let window = rules.policies(no).iter().find_map(|policy| policy.window);
    let sample = statistics.sample();
    let unknown = |reason: &str| json!({ "unknown": reason, "sample": sample_json(&sample) });
    let Some(window) = window else {
        return unknown("the rule has no limit with a window of fixed length");
    };
    if window > sample.span() {
        return unknown("the sample of recent requests is shorter than the window of the limit");
    }
    let Some(quantiles) = usage(&sample, rules, no, window) else {
        return unknown("no identity of the rule has its whole history in the sample");
    };
    let UsageQuantiles { window, identities, p50, p90, p99, max } = quantiles;
    let is_enough = identities >= IDENTITIES_MIN;
    json!({
        "window_seconds": window.as_micros() as f64 / 1_000_000.0,
        "identities": identities,
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "max": max,
        "suggested": is_enough.then_some(p99),
        "unknown": (!is_enough).then(|| format!("fewer than {IDENTITIES_MIN} identities are no basis for a threshold")),
        "sample": sample_json(&sample),
    })
}
