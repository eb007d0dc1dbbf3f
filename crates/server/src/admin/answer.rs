//! What all answers have in common, and those that are none.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::PATHS;

/// How much of what was asked for is repeated.
const SHOWN_MAX: usize = 100;

/// Plain text.
pub(super) fn text(body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// JSON, for people too.
pub(super) fn json(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{body:#}\n")).into_response()
}

/// An error, in the envelope that it has at every endpoint.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, json(&json!({ "error": { "code": code, "message": message } }))).into_response()
}

/// Whether whoever asks names a type of content among those it wants.
pub(super) fn prefers(headers: &HeaderMap, wanted: &str) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types =
        accepts.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    types.any(|one| one.trim().eq_ignore_ascii_case(wanted))
}

pub(super) fn unauthorized() -> Response {
    let told = "this needs the header `Authorization: Bearer …` with the token that the app was started with \
                (SLUICEGATE_ADMIN_TOKEN); /live and /ready need none";
    let mut response = error(StatusCode::UNAUTHORIZED, "unauthorized", told);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

pub(super) fn too_many_failures() -> Response {
    let told =
        "too many wrong tokens from this address: this one was not compared; retry in a second";
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, "too_many_failures", told);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

pub(super) async fn not_found(uri: Uri) -> Response {
    let paths: Vec<&str> = PATHS.iter().map(|(path, _)| *path).collect();
    let told = format!("there is no `{}`; there are {}", shown(uri.path()), paths.join(", "));
    error(StatusCode::NOT_FOUND, "not_found", &told)
}

pub(super) async fn bad_method(method: Method, uri: Uri) -> Response {
    let (method, path) = (shown(method.as_str()), shown(uri.path()));
    let told = format!("`{path}` cannot be asked by `{method}`; use GET");
    error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &told)
}

/// Where profilers of envoyproxy/ratelimit look.
pub(super) async fn pprof() -> Response {
    let told = "pprof is a tool of Go, which this app is not written in; for a profile use `perf record -g -p` with its \
                process id, and for memory and processor time /metrics (process_…)";
    error(StatusCode::NOT_FOUND, "not_found", told)
}

/// The beginning of a text that somebody sent.
fn shown(text: &str) -> &str {
    text.char_indices().nth(SHOWN_MAX).map_or(text, |(end, _)| &text[..end])
}
