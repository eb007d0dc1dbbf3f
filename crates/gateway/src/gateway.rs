//! The gateway process: start, workers, shutdown.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_redis::{DurableQueues, Link, LinkError, LinkOptions};
use sluicegate_server::app::App;
use sluicegate_server::http::{HttpLimits, HttpServer};
use sluicegate_server::listen::{self, Listener};
use sluicegate_server::server::{Node, StartError, Stopping};
use sluicegate_server::settings::{RedisServer, Settings, Store};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::acme::Acme;
use crate::active::Active;
use crate::config::{self, ConfigFile, ConfigFollower};
use crate::deferred::{Deferrals, DeferredAdmin, Dispatcher};
use crate::denial::DenialStyle;
use crate::handler::GatewayHandler;
use crate::listener::handover::{Handover, Inherited, SharedSockets};
use crate::listener::set::{CertificatesPage, ListenerSet, WorkerListener};
use crate::metrics::RoutesPage;
use crate::shape::Queues;
use crate::upstream::UpstreamMetrics;

/// Interval between checks of the files of access lists, and of the load of upstreams.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a call about deferred requests.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A gateway with rules and bound addresses that does not serve yet.
#[derive(Debug)]
pub struct Gateway {
    node: Node,
    active: Arc<ArcSwap<Active>>,
    listeners: ListenerSet,
    /// Of each worker.
    sockets: Vec<mpsc::UnboundedReceiver<WorkerListener>>,
    limits: HttpLimits,
    handover: Option<Handover>,
    deferrals: Option<Arc<Deferrals>>,
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
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZero::get))
            .max(1);
        // Connections of deferred requests are those of one more worker.
        let pools = workers + usize::from(config.deferred.is_some());
        let active = Active::new(config, pools, None);
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
        let copies = config.handover.as_ref().map(|_| SharedSockets::new(&node)).transpose();
        let copies = copies.map_err(|error| failed("copy the sockets", &error))?;
        let acme = Acme::new(active.challenges.clone(), node.app());
        let deferrals = match &config.deferred {
            None => None,
            Some(deferred) => {
                let queues = durable_queues(node.settings());
                let queues = queues.map_err(|error| failed("connect to the store", &error))?;
                let opened = Deferrals::open(deferred, queues).await;
                Some(opened.map_err(|error| failed("store deferred requests", &error))?)
            }
        };
        let (mut listeners, sockets) = ListenerSet::new(workers, copies.clone(), acme);
        let prepared = listeners.prepare(&config.listeners, |it| inherited.take_sockets(it));
        let prepared = prepared.map_err(|error| failed(&error.step, &error.reason))?;
        listeners.apply(prepared);
        let handover = config.handover.as_ref().zip(copies);
        let handover = handover.map(|(path, copies)| inherited.into_handover(path, copies));
        let settings = node.settings();
        let limits = HttpLimits {
            connections: settings.connections_max.div_ceil(workers),
            in_flight: settings.in_flight_max,
            drain: settings.drain.1,
            ..HttpLimits::default()
        };
        let active = Arc::new(ArcSwap::from_pointee(active));
        Ok(Self { node, active, listeners, sockets, limits, handover, deferrals, follower: None })
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
        self.listeners.addresses()
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
        let Self { node, active, listeners, sockets, limits, handover, deferrals, follower } = self;
        let app = node.app().clone();
        let problem_json = node.settings().problem_json;
        let style = DenialStyle { style: node.settings().style, problem_json };
        let queues = Arc::<Queues>::default();
        app.add_metrics(Arc::new(RoutesPage { active: active.clone(), queues: queues.clone() }));
        app.add_metrics(Arc::new(UpstreamMetrics(active.clone())));
        app.add_metrics(active.load().identities.counts());
        if let Some(deferrals) = &deferrals {
            app.add_metrics(deferrals.clone());
            let (app_of_admin, deferrals) = (app.clone(), deferrals.clone());
            app.add_admin(Arc::new(DeferredAdmin { app: app_of_admin, deferrals }));
        }
        let signalled = app.clone();
        let listeners = Arc::new(Mutex::new(listeners));
        app.add_metrics(Arc::new(CertificatesPage(Arc::downgrade(&listeners))));
        let (config_followed, reloads) =
            config::run(follower, &app, active.clone(), listeners.clone(), reloads);
        let endpoints = |stopping: &Stopping| {
            let stopping = stopping.clone();
            async move {
                // They are those of the configuration until the end.
                let _listeners = listeners;
                let deferred = deferrals.clone().map(|deferrals| {
                    let (app, active, queues) = (app.clone(), active.clone(), queues.clone());
                    let worker = sockets.len();
                    let dispatcher = Dispatcher { app, active, queues, deferrals, worker };
                    tokio::spawn(dispatcher.run(stopping.stopped(), limits.drain))
                });
                let mut ends = Vec::new();
                for (worker, listeners) in sockets.into_iter().enumerate() {
                    let (app, active, queues) = (app.clone(), active.clone(), queues.clone());
                    let deferrals = deferrals.clone();
                    let handler = GatewayHandler { app, active, queues, deferrals, style, worker };
                    let server = HttpServer::with_handler(handler.clone(), &handler.app, limits);
                    ends.push(spawn(listeners, server, limits, stopping.clone())?);
                }
                let served = async {
                    for end in ends {
                        end.await.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))?;
                    }
                    if let Some(deferred) = deferred {
                        // It has ended, or is about to: it stops with the listeners.
                        deferred.await.map_err(|_| io::Error::other("a dispatcher panicked"))?;
                    }
                    Ok(())
                };
                tokio::select! {
                    served = stopping.with("gateway", served) => served,
                    () = until_stopped(config_followed, &stopping) => Ok(()),
                    () = follow(&active, &signalled) => Ok(()),
                    () = hand_over(handover, &stopping) => Ok(()),
                }
            }
        };
        node.run(endpoints, stop, reloads).await
    }
}

