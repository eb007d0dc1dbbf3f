//! gRPC over HTTP/2: Envoy's rate limit service, and the health of the server.
//!
//! The task of a `connection` answers the calls whose message has arrived; a `call` that has to
//! wait gets a task of its own. Every resource has a limit ([`GrpcLimits`]).

mod call;
mod connection;
mod health;
mod message;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use self::call::GrpcServer;
use crate::app::App;
use crate::listen::{
    self, Admission, ConnectionFuture, ConnectionGuard, Listener, Socket, Stopped,
};
use crate::memory::Share;
use crate::tls::Tls;

/// Memory of an open connection with its buffers: measured, 38 to 45 KiB.
const CONNECTION_BYTES: usize = 44 << 10;
/// Additional memory of TLS.
const TLS_BYTES: usize = 32 << 10;

/// Options of the gRPC endpoint.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Limits of clients.
    pub limits: GrpcLimits,
    /// TLS certificates; their files are watched.
    pub tls: Option<Tls>,
}

/// Limits and timeouts of gRPC clients.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_server::grpc::GrpcLimits;
///
/// let limits = GrpcLimits { connections: 100, age: None, ..GrpcLimits::default() };
/// assert_eq!(limits.drain, Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcLimits {
    /// Open connections; further ones are closed at once.
    pub connections: usize,
    /// Concurrent calls of a connection, including those whose responses are not read.
    pub calls: u32,
    /// Calls of all connections that wait for their message or for the store.
    pub in_flight: usize,
    /// `Watch` calls of all connections.
    pub watches: usize,
    /// Bytes of a message. gRPC's default: Envoy fails open by default, so a client that makes a
    /// message too long by its headers would bypass every limit.
    pub message_bytes: usize,
    /// Bytes of all headers of a call.
    pub header_bytes: u32,
    /// Time for the handshake, the message of a call, the reading of a response, and a pong.
    pub timeout: Duration,
    /// Idle time after which a connection is pinged. Connections are checked once per `timeout`, so
    /// it may take that much longer.
    pub idle: Duration,
    /// Age, give or take a tenth, at which a connection is closed gracefully, so that clients
    /// spread over new servers.
    pub age: Option<Duration>,
    /// Time for the open calls of a connection that is closed for its age.
    pub age_grace: Duration,
    /// Time for open calls when the server stops.
    pub drain: Duration,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            calls: 1_024,
            in_flight: 10_000,
            watches: 1_000,
            message_bytes: 4 << 20,
            header_bytes: 16 << 10,
            timeout: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            age: Some(Duration::from_secs(24 * 3_600)),
            age_grace: Duration::from_secs(3_600),
            drain: Duration::from_secs(30),
        }
    }
}

/// Serves until `stop` is ready; then accepts no more connections and drains the open ones.
///
/// # Errors
/// Fatal errors of the listener.
pub async fn serve(
    listener: impl Into<Listener>,
    app: App,
    options: Options,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let Options { limits, tls } = options;
    let bytes = CONNECTION_BYTES + if tls.is_some() { TLS_BYTES } else { 0 };
    let admission = Admission::new(&app, Share::Clients, limits.connections, bytes);
    let server = Arc::new(GrpcServer::new(app, limits));
    let watched_tls = tls.clone();
    let served = listen::serve(listener.into(), limits.drain, stop, |socket, stopped| {
        let guard = admission.admit()?;
        Some(connect(socket, tls.clone(), server.clone(), guard, stopped))
    });
    tokio::select! {
        served = served => served,
        never = watch_certificates(watched_tls) => match never {},
    }
}

fn connect(
    socket: Socket,
    tls: Option<Tls>,
    server: Arc<GrpcServer>,
    guard: ConnectionGuard,
    stopped: Stopped,
) -> ConnectionFuture {
    Box::pin(connection::serve(socket, tls, server, guard, stopped.wait()))
}

async fn watch_certificates(tls: Option<Tls>) -> std::convert::Infallible {
    if let Some(tls) = tls {
        tls.follow().await;
    }
    std::future::pending().await
}
