//! HTTP/1.1 and, with prior knowledge, HTTP/2 on one port.
//!
//! Every resource has a limit ([`HttpLimits`]): connections, requests in flight, bytes of a head,
//! the time for a head, a body and an idle connection, and the time to drain.

mod liveness;
mod service;

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use self::liveness::{HttpObserver, Liveness, LivenessCheck, Watchdog};
use self::service::ConnectionService;
pub use self::service::InFlight;
use super::Routes;
use crate::app::App;
use crate::listen::{
    self, Admission, ConnectionFuture, ConnectionGuard, Observed, Socket, Stopped,
};
use crate::memory::{Account, Share};

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

/// Answers the requests of an HTTP server.
pub trait Handler: Send + Sync + 'static {
    /// What is known of a connection.
    type Context: Send + Sync + 'static;
    /// Future of a response.
    type Future: Future<Output = Self::Response> + Send;
    /// A response, before it is counted as sent.
    type Response: Send;
    /// Body of a response.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request.
    fn call(
        &self,
        request: Request<Incoming>,
        connection: &Connection<Self::Context>,
    ) -> Self::Future;

    /// Limits of a new connection, from those of the server.
    fn connection_limits(&self, limits: HttpLimits) -> HttpLimits {
        limits
    }

    /// The response while too many requests are in flight.
    fn overloaded(
        &self,
        request: &Request<Incoming>,
        connection: &Connection<Self::Context>,
        app: &App,
    ) -> Self::Response;

    /// The response as it is sent. The request is in flight until `in_flight` is dropped: a body
    /// that is produced while it is sent keeps it.
    fn send(
        &self,
        response: Self::Response,
        in_flight: InFlight<Self::Context>,
    ) -> Response<Self::Body>;
}

/// A connection of an HTTP server.
#[derive(Debug)]
pub struct Connection<C> {
    /// What is known of it.
    pub context: C,
    /// Time for the body of a request.
    pub body_timeout: Duration,
    guard: ConnectionGuard,
    liveness: Liveness,
    /// Requests in flight on all connections of the server.
    in_flight: Arc<AtomicUsize>,
    /// What continues the connection once it is upgraded.
    tunnel: Mutex<Option<Tunnel>>,
}

/// Future of an upgraded connection.
struct Tunnel(ConnectionFuture);

/// Serves connections of any transport. Clones share their limits.
#[derive(Debug)]
pub struct HttpServer<H = Routes> {
    shared: Arc<ServerState<H>>,
}

#[derive(Debug)]
struct ServerState<H> {
    handler: H,
    app: App,
    limits: HttpLimits,
    in_flight: Arc<AtomicUsize>,
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
/// Time for the first request of a connection that was opened just before the server stops.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(1);
/// Flow control windows of HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

/// Streams that a client may reset before they are served; more end the connection (rapid reset).
const RESET_STREAMS_MAX: usize = 20;
/// Streams that may be reset for errors of the client; more end the connection.
const LOCAL_RESETS_MAX: usize = 256;

impl HttpServer {
    /// Serves these routes.
    #[must_use]
    pub fn new(routes: impl Into<Routes>, app: App, limits: HttpLimits) -> Self {
        Self::with_handler(routes.into(), &app, limits)
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
        listen::serve(listener.into(), self.shared.limits.drain, stop, |socket, stopped| {
            Some(self.clone().connect(self.admit()?, socket, stopped))
        })
        .await
    }

    fn connect(self, guard: ConnectionGuard, socket: Socket, stopped: Stopped) -> ConnectionFuture {
        let peer = socket.peer();
        Box::pin(async move { self.serve_connection(guard, peer, socket, stopped.wait()).await })
    }
}

impl<H: Handler> HttpServer<H> {
    /// Serves the responses of a handler.
    #[must_use]
    pub fn with_handler(handler: H, app: &App, limits: HttpLimits) -> Self {
        let in_flight = Arc::new(AtomicUsize::new(0));
        let admission = Admission::new(app, limits.memory, limits.connections, CONNECTION_BYTES);
        let app = app.clone();
        Self { shared: Arc::new(ServerState { handler, app, limits, in_flight, admission }) }
    }

    /// Admits a connection, unless the limits are reached. Called by one accept loop at a time.
    #[must_use]
    pub fn admit(&self) -> Option<ConnectionGuard> {
        self.shared.admission.admit()
    }

    /// The handler.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.shared.handler
    }

    /// Serves one connection until it ends, or `stop` is ready and its requests are answered.
    pub async fn connection(
        &self,
        context: H::Context,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        if let Some(guard) = self.admit() {
            self.serve_connection(guard, context, io, stop).await;
        }
    }

    /// Serves an admitted connection.
    pub async fn serve_connection(
        &self,
        guard: ConnectionGuard,
        context: H::Context,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        let limits = &self.shared.handler.connection_limits(self.shared.limits);
        let connection = Arc::new(Connection {
            context,
            body_timeout: limits.body_timeout,
            guard,
            liveness: Liveness::default(),
            in_flight: self.shared.in_flight.clone(),
            tunnel: Mutex::new(None),
        });
        let service = ConnectionService::new(self.shared.clone(), connection.clone());
        let builder = builder(limits);
        let io = TokioIo::new(Observed::new(io, HttpObserver::new(connection.clone())));
        let mut served = std::pin::pin!(builder.serve_connection_with_upgrades(io, service));
        let mut stop = std::pin::pin!(stop);
        let mut stopping = false;
        let mut watchdog = Watchdog::new(limits);
        let mut next_check = std::pin::pin!(sleep(watchdog.interval()));
        loop {
            tokio::select! {
                biased;
                // Errors mean that the client is gone.
                _ = served.as_mut() => break,
                () = &mut stop, if !stopping => {
                    stopping = true;
                    if !connection.liveness.has_begun() {
                        // The first request of a new connection is on its way, and hyper would
                        // close the connection at once.
                        let begun = poll_fn(|cx| match served.as_mut().poll(cx) {
                            Poll::Ready(_) => Poll::Ready(true),
                            Poll::Pending if connection.liveness.has_begun() => Poll::Ready(false),
                            Poll::Pending => Poll::Pending,
                        });
                        if timeout(FIRST_REQUEST_GRACE, begun).await == Ok(true) {
                            break;
                        }
                    }
                    served.as_mut().graceful_shutdown();
                }
                () = &mut next_check => {
                    match watchdog.check(&connection.liveness, connection.guard.account()) {
                        LivenessCheck::Alive => {}
                        LivenessCheck::Idle => served.as_mut().graceful_shutdown(),
                        LivenessCheck::TimedOut => return,
                    }
                    let again = next_check.deadline() + watchdog.interval();
                    next_check.as_mut().reset(again);
                }
            }
        }
        let tunnel = connection.tunnel.lock().take();
        if let Some(Tunnel(tunnel)) = tunnel {
            let _in_flight = InFlight::begin(connection);
            tunnel.await;
        }
    }
}

impl<C> Connection<C> {
    /// Sets what continues the connection once it is upgraded. It is driven by the task of the
    /// connection, counts as a request in flight, and is drained like one.
    pub fn set_tunnel(&self, tunnel: ConnectionFuture) {
        *self.tunnel.lock() = Some(Tunnel(tunnel));
    }

    /// The rest of a request's body is not read: once its response is sent, what still arrives is
    /// discarded.
    pub fn discard_body(&self) {
        self.liveness.discard_body();
    }

    /// The memory account of the connection.
    pub(super) const fn account(&self) -> &Arc<Account> {
        self.guard.account()
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

impl<H> Clone for HttpServer<H> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
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
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
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
