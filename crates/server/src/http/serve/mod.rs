//! HTTP/1.1 and, with prior knowledge, HTTP/2 on one port.
//!
//! Every resource has a limit ([`HttpLimits`]): connections, requests in flight, bytes of a head,
//! the time for a head, a body and an idle connection, and the time to drain.

mod body;
mod liveness;
mod service;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::sleep;

pub(super) use self::body::BodyTimeout;

use self::liveness::{HttpObserver, Liveness, LivenessCheck, Watchdog};
use self::service::ConnectionService;
use super::{Peer, Routes};
use crate::app::App;
use crate::listen::{
    self, Admission, ConnectionFuture, ConnectionGuard, Observed, Socket, Stopped,
};
use crate::memory::Share;

/// Serves until `stop` is ready; then accepts no more connections and drains the open ones.
///
/// # Errors
/// Fatal errors of the listener.
pub async fn serve(
    listener: TcpListener,
    routes: impl Into<Routes>,
    app: App,
    limits: HttpLimits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    HttpServer::new(routes, app, limits).serve(listener, stop).await
}

/// Serves connections of any transport. Clones share their limits.
#[derive(Debug, Clone)]
pub struct HttpServer {
    shared: Arc<ServerState>,
}

#[derive(Debug)]
struct ServerState {
    routes: Routes,
    app: App,
    limits: HttpLimits,
    in_flight: AtomicUsize,
    admission: Arc<Admission>,
}

/// Limits and timeouts of HTTP clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Open connections; further ones are closed at once.
    pub connections: usize,
    /// Bytes of a head, at least 8 KiB.
    pub header_bytes: usize,
    /// Time for a head, from its first byte to its last, and for the first byte of a connection. It
    /// may take half as long again.
    pub header_timeout: Duration,
    /// Time for a body.
    pub body_timeout: Duration,
    /// Time between two requests. It may take half of `header_timeout` more.
    pub idle: Duration,
    /// Requests in flight on all connections; further ones get 503.
    pub in_flight: usize,
    /// Time for open requests when the server stops.
    pub drain: Duration,
    /// Share of the memory budget.
    pub memory: Share,
}

/// Memory of an open connection, with its buffers and an incomplete head: measured, 30 KiB of
/// HTTP/1.1 and 32 KiB of HTTP/2.
const CONNECTION_BYTES: usize = 32 << 10;
/// Flow control windows of HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

impl HttpServer {
    /// Serves these routes.
    #[must_use]
    pub fn new(routes: impl Into<Routes>, app: App, limits: HttpLimits) -> Self {
        let (routes, in_flight) = (routes.into(), AtomicUsize::new(0));
        let admission = Admission::new(&app, limits.memory, limits.connections, CONNECTION_BYTES);
        Self { shared: Arc::new(ServerState { routes, app, limits, in_flight, admission }) }
    }

    /// Serves until `stop` is ready, then drains the open connections.
    ///
    /// # Errors
    /// Fatal errors of the listener.
    pub async fn serve(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let ServerState { limits, admission, .. } = &*self.shared;
        listen::serve(listener.into(), limits.drain, stop, |socket, stopped| {
            Some(self.clone().connect(admission.admit()?, socket, stopped))
        })
        .await
    }

    fn connect(self, guard: ConnectionGuard, socket: Socket, stopped: Stopped) -> ConnectionFuture {
        let peer = socket.peer();
        Box::pin(async move { self.serve_connection(guard, peer, socket, stopped.wait()).await })
    }

    /// Serves one connection until it ends, or `stop` is ready and its requests are answered.
    ///
    /// `peer` is the address that forward auth may trust, and that failed authentication counts
    /// for.
    pub async fn connection(
        &self,
        peer: Option<IpAddr>,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        if let Some(guard) = self.shared.admission.admit() {
            self.serve_connection(guard, peer, io, stop).await;
        }
    }

    async fn serve_connection(
        &self,
        guard: ConnectionGuard,
        peer: Option<IpAddr>,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        let (limits, account) = (&self.shared.limits, guard.account());
        let liveness = Arc::new(Liveness::default());
        let (shared, peer) = (self.shared.clone(), peer.map(Peer));
        let service = ConnectionService::new(shared, liveness.clone(), account.clone(), peer);
        let builder = builder(limits);
        let observer = HttpObserver::new(liveness.clone(), account.clone());
        let io = TokioIo::new(Observed::new(io, observer));
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        let mut stop = std::pin::pin!(stop);
        let mut stopping = false;
        let mut watchdog = Watchdog::new(limits);
        let mut next_check = std::pin::pin!(sleep(watchdog.interval()));
        loop {
            tokio::select! {
                biased;
                // Errors mean that the client is gone.
                _ = connection.as_mut() => return,
                () = &mut stop, if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut next_check => {
                    match watchdog.check(&liveness, account) {
                        LivenessCheck::Alive => {}
                        LivenessCheck::Idle => connection.as_mut().graceful_shutdown(),
                        LivenessCheck::TimedOut => return,
                    }
                    let again = next_check.deadline() + watchdog.interval();
                    next_check.as_mut().reset(again);
                }
            }
        }
    }
}

fn builder(limits: &HttpLimits) -> Builder<TokioExecutor> {
    /// The minimum of hyper.
    const HEADER_BYTES_MIN: usize = 8 << 10;

    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .max_buf_size(limits.header_bytes.max(HEADER_BYTES_MIN))
        // Responses are small: copied behind their heads, they are one write.
        .writev(false);
    builder
        .http2()
        .max_concurrent_streams(limits.streams())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX));
    builder
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            header_bytes: 16 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            in_flight: 10_000,
            drain: Duration::from_secs(20),
            memory: Share::Clients,
        }
    }
}

impl HttpLimits {
    /// Concurrent streams of an HTTP/2 connection.
    fn streams(&self) -> u32 {
        const STREAMS_MAX: u32 = 256;

        u32::try_from(self.in_flight).unwrap_or(STREAMS_MAX).clamp(1, STREAMS_MAX)
    }
}
