//! What Envoy stands before: a server that answers with the headers that reached it.

use axum::extract::Request;
use axum::http::HeaderMap;

use crate::support::upstream::Upstream;

pub fn start() -> Upstream {
    Upstream::answering(async |request: Request| {
        let headers = request.headers();
        let lines = headers
            .iter()
            .map(|(key, value)| format!("{key}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        let body: String = lines.collect();
        // What an answer turned out to cost, for those who charge afterwards.
        let cost = headers.get("x-will-cost").cloned();
        let cost: HeaderMap =
            cost.into_iter().map(|cost| ("x-cost".parse().unwrap(), cost)).collect();
        (cost, body)
    })
}
