//! Transport seam that lets a simulation replace sockets and servers.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::epoch::Epoch;
use super::options::{LinkOptions, Settings};
use super::permit::{LATE_MAX, LateReply};
use super::stats::{Counters, count};
use super::topology::Topology;
use super::{Link, LinkInner};
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

impl Link {
    /// A link over a transport of the caller.
    #[must_use]
    pub fn with_transport(transport: Arc<dyn Transport>) -> Self {
        let inner = LinkInner {
            settings: Arc::new(Settings::without_server(LinkOptions::default())),
            counters: Arc::new(Counters::default()),
            epoch: Arc::new(Epoch::new()),
            topology: Topology::Custom(transport),
            password_watch: None,
        };
        Self { inner: Arc::new(inner) }
    }
}

pub(super) async fn call(
    transport: &Arc<dyn Transport>,
    call: &Call,
    late_reply: LateReply,
    counters: &Counters,
) -> Result<Value, CallError> {
    let Call { script, keys, args } = call;
    let call = TransportCall { script: script.text, keys: keys.clone(), args: args.clone() };
    let mut replying = transport.call(call);
    if let Ok(reply) = timeout(transport.timeout(), &mut replying).await {
        return reply;
    }
    counters.missed_deadline();
    if late_reply == LateReply::Awaited
        && let Ok(reply) = timeout(LATE_MAX, replying).await
    {
        count(&counters.late_replies);
        return reply;
    }
    Err(CallError::TimedOut)
}
