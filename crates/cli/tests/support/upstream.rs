//! What proxies stand before: a server of one handler, that counts who reached it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use tokio::runtime::Runtime;

/// An upstream; ends with this value.
pub struct Upstream {
    // Dropped with everything that runs on it.
    _runtime: Runtime,
    pub address: String,
    reached: Arc<AtomicU64>,
}

impl Upstream {
    /// One that answers so.
    pub fn answering<F, R>(answer: F) -> Self
    where
        F: Fn(Request) -> R + Clone + Send + Sync + 'static,
        R: Future<Output: IntoResponse> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let reached = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&reached);
        let counted = move |request: Request| {
            counter.fetch_add(1, Ordering::Relaxed);
            answer(request)
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        drop(guard);
        runtime.spawn(async { axum::serve(listener, Router::new().fallback(counted)).await });
        Self { _runtime: runtime, address, reached }
    }

    /// How many requests have come through.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }
}
