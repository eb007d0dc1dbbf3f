//! A transport of the caller in place of connections, by which the simulator replaces the network.
//!
//! A transport with a probe has a circuit breaker, which trips as that of a server does (`permit`):
//! at once after a call during which nothing was replied, else after repeated failures. Probes
//! close it. Redirects of a Cluster are below this seam.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::circuit_breaker::{BreakerState, CircuitBreaker};
use super::epoch::Epoch;
use super::options::{BreakerOptions, LinkOptions, Settings};
use super::permit::{LATE_MAX, LateReply};
use super::topology::Topology;
use super::{Counters, Link, LinkInner, count};
use crate::CallError;
use crate::call::Call;

/// Carries script calls to a store.
pub trait Transport: Send + Sync + Debug {
    /// Sends a call. Dropping the future does not cancel it.
    fn call(&self, call: TransportCall) -> BoxFuture<'static, Result<Value, CallError>>;

    /// How often the store may have lost data; see [`Link::epoch`].
    fn epoch(&self) -> u64;

    /// Observes [`Transport::epoch`].
    fn changed(&self) -> watch::Receiver<u64>;

    /// Timeout of a call.
    fn timeout(&self) -> Duration {
        LinkOptions::default().timeout
    }

    /// Whether calls can succeed now.
    fn is_up(&self) -> bool {
        true
    }

    /// Whether the keys of a call must share a slot.
    fn is_cluster(&self) -> bool {
        false
    }

    /// Probes the store. Without a probe there is no circuit breaker.
    fn probe(&self) -> Option<BoxFuture<'static, bool>> {
        None
    }
}

/// A call of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportCall {
    /// Source text of the script.
    pub script: &'static str,
    /// `KEYS`.
    pub keys: Vec<Vec<u8>>,
    /// `ARGV`.
    pub args: Vec<Vec<u8>>,
}

/// A store behind a transport.
#[derive(Debug, Clone)]
pub(super) struct CustomStore {
    pub(super) transport: Arc<dyn Transport>,
    health: Arc<TransportHealth>,
}

#[derive(Debug, Default)]
struct TransportHealth {
    breaker: CircuitBreaker,
    options: BreakerOptions,
    replies: AtomicU64,
}

impl Link {
    /// A link over a transport of the caller.
    #[must_use]
    pub fn with_transport(transport: Arc<dyn Transport>) -> Self {
        let inner = LinkInner {
            settings: Arc::new(Settings::without_server(LinkOptions::default())),
            counters: Arc::new(Counters::default()),
            epoch: Arc::new(Epoch::new()),
            topology: Topology::Custom(CustomStore { transport, health: Arc::default() }),
            password_watch: None,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The circuit breaker of a transport; closed for any other link.
    #[must_use]
    pub fn transport_breaker(&self) -> BreakerState {
        match &self.inner.topology {
            Topology::Custom(custom) => custom.health.breaker.state(),
            _ => BreakerState::Closed,
        }
    }
}

impl CustomStore {
    pub(super) fn is_up(&self) -> bool {
        !self.health.breaker.is_open() && self.transport.is_up()
    }

    /// Calls a script.
    pub(super) async fn call(
        &self,
        call: &Call,
        late_reply: LateReply,
        counters: &Counters,
    ) -> Result<Value, CallError> {
        if self.health.breaker.is_open() {
            return Err(CallError::Down);
        }
        let Call { script, keys, args } = call;
        let call = TransportCall { script: script.text, keys: keys.clone(), args: args.clone() };
        let replies = self.health.replies.load(Relaxed);
        let mut replying = self.transport.call(call);
        if let Ok(reply) = timeout(self.transport.timeout(), &mut replying).await {
            self.on_reply(&reply);
            return reply;
        }
        counters.missed_deadline();
        self.on_failure(self.health.replies.load(Relaxed) == replies);
        if late_reply == LateReply::Awaited
            && let Ok(reply) = timeout(LATE_MAX, replying).await
        {
            count(&counters.late_replies);
            self.on_reply(&reply);
            return reply;
        }
        Err(CallError::TimedOut)
    }

    fn on_reply(&self, reply: &Result<Value, CallError>) {
        match reply {
            Ok(_) | Err(CallError::Refused(_)) => {
                self.health.replies.fetch_add(1, Relaxed);
                self.health.breaker.succeeded();
            }
            // Without a connection nothing was sent.
            Err(CallError::Down) => {}
            Err(_) => self.on_failure(false),
        }
    }

    fn on_failure(&self, is_silent: bool) {
        let TransportHealth { breaker, options, .. } = &*self.health;
        let Some(probe) = self.transport.probe() else { return };
        drop(probe);
        let has_opened = if is_silent { breaker.trip() } else { breaker.failed(options) };
        if has_opened {
            tokio::spawn(self.clone().close_by_probe());
        }
    }

    /// Probes with backoff until the circuit breaker is closed.
    async fn close_by_probe(self) {
        let TransportHealth { breaker, options, .. } = &*self.health;
        while breaker.is_open() {
            sleep(breaker.next_backoff(options)).await;
            let Some(probe) = self.transport.probe() else { return };
            breaker.probe_started();
            if timeout(self.transport.timeout(), probe).await.unwrap_or(false) {
                breaker.probe_succeeded();
            } else {
                breaker.probe_failed();
            }
        }
    }
}
