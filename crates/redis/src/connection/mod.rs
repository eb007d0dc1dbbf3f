//! The way to the store: which server a call goes to, over which connection, and when to give up.
//!
//! *Never send again what may have happened.* A call is repeated only when a server has said that it did nothing (`MOVED`, `ASK`,
//! `TRYAGAIN`, `NOSCRIPT`). A time-out or a broken connection is an error that says so, and the caller decides.
//!
//! *Everything is bounded*: calls under way, callers that wait, the time that either takes. A server that hangs costs a handful of callers
//! one time-out each; then its breaker is open, and everybody else hears so at once.
//!
//! | room | what it keeps |
//! |---|---|
//! | `address`, `options`, `secret` | what is told from outside |
//! | `dispatch` | a call from here to its answer |
//! | `topology`, `sentinel`, `cluster`, `slot_map` | where the primary is: as the address says, as Sentinels say, or one for each slot |
//! | `server`, `permit`, `reconnect`, `circuit_breaker` | one server: connections, a call's turn, what happens in the background, whether to ask at all |
//! | `dial`, `settings`, `tls`, `password` | a new connection |
//! | `reply`, `slot`, `epoch`, `stats`, `backoff` | what servers answer; slots; whether something was forgotten; numbers; patience |

mod address;
mod backoff;
mod circuit_breaker;
mod cluster;
mod dial;
mod dispatch;
mod epoch;
mod options;
mod password;
mod permit;
mod reconnect;
mod reply;
mod reply_limit;
mod secret;
mod sentinel;
mod server;
mod settings;
mod slot;
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
pub use options::{BreakerOptions, LinkError, LinkOptions, TlsOptions};
pub use secret::Secret;
pub use stats::{BreakerState, LinkStats, ServerStats};
pub use transport::{Transport, TransportCall};

use epoch::Epoch;
use settings::Settings;
use stats::Counters;
use topology::Way;

/// The way to the store. Clones are the same; when the last is dropped, all connections are closed.
#[derive(Debug, Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    epoch: Arc<Epoch>,
    way: Way,
    watching: Option<AbortHandle>,
}

// === impl Link ===

impl Link {
    /// The way to the store at this address. Nothing is waited for: connections are made in the background, now and whenever one is lost.
    ///
    /// # Errors
    /// For what can never work: files that are missing or wrong, options without sense, no runtime.
    pub fn open(address: Address, options: LinkOptions) -> Result<Self, LinkError> {
        if Handle::try_current().is_err() {
            return Err(LinkError::NoRuntime);
        }
        let settings = Arc::new(Settings::new(&address, options)?);
        let counters = Arc::new(Counters::default());
        let epoch = Arc::new(Epoch::new());
        let way = Way::new(address.place, &settings, &counters, &epoch);
        let watching = password::watch(&settings);
        let inner = Inner { settings, counters, epoch, way, watching };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether calls can be answered now. Of a Cluster: by one primary at least.
    pub fn is_up(&self) -> bool {
        self.inner.way.is_up()
    }

    /// Whether calls for a key can be answered now.
    pub(crate) fn is_up_for(&self, key: &[u8]) -> bool {
        match &self.inner.way {
            Way::Cluster(cluster) => cluster.is_up_for(slot::slot_of(key)),
            way => way.is_up(),
        }
    }

    /// Raised whenever the store may have forgotten something: another server is the primary now, or the same was started anew.
    pub fn epoch(&self) -> u64 {
        match &self.inner.way {
            Way::Custom(wire) => wire.epoch(),
            _ => self.inner.epoch.now(),
        }
    }

    /// What became of the calls, and how every server does.
    pub fn stats(&self) -> LinkStats {
        let way = &self.inner.way;
        let servers = way.servers().iter().map(|server| server.shared.stats()).collect();
        LinkStats { lost: way.trouble(), ..self.inner.counters.read(self.epoch(), servers) }
    }

    /// Tells when the epoch is raised.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        match &self.inner.way {
            Way::Custom(wire) => wire.changed(),
            _ => self.inner.epoch.subscribe(),
        }
    }

    /// Where the key lies, if the store is a Cluster; if it is none, a call may hold any keys.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<u16> {
        matches!(self.inner.way, Way::Cluster(_)).then(|| slot::slot_of(key))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
    }
}
