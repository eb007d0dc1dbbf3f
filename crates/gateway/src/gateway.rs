//! The gateway process: start, workers, shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::gateway::listener::ListenerConfig;
use sluicegate_server::http::{HttpLimits, HttpServer};
use sluicegate_server::listen::{self, Listener};
use sluicegate_server::server::{Node, StartError, Stopping};
use sluicegate_server::settings::Settings;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::active::Active;
use crate::config::{self, ConfigFile, ConfigFollower};
use crate::denial::DenialStyle;
use crate::handler::GatewayHandler;
use crate::listener::handover::{Handover, Inherited};
use crate::listener::{self, Endpoint};
use crate::metrics::RoutesPage;
use crate::upstream::UpstreamMetrics;

/// Interval between checks of the files of access lists.
const ACCESS_CHECK_EVERY: Duration = Duration::from_secs(1);

/// A gateway with rules and bound addresses that does not serve yet.
#[derive(Debug)]
pub struct Gateway {
    node: Node,
    active: Arc<ArcSwap<Active>>,
    listeners: Vec<BoundListener>,
    limits: HttpLimits,
    workers: usize,
    handover: Option<Handover>,
    follower: Option<ConfigFollower>,
}

/// A bound address.
#[derive(Debug)]
struct BoundListener {
    endpoint: Arc<Endpoint>,
    address: SocketAddr,
    /// One for each worker.
    sockets: Vec<std::net::TcpListener>,
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
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZero::get))
            .max(1);
        let active = Active::new(config, workers, None);
        let active = active.map_err(|error| failed("use the configuration", &error))?;
        let mut inherited = Inherited::default();
        if let Some(path) = &config.handover {
            let step = format!("take over at `{}`", path.display());
            inherited = Inherited::take(path).await.map_err(|error| failed(&step, &error))?;
        }
        let node = Node::start_on(settings, |address| inherited.take_sockets(address).pop());
        let node = node.await?;
        if config.listeners.is_empty() {
            return Err(failed("listen", &"the configuration has no address"));
        }
        let mut listeners = Vec::with_capacity(config.listeners.len());
        for config in &config.listeners {
            let sockets = inherited.take_sockets(config.address);
            let bound = listener::bind(config.address, workers, sockets);
            let (sockets, address) = bound
                .map_err(|error| failed(&format!("listen on `{}`", config.address), &error))?;
            listeners.push((config, sockets, address));
        }
        // Redirects lead to the first address with TLS.
        let https = listeners.iter().find(|(config, ..)| config.tls.is_some());
        let https_port = https.map_or(443, |(.., address)| address.port());
        let bound = |(listener, sockets, address): (&ListenerConfig, _, _)| {
            let endpoint = Endpoint::new(listener, https_port);
            let endpoint = endpoint.map_err(|error| failed("configure TLS", &error))?;
            Ok(BoundListener { endpoint: Arc::new(endpoint), address, sockets })
        };
        let listeners = listeners.into_iter().map(bound).collect::<Result<Vec<_>, StartError>>()?;
        let handover = match &config.handover {
            Some(path) => {
                let sockets = listeners.iter().flat_map(|listener| &listener.sockets);
                let handover = inherited.into_handover(path, &node, sockets);
                Some(handover.map_err(|error| failed("copy the sockets", &error))?)
            }
            None => None,
        };
        let settings = node.settings();
        let limits = HttpLimits {
            connections: settings.connections_max.div_ceil(workers),
            in_flight: settings.in_flight_max,
            drain: settings.drain.1,
            ..HttpLimits::default()
        };
        let active = Arc::new(ArcSwap::from_pointee(active));
        Ok(Self { node, active, listeners, limits, workers, handover, follower: None })
    }

    /// Follows the file that the configuration comes from.
    #[must_use]
    pub fn following(mut self, file: ConfigFile, config: GatewayConfig) -> Self {
        let rules = self.node.settings().rules.clone();
        self.follower = Some(ConfigFollower::new(file, config, rules));
        self
    }

    /// Bound addresses, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).collect()
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
        let Self { node, active, listeners, limits, workers, handover, follower } = self;
        let app = node.app().clone();
        let problem_json = node.settings().problem_json;
        let style = DenialStyle { style: node.settings().style, problem_json };
        app.add_metrics(Arc::new(RoutesPage(active.clone())));
        app.add_metrics(Arc::new(UpstreamMetrics(active.clone())));
        app.add_metrics(active.load().identities.counts());
        let (config_followed, reloads) =
            config::run(follower, &app, active.clone(), workers, reloads);
        let endpoints = |stopping: &Stopping| {
            let stopping = stopping.clone();
            async move {
                let followed: Vec<_> = listeners.iter().map(|one| one.endpoint.clone()).collect();
                let mut of_workers: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
                for BoundListener { endpoint, sockets, .. } in listeners {
                    for (index, socket) in sockets.into_iter().enumerate() {
                        of_workers[index % workers].push((endpoint.clone(), socket));
                    }
                }
                let mut ends = Vec::new();
                for (worker, listeners) in of_workers.into_iter().enumerate() {
                    let (app, active) = (app.clone(), active.clone());
                    let handler = GatewayHandler { app, active, style, worker };
                    let server = HttpServer::with_handler(handler.clone(), &handler.app, limits);
                    ends.push(spawn(listeners, server, limits, stopping.clone())?);
                }
                let served = async {
                    for end in ends {
                        end.await.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))?;
                    }
                    Ok(())
                };
                tokio::select! {
                    served = stopping.with("gateway", served) => served,
                    () = config_followed => Ok(()),
                    () = follow(&followed, &active) => Ok(()),
                    () = hand_over(handover, &stopping) => Ok(()),
                }
            }
        };
        node.run(endpoints, stop, reloads).await
    }
}

