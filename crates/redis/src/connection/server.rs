//! One server: its connection pool, the bound on calls in flight, and its health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;

use super::circuit_breaker::{BreakerState, CircuitBreaker};
use super::dial::{Dialed, ServerInfo, dial};
use super::epoch::IdentityCheck;
use super::options::{Settings, Target};
use super::reconnect::{maintain_connection, probe_health};
use super::{Counters, ServerStats};

/// One server. Its connections are closed when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) state: Arc<ServerState>,
    tasks: Vec<AbortHandle>,
}

/// Shared by callers and background tasks.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) target: Target,
    pub(super) settings: Arc<Settings>,
    pub(super) context: ServerContext,
    /// Established connections.
    pool: Box<[ArcSwapOption<Connection>]>,
    /// Serializes changes of the pool.
    pool_lock: Mutex<()>,
    pub(super) in_flight: Semaphore,
    pub(super) waiting: AtomicUsize,
    pub(super) breaker: CircuitBreaker,
    /// Replies over all connections.
    pub(super) replies: AtomicU64,
    /// No connection attempt has ended yet.
    is_connecting: AtomicBool,
    pub(super) health: watch::Sender<ServerHealth>,
    pub(super) breaker_opened: Notify,
    last_error: Mutex<Option<Box<str>>>,
}

/// Shared by all servers of a link.
#[derive(Debug, Clone)]
pub(super) struct ServerContext {
    pub(super) counters: Arc<Counters>,
    pub(super) identity: Arc<IdentityCheck>,
    /// Triggers a discovery of the primary.
    pub(super) alarm: Arc<Notify>,
    /// Connections to replicas are refused.
    pub(super) primaries_only: bool,
}

/// A multiplexed connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    pub(super) in_flight: AtomicUsize,
    /// Calls without a reply since the last reply.
    pub(super) unanswered: AtomicU32,
    /// A call failed on it. The reconnect task is about to remove it.
    pub(super) broken: AtomicBool,
    /// Signals the reconnect task to close it.
    pub(super) close: Notify,
    /// Signals the reconnect task to replace it; it stays usable until then.
    pub(super) replace: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerHealth {
    Connecting,
    Up,
    Down,
}

impl Server {
    /// Starts to connect.
    pub(super) fn new(target: Target, settings: Arc<Settings>, context: ServerContext) -> Self {
        let options = &settings.options;
        let (connections, in_flight) = (options.connections, options.in_flight);
        let state = Arc::new(ServerState {
            target,
            settings,
            context,
            pool: (0..connections).map(|_| ArcSwapOption::empty()).collect(),
            pool_lock: Mutex::new(()),
            in_flight: Semaphore::new(connections.saturating_mul(in_flight)),
            waiting: AtomicUsize::new(0),
            breaker: CircuitBreaker::default(),
            replies: AtomicU64::new(0),
            is_connecting: AtomicBool::new(true),
            health: watch::Sender::new(ServerHealth::Connecting),
            breaker_opened: Notify::new(),
            last_error: Mutex::new(None),
        });
        let mut tasks: Vec<_> = (0..connections)
            .map(|index| tokio::spawn(maintain_connection(state.clone(), index)).abort_handle())
            .collect();
        tasks.push(tokio::spawn(probe_health(state.clone())).abort_handle());
        Self { state, tasks }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl ServerState {
    pub(super) fn is_up(&self) -> bool {
        *self.health.borrow() == ServerHealth::Up
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = Arc<Connection>> {
        self.pool.iter().filter_map(ArcSwapOption::load_full)
    }

    /// The connection with the fewest calls in flight.
    pub(super) fn least_loaded(&self) -> Option<Arc<Connection>> {
        let usable = self.connections().filter(|connection| !connection.broken.load(Relaxed));
        usable.min_by_key(|connection| connection.in_flight.load(Relaxed))
    }

    pub(super) async fn dial(&self) -> Result<Dialed, Box<str>> {
        let dialed = dial(&self.target, &self.settings).await?;
        if self.context.primaries_only && dialed.info.is_primary == Some(false) {
            return Err("the server is a replica".into());
        }
        Ok(dialed)
    }

    /// Adds an established connection to the pool.
    pub(super) fn add(&self, index: usize, connection: Arc<Connection>, info: &ServerInfo) {
        let _guard = self.pool_lock.lock();
        let is_only = self.connections().next().is_none();
        // Before the connection is usable, so that its callers see the new epoch.
        self.context.identity.connected(info.identity.as_deref(), is_only);
        self.pool[index].store(Some(connection));
        self.is_connecting.store(false, Relaxed);
        if is_only {
            // An old error must not explain the next outage.
            *self.last_error.lock() = None;
        }
        self.breaker.probe_succeeded();
        self.update_health();
    }

    /// Removes a lost connection from the pool.
    pub(super) fn remove(&self, index: usize, why: &str) {
        self.pool[index].store(None);
        self.connect_failed(why);
    }

    pub(super) fn connect_failed(&self, why: &str) {
        self.is_connecting.store(false, Relaxed);
        self.note_error(why);
        self.context.alarm.notify_one();
        self.update_health();
    }

    /// The server cannot execute anything for now (`LOADING`, `BUSY`, `MASTERDOWN`).
    pub(super) fn not_ready(&self, why: &str) {
        self.note_error(why);
        if self.breaker.trip() {
            self.on_breaker_opened();
        }
    }

    pub(super) fn on_breaker_opened(&self) {
        self.last_error.lock().get_or_insert_with(|| "no reply in time".into());
        self.breaker_opened.notify_one();
        self.context.alarm.notify_one();
        self.update_health();
    }

    /// Decides whether the server is up: it is down without a connection, and while its circuit
    /// breaker is open.
    pub(super) fn update_health(&self) {
        self.health.send_if_modified(|health| {
            let now = if !self.breaker.is_open() && self.connections().next().is_some() {
                ServerHealth::Up
            } else if self.is_connecting.load(Relaxed) {
                ServerHealth::Connecting
            } else {
                ServerHealth::Down
            };
            std::mem::replace(health, now) != now
        });
    }

    /// Replaces all connections, with the current password and the current address of the name.
    pub(super) fn replace_connections(&self) {
        self.connections().for_each(|connection| connection.replace.notify_one());
    }

    pub(super) fn note_error(&self, why: &str) {
        let mut last = self.last_error.lock();
        if last.as_deref() != Some(why) {
            *last = Some(why.into());
        }
    }

    /// Without a connection calls fail at once too, so the breaker counts as open.
    fn breaker_state(&self) -> BreakerState {
        match self.breaker.state() {
            BreakerState::Closed if *self.health.borrow() == ServerHealth::Down => {
                BreakerState::Open
            }
            state => state,
        }
    }

    pub(super) fn stats(&self) -> ServerStats {
        let connections: Vec<_> = self.connections().collect();
        ServerStats {
            address: self.target.to_string().into(),
            up: self.is_up(),
            breaker: self.breaker_state(),
            connections: connections.len(),
            in_flight: connections.iter().map(|one| one.in_flight.load(Relaxed)).sum(),
            waiting: self.waiting.load(Relaxed),
            last_error: self.last_error.lock().clone(),
        }
    }
}

impl Connection {
    pub(super) fn new(redis: MultiplexedConnection) -> Self {
        Self {
            redis,
            in_flight: AtomicUsize::new(0),
            unanswered: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            close: Notify::new(),
            replace: Notify::new(),
        }
    }
}
