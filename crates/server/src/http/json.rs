//! `/json`, which is Envoy's rate limit service for people and scripts, and `/healthcheck`; both as envoyproxy/ratelimit's.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use sluicegate::http::VerdictResponse;

use super::Answering;
use super::error::JSON;
use super::receive::receive;
use crate::rls::handler::Scratch;
use crate::rls::json;
use crate::rls::response::Code;
use crate::status::{policies, spokesman};
use crate::telemetry::{Door, Fault};

/// 200 or 429 with the answer; 400 for whatever has none, as there.
#[utoipa::path(
    post, path = "/json", tag = "envoy", description = "A RateLimitRequest of Envoy in protobuf's JSON.",
    request_body(content = Object, example = json!({ "domain": "example", "descriptors": [{ "entries": [{ "key": "user", "value": "me" }] }] })),
    responses(
        (status = 200, description = "It may go: a RateLimitResponse.", body = Object),
        (status = 429, description = "It may not: a RateLimitResponse, with the headers of `/v1/check`.", body = Object),
        (status = 400, description = "There is no answer to it.", body = String, content_type = "text/plain"),
    ),
)]
pub(super) async fn rate_limit(
    State(app): State<Arc<Answering>>,
    request: HttpRequest,
) -> Response {
    let bad = || (StatusCode::BAD_REQUEST, "Bad Request\n").into_response();
    let (head, body) = request.into_parts();
    let body = match receive(body).await {
        Ok(body) => body,
        Err(refusal) => {
            app.service.telemetry().record_failure(Endpoint::Json, refusal.fault);
            return refusal.response(app.options.body);
        }
    };
    let Ok(request) = json::request(&body) else {
        app.service.telemetry().record_failure(Endpoint::Json, Fault::Invalid);
        return bad();
    };
    let before = app.service.engine().snapshot();
    let (mut answer, mut scratch) = (Vec::new(), Scratch::default());
    let is_operator = || app.may_see_keys(&head).is_ok();
    let answered = app.service.answer_json(&is_operator, &request, &mut scratch, &mut answer).await;
    let Ok(code) = answered else { return bad() };
    let Ok(told) = json::response(&answer) else { return bad() };
    let mut headers = HeaderMap::new();
    let status = match code {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => {
            let after = app.service.engine().snapshot();
            // Statuses name rules by their place: only if nothing was loaded meanwhile, it is a place in what we see.
            if std::ptr::eq(before.rules(), after.rules())
                && let Some(status) = spokesman(false, &scratch.checked().statuses)
            {
                let policies = policies(status.target, &after);
                let now = app.service.engine().now();
                let told = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
                told.write_headers(&app.options.style, &mut headers);
            }
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    headers.insert(CONTENT_TYPE, JSON);
    (status, headers, told.to_string()).into_response()
}

/// 200 and `OK`, or 500 and nothing.
#[utoipa::path(
    get, path = "/healthcheck", tag = "envoy",
    responses(
        (status = 200, description = "It is well.", body = String, content_type = "text/plain"),
        (status = 500, description = "It is not, or is about to end."),
    ),
)]
pub(super) async fn health(State(app): State<Arc<Answering>>) -> Response {
    match app.service.health().state().is_healthy() {
        true => "OK".into_response(),
        false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