/// Stops the process when the next one has taken over; never completes.
async fn hand_over(handover: Option<Handover>, stopping: &Stopping) {
    if let Some(handover) = handover {
        tokio::select! {
            () = handover.run() => stopping.stop(),
            // Without this process's copies, its sockets are closed as soon as nobody accepts.
            () = stopping.stopped() => {}
        }
    }
    std::future::pending().await
}

/// Follows the files of certificates and access lists, forever.
async fn follow(endpoints: &[Arc<Endpoint>], active: &ArcSwap<Active>) {
    let tls = endpoints.iter().filter_map(|endpoint| endpoint.tls()).cloned();
    let mut followed = tokio::task::JoinSet::new();
    for tls in tls {
        tls.log_events();
        followed.spawn(async move { tls.follow().await });
    }
    loop {
        sleep(ACCESS_CHECK_EVERY).await;
        let active = active.load_full();
        if active.access.has_files() {
            // An error means that the runtime shuts down.
            let _ = tokio::task::spawn_blocking(move || active.access.poll()).await;
        }
    }
}

/// Starts a worker; the receiver completes when it ends.
fn spawn(
    listeners: Vec<(Arc<Endpoint>, std::net::TcpListener)>,
    server: HttpServer<GatewayHandler>,
    limits: HttpLimits,
    stopping: Stopping,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("gateway".to_owned()).spawn(move || {
        let served = runtime.block_on(async {
            let mut served = tokio::task::JoinSet::new();
            for (endpoint, socket) in listeners {
                let listener = Listener::Tcp(TcpListener::from_std(socket)?);
                let (server, stop) = (server.clone(), stopping.stopped());
                served.spawn(listen::serve(
                    listener,
                    limits.drain,
                    stop,
                    move |socket, stopped| endpoint.connect(&server, socket, stopped),
                ));
            }
            while let Some(ended) = served.join_next().await {
                ended.unwrap_or_else(|_| Err(io::Error::other("a listener panicked")))?;
            }
            Ok(())
        });
        // Without a receiver the process ends already.
        let _ = ended.send(served);
    })?;
    Ok(end)
}
