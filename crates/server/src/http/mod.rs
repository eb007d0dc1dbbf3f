//! HTTP API in JSON, for scripts, services and people.
//!
//! | route | operation | response |
//! |---|---|---|
//! | `POST /v1/check` | decides, and charges if admitted | 200; denied: 429 with statuses |
//! | `POST /v1/peek` | decides without charging | 200, also if it would be denied |
//! | `POST /v1/refund` | refunds a charged check | 200; 403 without proof of the charge |
//! | `POST /v1/reserve` | charges an estimate | as `/v1/check`, with a `reservation` |
//! | `POST /v1/commit`, `/cancel` | settles a reservation | 200; 404 if unknown, 410 if settled |
//! | `POST /v1/renew` | restarts its lifetime | the same |
//! | `POST /v1/wait` | waits until admitted | 200; 429 at once if that takes too long |
//! | `POST /v1/explain` | explains rules and outcome; nothing is charged | as `/v1/keys` |
//! | `POST /v1/keys/inspect`, `/reset` | shows or resets limits | 200; 401, or 403 if off |
//! | `POST /v1/keys/credit` | gives hits back without proof | the same |
//! | `/v1/forward-auth[/DOMAIN]` | decides a proxy's request | 200; denied: by the rules |
//! | `/json`, `GET /healthcheck` | as envoyproxy/ratelimit | 200, 429, 400; 200, 500 |
//! | `GET /openapi.json` | the API for machines | 200 |
//!
//! All endpoints under `/v1` take `{"domain":"shop","descriptors":[{"user":"42"}],"hits":1}`, or a
//! list of them as `{"checks":[…]}`. A list is decided one by one, in order and at the same time,
//! and gets 200 and `{"answers":[…]}`. If one check is malformed, none is decided.
//!
//! A request with an `Idempotency-Key` can be repeated: it is charged once, and gets the first
//! response again ([`idempotency`](crate::idempotency)).
//!
//! Rate limit headers are written by `sluicegate::http`, for every protocol alike.
//!
//! No `Content-Type` is required, so that `curl -d` works. A malformed body gets 400 with line,
//! column and field; one that is too large 413, one that is too slow 408. Without rules the status
//! is 503.

mod body;
mod check;
mod code;
mod error;
mod forward_auth;
mod handler;
pub mod http1;
mod idempotency;
mod json;
mod openapi;
mod operator;
mod request;
mod reservations;
mod response;
pub mod schema;
mod serve;
mod sized_body;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use axum::routing::{any, get, post};
use sluicegate::http::Style;

pub use self::body::BODY_BYTES_MAX;
pub use self::code::ErrorCode;
use self::error::ApiError;
pub use self::forward_auth::Peer;
pub(crate) use self::idempotency::ApiResponse;
pub use self::openapi::openapi;
pub(crate) use self::operator::EXPLAINED_DESCRIPTORS_MAX;
pub(crate) use self::response::write_inspected;
pub use self::serve::{
    Connection, Handler, HttpLimits, HttpServer, InFlight, IncomingBody, OnUpgrade, Upgraded, serve,
};
use crate::app::App;
use crate::token::Token;

/// State of the handlers.
#[derive(Debug)]
struct Api {
    app: App,
    options: Options,
}

/// Routes of an address.
#[derive(Debug, Clone)]
pub struct Routes {
    router: Router,
    /// Handles `POST /v1/check` without the router, which costs as much as the check.
    checks: Option<Arc<Api>>,
}

impl From<Router> for Routes {
    fn from(router: Router) -> Self {
        Self { router, checks: None }
    }
}

/// Options of the HTTP API.
///
/// ```
/// use sluicegate_server::http::{ErrorFormat, KeysAccess, Options};
///
/// let options = Options { error_format: ErrorFormat::Problem, ..Options::default() };
/// assert_eq!(options.keys, KeysAccess::Off, "operator endpoints are off by default");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Rate limit headers, and the status of a denial.
    pub style: Style,
    /// Format of errors and denials.
    pub error_format: ErrorFormat,
    /// Access to operator endpoints.
    pub keys: KeysAccess,
    /// Size limits of a request.
    pub limits: BodyLimits,
}

/// Format of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorFormat {
    /// `{"error":{"code":…,"message":…,"context":{…}}}`.
    #[default]
    Envelope,
    /// `application/problem+json`, as in RFC 9457.
    Problem,
}

