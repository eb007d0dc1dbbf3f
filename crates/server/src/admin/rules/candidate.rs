//! The candidate beside the enforced rules: what it would have decided so far.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};
use sluicegate::IdentityHits;

use super::Outcome;
use super::json::revision_json;
use crate::admin::access::{Caller, Role};
use crate::admin::{AdminInner, json as json_response, traffic};
use crate::app::App;
use crate::candidate::{CandidateRun, IDENTITIES_MAX};
use crate::logs::rfc3339;

/// Rules and identities of an answer.
const RULES_MAX: usize = 100;
const IDENTITIES: usize = 20;

pub(super) async fn candidate(State(admin): State<Arc<AdminInner>>, caller: Caller) -> Outcome {
    caller.require(Role::Read)?;
    Ok(json_response(&candidate_json(&admin.app)))
}

/// The state of the candidate of this node.
pub(in crate::admin) fn candidate_json(app: &App) -> Value {
    let at = rfc3339(app.engine().now()).to_string();
    if let Some(run) = app.candidate().running() {
        return run_json(app, &run, &at);
    }
    let failure = app.candidate().failure();
    json!({
        "scope": "node",
        "at": at,
        "state": if failure.is_some() { "failed" } else { "none" },
        "revision": failure.as_ref().map(|failure| revision_json(&failure.revision)),
        "error": failure.as_ref().map(|failure| &failure.error),
    })
}

fn run_json(app: &App, run: &CandidateRun, at: &str) -> Value {
    let (requests, rules) = (run.requests(), run.rules());
    let mut counts: Value = requests.named().into_iter().collect();
    counts["total"] = requests.total().into();
    let newly_denied = run.newly_denied_by_rule();
    let mut rows = run.read_table(|table| {
        traffic::rules::rows_of_candidate(&rules, table, app.engine().now(), RULES_MAX)
    });
    for row in &mut rows {
        let denied = row["rule"].as_str().and_then(|id| newly_denied.get(id));
        row["newly_denied_requests"] = denied.copied().unwrap_or_default().into();
    }
    let identities = |all: Vec<(String, IdentityHits)>| {
        let all = all.into_iter().take(IDENTITIES);
        all.map(|(domain, identity)| {
            json!({
                "domain": domain,
                "descriptor": identity.descriptor,
                "truncated": identity.is_truncated,
                "requests": identity.hits,
                "over_estimate_max": identity.over_estimate,
            })
        })
        .collect::<Vec<_>>()
    };
    json!({
        "scope": "node",
        "at": at,
        "state": "running",
        "revision": revision_json(run.revision()),
        "since": rfc3339(run.since()).to_string(),
        "requests": counts,
        "rules_count": rules.rules().rules().len(),
        "rules": rows,
        "newly_denied": identities(run.newly_denied()),
        "newly_allowed": identities(run.newly_allowed()),
        "notes": notes(app, run),
        "error": null,
    })
}

/// What the figures do not show.
fn notes(app: &App, run: &CandidateRun) -> Vec<String> {
    let mut notes = vec![
        "The candidate began with empty counters: what was used before it began is not known to it."
            .to_owned(),
    ];
    if !app.is_local() {
        notes.push(
            "It counts the requests of this node only. Where nodes share limits, it denies less than it would."
                .to_owned(),
        );
    }
    if run.slots_omitted() > 0 {
        notes.push(format!(
            "{} concurrency limits of it are not tried: a candidate holds no slots.",
            run.slots_omitted()
        ));
    }
    if run.is_full() {
        notes.push(format!(
            "Its memory is full ({IDENTITIES_MAX} identities at most): the figures of further identities are not exact."
        ));
    }
    if app.options().shadow_mode {
        notes.push(
            "The service is in shadow mode: outcomes are those of the rules, and no request is denied."
                .to_owned(),
        );
    }
    let active = app.rule_store().and_then(|store| store.overview().active);
    let (base, active) = (run.revision().base, active.map(|active| active.number));
    if let (Some(base), Some(active)) = (base, active)
        && base != active
    {
        notes.push(format!(
            "It is based on revision {base}, and revision {active} is active: it has none of the changes between."
        ));
    }
    notes
}
