//! Upstreams: which server gets a request, and the connections to it.

mod http1;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use parking_lot::Mutex;
use sluicegate_config::gateway::upstream::{ServerConfig, UpstreamConfig, UpstreamTimeouts};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

pub(crate) use self::http1::UpstreamBody;
use self::http1::{Http1, SendError};
use crate::body::RequestBody;
use crate::error::ProxyError;

/// A group of servers that answer the same requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    name: String,
    servers: Vec<Arc<Server>>,
    next: AtomicUsize,
}

/// A server, with its idle connections.
#[derive(Debug)]
pub(crate) struct Server {
    config: ServerConfig,
    timeouts: UpstreamTimeouts,
    idle_max: usize,
    /// By worker: a connection belongs to the thread that opened it.
    idle: Box<[Mutex<Vec<Idle>>]>,
}

#[derive(Debug)]
struct Idle {
    connection: Http1,
    since: Instant,
}

impl Upstream {
    /// Servers that the previous group has too, with the same options, keep their connections.
    pub(crate) fn new(config: &UpstreamConfig, workers: usize, previous: Option<&Self>) -> Self {
        let UpstreamConfig { servers, timeouts, idle_max, .. } = config;
        let known = |config: &ServerConfig| {
            let mut servers = previous.into_iter().flat_map(|previous| &previous.servers);
            servers.find(|one| {
                one.config == *config && one.timeouts == *timeouts && one.idle_max == *idle_max
            })
        };
        let server = |config: &ServerConfig| {
            if let Some(server) = known(config) {
                return server.clone();
            }
            let idle = (0..workers).map(|_| Mutex::default()).collect();
            let (timeouts, idle_max) = (*timeouts, *idle_max);
            Arc::new(Server { config: config.clone(), timeouts, idle_max, idle })
        };
        let servers = servers.iter().map(server).collect();
        Self { name: config.name.clone(), servers, next: AtomicUsize::new(0) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request to one of the servers.
    pub(crate) async fn send(
        &self,
        worker: usize,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, ProxyError> {
        let turn = self.next.fetch_add(1, Relaxed);
        let server = self.servers.get(turn % self.servers.len().max(1));
        let server = server.ok_or(ProxyError::Unavailable)?;
        server.send(worker, request).await
    }
}

impl Server {
    async fn send(
        self: &Arc<Self>,
        worker: usize,
        mut request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, ProxyError> {
        if let Some(connection) = self.take_idle(worker) {
            // A server may close an idle connection at any time, also while a request is on its
            // way. Only a request that was not sent, or that may be sent twice, goes again.
            let replay = replayable(&request);
            match self.exchange(connection, worker, request).await {
                Err(SendError::Unsent(unsent)) => request = *unsent,
                Err(SendError::Closed) => request = replay.ok_or(ProxyError::BadGateway)?,
                sent => return sent.map_err(ProxyError::from),
            }
        }
        let connection = self.connect().await?;
        self.exchange(connection, worker, request).await.map_err(ProxyError::from)
    }

    async fn exchange(
        self: &Arc<Self>,
        connection: Http1,
        worker: usize,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let sent = connection.send(request, Reuse { server: self.clone(), worker });
        timeout(self.timeouts.first_byte, sent).await.unwrap_or(Err(SendError::Timeout))
    }

    /// The idle connection that was used last: the others can close in time.
    fn take_idle(&self, worker: usize) -> Option<Http1> {
        let mut idle = self.idle.get(worker)?.lock();
        while let Some(Idle { mut connection, since }) = idle.pop() {
            if since.elapsed() >= self.timeouts.idle {
                // Those below are older.
                idle.clear();
            } else if connection.is_alive() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Http1, ProxyError> {
        let connected = timeout(self.timeouts.connect, async {
            let address = self.resolve().await?;
            let socket = TcpStream::connect(address).await.ok()?;
            let _ = socket.set_nodelay(true);
            Http1::handshake(socket).await.ok()
        });
        match connected.await {
            Ok(connected) => connected.ok_or(ProxyError::BadGateway),
            Err(_) => Err(ProxyError::Timeout),
        }
    }

    async fn resolve(&self) -> Option<SocketAddr> {
        let ServerConfig { host, port, .. } = &self.config;
        lookup_host((host.as_str(), *port)).await.ok()?.next()
    }
}

/// Where a connection goes when it is idle.
#[derive(Debug, Clone)]
pub(crate) struct Reuse {
    server: Arc<Server>,
    worker: usize,
}

impl Reuse {
    fn idle(&self, connection: Http1) {
        if let Some(idle) = self.server.idle.get(self.worker) {
            let mut idle = idle.lock();
            if idle.len() < self.server.idle_max {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
    }
}

/// A copy of a request that may be sent twice: without a body, by a method that does not change
/// anything the second time.
fn replayable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !request.method().is_idempotent() || !request.body().is_empty() {
        return None;
    }
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

impl From<SendError> for ProxyError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Timeout => Self::Timeout,
            SendError::Unsent(_) | SendError::Closed | SendError::Failed => Self::BadGateway,
        }
    }
}
