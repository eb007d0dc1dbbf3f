//! HTTP: `/json`, which is Envoy's rate limit service for people and scripts, and `/healthcheck`; both as envoyproxy/ratelimit's.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tokio::net::TcpListener;

use crate::rls::answer::Code;
use crate::rls::json;
use crate::rls::service::{Scratch, Service};
use crate::telemetry::Door;

/// The longest body of a request.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Everything that is answered over HTTP.
pub fn router(service: Service) -> Router {
    Router::new()
        .route("/json", any(rate_limit))
        .route("/healthcheck", any(health))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(service))
}

/// Serves until `stop` is ready; then no more is accepted, and what has begun is brought to its end.
///
/// # Errors
/// When the listener is broken.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(service)).with_graceful_shutdown(stop).await
}

/// 200 or 429 with the answer; 400 for whatever has none, as there.
async fn rate_limit(State(service): State<Arc<Service>>, body: Bytes) -> Response {
    let bad = || (StatusCode::BAD_REQUEST, "Bad Request\n").into_response();
    let Ok(request) = json::request(&body) else { return bad() };
    let mut answer = Vec::new();
    let Ok(code) = service.answer(Door::Json, &request, &mut Scratch::default(), &mut answer)
    else {
        return bad();
    };
    let Ok(told) = json::response(&answer) else { return bad() };
    let status = match code {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
    };
    (status, [(header::CONTENT_TYPE, "application/json")], told.to_string()).into_response()
}

/// 200 and `OK`, or 500 and nothing; whatever the method, as some probes have ideas of their own.
async fn health(State(service): State<Arc<Service>>) -> Response {
    match service.health().state().is_healthy() {
        true => "OK".into_response(),
        false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
