//! Rules and their revisions: `/api/v1/rules`.

mod body;
mod candidate;
mod json;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use sluicegate::config::rules::Source;
use sluicegate_rulestore::{
    Proposal, Revision, RevisionKind, RuleStore, StoreError, StoredRevision, export, import,
    unified_diff,
};

use self::body::{CheckRulesBody, NoteBody, ProposalBody, decode};
pub(super) use self::candidate::candidate_json;
pub(super) use self::json::{Preview, PreviewProblem};
use self::json::{error_response, files_json, overview_json, revision_json};
use super::access::{Caller, Role};
use super::{AdminInner, error, json as json_response, wait_until_enforced};

/// Bytes of a body: the largest set of files, escaped.
const BODY_BYTES_MAX: usize = 12 << 20;
/// Revisions of a page, by default and at most.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 200;

/// Paths with whole sets of files in a body. They are read after the caller is known.
const FILES_PATHS: [&str; 4] =
    ["/api/v1/rules/", "/api/v1/traffic/what-if", "/console/edit", "/console/revision"];

/// Bytes of a body that are read at all: more than its route permits, which names its own limit.
pub(crate) fn body_bytes_max(path: &str) -> usize {
    match FILES_PATHS.iter().any(|prefix| path.starts_with(prefix)) {
        true => BODY_BYTES_MAX + (1 << 20),
        false => crate::http::BODY_BYTES_MAX,
    }
}

type Admin = State<Arc<AdminInner>>;
type Params = Query<HashMap<String, String>>;
type Outcome = Result<Response, RulesFailure>;

/// An error response.
pub(super) struct RulesFailure {
    response: Box<Response>,
    message: String,
}

impl RulesFailure {
    /// The message, for a page.
    pub(super) fn into_message(self) -> String {
        self.message
    }
}

impl IntoResponse for RulesFailure {
    fn into_response(self) -> Response {
        *self.response
    }
}

impl From<Box<Response>> for RulesFailure {
    fn from(response: Box<Response>) -> Self {
        let message = format!("refused, with status {}", response.status());
        Self { response, message }
    }
}

impl From<StoreError> for RulesFailure {
    fn from(error: StoreError) -> Self {
        Self { response: error_response(&error), message: error.to_string() }
    }
}

