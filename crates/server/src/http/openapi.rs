//! The OpenAPI document, generated from the code.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::error::JSON;
use super::schema::ErrorResponse;

/// The document at `/openapi.json`.
///
/// ```
/// let document: serde_json::Value = serde_json::from_str(sluicegate_server::http::openapi())?;
/// assert_eq!(document["openapi"], "3.1.0");
/// assert!(document["paths"]["/v1/check"]["post"].is_object());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn openapi() -> &'static str {
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
    ([(CONTENT_TYPE, JSON)], Bytes::from_static(openapi().as_bytes())).into_response()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluicegate",
        description = "May this request go through now, and if not, when?\n\nThe examples use the rules that `sluicegate serve` starts with: send \
                       the one of `/v1/check` four times within a minute to be denied.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        super::check::check,
        super::check::peek,
        super::check::refund,
        super::reservations::reserve,
        super::reservations::commit,
        super::reservations::renew,
        super::reservations::cancel,
        super::reservations::wait,
        super::operator::explain,
        super::operator::inspect,
        super::operator::reset,
        super::operator::credit,
        super::forward_auth::forward_auth,
        super::json::rate_limit,
        super::json::health,
        get,
    ),
    servers(
        (url = "/", description = "The address that this document comes from."),
        (url = "http://127.0.0.1:8080", description = "The default address of `sluicegate serve`."),
    ),
    components(schemas(ErrorResponse)),
    modifiers(&OperatorToken),
    tags(
        (name = "limits", description = "Checks and reservations."),
        (name = "rules", description = "Explanations, for operators."),
        (name = "keys", description = "Counters, for operators."),
        (name = "proxies", description = "Forward auth for proxies."),
        (name = "envoy", description = "Compatible with envoyproxy/ratelimit."),
        (name = "service", description = "The service itself."),
    ),
)]
struct Document;

/// Adds the security scheme of operator endpoints.
struct OperatorToken;

impl Modify for OperatorToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let description = "`SLUICEGATE_ADMIN_TOKEN`. Not required where the HTTP address is on loopback and no token is set.";
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(description))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("operator_token", SecurityScheme::Http(scheme));
    }
}

/// Errors of endpoints that read a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only for the document")]
pub(super) enum ErrorResponses {
    /// The body is malformed; `context` says where.
    #[response(status = 400)]
    Invalid(ErrorResponse),
    /// The body did not arrive in time.
    #[response(status = 408)]
    Late(ErrorResponse),
    /// The body is larger than 1 MiB.
    #[response(status = 413)]
    TooLarge(ErrorResponse),
    /// No rules are loaded, or too many requests are in flight; `Retry-After` says when to retry.
    #[response(status = 503)]
    Unavailable(ErrorResponse),
}

/// Errors of requests with an `Idempotency-Key`.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only for the document")]
pub(super) enum IdempotencyResponses {
    /// The `Idempotency-Key` was used for another request.
    #[response(status = 422)]
    Reused(ErrorResponse),
}

/// Errors of requests about a reservation.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only for the document")]
pub(super) enum ReservationResponses {
    /// `unknown_reservation`: the token was never issued.
    #[response(status = 404)]
    Unknown(ErrorResponse),
    /// `settled_reservation`: nothing is held under the token any more. The `reason` in the context
    /// is `committed`, `cancelled`, `expired` or `unknown`.
    #[response(status = 410)]
    Settled(ErrorResponse),
}

/// Errors of operator endpoints.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only for the document")]
pub(super) enum OperatorResponses {
    /// The token is missing or wrong.
    #[response(status = 401)]
    NoToken(ErrorResponse),
    /// Operator endpoints are off.
    #[response(status = 403)]
    Off(ErrorResponse),
}
