//! Deferred requests for operators: list, inspect, redrive, delete.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use sluicegate_server::admin::{AdminExtension, AdminRequest, AdminResponse};
use sluicegate_server::app::App;

use super::Deferrals;
use super::request::{DeferredRequest, DeferredState, Stage, millis};
use super::store::{BodyPart, DeferredStore, StoreError};
use super::tickets::ticket_json;

/// Requests on a page, by default and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;
/// Requests that one call looks at.
const SCANNED_MAX: usize = 10_000;
/// Bytes of a body that an inspection shows.
const BODY_SHOWN: usize = 4_096;
/// Headers whose values are not shown.
const SECRETS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

/// The part of the admin endpoint about deferred requests.
#[derive(Debug)]
pub(crate) struct DeferredAdmin {
    pub(crate) app: App,
    pub(crate) deferrals: Arc<Deferrals>,
}

/// Which requests are listed.
#[derive(Debug, Default)]
struct Filter {
    states: Vec<DeferredState>,
    route: Option<String>,
    limit: usize,
    /// The stage and the offset in it where the page begins.
    after: (usize, usize),
}

const STAGES: [Stage; 3] = [Stage::Waiting, Stage::Done, Stage::Dead];

#[async_trait]
impl AdminExtension for DeferredAdmin {
    fn paths(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("/deferred", "deferred requests: ?state=dead&route=NAME&limit=100&after=PAGE"),
            ("/deferred/ID", "one of them; DELETE deletes it"),
            ("/deferred/ID/redrive", "POST sends a dead letter again"),
            ("/deferred/redrive", "POST sends all dead letters again, or those of ?route=NAME"),
        ]
    }

    async fn call(&self, request: &AdminRequest<'_>) -> Option<AdminResponse> {
        let rest = request.path.strip_prefix("/deferred")?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        let is_change = request.method != Method::GET && request.method != Method::HEAD;
        if is_change && request.is_from_page {
            let message = "pages of browsers cannot change deferred requests";
            return Some(AdminResponse::error(StatusCode::FORBIDDEN, "cross_site", message));
        }
        let Some(store) = self.deferrals.store() else { return Some(unavailable("not open yet")) };
        let answered = self.answer(&**store, request, rest.trim_start_matches('/')).await;
        Some(answered.unwrap_or_else(|error| unavailable(&error.to_string())))
    }
}

impl DeferredAdmin {
    async fn answer(
        &self,
        store: &dyn DeferredStore,
        request: &AdminRequest<'_>,
        rest: &str,
    ) -> Result<AdminResponse, StoreError> {
        let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
        let is_get = matches!(*request.method, Method::GET | Method::HEAD);
        match parts.as_slice() {
            [] if is_get => match Filter::read(request) {
                Ok(filter) => list(store, &filter).await,
                Err(message) => {
                    Ok(AdminResponse::error(StatusCode::BAD_REQUEST, "bad_query", &message))
                }
            },
            ["redrive"] if *request.method == Method::POST => {
                self.redrive_all(store, request.query("route").as_deref()).await
            }
            [id] if is_get => inspect(store, id).await,
            [id] if *request.method == Method::DELETE => delete(store, id).await,
            [id, "redrive"] if *request.method == Method::POST => self.redrive(store, id).await,
            [] | [_] | [_, "redrive"] => {
                let message = format!("`{}` does not support this method", request.path);
                let status = StatusCode::METHOD_NOT_ALLOWED;
                Ok(AdminResponse::error(status, "method_not_allowed", &message))
            }
            _ => Ok(not_found(rest)),
        }
    }

    async fn redrive(
        &self,
        store: &dyn DeferredStore,
        id: &str,
    ) -> Result<AdminResponse, StoreError> {
        let Some((mut request, _)) = store.get(id).await? else { return Ok(not_found(id)) };
        match self.redrive_one(store, &mut request).await? {
            true => Ok(AdminResponse::ok(json!({ "redriven": 1 }))),
            false => {
                let message = format!(
                    "only dead letters can be redriven, `{id}` is {}",
                    request.state.name()
                );
                Ok(AdminResponse::error(StatusCode::CONFLICT, "not_dead", &message))
            }
        }
    }

    async fn redrive_all(
        &self,
        store: &dyn DeferredStore,
        route: Option<&str>,
    ) -> Result<AdminResponse, StoreError> {
        let (mut redriven, mut offset) = (0_u64, 0);
        // What is redriven leaves the list, and what is not stays before the next page.
        loop {
            let page = store.list(Stage::Dead, offset, PAGE).await?;
            if page.is_empty() || redriven >= SCANNED_MAX as u64 || offset >= SCANNED_MAX {
                return Ok(AdminResponse::ok(json!({ "redriven": redriven })));
            }
            for mut request in page {
                let is_meant = route.is_none_or(|route| route == request.route);
                if is_meant && self.redrive_one(store, &mut request).await? {
                    redriven += 1;
                } else {
                    offset += 1;
                }
            }
        }
    }

    async fn redrive_one(
        &self,
        store: &dyn DeferredStore,
        request: &mut DeferredRequest,
    ) -> Result<bool, StoreError> {
        if request.state.stage() != Stage::Dead {
            return Ok(false);
        }
        request.redrive(millis(self.app.engine().now()));
        request.version += 1;
        store.save(request, None).await
    }
}

