//! `/json` and `/healthcheck`, as in envoyproxy/ratelimit.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use sluicegate::http::VerdictResponse;

use super::Api;
use super::body::receive;
use super::error::JSON;
use crate::rls::handler::{CallContext, Scratch};
use crate::rls::json;
use crate::rls::response::Code;
use crate::status::{denying_status, policies};
use crate::telemetry::{Endpoint, Fault};

/// 200 or 429 with a response, 400 for every failure.
#[utoipa::path(
    post, path = "/json", tag = "envoy", description = "A RateLimitRequest of Envoy in protobuf's JSON.",
    request_body(content = Object, example = json!({ "domain": "example", "descriptors": [{ "entries": [{ "key": "user", "value": "me" }] }] })),
    responses(
        (status = 200, description = "Admitted: a RateLimitResponse.", body = Object),
        (status = 429, description = "Denied: a RateLimitResponse, with the headers of `/v1/check`.", body = Object),
        (status = 400, description = "Malformed request, or no rules.", body = String, content_type = "text/plain"),
    ),
)]
pub(super) async fn rate_limit(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    let bad = || (StatusCode::BAD_REQUEST, "Bad Request\n").into_response();
    let (head, body) = request.into_parts();
    let body = match receive(body).await {
        Ok(body) => body,
        Err(error) => {
            api.app.telemetry().record_failure(Endpoint::Json, error.fault);
            return error.response(api.options.error_format);
        }
    };
    let Ok(request) = json::request(&body) else {
        api.app.telemetry().record_failure(Endpoint::Json, Fault::Invalid);
        return bad();
    };
    let before = api.app.engine().snapshot();
    let (mut answer, mut scratch) = (Vec::new(), Scratch::default());
    let is_operator = || api.require_operator(&head).is_ok();
    let call = CallContext { is_operator: Some(&is_operator), ..Endpoint::Json.into() };
    let answered = api.app.answer(call, &request, &mut scratch, &mut answer).await;
    let Ok(code) = answered else { return bad() };
    let Ok(json) = json::response(&answer) else { return bad() };
    let mut headers = HeaderMap::new();
    let status = match code {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => {
            let after = api.app.engine().snapshot();
            // Statuses refer to rules by index, which is valid only if no rules were loaded
            // meanwhile.
            if std::ptr::eq(before.rules(), after.rules())
                && let Some(status) = denying_status(&scratch.checked().statuses)
            {
                let policies = policies(status.target, &after);
                let now = api.app.engine().now();
                let denial = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
                denial.write_headers(&api.options.style, &mut headers);
            }
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    headers.insert(CONTENT_TYPE, JSON);
    (status, headers, json.to_string()).into_response()
}

/// 200 and `OK`, or 500 and nothing.
#[utoipa::path(
    get, path = "/healthcheck", tag = "envoy",
    responses(
        (status = 200, description = "Healthy.", body = String, content_type = "text/plain"),
        (status = 500, description = "Unhealthy or shutting down."),
    ),
)]
pub(super) async fn health(State(api): State<Arc<Api>>) -> Response {
    match api.app.health().state().is_healthy() {
        true => "OK".into_response(),
        false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
