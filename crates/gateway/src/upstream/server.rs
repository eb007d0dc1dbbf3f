//! A server of an upstream: its connections, its health, and how a request gets there.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use http::Response;
use http::uri::Scheme;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use sluicegate_config::gateway::upstream::{
    Balance, HealthCheck, ServerConfig, UpstreamConfig, UpstreamProtocol,
};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::UpstreamRequest;
use super::balance::stable_hash;
use super::body::{Reuse, Source, UpstreamBody};
use super::http1::{HeadTimeout, Http1};
use super::http2::{Http2, Http2Pool};
use super::send_error::{ConnectError, SendError};
use super::tls::UpstreamTlsConfigs;
use super::transport::Transport;
use crate::client_body::BodyOutcome;

/// Options that all servers of an upstream share.
#[derive(Debug)]
pub(super) struct Options {
    /// The configuration, without its servers.
    pub(super) config: UpstreamConfig,
    /// For `https` servers.
    pub(super) tls: Option<UpstreamTlsConfigs>,
    pub(super) workers: usize,
}

/// A server, with its connections and its health.
#[derive(Debug)]
pub(crate) struct Server {
    options: Arc<Options>,
    config: ServerConfig,
    /// `None`: the system resolves the name for each connection.
    address: Option<SocketAddr>,
    label: String,
    identity_hash: u64,
    /// Whether active checks fail.
    is_down: AtomicBool,
    /// Failures in a row: of requests.
    failures: AtomicU32,
    /// End of an ejection, in milliseconds after `epoch`; 0 for none.
    ejected_until: AtomicU64,
    epoch: Instant,
    in_flight: AtomicUsize,
    /// Whether the server is known to prefer HTTP/1.1 in TLS handshakes.
    prefers_http1: AtomicBool,
    /// By worker: a connection belongs to the thread that opened it.
    pools: Box<[WorkerPool]>,
}

/// The connections of one worker.
#[derive(Debug, Default)]
struct WorkerPool {
    idle: Mutex<Vec<Idle>>,
    http2: Http2Pool,
    /// Held while a connection of HTTP/2 is opened, so that requests do not open one each.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Idle {
    connection: Http1,
    since: Instant,
}

/// A connection that can send a request.
#[derive(Debug)]
enum Connection {
    Http1(Http1),
    Http2(Http2),
}

/// A request in flight at a server, counted until dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Server>);

impl Server {
    pub(super) fn new(
        options: &Arc<Options>,
        config: &ServerConfig,
        address: Option<SocketAddr>,
    ) -> Arc<Self> {
        let literal = || {
            let ip = config.host.parse::<IpAddr>().ok()?;
            Some(SocketAddr::new(ip, config.port))
        };
        let label = match address {
            Some(address) => format!("{config} ({})", address.ip()),
            None => config.to_string(),
        };
        Arc::new(Self {
            options: options.clone(),
            config: config.clone(),
            address: address.or_else(literal),
            identity_hash: stable_hash(label.as_bytes()),
            label,
            is_down: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            epoch: Instant::now(),
            in_flight: AtomicUsize::new(0),
            prefers_http1: AtomicBool::new(false),
            pools: (0..options.workers).map(|_| WorkerPool::default()).collect(),
        })
    }

