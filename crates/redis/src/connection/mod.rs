//! Connections to the store: routing of a call to a server and a connection, and its failures.
//!
//! *A call that may have been executed is never resent.* Only a reply that proves the opposite
//! (`MOVED`, `ASK`, `TRYAGAIN`, `NOSCRIPT`) leads to a retry. A timeout or a broken connection is a
//! distinct error, and the caller decides.
//!
//! *Everything is bounded*: calls in flight, waiting callers, and the time that both take. A server
//! that hangs costs a few callers one timeout each; then its circuit breaker opens.
//!
//! | module | content |
//! |---|---|
//! | `address`, `options` | configuration |
//! | `dispatch`, `reply` | a call from its caller to the reply, redirects included |
//! | `permit`, `circuit_breaker` | bounds and deadline of a call; what trips the circuit breaker |
//! | `server`, `reconnect` | connection pool, whether the server is up or down, background tasks |
//! | `topology`, `sentinel`, `cluster`, `slot_map` | the primary of a key |
//! | `custom` | a transport of the caller, with a circuit breaker |
//! | `dial`, `tls`, `reply_limit`, `peer` | a new connection, or the reason why there is none |
//! | `epoch` | detects data loss |

mod address;
mod circuit_breaker;
mod cluster;
mod custom;
mod dial;
mod dispatch;
mod epoch;
mod options;
mod peer;
mod permit;
mod reconnect;
mod reply;
mod reply_limit;
mod sentinel;
mod server;
mod slot_map;
#[cfg(test)]
mod tests;
mod tls;
mod topology;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use address::{Address, AddressError};
pub use circuit_breaker::BreakerState;
pub use custom::{Transport, TransportCall};
pub use options::{BreakerOptions, LinkError, LinkOptions, Secret, TlsOptions};

use crate::CallError;
use epoch::Epoch;
use options::Settings;
pub use slot_map::{SLOTS, slot_of};
use topology::Topology;

/// Connections to the store. Clones share them; dropping the last clone closes them.
#[derive(Debug, Clone)]
pub struct Link {
    inner: Arc<LinkInner>,
}

#[derive(Debug)]
struct LinkInner {
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    epoch: Arc<Epoch>,
    topology: Topology,
    password_watch: Option<AbortHandle>,
}

impl Link {
    /// Opens a link. Connections are established in the background, and again when one is lost.
    ///
    /// # Errors
    /// For unreadable files, invalid options, or a call outside of a Tokio runtime.
    pub fn open(address: Address, options: LinkOptions) -> Result<Self, LinkError> {
        if Handle::try_current().is_err() {
            return Err(LinkError::NoRuntime);
        }
        let settings = Arc::new(Settings::new(&address, options)?);
        let counters = Arc::new(Counters::default());
        let epoch = Arc::new(Epoch::new());
        let topology = Topology::new(address.endpoint, &settings, &counters, &epoch);
        let password_watch = settings.watch_password();
        let inner = LinkInner { settings, counters, epoch, topology, password_watch };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether the store is reachable; of a Cluster, at least one primary.
    pub fn is_up(&self) -> bool {
        self.inner.topology.is_up()
    }

    /// Whether it is not known yet if the store is reachable: servers are being discovered, or a
    /// first connection attempt has not ended.
    pub fn is_connecting(&self) -> bool {
        self.inner.topology.is_connecting()
    }

    /// Slots of a Cluster whose primary is not reachable; 0 for any other store.
    pub fn unserved_slots(&self) -> usize {
        match &self.inner.topology {
            Topology::Cluster(cluster) => cluster.unserved_slots(),
            _ => 0,
        }
    }

    /// Whether the primary of a key is reachable.
    pub(crate) fn is_up_for(&self, key: &[u8]) -> bool {
        match &self.inner.topology {
            Topology::Cluster(cluster) => cluster.is_up_for(slot_of(key)),
            topology => topology.is_up(),
        }
    }

    /// Incremented whenever the store may have lost data: by a failover or a restart.
    pub fn epoch(&self) -> u64 {
        match &self.inner.topology {
            Topology::Custom(custom) => custom.transport.epoch(),
            _ => self.inner.epoch.now(),
        }
    }

    /// Counters, and the state of every server.
    pub fn stats(&self) -> LinkStats {
        let topology = &self.inner.topology;
        let servers = topology.servers().iter().map(|server| server.state.stats()).collect();
        let discovery_error = topology.discovery_error();
        LinkStats { discovery_error, ..self.inner.counters.read(self.epoch(), servers) }
    }

    /// The last error of the system or the servers, while there is one.
    pub fn last_error(&self) -> Option<Box<str>> {
        let stats = self.stats();
        let of_servers = || stats.servers.into_iter().find_map(|server| server.last_error);
        stats.discovery_error.or_else(of_servers)
    }

    /// Observes [`Link::epoch`].
    pub(crate) fn epoch_changes(&self) -> watch::Receiver<u64> {
        match &self.inner.topology {
            Topology::Custom(custom) => custom.transport.changed(),
            _ => self.inner.epoch.subscribe(),
        }
    }

    /// The slot of a key if the store is a Cluster: the keys of a call must share one.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<u16> {
        let is_cluster = match &self.inner.topology {
            Topology::Cluster(_) => true,
            Topology::Custom(custom) => custom.transport.is_cluster(),
            _ => false,
        };
        is_cluster.then(|| slot_of(key))
    }
}

