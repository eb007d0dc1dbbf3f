//! Responses about rules and revisions.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use sluicegate::config::problem::Problem;
use sluicegate::config::rules::Source;
use sluicegate::explain::diff::{ComparedRules, RulesDiff, diff};
use sluicegate_rulestore::{CheckedRules, Overview, Revision, RuleStore, StoreError, unified_diff};

use super::super::json as json_response;

pub(super) fn revision_json(revision: &Revision) -> Value {
    serde_json::to_value(revision).unwrap_or_default()
}

pub(super) fn files_json(sources: &[Source]) -> Value {
    let file = |source: &Source| json!({ "name": source.name, "text": source.text });
    sources.iter().map(file).collect()
}

/// What the store has beside the active set.
pub(super) fn overview_json(store: &RuleStore) -> Value {
    let status = store.status();
    let Overview {
        candidate,
        pending,
        scheduled,
        read_only,
        require_approval,
        backend,
        location,
        ..
    } = store.overview();
    let list = |all: &[Revision]| all.iter().map(revision_json).collect::<Vec<_>>();
    json!({
        "revision": null,
        "files": [],
        "digest": null,
        "enforced": status.enforced(),
        "candidate": candidate.as_ref().map(revision_json),
        "scheduled": list(&scheduled),
        "pending": list(&pending),
        "read_only": read_only,
        "require_approval": require_approval,
        "backend": backend,
        "location": location,
        "connected": status.is_connected(),
        "served_from_cache": status.is_served_from_cache(),
    })
}

/// What files would change; nothing is stored.
#[derive(Debug, Clone, Default, Serialize)]
pub(in crate::admin) struct Preview {
    valid: bool,
    pub(in crate::admin) problems: Vec<PreviewProblem>,
    pub(in crate::admin) warnings: Vec<PreviewProblem>,
    digest: Option<String>,
    pub(in crate::admin) diff: String,
    #[serde(rename = "changes")]
    changes_json: Option<Value>,
    #[serde(rename = "changes_text")]
    pub(in crate::admin) changes: Option<String>,
}

/// A problem of a file, with its place.
#[derive(Debug, Clone, Serialize)]
pub(in crate::admin) struct PreviewProblem {
    pub(in crate::admin) file: String,
    pub(in crate::admin) line: usize,
    column: usize,
    pub(in crate::admin) path: String,
    pub(in crate::admin) message: String,
}

impl Preview {
    pub(super) fn of(store: &RuleStore, old: &[Source], new: &[Source]) -> Self {
        let diff_text = unified_diff(old, new);
        let preview = Self { diff: diff_text, ..Self::default() };
        let new = match store.check(new) {
            Ok(new) => new,
            Err(StoreError::Invalid { problems, warnings }) => {
                let (problems, warnings) = (of_problems(&problems), of_problems(&warnings));
                return Self { problems, warnings, ..preview };
            }
            Err(error) => {
                let problem = PreviewProblem {
                    file: String::new(),
                    line: 1,
                    column: 1,
                    path: String::new(),
                    message: error.to_string(),
                };
                return Self { problems: vec![problem], ..preview };
            }
        };
        // An active set that this version refuses has no rules to compare with.
        let old = store.check(old).ok();
        let changes = old.as_ref().map(|old| diff(compared(old), compared(&new)));
        Self {
            valid: true,
            warnings: of_problems(&new.loaded.warnings),
            digest: Some(format!("{:016x}", new.set.digest())),
            changes_json: changes.as_ref().map(RulesDiff::to_json),
            changes: changes.as_ref().map(RulesDiff::to_text),
            ..preview
        }
    }
}

fn of_problems(problems: &[Problem]) -> Vec<PreviewProblem> {
    let problem = |one: &Problem| PreviewProblem {
        file: one.source().to_owned(),
        line: one.line(),
        column: one.column(),
        path: one.path().to_owned(),
        message: one.message().to_owned(),
    };
    problems.iter().map(problem).collect()
}

fn compared(rules: &CheckedRules) -> ComparedRules<'_> {
    ComparedRules { set: &rules.set, domains: &rules.loaded.domains }
}

fn problems_json(problems: &[Problem]) -> Value {
    serde_json::to_value(of_problems(problems)).unwrap_or_default()
}

/// An error of the store.
pub(super) fn error_response(error: &StoreError) -> Box<Response> {
    let (status, code) = match error {
        StoreError::ReadOnly(_) => (StatusCode::FORBIDDEN, "read_only"),
        StoreError::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
        StoreError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_rules"),
        StoreError::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
        StoreError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
        StoreError::NotAllowed(_) => (StatusCode::CONFLICT, "not_allowed"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let mut body = json!({ "error": { "code": code, "message": error.to_string() } });
    match error {
        StoreError::ReadOnly(read_only) => body["error"]["reason"] = read_only.code.into(),
        StoreError::Conflict(conflict) => {
            body["error"]["base"] = conflict.base.into();
            body["error"]["newer"] = conflict.newer.as_ref().map_or(Value::Null, revision_json);
        }
        StoreError::Invalid { problems, warnings } => {
            body["error"]["problems"] = problems_json(problems);
            body["error"]["warnings"] = problems_json(warnings);
        }
        _ => {}
    }
    Box::new((status, json_response(&body)).into_response())
}
