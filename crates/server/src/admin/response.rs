//! Bodies of responses, and error responses.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::PATHS;

/// Characters of a path or method that an error message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Plain text.
pub(super) fn text(body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Indented JSON.
pub(super) fn json(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{body:#}\n")).into_response()
}

/// Error in the envelope of all endpoints.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, json(&json!({ "error": { "code": code, "message": message } }))).into_response()
}

/// Whether `Accept` names a media type.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types =
        values.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    types.any(|one| one.trim().eq_ignore_ascii_case(media_type))
}

pub(super) fn unauthorized() -> Response {
    let message = "the header `Authorization: Bearer …` with the configured token \
                   (SLUICEGATE_ADMIN_TOKEN) is required; /live and /ready need none";
    let mut response = error(StatusCode::UNAUTHORIZED, "unauthorized", message);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

pub(super) fn too_many_failures() -> Response {
    let message =
        "too many wrong tokens from this address: this one was not compared; retry in a second";
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, "too_many_failures", message);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

pub(super) async fn not_found(uri: Uri) -> Response {
    let paths: Vec<&str> = PATHS.iter().map(|(path, _)| *path).collect();
    let message = format!("there is no `{}`; there are {}", shown(uri.path()), paths.join(", "));
    error(StatusCode::NOT_FOUND, "not_found", &message)
}

pub(super) async fn bad_method(method: Method, uri: Uri) -> Response {
    let (method, path) = (shown(method.as_str()), shown(uri.path()));
    let message = format!("`{path}` does not support `{method}`; use GET");
    error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message)
}

/// Path of the Go profiler in envoyproxy/ratelimit.
pub(super) async fn pprof() -> Response {
    let message = "pprof profiles Go programs, and this is none; for a profile use \
                   `perf record -g -p` with its process id, and for memory and CPU time /metrics \
                   (process_…)";
    error(StatusCode::NOT_FOUND, "not_found", message)
}

/// The beginning of a string from the client.
fn shown(text: &str) -> &str {
    text.char_indices().nth(SHOWN_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}
