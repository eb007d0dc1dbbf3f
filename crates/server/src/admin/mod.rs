//! Admin endpoint on its own port: health, metrics, rules, leases and configuration, read-only
//! except the load signal.
//!
//! With a token, all paths except the probes `/live` and `/ready` require it.

mod extension;
mod rlconfig;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};
use sluicegate::Engine;
use sluicegate::rules::set::{RuleSet, write_readable};
use sluicegate_redis::{LeaseInfo, RedisBackend};
use tokio::sync::Semaphore;

use crate::app::App;
use crate::auth::{AuthEndpoint, AuthError};
use crate::http::Peer;
use crate::metrics;
use crate::token::Token;

pub use self::extension::{AdminExtension, AdminRequest, AdminResponse};

/// Settings of the admin endpoint.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Token that requests must have; without one the endpoint is open, which suits loopback only.
    pub token: Option<Token>,
    /// Effective configuration, without secrets.
    pub config: Value,
}

/// Paths, with their descriptions.
pub const PATHS: [(&str, &str); 9] = [
    ("/", "this list"),
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

/// Bytes of a load signal.
const LOAD_BYTES_MAX: usize = 64;

/// Listed leases: the busiest. Their total is a metric.
const LEASES_LISTED_MAX: usize = 100;

#[derive(Debug)]
struct AdminInner {
    app: App,
    options: Options,
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
    let renderings = Arc::new(Semaphore::new(RENDERINGS_MAX));
    let inner = Arc::new(AdminInner { app, options, renderings });
    Router::new()
        .route("/", get(index))
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
        .method_not_allowed_fallback(bad_method)
        .fallback(extended)
        .layer(from_fn_with_state(inner.clone(), authorize))
        .with_state(inner)
}

/// Routes of an endpoint that serves metrics at a path and nothing else, without a token.
pub fn metrics_router(app: App, path: &str) -> Router {
    let renderings = Arc::new(Semaphore::new(RENDERINGS_MAX));
    let inner = Arc::new(AdminInner { app, options: Options::default(), renderings });
    let message = format!("this endpoint has metrics only, at `{path}`");
    Router::new()
        .route(path, get(metrics))
        .method_not_allowed_fallback(bad_method)
        .fallback(async move || error(StatusCode::NOT_FOUND, "not_found", &message))
        .with_state(inner)
}

/// Requires the token, except of probes, which have none.
async fn authorize(State(admin): Admin, request: Request, next: Next) -> Response {
    let open = matches!(request.uri().path(), "/live" | "/ready");
    let Some(token) = admin.options.token.as_ref().filter(|_| !open) else {
        return next.run(request).await;
    };
    let headers = request.headers();
    if !headers.contains_key(header::AUTHORIZATION) {
        return unauthorized();
    }
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let is_right = || token.authorizes(headers);
    match admin.app.authenticate(AuthEndpoint::Admin, peer, is_right) {
        Ok(()) => next.run(request).await,
        Err(AuthError::Wrong) => unauthorized(),
        Err(AuthError::TooMany) => too_many_failures(),
    }
}

/// Text, or links for a browser.
async fn index(State(admin): Admin, headers: HeaderMap) -> Response {
    let paths = admin.paths();
    if accepts(&headers, "text/html") {
        let link = |(path, about)| format!("<li><a href=\"{path}\">{path}</a>: {about}</li>\n");
        let links: String = paths.into_iter().map(link).collect();
        let title = "<!doctype html>\n<html lang=\"en\"><title>Sluicegate</title>";
        return Html(format!("{title}\n<ul>\n{links}</ul>\n</html>\n")).into_response();
    }
    let line = |(path, about)| format!("{path}: {about}\n");
    text(paths.into_iter().map(line).collect::<String>())
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
    json(&admin.options.config)
}

/// The load signal, while it has not expired.
async fn load(State(admin): Admin) -> Response {
    let load = admin.app.engine().load();
    text(load.map_or_else(|| "none\n".to_owned(), |load| format!("{}\n", load as f64 / 1_000.0)))
}

/// Sets the load signal: a number such as `0.7`, or a percentage.
async fn set_load(State(admin): Admin, body: String) -> Response {
    /// Ten times the capacity.
    const LOAD_MAX: f64 = 10.0;

    let body = body.trim();
    let number = body.strip_suffix('%').map_or(body, str::trim_end).parse::<f64>();
    let share = number.map(|number| if body.ends_with('%') { number / 100.0 } else { number });
    match share {
        Ok(share) if (0.0..=LOAD_MAX).contains(&share) => {
            admin.app.engine().set_load((share * 1_000.0).round() as u64);
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

fn unauthorized() -> Response {
    let message = "the header `Authorization: Bearer …` with the configured token \
                   (SLUICEGATE_ADMIN_TOKEN) is required; /live and /ready need none";
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
    let methods = if path == "/load" { "GET or PUT" } else { "GET" };
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
