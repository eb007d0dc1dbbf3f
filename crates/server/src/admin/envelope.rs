//! Errors of the JSON API that the router itself reports, such as a body that is too large, as JSON
//! in the envelope of all errors.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error;
use crate::memory::GatherError;

/// Bytes of a message of the router.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

pub(super) async fn wrap_errors(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let status = response.status();
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if !is_api || is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (head, body) = response.into_parts();
    let text = to_bytes(body, MESSAGE_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_too_long = text.ends_with(&GatherError::TooLong.to_string());
    let status = if is_too_long { StatusCode::PAYLOAD_TOO_LARGE } else { status };
    let (code, reason) = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            ("method_not_allowed", "the path does not support this method")
        }
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the body is too large"),
        _ if status.is_server_error() => ("internal", "the request failed; see the log"),
        _ => ("bad_request", "the request is malformed"),
    };
    let mut wrapped = match text.trim() {
        "" => error(status, code, reason),
        text => error(status, code, &format!("{reason}: {text}")),
    };
    if let Some(allow) = head.headers.get(header::ALLOW) {
        wrapped.headers_mut().insert(header::ALLOW, allow.clone());
    }
    wrapped
}
