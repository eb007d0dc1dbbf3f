//! Upstreams: which server gets a request, and the connections to it.
//!
//! ```text
//!   request ── gate ── balance ── server ── pool ── http1 │ http2 ── transport: TCP, TLS
//!                         │           │
//!                         │           └ health: checks (maintain), failures of requests (ejection)
//!                         └ servers: as configured, one for each address of a name (resolve)
//! ```

mod balance;
mod body;
mod gate;
mod http1;
mod http2;
mod maintain;
mod metrics;
mod resolve;
mod send_error;
mod server;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use sluicegate_config::gateway::upstream::{
    Balance, ServerConfig, UpstreamConfig, UpstreamProtocol,
};
use sluicegate_rules::mapping::Part;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

pub(crate) use self::balance::stable_hash;
use self::balance::{Choice, choose};
pub(crate) use self::body::{UpgradedUpstream, UpstreamBody};
use self::gate::Gate;
pub(crate) use self::metrics::UpstreamMetrics;
use self::resolve::Resolver;
use self::send_error::SendError;
use self::server::Options;
pub(crate) use self::server::Server;
use self::tls::UpstreamTlsConfigs;
pub(crate) use self::tls::{TlsOptionsError, file_roots, system_roots, unusable_tls_files};
use crate::body::RequestBody;
use crate::error::ProxyError;

/// A group of servers that answer the same requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    options: Arc<Options>,
    configured: Vec<ServerConfig>,
    servers: ArcSwap<Vec<Arc<Server>>>,
    next: AtomicUsize,
    /// Limits the requests in flight.
    gate: Option<Arc<Gate>>,
    /// Held by an ejection, so that two do not eject each other's last server.
    ejecting: Mutex<()>,
    /// End with the upstream.
    tasks: Mutex<JoinSet<()>>,
}

/// A request for an upstream. Its head is large, so it is split from the client's request once and
/// passed by reference.
#[derive(Debug)]
pub(crate) struct UpstreamRequest {
    pub(crate) head: Parts,
    pub(crate) body: RequestBody,
}

impl Default for UpstreamRequest {
    fn default() -> Self {
        let (head, body) = Request::<RequestBody>::default().into_parts();
        Self { head, body }
    }
}

/// How a request is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivery {
    /// The worker that sends it.
    pub(crate) worker: usize,
    /// Hash of the value that the server is chosen by.
    pub(crate) key: Option<u64>,
    /// Whether the request asks for an upgrade of HTTP/1.1.
    pub(crate) is_upgrade: bool,
    /// Importance of the request, and its client, while it waits.
    pub(crate) priority: u8,
    pub(crate) client: u64,
}