/// Access to operator endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KeysAccess {
    /// Every client: for loopback listeners.
    Open,
    /// Clients with this token.
    Token(Token),
    /// Every request: the router before this one has decided.
    Authorized,
    /// No client.
    #[default]
    Off,
}

/// Size limits of a request, beside [`BODY_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Checks in `checks`.
    pub checks: usize,
    /// Descriptors of a check.
    pub descriptors: usize,
    /// Descriptors of all checks in `checks`.
    pub batch_descriptors: usize,
    /// Entries of a descriptor.
    pub entries: usize,
    /// Bytes of a domain, a key or a value.
    pub text_bytes: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            checks: 1_000,
            descriptors: 256,
            batch_descriptors: 4_096,
            entries: 64,
            text_bytes: 4_096,
        }
    }
}

/// All routes, for error messages.
const ROUTES: [&str; 16] = [
    "/v1/check",
    "/v1/peek",
    "/v1/refund",
    "/v1/reserve",
    "/v1/commit",
    "/v1/renew",
    "/v1/cancel",
    "/v1/wait",
    "/v1/explain",
    "/v1/keys/inspect",
    "/v1/keys/reset",
    "/v1/keys/credit",
    forward_auth::PATH,
    "/json",
    "/healthcheck",
    "/openapi.json",
];

/// The router of the HTTP API.
///
/// ```
/// use axum::body::Body;
/// use http::{Request, StatusCode};
/// use sluicegate::{Engine, rules_of};
/// use sluicegate_server::http::{Options, router};
/// use sluicegate_server::app::App;
/// use tower::ServiceExt;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let rules = "domain: shop\ndescriptors:
///   - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }";
/// let router = router(App::new(Engine::new(rules_of(rules)?)?), Options::default());
/// let check = r#"{"domain":"shop","descriptors":[{"user":"42"}]}"#;
/// let request = || Request::post("/v1/check").body(Body::from(check));
/// assert_eq!(router.clone().oneshot(request()?).await?.status(), StatusCode::OK);
/// let denied = router.oneshot(request()?).await?;
/// assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(denied.headers()["X-RateLimit-Limit"], "1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn router(app: App, options: Options) -> Router {
    routes(app, options).router
}

/// The routes of the HTTP API, with a fast path for checks.
#[must_use]
pub fn routes(app: App, options: Options) -> Routes {
    let api = Arc::new(Api { app, options });
    let router = Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/peek", post(check::peek))
        .route("/v1/refund", post(check::refund))
        .route("/v1/reserve", post(reservations::reserve))
        .route("/v1/commit", post(reservations::commit))
        .route("/v1/renew", post(reservations::renew))
        .route("/v1/cancel", post(reservations::cancel))
        .route("/v1/wait", post(reservations::wait))
        .route("/v1/explain", post(operator::explain))
        .route("/v1/keys/inspect", post(operator::inspect))
        .route("/v1/keys/reset", post(operator::reset))
        .route("/v1/keys/credit", post(operator::credit))
        .route(forward_auth::PATH, any(forward_auth::forward_auth))
        .route("/v1/forward-auth/{*domain}", any(forward_auth::forward_auth_for))
        .route("/v1/forward-auth/", any(forward_auth::forward_auth))
        .route("/json", any(json::rate_limit))
        .route("/healthcheck", any(json::health))
        .route("/openapi.json", get(openapi::get))
        .method_not_allowed_fallback(wrong_method)
        .fallback(not_found)
        .with_state(api.clone());
    Routes { router, checks: Some(api) }
}

/// The operator endpoints, for a router that decides who may call them.
pub(crate) fn operator_routes<S: Clone + Send + Sync + 'static>(app: App) -> Router<S> {
    let options = Options { keys: KeysAccess::Authorized, ..Options::default() };
    Router::new()
        .route("/explain", post(operator::explain))
        .route("/keys/inspect", post(operator::inspect))
        .route("/keys/reset", post(operator::reset))
        .route("/keys/credit", post(operator::credit))
        .with_state(Arc::new(Api { app, options }))
}

async fn not_found(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    ApiError::not_found(request.uri().path(), &ROUTES).response(api.options.error_format)
}

async fn wrong_method(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    ApiError::wrong_method(request.method(), request.uri().path())
        .response(api.options.error_format)
}
