//! Admin endpoint on its own port: health, metrics, rules, leases, configuration, and the JSON API
//! of operators under `/api/v1`. `access` decides who may have which path; a change through the API
//! is an entry of the audit log.

pub(crate) mod access;
mod audit;
mod console;
mod envelope;
mod extension;
mod keys;
mod openapi;
mod overrides;
mod rlconfig;
mod rules;
mod session;
mod statistics;
mod token_file;
mod traffic;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};
use sluicegate::Engine;
use sluicegate::rules::set::{RuleSet, write_readable};
use sluicegate_redis::{LeaseInfo, RedisBackend};
use sluicegate_rulestore::{Revision, RevisionState, RuleStore};
use tokio::sync::Semaphore;

use crate::app::App;
use crate::metrics;
use crate::token::Token;

pub(crate) use self::access::LOGIN;
use self::access::{Access, AdminTokens, Refusal};
pub use self::access::{Caller, Role};
pub use self::audit::{AuditEntry, AuditLog};
pub use self::extension::{AdminExtension, AdminRequest, AdminResponse};
pub use self::openapi::openapi;
pub(crate) use self::rules::body_bytes_max;
use self::statistics::AdminStatistics;
pub(crate) use self::token_file::TokenFile;
pub(crate) use self::traffic::summary;

/// Settings of the admin endpoint.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Token of the role `edit`. Without any token the endpoint is open, which suits loopback only.
    pub token: Option<Token>,
    /// Further tokens, each with a role.
    pub tokens: Option<AdminTokens>,
    /// Whether only this machine reaches the endpoint: the console needs a token elsewhere.
    pub is_loopback: bool,
    /// Changes through the API.
    pub audit: Arc<AuditLog>,
    /// Effective configuration, without secrets.
    pub config: Value,
}

/// Paths, with their descriptions.
pub const PATHS: [(&str, &str); 10] = [
    ("/", "this list"),
    (openapi::PATH, "JSON API of operators, as an OpenAPI document"),
    ("/config", "effective configuration, without secrets"),
    ("/leases", "leases that this node holds, the busiest keys first"),
    ("/live", "whether the process runs; needs no token"),
    ("/load", "load signal of elastic rules: PUT a share of the capacity, such as 70%"),
    ("/metrics", "metrics, for Prometheus"),
    ("/ready", "whether requests can be decided, and if not, why; needs no token"),
    ("/rlconfig", "the rules in force"),
    ("/stats", "metrics, for people"),
];

/// Limit of concurrent renderings of long pages.
const RENDERINGS_MAX: usize = 2;

/// Time that a response waits until this node enforces a change.
const ENFORCED_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a load signal.
const LOAD_BYTES_MAX: usize = 64;

/// Listed leases: the busiest. Their total is a metric.
const LEASES_LISTED_MAX: usize = 100;

/// State of the admin endpoint.
#[derive(Debug)]
pub(crate) struct AdminInner {
    app: App,
    access: Access,
    audit: Arc<AuditLog>,
    config: Value,
    renderings: Arc<Semaphore>,
}

type Admin = State<Arc<AdminInner>>;

/// Routes of the admin endpoint.
///
/// ```
/// use sluicegate::Engine;
/// use sluicegate_server::admin::{Options, router};
/// use sluicegate_server::app::App;
/// use sluicegate_server::token::Token;
///
/// let service = App::new(Engine::new(Default::default())?);
/// let options = Options { token: Some(Token::new("open sesame")?), ..Options::default() };
/// let app: axum::Router = router(service, options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn router(app: App, options: Options) -> Router {
    let inner = AdminInner::new(app, options);
    let (sessions, audit) = (inner.access.sessions.clone(), inner.audit.clone());
    let clock = inner.app.engine().clock().clone();
    inner.app.add_metrics(Arc::new(AdminStatistics { clock, sessions, audit }));
    Router::new()
        .route("/", get(console::index))
        .route("/live", get(async || text("ok\n")))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/rlconfig", get(rlconfig))
        .route("/config", get(config))
        .route("/leases", get(leases))
        .route("/load", get(load).put(set_load).layer(DefaultBodyLimit::max(LOAD_BYTES_MAX)))
        .route("/debug/pprof", any(pprof))
        .route("/debug/pprof/", any(pprof))
        .route("/debug/pprof/{*rest}", any(pprof))
        .merge(rules::routes())
        .merge(overrides::routes())
        .merge(traffic::routes())
        .merge(openapi::routes())
        .merge(usage::routes())
        .merge(keys::routes(inner.app.clone(), inner.clone()))
        .method_not_allowed_fallback(bad_method)
        .merge(console::routes())
        .fallback(extended)
        .layer(from_fn(envelope::wrap_errors))
        .layer(from_fn_with_state(inner.clone(), authorize))
        .with_state(inner)
}