impl Upstream {
    /// Compiles the options and starts the background tasks. Servers of `previous` that are
    /// unchanged keep their connections and their health. Must be called within a Tokio runtime.
    pub(crate) fn new(
        config: &UpstreamConfig,
        workers: usize,
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, TlsOptionsError> {
        let configured = config.servers.clone();
        let config = UpstreamConfig { servers: Vec::new(), ..config.clone() };
        let has_tls = configured.iter().any(|server| server.protocol == UpstreamProtocol::Https);
        let previous = previous.filter(|upstream| {
            let Options { config: known, tls, workers: count } = &*upstream.options;
            *known == config && *count == workers && tls.is_some() == has_tls
        });
        if let Some(previous) = previous
            && previous.configured == configured
        {
            return Ok(previous.clone());
        }
        let options = match previous {
            Some(previous) => previous.options.clone(),
            None => {
                let tls = has_tls.then(|| UpstreamTlsConfigs::new(&config.name, &config.tls));
                Arc::new(Options { tls: tls.transpose()?, config, workers })
            }
        };
        let upstream = Arc::new(Self::with_servers(options, configured, previous));
        // Only now: a task that does not find its upstream ends.
        upstream.start(&Arc::downgrade(&upstream));
        Ok(upstream)
    }

    fn with_servers(
        options: Arc<Options>,
        configured: Vec<ServerConfig>,
        previous: Option<&Arc<Self>>,
    ) -> Self {
        let known = previous.map(|upstream| upstream.servers()).unwrap_or_default();
        let mut servers = Vec::new();
        for config in &configured {
            let count = servers.len();
            servers.extend(known.iter().filter(|server| server.config() == config).cloned());
            if servers.len() == count {
                servers.push(Server::new(&options, config, None));
            }
        }
        let servers = ArcSwap::from_pointee(servers);
        let (next, ejecting) = (AtomicUsize::new(0), Mutex::default());
        let known = previous.and_then(|upstream| upstream.gate.clone());
        let gate = known.or_else(|| options.config.concurrency.as_ref().map(Gate::new));
        Self { options, configured, servers, next, gate, ejecting, tasks: Mutex::default() }
    }

    /// Starts the background tasks.
    fn start(&self, this: &Weak<Self>) {
        let Self { options, configured, tasks, .. } = self;
        let mut tasks = tasks.lock();
        tasks.spawn(maintain::reap(this.clone(), options.config.timeouts.idle));
        if let Some(check) = options.config.health.clone() {
            tasks.spawn(maintain::check(this.clone(), check));
        }
        if configured.iter().any(|server| server.host.parse::<IpAddr>().is_err()) {
            match Resolver::new(&options.config.resolvers) {
                Ok(resolver) => {
                    tasks.spawn(maintain::resolve(this.clone(), configured.clone(), resolver));
                }
                Err(error) => {
                    let upstream = &options.config.name;
                    warn!(upstream, error, "DNS cannot be asked; the system resolves names");
                }
            }
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.options.config.name
    }

    /// The servers in use.
    pub(crate) fn servers(&self) -> Arc<Vec<Arc<Server>>> {
        self.servers.load_full()
    }

    /// The part of a request that its server is chosen by, if it is chosen so.
    pub(crate) fn hash_part(&self) -> Option<&Part> {
        match &self.options.config.balance {
            Balance::Hash(part) => Some(part),
            Balance::RoundRobin | Balance::LeastConnections => None,
        }
    }

    /// Replaces the servers; those that stay keep their connections and their health.
    pub(super) fn set_servers(&self, servers: Vec<(ServerConfig, Option<SocketAddr>)>) {
        let known = self.servers();
        let servers: Vec<_> = servers
            .iter()
            .map(|(config, address)| {
                let known = known.iter().find(|server| {
                    server.config() == config && (server.address() == *address || address.is_none())
                });
                known.cloned().unwrap_or_else(|| Server::new(&self.options, config, *address))
            })
            .collect();
        let labels: Vec<_> = servers.iter().map(|server| server.label()).collect();
        info!(upstream = self.name(), servers = labels.join(", "), "addresses of servers changed");
        self.servers.store(Arc::new(servers));
    }

    /// Sends a request to one of the servers; to another one if the first is unreachable. `used` is
    /// the last of them.
    pub(crate) async fn send(
        &self,
        delivery: Delivery,
        request: &mut UpstreamRequest,
        used: &mut Option<Arc<Server>>,
    ) -> Result<Response<UpstreamBody>, ProxyError> {
        let mut permit = match &self.gate {
            None => None,
            Some(gate) => Some(match gate.try_enter() {
                Some(permit) => permit,
                None => {
                    let entered = Box::pin(gate.enter(delivery.priority, delivery.client)).await;
                    entered.ok_or(ProxyError::UpstreamOverload)?
                }
            }),
        };
        let choice = self.choice(delivery.key);
        let server = choose(&self.servers.load(), choice, None).cloned();
        let server = used.insert(server.ok_or(ProxyError::Unavailable)?);
        let mut sent = self.send_to(server, delivery, request).await;
        if let Err(SendError::Unreachable(_)) = sent
            && let Some(second) = choose(&self.servers.load(), choice, Some(server)).cloned()
        {
            sent = Box::pin(self.send_to(used.insert(second), delivery, request)).await;
        }
        if let Some(permit) = &mut permit {
            match &sent {
                Ok(response) => permit.record(is_gateway_error(response.status())),
                Err(error) if error.is_failure_of_server() => permit.record(true),
                Err(_) => permit.ignore(),
            }
        }
        let mut response = sent.map_err(|error| match error {
            SendError::Unreachable(_) if self.is_down() => ProxyError::Unavailable,
            error => error.into(),
        })?;
        response.body_mut().set_permit(permit);
        Ok(response)
    }

    /// Requests in flight and waiting, in thousandths of an adaptive limit.
    pub(crate) fn load(&self) -> Option<u64> {
        self.gate.as_ref().and_then(|gate| gate.load())
    }

    /// Whether no server is usable; they are tried nevertheless.
    fn is_down(&self) -> bool {
        !self.servers.load().iter().any(|server| server.is_usable())
    }

    fn choice(&self, key: Option<u64>) -> Choice {
        match (&self.options.config.balance, key) {
            (Balance::Hash(_), Some(key)) => Choice::Key(key),
            (Balance::LeastConnections, _) => Choice::LeastLoaded(self.next.fetch_add(1, Relaxed)),
            // A request without the part has no server of its own.
            (Balance::RoundRobin | Balance::Hash(_), _) => {
                Choice::Turn(self.next.fetch_add(1, Relaxed))
            }
        }
    }

    async fn send_to(
        &self,
        server: &Arc<Server>,
        delivery: Delivery,
        request: &mut UpstreamRequest,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let sent = if delivery.is_upgrade && server.has_upgrades() {
            Box::pin(server.send_upgrade(request)).await
        } else {
            server.send(delivery.worker, request).await
        };
        match &sent {
            Ok(response) if !is_gateway_error(response.status()) => server.record_success(),
            Ok(response) => self.record_failure(server, response.status().as_str()),
            Err(error) if error.is_failure_of_server() => {
                self.record_failure(server, error.name());
            }
            Err(_) => {}
        }
        sent
    }

    /// Counts a failure, and ejects a server with too many in a row. The last usable server stays.
    fn record_failure(&self, server: &Arc<Server>, reason: &str) {
        let ejection = self.options.config.eject;
        let failures = server.record_failure();
        if ejection.failures == 0 || failures < ejection.failures {
            return;
        }
        let _ejecting = self.ejecting.lock();
        let servers = self.servers.load();
        let mut others = servers.iter().filter(|other| !Arc::ptr_eq(other, server));
        if !server.is_usable() || !others.any(|other| other.is_usable()) {
            return;
        }
        server.eject_until(Instant::now() + ejection.duration);
        let (upstream, seconds) = (self.name(), ejection.duration.as_secs_f64());
        warn!(upstream, server = server.label(), failures, reason, seconds, "server is ejected");
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.get_mut().abort_all();
    }
}

/// Whether a response says that the server, or one behind it, does not work.
fn is_gateway_error(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}
