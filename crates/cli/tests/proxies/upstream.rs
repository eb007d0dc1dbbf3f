//! What proxies stand before: a server that answers with what reached it, and now and then forbids.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;

use crate::support::upstream::Upstream;

pub fn start() -> Upstream {
    Upstream::answering(async |request: Request| {
        let asked = format!("{} {}", request.method(), request.uri());
        let status = match request.uri().path() {
            "/forbidden" => StatusCode::FORBIDDEN,
            _ => StatusCode::OK,
        };
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        (status, format!("{asked} {}", String::from_utf8_lossy(&body)))
    })
}
