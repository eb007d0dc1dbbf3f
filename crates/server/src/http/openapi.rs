//! The document that describes all of it to machines, made from the code.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use utoipa::{IntoResponses, OpenApi};

use super::error::JSON;
use super::schema::Refused;

/// The document at `/openapi.json`.
///
/// ```
/// let document: serde_json::Value = serde_json::from_str(sluicegate_server::http::openapi())?;
/// assert_eq!(document["openapi"], "3.1.0");
/// assert!(document["paths"]["/v1/check"]["post"].is_object());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn document() -> &'static str {
    static DOCUMENT: LazyLock<String> =
        LazyLock::new(|| Document::openapi().to_json().unwrap_or_default());
    &DOCUMENT
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "service",
    responses((status = 200, description = "This document.", body = Object)),
)]
pub(super) async fn get() -> Response {
    ([(CONTENT_TYPE, JSON)], Bytes::from_static(document().as_bytes())).into_response()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluicegate",
        description = "May this request go through now, and if not, when?\n\nThe examples are under the rules that `sluicegate serve` begins with: paste \
                       the one of `/v1/check` four times within a minute to be denied.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        super::check::check,
        super::check::peek,
        super::check::refund,
        super::reservations::reserve,
        super::reservations::commit,
        super::reservations::cancel,
        super::reservations::wait,
        super::explain::explain,
        super::keys::inspect,
        super::keys::reset,
        super::forward_auth::forward_auth,
        super::json::rate_limit,
        super::json::health,
        get,
    ),
    components(schemas(Refused)),
    tags(
        (name = "limits", description = "Asking."),
        (name = "rules", description = "Why, for operators."),
        (name = "keys", description = "Looking into counters, for operators."),
        (name = "proxies", description = "Asked by proxies about their requests."),
        (name = "envoy", description = "As envoyproxy/ratelimit answers."),
        (name = "service", description = "About the service itself."),
    ),
)]
struct Document;

/// What may come in place of an answer, wherever a body is read.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only described")]
pub(super) enum Refusals {
    /// The body is no request; `context` says where.
    #[response(status = 400)]
    Invalid(Refused),
    /// The body took too long to come.
    #[response(status = 408)]
    Late(Refused),
    /// The body is larger than 1 MiB.
    #[response(status = 413)]
    TooLarge(Refused),
    /// No rules are loaded, or too many ask at once; `Retry-After` says when to come back.
    #[response(status = 503)]
    Unavailable(Refused),
}

/// What whoever sends an `Idempotency-Key` may be told beside that.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only described")]
pub(super) enum Repeated {
    /// Something else was asked under this `Idempotency-Key`.
    #[response(status = 422)]
    Reused(Refused),
}

/// What operators may be told beside that.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only described")]
pub(super) enum NotYours {
    /// The token is missing, or wrong.
    #[response(status = 401)]
    NoToken(Refused),
    /// Nobody may, since there is no token.
    #[response(status = 403)]
    Off(Refused),
}
