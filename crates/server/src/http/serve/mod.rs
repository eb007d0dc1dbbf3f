//! The way to the outside: HTTP/1.1 and, without a handshake, HTTP/2 on one port.
//!
//! One task accepts, each connection has a task. Everything has a bound: connections, requests at once, bytes of a head, the time that a head, a body and
//! a silence may take, and the time for the last requests when it ends. What goes beyond is answered or closed, never queued.

mod bounds;
mod liveness;
mod request_body;
mod response_body;
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
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use self::bounds::Bounds;
pub(super) use self::request_body::Late;

use self::liveness::{Look, Silence, Watch, Watched};
use self::service::Asked;
use super::{Peer, Routes};
use crate::memory::{Account, Endpoint};
use crate::rls::handler::Service;
use crate::telemetry::Happening;

/// Serves until `stop` is ready; then no more is accepted, and what has begun is brought to its end.
///
/// The service counts connections, and what goes beyond the bounds.
///
/// # Errors
/// When the listener is broken.
pub async fn serve(
    listener: TcpListener,
    routes: impl Into<Routes>,
    service: Service,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    Server::new(routes, service, bounds).serve(listener, stop).await
}

/// Serves connections, wherever they come from. Clones count together.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    routes: Routes,
    service: Service,
    bounds: Bounds,
    in_flight: AtomicUsize,
    memory: Arc<EndpointBudget>,
}

/// What an open connection takes, with its buffers and a head that is not complete: measured, 30
/// KiB of HTTP/1.1 and 32 KiB of HTTP/2.
const CONNECTION_BYTES: usize = 32 << 10;
/// What a client may send on a stream of HTTP/2 and on a connection before it is read.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

/// After an error that will pass, such as too many open files: not at once again, since it would be the same.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

// === impl Server ===

impl Server {
    /// Answers by these routes, and counts on this service.
    #[must_use]
    pub fn new(routes: impl Into<Routes>, service: Service, bounds: Bounds) -> Self {
        let (routes, in_flight) = (routes.into(), AtomicUsize::new(0));
        let memory = service.memory().endpoint(bounds.memory);
        Self { shared: Arc::new(Shared { routes, service, bounds, in_flight, memory }) }
    }

    /// Serves until `stop` is ready.
    ///
    /// # Errors
    /// When the listener is broken.
    pub async fn serve(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Shared { service, bounds, .. } = &*self.shared;
        let stopping = watch::Sender::new(false);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => continue,
                accepted = listener.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_the_end(&error) => return Err(error),
                Err(_) => {
                    sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            if connections.len() >= bounds.connections {
                service.telemetry().record(Event::ConnectionRefused);
                continue;
            }
            // An answer is small and complete: nothing is gained by waiting for more.
            let _ = socket.set_nodelay(true);
            let (server, mut stopped) = (self.clone(), stopping.subscribe());
            connections.spawn(async move {
                let stop = async move {
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                };
                server.connection_from(peer.ip(), socket, stop).await;
            });
        }
        drop(listener);
        stopping.send_replace(true);
        let ended = async { while connections.join_next().await.is_some() {} };
        // Who takes longer is cut off.
        let _ = timeout(bounds.drain, ended).await;
        Ok(())
    }

    /// Serves one connection until it ends; when `stop` is ready, it ends as soon as what has begun is answered.
    pub async fn connection(
        &self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        self.serve_connection(None, io, stop).await;
    }

    /// The same of a peer whose address is known, so that it may ask for others if the rules trust it.
    pub async fn connection_from(
        &self,
        peer: IpAddr,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        self.serve_connection(Some(Peer(peer)), io, stop).await;
    }

    async fn serve_connection(
        &self,
        peer: Option<Peer>,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) {
        let Shared { bounds, service, memory, .. } = &*self.shared;
        let Some(account) = Account::open(memory, CONNECTION_BYTES) else {
            service.telemetry().record(Event::ConnectionRefused);
            return;
        };
        let _open = Open::new(service.clone());
        let watch = Arc::new(Watch::default());
        let asked = Asked::new(self.shared.clone(), watch.clone(), account.clone(), peer);
        let builder = builder(bounds);
        let io = TokioIo::new(Watched::new(io, watch.clone(), account.clone()));
        let mut connection = std::pin::pin!(builder.serve_connection(io, asked));
        let mut stop = std::pin::pin!(stop);
        let mut stopping = false;
        let mut silence = Silence::new(bounds);
        let mut next_look = std::pin::pin!(sleep(silence.look_every()));
        loop {
            tokio::select! {
                biased;
                // Whatever the reason: there is nobody left to tell.
                _ = connection.as_mut() => return,
                () = &mut stop, if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut next_look => {
                    match silence.look(&watch, &account) {
                        Look::Fine => {}
                        Look::Idle => connection.as_mut().graceful_shutdown(),
                        Look::TooLong => return,
                    }
                    let again = next_look.deadline() + silence.look_every();
                    next_look.as_mut().reset(again);
                }
            }
        }
    }
}

fn builder(bounds: &Bounds) -> Builder<TokioExecutor> {
    /// hyper does not go lower.
    const HEADER_BYTES_MIN: usize = 8 << 10;

    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .max_buf_size(bounds.header_bytes.max(HEADER_BYTES_MIN))
        // Answers are small: copied behind their heads, they leave as one piece.
        .writev(false);
    builder
        .http2()
        .max_concurrent_streams(bounds.streams())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(u32::try_from(bounds.header_bytes).unwrap_or(u32::MAX));
    builder
}

/// Whether an error is of the listener itself, and not of a connection or of a shortage that will pass.
fn is_the_end(error: &io::Error) -> bool {
    /// The listener is no open file any more.
    const BAD_FILE: i32 = 9;

    error.kind() == io::ErrorKind::InvalidInput || error.raw_os_error() == Some(BAD_FILE)
}

/// Counts a connection, however it ends.
struct Open(Service);

impl Open {
    fn new(service: Service) -> Self {
        service.telemetry().record(Event::ConnectionOpened);
        Self(service)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.telemetry().record(Event::ConnectionClosed);
    }
}
