//! Admin endpoint on its own port: health, metrics, rules, leases and configuration, read-only.
//!
//! With a token, all paths except the probes `/live` and `/ready` require it.

mod response;
mod rlconfig;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};
use sluicegate::Engine;
use sluicegate::rules::set::{RuleSet, write_readable};
use sluicegate_redis::{LeaseInfo, RedisBackend};
use tokio::sync::Semaphore;

use self::response::{accepts, error, text};
use crate::app::App;
use crate::auth::{AuthEndpoint, AuthError};
use crate::http::Peer;
use crate::metrics;
use crate::token::Token;

/// Settings of the admin endpoint.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Token that requests must have; without one the endpoint is open, which suits loopback only.
    pub token: Option<Token>,
    /// Effective configuration, without secrets.
    pub config: Value,
}

/// Paths, with their descriptions.
pub const PATHS: [(&str, &str); 8] = [
    ("/", "this list"),
    ("/config", "effective configuration, without secrets"),
    ("/leases", "leases that this node holds, the busiest keys first"),
    ("/live", "whether the process runs; needs no token"),
    ("/metrics", "metrics, for Prometheus"),
    ("/ready", "whether requests can be decided, and if not, why; needs no token"),
    ("/rlconfig", "the rules in force"),
    ("/stats", "metrics, for people"),
];

/// Limit of concurrent renderings of long pages.
const RENDERINGS_MAX: usize = 2;

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
        .route("/debug/pprof", any(response::pprof))
        .route("/debug/pprof/", any(response::pprof))
        .route("/debug/pprof/{*rest}", any(response::pprof))
        .method_not_allowed_fallback(response::bad_method)
        .fallback(response::not_found)
        .layer(from_fn_with_state(inner.clone(), authorize))
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
        return response::unauthorized();
    }
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let is_right = || token.authorizes(headers);
    match admin.app.authenticate(AuthEndpoint::Admin, peer, is_right) {
        Ok(()) => next.run(request).await,
        Err(AuthError::Wrong) => response::unauthorized(),
        Err(AuthError::TooMany { .. }) => response::too_many_failures(),
    }
}

/// Text, or links for a browser.
async fn index(headers: HeaderMap) -> Response {
    if accepts(&headers, "text/html") {
        let link = |(path, about)| format!("<li><a href=\"{path}\">{path}</a>: {about}</li>\n");
        let links: String = PATHS.into_iter().map(link).collect();
        let title = "<!doctype html>\n<html lang=\"en\"><title>Sluicegate</title>";
        return Html(format!("{title}\n<ul>\n{links}</ul>\n</html>\n")).into_response();
    }
    text(PATHS.map(|(path, about)| format!("{path}: {about}\n")).concat())
}

async fn ready(State(admin): Admin, headers: HeaderMap) -> Response {
    let reason = admin.app.health().state().unready_reason();
    let status = reason.map_or(StatusCode::OK, |_| StatusCode::SERVICE_UNAVAILABLE);
    let body = match reason {
        _ if accepts(&headers, "application/json") => {
            response::json(&json!({ "ready": reason.is_none(), "reason": reason }))
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
        let mut page = rlconfig::withheld(&app.health().withheld());
        page.push_str(&rlconfig::lines(app.engine().snapshot().rules()));
        page
    });
    text(page.await)
}

async fn config(State(admin): Admin) -> Response {
    response::json(&admin.options.config)
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

// === impl AdminInner ===

impl AdminInner {
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