/// Routes of an endpoint that serves metrics at a path and nothing else, without a token.
pub fn metrics_router(app: App, path: &str) -> Router {
    let inner = AdminInner::new(app, Options::default());
    let message = format!("this endpoint has metrics only, at `{path}`");
    Router::new()
        .route(path, get(metrics))
        .method_not_allowed_fallback(bad_method)
        .fallback(async move || error(StatusCode::NOT_FOUND, "not_found", &message))
        .with_state(inner)
}

/// Waits until this node enforces an active revision, for a short time; whether it does.
async fn wait_until_enforced(store: &RuleStore, revision: &Revision) -> bool {
    let is_active = revision.state == RevisionState::Active;
    is_active
        && tokio::time::timeout(ENFORCED_TIMEOUT, store.enforced(revision.number)).await.is_ok()
}

/// Decides who the caller is, and refuses clients without a token.
async fn authorize(State(admin): Admin, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match admin.access.caller(&admin.app, &head) {
        Ok(caller) => {
            if let Some(caller) = caller {
                head.extensions.insert(caller);
            }
            next.run(Request::from_parts(head, body)).await
        }
        Err(Refusal::NoToken) if wants_html(&head.headers) => {
            console::to_login(head.uri.path_and_query().map_or("/", PathAndQuery::as_str))
        }
        Err(refusal) => refusal.response(),
    }
}

async fn ready(State(admin): Admin, headers: HeaderMap) -> Response {
    let reason = admin.app.health().state().unready_reason();
    let status = reason.map_or(StatusCode::OK, |_| StatusCode::SERVICE_UNAVAILABLE);
    let body = match reason {
        _ if accepts(&headers, "application/json") => {
            json(&json!({ "ready": reason.is_none(), "reason": reason }))
        }
        Some(why) => text(format!("{why}\n")),
        None => text("ok\n"),
    };
    (status, body).into_response()
}

async fn metrics(State(admin): Admin) -> Response {
    let page = admin.render(metrics::text).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

/// The samples of `/metrics` as `name: value`, without comments and buckets.
async fn stats(State(admin): Admin) -> Response {
    let page = admin.render(|app| {
        let all = metrics::text(app);
        let lines = all.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        let mut page = String::with_capacity(all.len());
        for (name, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
            page.extend([name, ": ", value, "\n"]);
        }
        page
    });
    text(page.await)
}

async fn rlconfig(State(admin): Admin) -> Response {
    let page = admin.render(|app| {
        let mut page = rlconfig::rejected(app.health().rejected().as_ref());
        page.push_str(&rlconfig::withheld(&app.health().withheld()));
        if app.options().shadow_mode {
            page.push_str(rlconfig::SHADOW);
        }
        page.push_str(&rlconfig::lines(app.engine().snapshot().rules()));
        page
    });
    text(page.await)
}

async fn config(State(admin): Admin) -> Response {
    json(&admin.config)
}

/// The load signal, while it has not expired.
async fn load(State(admin): Admin) -> Response {
    let load = admin.app.engine().load();
    text(load.map_or_else(|| "none\n".to_owned(), |load| format!("{}\n", load as f64 / 1_000.0)))
}

/// Sets the load signal: a number such as `0.7`, or a percentage.
async fn set_load(State(admin): Admin, caller: Caller, body: String) -> Response {
    /// Ten times the capacity.
    const LOAD_MAX: f64 = 10.0;

    if let Err(refused) = caller.require(Role::Operate) {
        return *refused;
    }
    let body = body.trim();
    let number = body.strip_suffix('%').map_or(body, str::trim_end).parse::<f64>();
    let share = number.map(|number| if body.ends_with('%') { number / 100.0 } else { number });
    match share {
        Ok(share) if (0.0..=LOAD_MAX).contains(&share) => {
            admin.app.engine().set_load((share * 1_000.0).round() as u64);
            // Sent every few seconds by programs: no entry of the audit log.
            text("ok\n")
        }
        _ => {
            let message = format!(
                "the load must be a share of the capacity from `0` to `{LOAD_MAX}`, got `{}`; write it \
                 like `0.7` or `70%`",
                shown(body)
            );
            error(StatusCode::BAD_REQUEST, "bad_load", &message)
        }
    }
}

async fn leases(State(admin): Admin) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], admin.render(leases_page).await).into_response()
}

/// All leases; none on a memory backend.
fn leases_page(app: &App) -> String {
    let leases = app.redis().map_or_else(|| json!({ "node": null, "leases": [] }), leases_json);
    format!("{leases:#}\n")
}

