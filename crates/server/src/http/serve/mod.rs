//! HTTP/1.1 and, with prior knowledge, HTTP/2 on one port. The first bytes of a connection decide.
//!
//! Every resource has a limit ([`HttpLimits`]): connections, requests in flight, bytes of a head,
//! the time for a head, a body and an idle connection, and the time to drain.

mod body;
mod http1;
mod http2;
mod liveness;
mod request_body;
mod service;
mod supervisor;
mod upgrade;
mod write_buffer;

use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::sleep;

pub(in crate::http) use self::body::BoxError;
pub use self::body::IncomingBody;
use self::http1::{Ended, Http1};
use self::liveness::{Liveness, Watchdog};
use self::service::ConnectionService;
pub use self::service::InFlight;
use self::supervisor::Supervisor;
pub use self::upgrade::{OnUpgrade, Upgraded};
use super::Routes;
use crate::app::App;
use crate::listen::{self, Admission, ConnectionFuture, ConnectionGuard, Socket, Stopped};
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
        request: Request<IncomingBody>,
        connection: &Connection<Self::Context>,
    ) -> Self::Future;

    /// Limits of a new connection, from those of the server.
    fn connection_limits(&self, limits: HttpLimits) -> HttpLimits {
        limits
    }

    /// The response while too many requests are in flight.
    fn overloaded(
        &self,
        request: &Request<IncomingBody>,
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
    upgrade: Mutex<Option<OnUpgrade>>,
}

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

/// Memory of an open connection, beside what its account is charged for: measured, 4.5 KiB of an
/// idle one, and 16 KiB of one whose request the gateway has forwarded.
const CONNECTION_BYTES: usize = 16 << 10;
/// What a connection of HTTP/2 takes more: measured, 32 KiB in all.
const HTTP2_BYTES: usize = 16 << 10;

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
            upgrade: Mutex::new(None),
        });
        let service = ConnectionService::new(self.shared.clone(), connection.clone());
        let watchdog = Watchdog::new(limits);
        let (next_check, stop) = (pin!(sleep(watchdog.interval())), pin!(stop));
        let (liveness, account) = (&connection.liveness, connection.guard.account());
        let mut supervisor = Supervisor::new(liveness, account, watchdog, next_check, stop);
        let ended = {
            let http1 = Http1::new(io, connection.clone(), limits.header_bytes);
            let served = pin!(http1.serve(&service));
            supervisor.run(served, |_| connection.liveness.close()).await
        };
        match ended {
            Some(Ended::Http2(read, io)) => {
                connection.liveness.set_http2();
                if !connection.account().raise_fixed(HTTP2_BYTES) {
                    return;
                }
                let connection = connection.clone();
                // Boxed: its state would make the futures of other connections larger.
                let mut served = Box::pin(http2::serve(read, io, service, connection, limits));
                supervisor.run(served.as_mut(), |served| served.graceful_shutdown()).await;
            }
            Some(Ended::Upgraded(read, io)) => {
                let upgrade = connection.upgrade.lock().take();
                if let Some(upgrade) = upgrade {
                    let _in_flight = InFlight::begin(connection.clone());
                    upgrade.run(Upgraded::new(read, io)).await;
                }
            }
            Some(Ended::Closed) | None => {}
        }
    }
}

impl<C> Connection<C> {
    /// Sets what continues the connection once it is upgraded. It is driven by the task of the
    /// connection, counts as a request in flight, and is drained like one.
    pub fn set_upgrade(&self, upgrade: OnUpgrade) {
        *self.upgrade.lock() = Some(upgrade);
    }

    /// The memory account of the connection.
    pub(super) const fn account(&self) -> &Arc<Account> {
        self.guard.account()
    }
}

impl<H> Clone for HttpServer<H> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
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