impl Filter {
    fn read(request: &AdminRequest<'_>) -> Result<Self, String> {
        let state = request.query("state");
        let states = match state.as_deref() {
            None => DeferredState::ALL.to_vec(),
            Some("dead") => vec![DeferredState::Failed, DeferredState::Expired],
            Some(name) => {
                let known = DeferredState::ALL.into_iter().find(|state| state.name() == name);
                vec![known.ok_or_else(|| {
                    "state must be queued, running, done, failed, expired, or dead for both \
                     kinds of dead letters"
                        .to_owned()
                })?]
            }
        };
        let limit = match request.query("limit").map(|text| text.parse::<usize>()) {
            None => PAGE,
            Some(Ok(limit @ 1..=PAGE_MAX)) => limit,
            Some(_) => return Err(format!("limit must be from 1 to {PAGE_MAX}")),
        };
        let after = request.query("after").map(|text| {
            let (stage, offset) = text.split_once('-')?;
            Some((stage.parse().ok()?, offset.parse().ok()?))
        });
        let after = after.map(|after| after.ok_or("after must be `next` of the page before"));
        let after = after.transpose()?.unwrap_or_default();
        Ok(Self { states, route: request.query("route"), limit, after })
    }

    fn matches(&self, request: &DeferredRequest) -> bool {
        self.states.contains(&request.state)
            && self.route.as_ref().is_none_or(|route| *route == request.route)
    }
}

async fn list(store: &dyn DeferredStore, filter: &Filter) -> Result<AdminResponse, StoreError> {
    let (mut found, mut scanned) = (Vec::new(), 0);
    let (first, begin) = filter.after;
    for (index, stage) in STAGES.into_iter().enumerate().skip(first) {
        if !filter.states.iter().any(|state| state.stage() == stage) {
            continue;
        }
        let mut offset = if index == first { begin } else { 0 };
        loop {
            let page = store.list(stage, offset, PAGE).await?;
            if page.is_empty() {
                break;
            }
            for request in page {
                if found.len() == filter.limit || scanned == SCANNED_MAX {
                    let next = format!("{index}-{offset}");
                    return Ok(AdminResponse::ok(json!({ "requests": found, "next": next })));
                }
                (offset, scanned) = (offset + 1, scanned + 1);
                if filter.matches(&request) {
                    found.push(summary(&request));
                }
            }
        }
    }
    Ok(AdminResponse::ok(json!({ "requests": found, "next": null })))
}

async fn inspect(store: &dyn DeferredStore, id: &str) -> Result<AdminResponse, StoreError> {
    let Some((request, ahead)) = store.get(id).await? else { return Ok(not_found(id)) };
    let body = store.body(id, BodyPart::Request).await?.unwrap_or_default();
    let shown = String::from_utf8_lossy(&body[..body.len().min(BODY_SHOWN)]).into_owned();
    let value = |name: &str, value: &str| {
        let is_secret = SECRETS.contains(&name);
        if is_secret { "(not shown)".to_owned() } else { value.to_owned() }
    };
    let headers = request.head.headers.iter();
    let headers: Vec<Value> =
        headers.map(|(name, text)| json!([name, value(name, text)])).collect();
    let mut ticket = ticket_json(&request, ahead, None);
    if let Value::Object(fields) = &mut ticket {
        fields.insert("route".to_owned(), json!(request.route));
        fields.insert("upstream".to_owned(), json!(request.upstream));
        fields.insert(
            "request".to_owned(),
            json!({
                "method": request.head.method,
                "target": request.head.target,
                "headers": headers,
                "body_bytes": request.body_bytes,
                "body": shown,
            }),
        );
    }
    Ok(AdminResponse::ok(ticket))
}

async fn delete(store: &dyn DeferredStore, id: &str) -> Result<AdminResponse, StoreError> {
    let Some((request, _)) = store.get(id).await? else { return Ok(not_found(id)) };
    let is_running = request.state == DeferredState::Running;
    if !is_running && store.remove(&request).await? {
        return Ok(AdminResponse::ok(json!({ "deleted": 1 })));
    }
    let message = format!("`{id}` is being sent; try again");
    Ok(AdminResponse::error(StatusCode::CONFLICT, "running", &message))
}

/// A request in a list.
fn summary(request: &DeferredRequest) -> Value {
    let ticket = ticket_json(request, 0, None);
    json!({
        "id": request.id,
        "state": request.state.name(),
        "route": request.route,
        "method": request.head.method,
        "target": request.head.target,
        "created_at": ticket["created_at"],
        "attempts": request.attempts,
        "error": request.error,
        "status": request.response.as_ref().map(|response| response.status),
    })
}

fn not_found(id: &str) -> AdminResponse {
    let id: String = id.chars().take(100).collect();
    let message = format!("there is no deferred request `{id}`");
    AdminResponse::error(StatusCode::NOT_FOUND, "not_found", &message)
}

fn unavailable(reason: &str) -> AdminResponse {
    let message = format!("deferred requests cannot be read now: {reason}");
    AdminResponse::error(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &message)
}