/// Queues in the Redis of the counters, on a connection of their own: a write may wait for the
/// disk.
fn durable_queues(settings: &Settings) -> Result<Option<DurableQueues>, LinkError> {
    let Store::Redis(redis) = &settings.store else { return Ok(None) };
    let RedisServer { address, options, .. } = &redis.server;
    let options = LinkOptions { timeout: DURABLE_TIMEOUT, connections: 1, ..options.clone() };
    let link = Link::open(address.clone(), options)?;
    Ok(Some(DurableQueues::new(link, &redis.namespace)))
}

/// Stops the process when the next one has taken over; never completes.
async fn hand_over(handover: Option<Handover>, stopping: &Stopping) {
    if let Some(handover) = handover {
        let copies = handover.sockets().clone();
        tokio::select! {
            () = handover.run() => stopping.stop(),
            () = stopping.stopped() => {}
        }
        copies.clear();
    }
    std::future::pending().await
}

/// Follows the configuration until the process stops; never completes.
async fn until_stopped(followed: impl Future<Output = ()>, stopping: &Stopping) {
    tokio::select! {
        () = followed => {}
        () = stopping.stopped() => {}
    }
    std::future::pending().await
}

/// Follows the files of access lists, and signals the load of upstreams to elastic rules, forever.
async fn follow(active: &ArcSwap<Active>, app: &App) {
    loop {
        sleep(CHECK_EVERY).await;
        let active = active.load_full();
        if let Some(load) = active.upstreams.iter().filter_map(|upstream| upstream.load()).max() {
            app.engine().set_load(load);
        }
        if active.access.has_files() {
            // An error means that the runtime shuts down.
            let _ = tokio::task::spawn_blocking(move || active.access.poll()).await;
        }
    }
}

/// Starts a worker; the receiver completes when it ends.
fn spawn(
    mut listeners: mpsc::UnboundedReceiver<WorkerListener>,
    server: HttpServer<GatewayHandler>,
    limits: HttpLimits,
    stopping: Stopping,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("gateway".to_owned()).spawn(move || {
        let served = runtime.block_on(async {
            let ended = |ended: Result<_, _>| {
                ended.unwrap_or_else(|_| Err(io::Error::other("a listener panicked")))
            };
            let mut served = tokio::task::JoinSet::new();
            let mut stopped = pin!(stopping.stopped());
            loop {
                let listener = tokio::select! {
                    biased;
                    () = &mut stopped => break,
                    Some(one) = served.join_next() => {
                        ended(one)?;
                        continue;
                    }
                    Some(listener) = listeners.recv() => listener,
                };
                let WorkerListener { endpoint, socket, mut removed } = listener;
                let listener = Listener::Tcp(TcpListener::from_std(socket)?);
                let (server, stopped) = (server.clone(), stopping.stopped());
                let stop = async move {
                    tokio::select! {
                        () = stopped => {}
                        // An error: the sender is gone.
                        _ = removed.changed() => {}
                    }
                };
                let connect =
                    move |socket, stopped| endpoint.load().connect(&server, socket, stopped);
                served.spawn(listen::serve(listener, limits.drain, stop, connect));
            }
            drop(listeners);
            while let Some(one) = served.join_next().await {
                ended(one)?;
            }
            Ok(())
        });
        // Without a receiver the process ends already.
        let _ = ended.send(served);
    })?;
    Ok(end)
}
