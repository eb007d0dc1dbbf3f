//! For operators, on a port of its own: how the service is, what its rules are, what it counts, and how it was started.
//!
//! Whoever may ask here learns about the rules; nothing can be changed. With a token, everything but `/live` and `/ready` is shown only
//! to whoever knows it.

mod answer;
mod index;
mod leases;
mod rlconfig;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub use index::PATHS;

use self::answer::{error, prefers, text};
use crate::app::App;
use crate::auth::{AuthEndpoint, AuthError};
use crate::http::Peer;
use crate::metrics;
use crate::token::Token;

/// What is to be told beside what the service knows.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What has to be shown; without one the endpoint is open, which is for loopback alone.
    pub token: Option<Token>,
    /// The configuration as it is in effect, without its secrets.
    pub config: Value,
}

/// How many long pages are written at the same time; more wait.
const WRITING_MAX: usize = 2;

#[derive(Debug)]
struct Inner {
    app: App,
    options: Options,
    writing: Arc<Semaphore>,
}

type Admin = State<Arc<Inner>>;

/// Everything that operators are answered.
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
    let writing = Arc::new(Semaphore::new(WRITING_MAX));
    let inner = Arc::new(Inner { app, options, writing });
    Router::new()
        .route("/", get(index::page))
        .route("/live", get(async || text("ok\n")))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/rlconfig", get(rlconfig))
        .route("/config", get(config))
        .route("/leases", get(leases))
        .route("/debug/pprof", any(answer::pprof))
        .route("/debug/pprof/", any(answer::pprof))
        .route("/debug/pprof/{*rest}", any(answer::pprof))
        .method_not_allowed_fallback(answer::bad_method)
        .fallback(answer::not_found)
        .layer(from_fn_with_state(inner.clone(), guard))
        .with_state(inner)
}

/// Who does not show the token learns no more than whether the service is well: that is what probes ask, and they have no token.
async fn guard(State(admin): Admin, request: Request, next: Next) -> Response {
    let open = matches!(request.uri().path(), "/live" | "/ready");
    let Some(token) = admin.options.token.as_ref().filter(|_| !open) else {
        return next.run(request).await;
    };
    let headers = request.headers();
    if !headers.contains_key(header::AUTHORIZATION) {
        return answer::unauthorized();
    }
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let is_right = || token.is_shown_in(headers);
    match admin.app.authenticate(AuthEndpoint::Admin, peer, is_right) {
        Ok(()) => next.run(request).await,
        Err(AuthError::Wrong) => answer::unauthorized(),
        Err(AuthError::TooMany { .. }) => answer::too_many_failures(),
    }
}

async fn ready(State(admin): Admin, headers: HeaderMap) -> Response {
    let why_not = admin.app.health().state().why_not_ready();
    let status = why_not.map_or(StatusCode::OK, |_| StatusCode::SERVICE_UNAVAILABLE);
    let told = match why_not {
        _ if prefers(&headers, "application/json") => {
            answer::json(&json!({ "ready": why_not.is_none(), "reason": why_not }))
        }
        Some(why) => text(format!("{why}\n")),
        None => text("ok\n"),
    };
    (status, told).into_response()
}

async fn metrics(State(admin): Admin) -> Response {
    let told = admin.written(metrics::text).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], told).into_response()
}

/// The same as `/metrics` for people: a line each, without what only machines read.
async fn stats(State(admin): Admin) -> Response {
    let told = admin.written(|app| {
        let all = metrics::text(app);
        let lines = all.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        let mut told = String::with_capacity(all.len());
        for (name, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
            told.extend([name, ": ", value, "\n"]);
        }
        told
    });
    text(told.await)
}

async fn rlconfig(State(admin): Admin) -> Response {
    let page = admin.written(|app| {
        let mut page = rlconfig::withheld(&app.health().withheld());
        page.push_str(&rlconfig::lines(app.engine().snapshot().rules()));
        page
    });
    text(page.await)
}

async fn config(State(admin): Admin) -> Response {
    answer::json(&admin.options.config)
}

async fn leases(State(admin): Admin) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], admin.written(leases::page).await)
        .into_response()
}

// === impl Inner ===

impl Inner {
    /// A page that may be long, written where nobody waits for it who asks for a limit.
    async fn written(
        &self,
        write: impl FnOnce(&App) -> String + Send + 'static,
    ) -> Result<String, Response> {
        let (app, writing) = (self.app.clone(), self.writing.clone());
        // It is never closed, and what is written never panics; if it did, that is what is told.
        let turn = writing.acquire_owned().await;
        let told = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            write(&app)
        });
        told.await.map_err(|_| {
            let told = "the page could not be written; the log says more";
            error(StatusCode::INTERNAL_SERVER_ERROR, "internal", told)
        })
    }
}