impl Drop for LinkInner {
    fn drop(&mut self) {
        if let Some(task) = &self.password_watch {
            task.abort();
        }
    }
}

/// Counters since a [`Link`](super::Link) was opened, and the state of its servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// Calls.
    pub calls: u64,
    /// Calls that missed their deadline, with or without a late reply.
    pub timed_out: u64,
    /// Late replies that settled their call.
    pub late_replies: u64,
    /// Calls that failed because too many were waiting.
    pub busy: u64,
    /// Calls that failed because no server was available.
    pub down: u64,
    /// Calls that failed because the connection broke.
    pub broken: u64,
    /// Calls that the server refused.
    pub refused: u64,
    /// Connections beyond the first ones.
    pub reconnects: u64,
    /// `MOVED` redirects.
    pub moved_redirects: u64,
    /// `ASK` redirects.
    pub ask_redirects: u64,
    /// Retries after `TRYAGAIN`.
    pub tried_again: u64,
    /// Scripts that had to be loaded.
    pub scripts_loaded: u64,
    /// Writes that too few replicas acknowledged in time.
    pub under_replicated: u64,
    /// How often the store may have lost data.
    pub epoch: u64,
    /// Why Sentinels or Cluster nodes report no primary, if they do not.
    pub discovery_error: Option<Box<str>>,
    /// Each known primary.
    pub servers: Vec<ServerStats>,
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Host and port, or path.
    pub address: Box<str>,
    /// Whether calls are sent to it.
    pub up: bool,
    /// Its circuit breaker.
    pub breaker: BreakerState,
    /// Established connections.
    pub connections: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Callers that wait for a permit.
    pub waiting: usize,
    /// The last error, as reported by the system or the server.
    pub last_error: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: AtomicU64,
    timed_out: AtomicU64,
    pub(super) late_replies: AtomicU64,
    busy: AtomicU64,
    down: AtomicU64,
    broken: AtomicU64,
    refused: AtomicU64,
    pub(super) reconnects: AtomicU64,
    pub(super) moved_redirects: AtomicU64,
    pub(super) ask_redirects: AtomicU64,
    pub(super) tried_again: AtomicU64,
    pub(super) scripts_loaded: AtomicU64,
    pub(super) under_replicated: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(super) fn failed(&self, error: &CallError) {
        count(match error {
            // Counted by `missed_deadline`.
            CallError::TimedOut => return,
            CallError::Busy => &self.busy,
            CallError::Down => &self.down,
            CallError::Broken => &self.broken,
            CallError::Refused(_) => &self.refused,
        });
    }

    pub(super) fn missed_deadline(&self) {
        count(&self.timed_out);
    }

    pub(super) fn read(&self, epoch: u64, servers: Vec<ServerStats>) -> LinkStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        LinkStats {
            calls: read(&self.calls),
            timed_out: read(&self.timed_out),
            late_replies: read(&self.late_replies),
            busy: read(&self.busy),
            down: read(&self.down),
            broken: read(&self.broken),
            refused: read(&self.refused),
            reconnects: read(&self.reconnects),
            moved_redirects: read(&self.moved_redirects),
            ask_redirects: read(&self.ask_redirects),
            tried_again: read(&self.tried_again),
            scripts_loaded: read(&self.scripts_loaded),
            under_replicated: read(&self.under_replicated),
            epoch,
            discovery_error: None,
            servers,
        }
    }
}
