//! A way to the store that is none of ours: where a simulation stands in for sockets and servers.
//!
//! Everything above it is as in production: scripts, keys and arguments go out, values come back, and a call that takes too long has
//! timed out.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::epoch::Epoch;
use super::options::LinkOptions;
use super::permit::{LATE_MAX, Lateness};
use super::settings::Settings;
use super::stats::{Counters, count};
use super::topology::Way;
use super::{Inner, Link};
use crate::CallError;
use crate::call::Call;

/// Something that carries calls to a store and brings back what it says.
pub trait Transport: Send + Sync + Debug {
    /// Carries a call. Whoever asked may be gone before it is answered: what is on its way stays so.
    fn call(&self, sent: TransportCall) -> BoxFuture<'static, Result<Value, CallError>>;

    /// How often the store may have forgotten something, as [`Link::epoch`] says.
    fn epoch(&self) -> u64;

    /// Tells when that is raised.
    fn changed(&self) -> watch::Receiver<u64>;

    /// How long a call may take.
    fn timeout(&self) -> Duration {
        LinkOptions::default().timeout
    }

    /// Whether calls can be answered now.
    fn is_up(&self) -> bool {
        true
    }
}

/// A call of a script, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportCall {
    /// Its text.
    pub script: &'static str,
    /// The keys that it touches.
    pub keys: Vec<Vec<u8>>,
    /// What it is told.
    pub args: Vec<Vec<u8>>,
}

// === impl Link ===

impl Link {
    /// The way to a store over a wire that the caller brings.
    #[must_use]
    pub fn with_transport(wire: Arc<dyn Transport>) -> Self {
        let inner = Inner {
            settings: Arc::new(Settings::of_a_wire()),
            counters: Arc::new(Counters::default()),
            epoch: Arc::new(Epoch::new()),
            way: Way::Custom(wire),
            watching: None,
        };
        Self { inner: Arc::new(inner) }
    }
}

/// Calls a script over a wire.
pub(super) async fn call(
    wire: &Arc<dyn Transport>,
    call: &Call,
    lateness: Lateness,
    counters: &Counters,
) -> Result<Value, CallError> {
    let Call { script, keys, args } = call;
    let sent = TransportCall { script: script.text, keys: keys.clone(), args: args.clone() };
    let mut replying = wire.call(sent);
    if let Ok(reply) = timeout(wire.timeout(), &mut replying).await {
        return reply;
    }
    counters.missed_deadline();
    if lateness == Lateness::Awaited
        && let Ok(reply) = timeout(LATE_MAX, replying).await
    {
        count(&counters.late_replies);
        return reply;
    }
    Err(CallError::TimedOut)
}
