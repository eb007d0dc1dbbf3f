//! What Envoy stands before: a server that answers with the headers that reached it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::HeaderMap;
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
        let echo = async move |headers: HeaderMap| {
            counter.fetch_add(1, Ordering::Relaxed);
            let lines = headers.iter().map(|(key, value)| {
                format!("{key}: {}\n", String::from_utf8_lossy(value.as_bytes()))
            });
            let body: String = lines.collect();
            // What an answer turned out to cost, for those who charge afterwards.
            let cost = headers.get("x-will-cost").cloned();
            let cost: HeaderMap =
                cost.into_iter().map(|cost| ("x-cost".parse().unwrap(), cost)).collect();
            (cost, body)
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        drop(guard);
        let app = Router::new().fallback(echo);
        runtime.spawn(async { axum::serve(listener, app).await });
        Self { _runtime: runtime, address, reached }
    }

    /// How many requests have come through.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }
}