    /// Its URL, with the address where its name has several; for logs and metrics.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(super) const fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(super) const fn identity_hash(&self) -> u64 {
        self.identity_hash
    }

    // === health ===

    /// Whether its checks succeed and it is not ejected.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_down() && !self.is_ejected()
    }

    /// Whether active checks fail.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }

    fn is_ejected(&self) -> bool {
        // The clock is read for ejected servers only.
        let until = self.ejected_until.load(Relaxed);
        until != 0 && self.epoch.elapsed().as_millis() < u128::from(until)
    }

    /// Records the outcome of active checks.
    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Relaxed);
    }

    pub(super) fn eject_until(&self, until: Instant) {
        let millis = until.duration_since(self.epoch).as_millis();
        self.ejected_until.store(u64::try_from(millis).unwrap_or(u64::MAX).max(1), Relaxed);
        self.failures.store(0, Relaxed);
    }

    pub(super) fn record_success(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// Records a failed request; returns the number of failures in a row.
    pub(super) fn record_failure(&self) -> u32 {
        self.failures.fetch_add(1, Relaxed).saturating_add(1)
    }

    // === load ===

    pub(super) fn requests_in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.in_flight.fetch_add(1, Relaxed);
        RequestGuard(self.clone())
    }

    // === requests ===

    /// Sends a request on a connection of the pool, or a new one.
    pub(super) async fn send(
        self: &Arc<Self>,
        worker: usize,
        request: &mut UpstreamRequest,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let deadline = self.options.config.timeouts.total.map(|total| Instant::now() + total);
        if let Some(connection) = self.take_pooled(worker) {
            // A server may close an idle connection at any time, also while a request is on its
            // way. Only a request that was not sent, or that may be sent twice, goes again.
            let is_replayable = is_replayable(request);
            match self.exchange(connection, worker, request, deadline).await {
                Err(SendError::Unsent) => {}
                Err(SendError::Closed) if is_replayable => {}
                sent => return sent,
            }
        }
        // Boxed, as everything that is rare: the future of a request is moved several times.
        Box::pin(async move {
            let connected = self.connect(worker).await;
            let connection = connected.map_err(SendError::Unreachable)?;
            self.exchange(connection, worker, request, deadline).await
        })
        .await
    }

    async fn exchange(
        self: &Arc<Self>,
        connection: Connection,
        worker: usize,
        request: &mut UpstreamRequest,
        deadline: Option<Instant>,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let is_counted = self.options.config.balance == Balance::LeastConnections;
        let guard = is_counted.then(|| self.begin_request());
        let response = match connection {
            Connection::Http1(connection) => {
                let response = connection.send(request, self.head_timeout(deadline)).await?;
                let reuse = Reuse { server: self.clone(), worker };
                response.map(|body| Source::Http1(body, Some(reuse)))
            }
            Connection::Http2(connection) => {
                let body = request.body.outcome();
                let sent = connection.send(request, self.scheme());
                let sent = Box::pin(self.head_in_time(sent, body, deadline)).await;
                let (response, stream) = sent?;
                response.map(|body| Source::Http2(body, stream))
            }
        };
        let deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Ok(response.map(|source| UpstreamBody::new(source, deadline, guard)))
    }

    /// Sends a request that asks for an upgrade of HTTP/1.1, on a connection of its own.
    pub(super) async fn send_upgrade(
        self: &Arc<Self>,
        request: &mut UpstreamRequest,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let transport = timeout(self.options.config.timeouts.connect, self.dial(true)).await;
        let transport = transport.unwrap_or(Err(ConnectError::Timeout));
        let connection = Http1::new(transport.map_err(SendError::Unreachable)?);
        let is_counted = self.options.config.balance == Balance::LeastConnections;
        let guard = is_counted.then(|| self.begin_request());
        let response = connection.send(request, self.head_timeout(None)).await?;
        Ok(response.map(|body| UpstreamBody::new(Source::Http1(body, None), None, guard)))
    }

    /// Whether it can upgrade a connection of HTTP/1.1.
    pub(super) fn has_upgrades(&self) -> bool {
        self.config.protocol != UpstreamProtocol::H2c
    }

    /// Requests a path on a new connection; returns the status.
    pub(super) async fn check(&self, check: &HealthCheck) -> Result<u16, &'static str> {
        let checked = async {
            let transport = self.dial(false).await.map_err(ConnectError::name)?;
            let mut request = UpstreamRequest::default();
            request.head.uri = check.path.parse().map_err(|_| "its path is malformed")?;
            let host = match self.config.host.contains(':') {
                true => format!("[{}]:{}", self.config.host, self.config.port),
                false => format!("{}:{}", self.config.host, self.config.port),
            };
            let headers = &mut request.head.headers;
            let host = host.try_into().map_err(|_| "its host is malformed")?;
            headers.insert(http::header::HOST, host);
            let agent = http::HeaderValue::from_static("sluicegate-health-check");
            headers.insert(http::header::USER_AGENT, agent);
            let sent = if self.is_http2(&transport) {
                let connection = Http2::handshake(transport).await;
                let connection = connection.map_err(|_| "the HTTP/2 handshake failed")?;
                let sent = connection.send(&mut request, self.scheme()).await;
                sent.map(|(response, _)| response.status())
            } else {
                let sent = Http1::new(transport).send(&mut request, self.head_timeout(None)).await;
                sent.map(|response| response.status())
            };
            Ok(sent.map_err(|error| error.name())?.as_u16())
        };
        timeout(check.timeout, checked).await.unwrap_or(Err("the check took too long"))
    }

    fn head_timeout(&self, deadline: Option<Instant>) -> HeadTimeout {
        HeadTimeout { first_byte: self.options.config.timeouts.first_byte, deadline }
    }

    /// Waits for the head of a response. Its time begins with the request, again with each piece of
    /// the body that the server takes, and does not pass while the client is waited for.
    pub(super) async fn head_in_time<T>(
        &self,
        sent: impl Future<Output = Result<T, SendError>>,
        body: Option<BodyOutcome>,
        deadline: Option<Instant>,
    ) -> Result<T, SendError> {
        let first_byte = self.options.config.timeouts.first_byte;
        let begun = Instant::now();
        let mut until = begun + first_byte;
        let mut sent = pin!(sent);
        loop {
            let next = deadline.map_or(until, |deadline| deadline.min(until));
            if let Ok(sent) = timeout_at(next, &mut sent).await {
                return sent;
            }
            let now = Instant::now();
            let is_over = deadline.is_some_and(|deadline| deadline <= now);
            let Some(body) = body.as_ref().filter(|_| !is_over) else {
                return Err(SendError::Timeout);
            };
            until = body.read_at().map_or(now, |at| at.max(begun)) + first_byte;
            if until <= now {
                return Err(SendError::Timeout);
            }
        }
    }

    const fn scheme(&self) -> Scheme {
        match self.config.protocol {
            UpstreamProtocol::Https => Scheme::HTTPS,
            UpstreamProtocol::Http1 | UpstreamProtocol::H2c => Scheme::HTTP,
        }
    }

    // === connections ===

    fn take_pooled(&self, worker: usize) -> Option<Connection> {
        if let Some(connection) = self.take_idle(worker) {
            return Some(Connection::Http1(connection));
        }
        match self.config.protocol {
            UpstreamProtocol::Http1 => None,
            _ => self.pools.get(worker)?.http2.get().map(Connection::Http2),
        }
    }

    /// The idle connection that was used last: the others can close in time.
    fn take_idle(&self, worker: usize) -> Option<Http1> {
        let mut idle = self.pools.get(worker)?.idle.lock();
        while let Some(Idle { mut connection, since }) = idle.pop() {
            if since.elapsed() >= self.options.config.timeouts.idle {
                // Those below are older.
                idle.clear();
            } else if connection.is_alive() {
                return Some(connection);
            }
        }
        None
    }

    /// Returns a connection to the pool.
    pub(super) fn put_idle(&self, worker: usize, connection: Http1) {
        if let Some(pool) = self.pools.get(worker) {
            let mut idle = pool.idle.lock();
            if idle.len() < self.options.config.idle_max {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
    }

    /// Closes the connections that were idle for too long, and those that the server closed.
    pub(super) fn reap_idle(&self) {
        let limit = self.options.config.timeouts.idle;
        for pool in &self.pools {
            // Closed without the lock.
            let mut expired = Vec::new();
            {
                let mut idle = pool.idle.lock();
                // The oldest are first.
                let count = idle.iter().take_while(|idle| idle.since.elapsed() >= limit).count();
                expired.extend(idle.drain(..count));
            }
            pool.http2.reap(limit);
        }
    }

    async fn connect(&self, worker: usize) -> Result<Connection, ConnectError> {
        let connected = timeout(self.options.config.timeouts.connect, self.open(worker)).await;
        connected.unwrap_or(Err(ConnectError::Timeout))
    }

    async fn open(&self, worker: usize) -> Result<Connection, ConnectError> {
        let pool = self.pools.get(worker).ok_or(ConnectError::Refused)?;
        let may_be_http2 =
            self.config.protocol != UpstreamProtocol::Http1 && !self.prefers_http1.load(Relaxed);
        let _connecting = match may_be_http2 {
            true => Some(pool.connecting.lock().await),
            false => None,
        };
        if may_be_http2 && let Some(connection) = pool.http2.get() {
            return Ok(Connection::Http2(connection));
        }
        let transport = self.dial(false).await?;
        if self.is_http2(&transport) {
            let connection = Http2::handshake(transport).await;
            let connection = connection.map_err(|_| ConnectError::Refused)?;
            pool.http2.insert(connection.clone());
            return Ok(Connection::Http2(connection));
        }
        if may_be_http2 {
            self.prefers_http1.store(true, Relaxed);
        }
        Ok(Connection::Http1(Http1::new(transport)))
    }

    fn is_http2(&self, transport: &Transport) -> bool {
        self.config.protocol == UpstreamProtocol::H2c || transport.has_negotiated_http2()
    }

    /// Connects a byte stream.
    async fn dial(&self, is_http1_only: bool) -> Result<Transport, ConnectError> {
        let address = match self.address {
            Some(address) => address,
            None => self.resolve().await.ok_or(ConnectError::Resolve)?,
        };
        let socket = TcpStream::connect(address).await.map_err(|_| ConnectError::Refused)?;
        let _ = socket.set_nodelay(true);
        let Some(tls) = &self.options.tls else { return Ok(Transport::Tcp(socket)) };
        if self.config.protocol != UpstreamProtocol::Https {
            return Ok(Transport::Tcp(socket));
        }
        let name = match &tls.server_name {
            Some(name) => name.clone(),
            None => {
                ServerName::try_from(self.config.host.clone()).map_err(|_| ConnectError::Tls)?
            }
        };
        let config = if is_http1_only { &tls.http1 } else { &tls.any };
        let handshake = TlsConnector::from(config.clone()).connect(name, socket).await;
        handshake.map(|tls| Transport::Tls(Box::new(tls))).map_err(|_| ConnectError::Tls)
    }

    async fn resolve(&self) -> Option<SocketAddr> {
        let ServerConfig { host, port, .. } = &self.config;
        lookup_host((host.as_str(), *port)).await.ok()?.next()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Whether a request may be sent twice: it has no body, and a method that does not change anything
/// the second time.
pub(super) fn is_replayable(request: &UpstreamRequest) -> bool {
    request.head.method.is_idempotent() && request.body.is_empty()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::upstream) fn server(url: &str) -> Arc<Server> {
        let config = UpstreamConfig::new("test", Vec::new());
        let options = Arc::new(Options { config, tls: None, workers: 1 });
        Server::new(&options, &url.parse().unwrap(), None)
    }

    #[test]
    fn a_request_with_a_body_or_an_effect_is_not_replayed() {
        let request = |method: http::Method| {
            let mut request = UpstreamRequest::default();
            request.head.method = method;
            is_replayable(&request)
        };
        assert!(request(http::Method::GET) && request(http::Method::DELETE));
        assert!(!request(http::Method::POST) && !request(http::Method::PATCH));
    }
}
