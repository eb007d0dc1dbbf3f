//! HTTP: asking in JSON, for scripts, services and people.
//!
//! | route | what it does | answer |
//! |---|---|---|
//! | `POST /v1/check` | may this go? then it is charged | 200; denied: 429 with every header, an error and the same statuses |
//! | `POST /v1/peek` | would it go? nothing is charged | 200, also for `"allowed":false`: nothing was denied |
//! | `POST /v1/refund` | refunds a charged check | 200; 403 without proof of the charge |
//! | `POST /v1/reserve` | may this go? then it is charged, and settled later | as `/v1/check`, with a `reservation` |
//! | `POST /v1/commit`, `/cancel` | settles a reservation with what was used; gives it back | 200; 404 if there is none |
//! | `POST /v1/wait` | may this go, if it waits its turn? | 200 at its turn; 429 at once if that takes too long |
//! | `POST /v1/explain` | which rules it is under, what would happen now, and why; nothing is charged | as `/v1/keys` |
//! | `POST /v1/keys/inspect`, `/reset` | how limits stand, one by one; makes them as new | 200; 401 without the token, 403 if nobody may |
//! | `/v1/forward-auth`, `/v1/forward-auth/DOMAIN` | may the request go that a proxy tells of in headers? | 200 without a body; denied: as the rules say |
//! | `/json`, `GET /healthcheck` | as envoyproxy/ratelimit's | 200, 429, 400; 200, 500 |
//! | `GET /openapi.json` | all of this, for machines | 200 |
//!
//! What is asked is the same everywhere under `/v1`: `{"domain":"shop","descriptors":[{"user":"42"}],"hits":1}`, or up to a bound of them as
//! `{"checks":[…]}`. Those are judged one by one, in their order and at one moment, and answered with 200 and `{"answers":[…]}`, whatever each of them
//! says. If one of them is no check, none is judged.
//!
//! Whoever may have to ask again sends an `Idempotency-Key`: nothing is charged twice under one, and the answer is the first one ([`holds`](crate::reservations)).
//!
//! No `Content-Type` is asked for, so that `curl -d` will do. What cannot be read gets 400 with line, column and field; what is too large 413; what comes too
//! slowly 408; while no rules are loaded, 503.
//!
//! [`serve`](fn@serve) is the way to the outside, with a bound on everything that a client may take.

mod check;
mod error;
mod explain;
mod forward_auth;
mod json;
mod keys;
mod openapi;
mod options;
mod receive;
mod refund;
mod request;
mod reservations;
mod response;
mod retried;
pub mod schema;
mod serve;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use axum::routing::{any, get, post};

pub(crate) use self::check::charged_all;
pub use self::forward_auth::Peer;
pub use self::openapi::document as openapi;
pub use self::options::{Body, KeysAccess, Most, Options};
pub use self::receive::BODY_BYTES_MAX;
pub use self::serve::{Bounds, Server, serve};

use self::error::Refusal;
use crate::rls::handler::Service;

/// What handlers go by.
#[derive(Debug)]
struct Answering {
    service: Service,
    options: Options,
}

/// Everything that is answered at an address.
#[derive(Debug, Clone)]
pub struct Routes {
    router: Router,
    /// Answers `POST /v1/check` without a router's detours, which cost as much as the check.
    checks: Option<Arc<Answering>>,
}

impl From<Router> for Routes {
    fn from(router: Router) -> Self {
        Self { router, checks: None }
    }
}

/// What there is, for whoever is lost.
const ROUTES: [&str; 14] = [
    "/v1/check",
    "/v1/peek",
    "/v1/refund",
    "/v1/reserve",
    "/v1/commit",
    "/v1/cancel",
    "/v1/wait",
    "/v1/explain",
    "/v1/keys/inspect",
    "/v1/keys/reset",
    forward_auth::PATH,
    "/json",
    "/healthcheck",
    "/openapi.json",
];

/// Everything that is answered over HTTP.
///
/// ```
/// use axum::body::Body;
/// use http::{Request, StatusCode};
/// use sluicegate::{Engine, rules_of};
/// use sluicegate_server::http::{Options, router};
/// use sluicegate_server::rls::handler::Service;
/// use tower::ServiceExt;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let rules = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]";
/// let router = router(Service::new(Engine::new(rules_of(rules)?)?), Options::default());
/// let ask = || Request::post("/v1/check").body(Body::from(r#"{"domain":"shop","descriptors":[{"user":"42"}]}"#));
/// assert_eq!(router.clone().oneshot(ask()?).await?.status(), StatusCode::OK);
/// let denied = router.oneshot(ask()?).await?;
/// assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(denied.headers()["X-RateLimit-Limit"], "1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn router(service: Service, options: Options) -> Router {
    routes(service, options).router
}

/// The same, with a shorter way for what is asked most.
#[must_use]
pub fn routes(service: Service, options: Options) -> Routes {
    let answering = Arc::new(Answering { service, options });
    let router = Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/peek", post(check::peek))
        .route("/v1/refund", post(check::refund))
        .route("/v1/reserve", post(reservations::reserve))
        .route("/v1/commit", post(reservations::commit))
        .route("/v1/cancel", post(reservations::cancel))
        .route("/v1/wait", post(reservations::wait))
        .route("/v1/explain", post(explain::explain))
        .route("/v1/keys/inspect", post(keys::inspect))
        .route("/v1/keys/reset", post(keys::reset))
        .route(forward_auth::PATH, any(forward_auth::forward_auth))
        .route("/v1/forward-auth/{*domain}", any(forward_auth::forward_auth_of))
        .route("/v1/forward-auth/", any(forward_auth::forward_auth))
        .route("/json", any(json::rate_limit))
        .route("/healthcheck", any(json::health))
        .route("/openapi.json", get(openapi::get))
        .method_not_allowed_fallback(wrong_method)
        .fallback(not_found)
        .with_state(answering.clone());
    Routes { router, checks: Some(answering) }
}

async fn not_found(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    Refusal::not_found(request.uri().path(), &ROUTES).response(app.options.body)
}

async fn wrong_method(State(app): State<Arc<Answering>>, request: HttpRequest) -> Response {
    Refusal::wrong_method(request.method(), request.uri().path()).response(app.options.body)
}
