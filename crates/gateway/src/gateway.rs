//! The gateway process: start, workers, shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use arc_swap::ArcSwap;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_server::http::{HttpLimits, HttpServer};
use sluicegate_server::listen::{self, Listener};
use sluicegate_server::server::{Node, StartError, Stopping};
use sluicegate_server::settings::Settings;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};

use crate::config::{self, ConfigFile, ConfigFollower};
use crate::handler::{Active, ConnectionContext, GatewayHandler};
use crate::upstream::UpstreamMetrics;

/// Connections that wait to be accepted, for each worker.
const BACKLOG_MAX: u32 = 4_096;

/// A gateway with rules and bound addresses that does not serve yet.
#[derive(Debug)]
pub struct Gateway {
    node: Node,
    active: Arc<ArcSwap<Active>>,
    /// One for each worker, all on one address.
    listeners: Vec<std::net::TcpListener>,
    address: SocketAddr,
    follower: Option<ConfigFollower>,
}

impl Gateway {
    /// Loads rules and routes, and binds the addresses.
    ///
    /// # Errors
    /// When rules or routes are invalid, or an address or a file cannot be used.
    pub async fn start(
        settings: Settings,
        config: &GatewayConfig,
        workers: Option<usize>,
    ) -> Result<Self, StartError> {
        let failed = |step: &str, error: &dyn std::fmt::Display| StartError::Failed {
            step: step.to_owned(),
            reason: error.to_string(),
        };
        let workers = workers
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZero::get));
        let active = Active::new(config, workers, None);
        let active = active.map_err(|error| failed("use the configuration", &error))?;
        let node = Node::start(settings).await?;
        let Some(listener) = config.listeners.first() else {
            return Err(failed("listen", &"the configuration has no address"));
        };
        let bound = bind(listener.address, workers);
        let (listeners, address) =
            bound.map_err(|error| failed(&format!("listen on `{}`", listener.address), &error))?;
        let active = Arc::new(ArcSwap::from_pointee(active));
        Ok(Self { node, active, listeners, address, follower: None })
    }

    /// Follows the file that the configuration comes from.
    #[must_use]
    pub fn following(mut self, file: ConfigFile, config: GatewayConfig) -> Self {
        let rules = self.node.settings().rules.clone();
        self.follower = Some(ConfigFollower::new(file, config, rules));
        self
    }

    /// Bound address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bound address of the admin endpoint.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.node.admin_address()
    }

    /// Serves until `stop` is ready, then shuts down gracefully. A message on `reloads` reloads the
    /// rules and the configuration.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        reloads: mpsc::Receiver<()>,
    ) -> io::Result<()> {
        let Self { node, active, listeners, follower, .. } = self;
        let settings = node.settings();
        let workers = listeners.len().max(1);
        let limits = HttpLimits {
            connections: settings.connections_max.div_ceil(workers),
            in_flight: settings.in_flight_max,
            drain: settings.drain.1,
            header_bytes: 64 << 10,
            ..HttpLimits::default()
        };
        let (app, style) = (node.app().clone(), settings.style);
        app.add_metrics(Arc::new(UpstreamMetrics(active.clone())));
        let (followed, reloads) = config::run(follower, &app, active.clone(), workers, reloads);
        let endpoints = |stopping: &Stopping| {
            let stopping = stopping.clone();
            async move {
                let mut ends = Vec::new();
                for (worker, listener) in listeners.into_iter().enumerate() {
                    let (app, active) = (app.clone(), active.clone());
                    let handler = GatewayHandler { app, active, style, worker };
                    let server = HttpServer::with_handler(handler.clone(), &handler.app, limits);
                    ends.push(spawn(listener, server, limits, stopping.stopped())?);
                }
                let served = async {
                    for end in ends {
                        end.await.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))?;
                    }
                    Ok(())
                };
                let served = async {
                    tokio::select! {
                        ended = served => ended,
                        () = followed => Ok(()),
                    }
                };
                stopping.with("gateway", served).await
            }
        };
        node.run(endpoints, stop, reloads).await
    }
}

/// Starts a worker; the receiver completes when it ends.
fn spawn(
    listener: std::net::TcpListener,
    server: HttpServer<GatewayHandler>,
    limits: HttpLimits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("gateway".to_owned()).spawn(move || {
        let served = runtime.block_on(async {
            let listener = Listener::Tcp(TcpListener::from_std(listener)?);
            listen::serve(listener, limits.drain, stop, |socket, stopped| {
                let (guard, server) = (server.admit()?, server.clone());
                let context = ConnectionContext { peer: socket.peer() };
                Some(Box::pin(async move {
                    server.serve_connection(guard, context, socket, stopped.wait()).await;
                }))
            })
            .await
        });
        // Without a receiver the process ends already.
        let _ = ended.send(served);
    })?;
    Ok(end)
}

/// Binds an address once for each worker: the system distributes connections.
fn bind(
    address: SocketAddr,
    workers: usize,
) -> io::Result<(Vec<std::net::TcpListener>, SocketAddr)> {
    let mut listeners = Vec::with_capacity(workers);
    let mut bound = address;
    for _ in 0..workers {
        let socket = if bound.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        #[cfg(not(windows))]
        socket.set_reuseaddr(true)?;
        #[cfg(unix)]
        socket.set_reuseport(true)?;
        socket.bind(bound)?;
        let listener = socket.listen(BACKLOG_MAX)?;
        bound = listener.local_addr()?;
        listeners.push(listener.into_std()?);
    }
    Ok((listeners, bound))
}
