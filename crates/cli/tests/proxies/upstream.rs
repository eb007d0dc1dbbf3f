//! What proxies stand before: a server that answers with what reached it, and now and then forbids.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use tokio::runtime::Runtime;

/// An upstream; ends with this value.
pub struct Upstream {
    // Dropped with everything that runs on it.
    _runtime: Runtime,
    pub address: String,
    reached: Arc<AtomicU64>,
}

impl Upstream {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let reached = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&reached);
        let echo = async move |request: Request| {
            counter.fetch_add(1, Ordering::Relaxed);
            let asked = format!("{} {}", request.method(), request.uri());
            let status = match request.uri().path() {
                "/forbidden" => StatusCode::FORBIDDEN,
                _ => StatusCode::OK,
            };
            let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
            (status, format!("{asked} {}", String::from_utf8_lossy(&body)))
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        drop(guard);
        runtime.spawn(async { axum::serve(listener, Router::new().fallback(echo)).await });
        Self { _runtime: runtime, address, reached }
    }

    /// How many requests have come through.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }
}