pub(super) fn routes() -> Router<Arc<AdminInner>> {
    Router::new()
        .route("/api/v1/rules", get(active))
        .route("/api/v1/rules/candidate", get(candidate::candidate))
        .route("/api/v1/rules/check", post(check))
        .route("/api/v1/rules/export", get(exported))
        .route("/api/v1/rules/import", post(imported))
        .route("/api/v1/rules/nodes", get(nodes))
        .route("/api/v1/rules/revisions", get(revisions).post(propose))
        .route("/api/v1/rules/revisions/{number}", get(revision))
        .route("/api/v1/rules/revisions/{number}/approve", post(approve))
        .route("/api/v1/rules/revisions/{number}/activate", post(activate))
        .route("/api/v1/rules/revisions/{number}/withdraw", post(withdraw))
        .route("/api/v1/rules/revisions/{number}/rollback", post(rollback))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The active set, and what waits beside it.
async fn active(State(admin): Admin, caller: Caller) -> Outcome {
    caller.require(Role::Read)?;
    let store = store(&admin)?;
    let (revision, files) = store.active().await?;
    let mut body = overview_json(store);
    body["revision"] = revision.as_ref().map_or(Value::Null, revision_json);
    body["files"] = files_json(&files);
    body["digest"] = format!("{:016x}", admin.app.engine().snapshot().rules().digest()).into();
    Ok(json_response(&body))
}

/// Revisions, the newest first.
async fn revisions(State(admin): Admin, caller: Caller, Query(params): Params) -> Outcome {
    caller.require(Role::Read)?;
    let store = store(&admin)?;
    let before = number_param(&params, "before")?;
    let limit = number_param(&params, "limit")?.map_or(PAGE_DEFAULT, |limit| limit as usize);
    let limit = limit.clamp(1, PAGE_MAX);
    let mut found = store.revisions(before, limit + 1).await?;
    let next = (found.len() > limit).then(|| found[limit - 1].number);
    found.truncate(limit);
    let list: Vec<Value> = found.iter().map(revision_json).collect();
    Ok(json_response(&json!({ "revisions": list, "next_before": next })))
}

/// A revision, with its difference from another one: its base by default.
async fn revision(
    State(admin): Admin,
    caller: Caller,
    Path(number): Path<u64>,
    Query(params): Params,
) -> Outcome {
    caller.require(Role::Read)?;
    let store = store(&admin)?;
    let stored = store.revision(number).await?;
    let against = number_param(&params, "against")?.or(stored.revision.base);
    let other = match against {
        Some(against) => store.revision(against).await?.sources,
        None => Vec::new(),
    };
    let StoredRevision { revision, sources } = stored;
    let files = files_json(&sources);
    let diff = work(&admin, move || unified_diff(&other, &sources)).await?;
    Ok(json_response(&json!({
        "revision": revision_json(&revision), "files": files, "against": against, "diff": diff,
    })))
}

/// Problems, warnings, and what a change would do; nothing is stored.
async fn check(State(admin): Admin, caller: Caller, body: Bytes) -> Outcome {
    caller.require(Role::Read)?;
    let store = store(&admin)?.clone();
    let CheckRulesBody { files, base } = decode(&body)?;
    let files: Vec<Source> = files.into_iter().map(Into::into).collect();
    let old = match base {
        Some(base) => store.revision(base).await?.sources,
        None => store.active().await?.1,
    };
    let preview = preview(&admin, &store, old, files).await?;
    Ok(json_response(&serde_json::to_value(preview).unwrap_or_default()))
}

/// What a change of the files would do.
pub(in crate::admin) async fn preview(
    admin: &AdminInner,
    store: &RuleStore,
    old: Vec<Source>,
    new: Vec<Source>,
) -> Result<Preview, Box<Response>> {
    let store = store.clone();
    work(admin, move || Preview::of(&store, &old, &new)).await
}

/// Appends a revision.
async fn propose(State(admin): Admin, caller: Caller, body: Bytes) -> Outcome {
    caller.require(Role::Edit)?;
    let store = store(&admin)?;
    let body: ProposalBody = decode(&body)?;
    let proposal = Proposal {
        base: body.base,
        author: caller.name.to_string(),
        note: body.note,
        kind: RevisionKind::Edit,
        restores: None,
        sources: body.files.into_iter().map(Into::into).collect(),
        activation: body.activate.into(),
    };
    let proposed = store.propose(proposal).await;
    changed(&admin, &caller, "rules.propose", proposed, StatusCode::CREATED).await
}

async fn approve(State(admin): Admin, caller: Caller, Path(number): Path<u64>) -> Outcome {
    caller.require(Role::Edit)?;
    let approved = store(&admin)?.approve(number, &caller.name).await;
    changed(&admin, &caller, "rules.approve", approved, StatusCode::OK).await
}

async fn activate(State(admin): Admin, caller: Caller, Path(number): Path<u64>) -> Outcome {
    caller.require(Role::Edit)?;
    let activated = store(&admin)?.activate(number, &caller.name).await;
    changed(&admin, &caller, "rules.activate", activated, StatusCode::OK).await
}

async fn withdraw(State(admin): Admin, caller: Caller, Path(number): Path<u64>) -> Outcome {
    caller.require(Role::Edit)?;
    let withdrawn = store(&admin)?.withdraw(number).await;
    changed(&admin, &caller, "rules.withdraw", withdrawn, StatusCode::OK).await
}

async fn rollback(
    State(admin): Admin,
    caller: Caller,
    Path(number): Path<u64>,
    body: Bytes,
) -> Outcome {
    caller.require(Role::Edit)?;
    let NoteBody { note, base } = decode(&body)?;
    let restored = store(&admin)?.rollback(number, base, &caller.name, &note).await;
    changed(&admin, &caller, "rules.rollback", restored, StatusCode::CREATED).await
}

/// The active set, or another revision, as one YAML stream.
async fn exported(State(admin): Admin, caller: Caller, Query(params): Params) -> Outcome {
    caller.require(Role::Read)?;
    let store = store(&admin)?;
    let read = match number_param(&params, "revision")? {
        Some(number) => store.revision(number).await.map(|stored| stored.sources),
        None => store.active().await.map(|(_, sources)| sources),
    };
    let sources = read?;
    let stream = export(&sources).map_err(|error| bad_request(&error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/yaml")], stream).into_response())
}

/// Replaces all files by those of a YAML stream.
async fn imported(
    State(admin): Admin,
    caller: Caller,
    Query(params): Params,
    body: Bytes,
) -> Outcome {
    caller.require(Role::Edit)?;
    let store = store(&admin)?;
    let stream = std::str::from_utf8(&body);
    let stream = stream.map_err(|_| bad_request("the body must be YAML in UTF-8"))?;
    let sources = import(stream).map_err(|error| bad_request(&error.to_string()))?;
    let base = match number_param(&params, "base")? {
        Some(base) => Some(base),
        None => store.overview().active.map(|active| active.number),
    };
    let proposal = Proposal {
        base,
        author: caller.name.to_string(),
        note: params.get("note").cloned().unwrap_or_default(),
        kind: RevisionKind::Import,
        restores: None,
        sources,
        activation: sluicegate_rulestore::Activation::Now,
    };
    let proposed = store.propose(proposal).await;
    changed(&admin, &caller, "rules.import", proposed, StatusCode::CREATED).await
}

async fn nodes(State(admin): Admin, caller: Caller) -> Outcome {
    caller.require(Role::Read)?;
    let nodes = store(&admin)?.nodes().await?;
    Ok(json_response(&json!({ "nodes": nodes })))
}

/// The response to a change. If it is active, this node usually enforces it by then.
async fn changed(
    admin: &AdminInner,
    caller: &Caller,
    action: &'static str,
    result: Result<Revision, StoreError>,
    status: StatusCode,
) -> Outcome {
    let revision = result?;
    admin.audit(caller, action, &format!("revision {}: {}", revision.number, revision.note));
    let enforced = match store(admin) {
        Ok(store) => wait_until_enforced(store, &revision).await,
        Err(_) => false,
    };
    // Domains that the change leaves out stay in force for the grace period.
    let withheld: Vec<String> =
        admin.app.health().withheld().iter().map(|one| one.domain.clone()).collect();
    let body = json!({
        "revision": revision_json(&revision),
        "enforced": enforced,
        "withheld": if enforced { withheld } else { Vec::new() },
    });
    Ok((status, json_response(&body)).into_response())
}

fn store(admin: &AdminInner) -> Result<&RuleStore, Box<Response>> {
    let none = || {
        let message = "this process has no rule store";
        Box::new(error(StatusCode::NOT_FOUND, "not_found", message))
    };
    admin.app.rule_store().ok_or_else(none)
}

/// Runs on a blocking thread, a bounded number at a time.
async fn work<T: Send + 'static>(
    admin: &AdminInner,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<Response>> {
    // The semaphore is never closed.
    let permit = admin.renderings.clone().acquire_owned().await;
    let ran = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        run()
    });
    ran.await.map_err(|_| {
        let message = "the request failed; see the log";
        Box::new(error(StatusCode::INTERNAL_SERVER_ERROR, "internal", message))
    })
}

fn number_param(
    params: &HashMap<String, String>,
    name: &str,
) -> Result<Option<u64>, Box<Response>> {
    let Some(text) = params.get(name) else { return Ok(None) };
    let parsed = text.parse().map_err(|_| {
        let shown = super::shown(text);
        bad_request(&format!("the parameter `{name}` must be a whole number, got `{shown}`"))
    });
    parsed.map(Some)
}

fn bad_request(message: &str) -> Box<Response> {
    Box::new(error(StatusCode::BAD_REQUEST, "bad_request", message))
}
