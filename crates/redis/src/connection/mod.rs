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
//! | `dial`, `tls`, `reply_limit` | a new connection |
//! | `epoch` | detects data loss |

mod address;
mod circuit_breaker;
mod cluster;
mod dial;
mod dispatch;
mod epoch;
mod options;
mod permit;
mod reconnect;
mod reply;
mod reply_limit;
mod sentinel;
mod server;
mod slot_map;
mod stats;
mod tls;
mod topology;
mod transport;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use address::{Address, AddressError};
pub use options::{BreakerOptions, LinkError, LinkOptions, Secret, TlsOptions};
pub use stats::{BreakerState, LinkStats, ServerStats};
pub use transport::{Transport, TransportCall};

use epoch::Epoch;
use options::Settings;
use slot_map::slot_of;
use stats::Counters;
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
            Topology::Custom(transport) => transport.epoch(),
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

    /// Observes [`Link::epoch`].
    pub(crate) fn epoch_changes(&self) -> watch::Receiver<u64> {
        match &self.inner.topology {
            Topology::Custom(transport) => transport.changed(),
            _ => self.inner.epoch.subscribe(),
        }
    }

    /// The slot of a key if the store is a Cluster: the keys of a call must share one.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<u16> {
        matches!(self.inner.topology, Topology::Cluster(_)).then(|| slot_of(key))
    }
}

impl Drop for LinkInner {
    fn drop(&mut self) {
        if let Some(task) = &self.password_watch {
            task.abort();
        }
    }
}