fn leases_json(engine: &Engine<RedisBackend>) -> Value {
    let rules = engine.snapshot();
    let leases = engine.backend().leases(LEASES_LISTED_MAX);
    let leases: Vec<Value> = leases.iter().map(|lease| lease_json(lease, rules.rules())).collect();
    json!({ "node": format!("{:016x}", engine.backend().store().node()), "leases": leases })
}

fn lease_json(lease: &LeaseInfo, rules: &RuleSet) -> Value {
    let mut key = Vec::new();
    write_readable(&lease.identity, &mut key);
    // The index is that of the rules at the lease's last request; there may be fewer rules now.
    let is_known = lease.rule.index() < rules.rules().len();
    json!({
        "key": String::from_utf8_lossy(&key),
        "rule": is_known.then(|| rules.id(lease.rule)),
        "hot": lease.is_hot,
        "unspent": lease.unspent,
        "per_second": lease.per_second,
        "lasts_ms": lease.ttl.as_micros() / 1_000,
    })
}

impl AdminInner {
    fn new(app: App, options: Options) -> Arc<Self> {
        let Options { token, tokens, is_loopback, audit, config } = options;
        let access = Access::new(token, tokens, is_loopback);
        let renderings = Arc::new(Semaphore::new(RENDERINGS_MAX));
        Arc::new(Self { app, access, audit, config, renderings })
    }

    /// Records a change that a caller has made.
    pub(crate) fn audit(&self, caller: &Caller, action: &'static str, target: &str) {
        self.audit.record(self.app.engine().now(), caller, action, target);
    }

    /// All paths, as text.
    fn paths_page(&self) -> Response {
        let line = |(path, about)| format!("{path}: {about}\n");
        text(self.paths().into_iter().map(line).collect::<String>())
    }

    /// All paths, with their descriptions.
    fn paths(&self) -> Vec<(&'static str, &'static str)> {
        let extensions = self.app.admin_extensions();
        let more = extensions.iter().flat_map(|one| one.paths().iter().copied());
        PATHS.into_iter().chain(more).collect()
    }

    /// Renders a long page on a blocking thread, so that it delays no decision.
    async fn render(
        &self,
        write: impl FnOnce(&App) -> String + Send + 'static,
    ) -> Result<String, Response> {
        let (app, renderings) = (self.app.clone(), self.renderings.clone());
        // The semaphore is never closed.
        let permit = renderings.acquire_owned().await;
        let page = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            write(&app)
        });
        page.await.map_err(|_| {
            let message = "the page could not be rendered; see the log";
            error(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
        })
    }
}

// === responses ===

/// Characters of a path or method that an error message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Plain text.
fn text(body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Indented JSON.
fn json(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{body:#}\n")).into_response()
}

/// Error in the envelope of all endpoints.
fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, json(&json!({ "error": { "code": code, "message": message } }))).into_response()
}

/// Whether `Accept` names a media type.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types =
        values.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    types.any(|one| one.trim().eq_ignore_ascii_case(media_type))
}

/// Whether the client accepts HTML, as browsers do.
fn wants_html(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

fn unauthorized(message: &str) -> Response {
    let mut response = error(StatusCode::UNAUTHORIZED, "unauthorized", message);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn too_many_failures() -> Response {
    let message =
        "too many wrong tokens from this address: this one was not compared; retry in a second";
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, "too_many_failures", message);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Paths of other parts of the process.
async fn extended(State(admin): Admin, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let parts = AdminRequest::new(&head);
    for extension in admin.app.admin_extensions() {
        if let Some(AdminResponse { status, body }) = extension.call(&parts).await {
            return (status, json(&body)).into_response();
        }
    }
    not_found(&admin, &head.uri)
}

fn not_found(admin: &AdminInner, uri: &Uri) -> Response {
    let paths: Vec<&str> = admin.paths().iter().map(|(path, _)| *path).collect();
    let message = format!("there is no `{}`; there are {}", shown(uri.path()), paths.join(", "));
    error(StatusCode::NOT_FOUND, "not_found", &message)
}

async fn bad_method(method: Method, uri: Uri) -> Response {
    let (method, path) = (shown(method.as_str()), shown(uri.path()));
    let methods = match path {
        "/load" => "GET or PUT",
        path if path.starts_with("/api/") => "one that /api/v1/openapi.json names",
        _ => "GET",
    };
    let message = format!("`{path}` does not support `{method}`; use {methods}");
    error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message)
}

/// Path of the Go profiler in envoyproxy/ratelimit.
async fn pprof() -> Response {
    let message = "pprof profiles Go programs, and this is a Rust program; for a profile use \
                   `perf record -g -p` with its process id, and for memory and CPU time /metrics \
                   (process_…)";
    error(StatusCode::NOT_FOUND, "not_found", message)
}

/// The beginning of a string from the client.
fn shown(text: &str) -> &str {
    text.char_indices().nth(SHOWN_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}
