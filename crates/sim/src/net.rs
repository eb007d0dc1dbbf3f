//! Simulated network and store faults: delay, loss, duplicated calls, partitions, stalls, failover
//! and restart.
//!
//! The store executes calls one at a time, as Redis does. Sent calls stay in transit after their
//! node has ended, and calls overtake each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::Value;
use sluicegate_redis::{CallError, Transport, TransportCall};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::rng::SimRng;
use crate::store::Store;
use crate::time::WorldClock;
use crate::trace::Trace;

/// Network conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Maximum one-way delay in milliseconds.
    pub delay_ms: u64,
    /// Late calls per thousand, and their maximum delay.
    pub late: (u64, u64),
    /// Lost calls per thousand.
    pub lost: u64,
    /// Lost responses per thousand.
    pub unanswered: u64,
    /// Duplicated calls per thousand.
    pub twice: u64,
}

/// The store and the network to it.
#[derive(Debug)]
pub(crate) struct Net {
    truth: Arc<WorldClock>,
    trace: Trace,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: SimRng,
    conditions: Conditions,
    store: Store,
    /// Number of the current primary.
    primary: u64,
    is_down: bool,
    stalled_until: Instant,
    /// Errors of scripts: always violations.
    errors: Vec<String>,
    calls: u64,
    syncs: Vec<Synced>,
}

/// A sync call: pushes a node's counts of some identities and pulls those of its peers.
#[derive(Debug, Clone)]
pub struct Synced {
    /// Calling process.
    pub process: u64,
    /// Identities.
    pub keys: Vec<String>,
    /// Time of sending.
    pub sent_us: u64,
    /// Time of execution.
    pub done_us: u64,
    /// Time of receipt of the response, if received.
    pub received_us: Option<u64>,
}

/// A node's transport to the store.
#[derive(Debug)]
pub(crate) struct NodeWire {
    name: String,
    process: u64,
    net: Arc<Net>,
    timeout: Duration,
    /// Whether this is the observer beside the store.
    is_onlooker: bool,
    is_gone: AtomicBool,
    is_cut: AtomicBool,
    /// Number of the connected primary.
    primary: AtomicU64,
    epoch: AtomicU64,
    /// One sender per subscriber, so that the order of notifications is deterministic.
    epoch_senders: Mutex<Vec<watch::Sender<u64>>>,
}

/// Outcome of one call.
struct Fate {
    outbound: Duration,
    back: Duration,
    is_lost: bool,
    is_unanswered: bool,
    again_after: Option<Duration>,
    /// In a partition: whether the call fails at once.
    is_known: bool,
}

/// Process number of the observer.
pub(crate) const OBSERVER: u64 = 0;

impl Conditions {
    /// All calls arrive once, with little delay.
    pub const NORMAL: Self = Self { delay_ms: 2, late: (0, 0), lost: 0, unanswered: 0, twice: 0 };
}

impl Net {
    /// A store without nodes.
    #[must_use]
    pub(crate) fn new(
        truth: &Arc<WorldClock>,
        trace: &Trace,
        store: Store,
        rng: SimRng,
    ) -> Arc<Self> {
        let state = State {
            rng,
            conditions: Conditions::NORMAL,
            store,
            primary: 0,
            is_down: false,
            stalled_until: Instant::now(),
            errors: Vec::new(),
            calls: 0,
            syncs: Vec::new(),
        };
        Arc::new(Self { truth: truth.clone(), trace: trace.clone(), state: Mutex::new(state) })
    }

    /// A transport for a node.
    #[must_use]
    pub(crate) fn wire(
        self: &Arc<Self>,
        name: String,
        process: u64,
        timeout: Duration,
    ) -> Arc<NodeWire> {
        Arc::new(NodeWire {
            name,
            process,
            net: self.clone(),
            timeout,
            is_onlooker: process == OBSERVER,
            is_gone: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            primary: AtomicU64::new(self.state.lock().primary),
            epoch: AtomicU64::new(0),
            epoch_senders: Mutex::default(),
        })
    }

    /// Changes the network conditions.
    pub(crate) fn set_conditions(&self, conditions: Conditions) {
        self.state.lock().conditions = conditions;
    }

    /// Stalls the store; arriving calls wait.
    pub(crate) fn stall(&self, ms: u64) {
        self.state.lock().stalled_until = Instant::now() + Duration::from_millis(ms);
    }

    /// Loses the primary; its replica lacks the writes of the last milliseconds.
    pub(crate) fn lose(&self, last_ms: u64) {
        let since = self.truth.event_us().saturating_sub(last_ms * 1_000);
        let mut state = self.state.lock();
        state.store.roll_back(since);
        state.primary += 1;
        state.is_down = true;
    }

    /// Loses the store with all data.
    pub(crate) fn lose_all(&self) {
        let mut state = self.state.lock();
        state.store.clear();
        state.primary += 1;
        state.is_down = true;
    }

    /// Restores a primary.
    pub(crate) fn is_back(&self) {
        self.state.lock().is_down = false;
    }

    /// Unexpected errors, and the number of calls.
    #[must_use]
    pub(crate) fn errors(&self) -> (Vec<String>, u64) {
        let state = self.state.lock();
        (state.errors.clone(), state.calls)
    }

    /// Sync calls in the order of execution.
    pub(crate) fn syncs(&self) -> Vec<Synced> {
        self.state.lock().syncs.clone()
    }

    fn fate(&self) -> Fate {
        let mut state = self.state.lock();
        let Conditions { delay_ms, late, lost, unanswered, twice } = state.conditions;
        let rng = &mut state.rng;
        let mut delay = || {
            let max = if rng.permille(late.0) { late.1 } else { delay_ms };
            Duration::from_millis(rng.within(0, max))
        };
        let (outbound, back) = (delay(), delay());
        Fate {
            outbound,
            back,
            is_lost: rng.permille(lost),
            is_unanswered: rng.permille(unanswered),
            again_after: rng.permille(twice).then(|| Duration::from_millis(rng.within(1, 1_500))),
            is_known: rng.permille(500),
        }
    }

    /// Carries a call to the store and its response back; a lost response leaves the caller
    /// waiting.
    async fn carry(
        self: Arc<Self>,
        wire: CallContext,
        sent: TransportCall,
        reply_to: oneshot::Sender<Result<Value, CallError>>,
    ) {
        let fate = self.fate();
        let mut sync = Synced::of(&wire, &sent);
        let reply = self.round_trip(&wire, &fate, &sent, &mut sync).await;
        let is_received = !wire.wire.is_gone.load(Ordering::Relaxed)
            && reply.is_some_and(|reply| reply_to.send(reply).is_ok());
        if let Some(mut sync) = sync.filter(|sync| sync.done_us > 0) {
            sync.received_us = is_received.then(|| self.truth.now_us());
            self.state.lock().syncs.push(sync);
        }
        if let Some(after) = fate.again_after {
            pause(after).await;
            if self.state.lock().primary == wire.primary {
                let _ = self.execute(&wire.wire.name, &sent, "again").await;
            }
        }
    }

    async fn round_trip(
        &self,
        CallContext { wire, primary, .. }: &CallContext,
        fate: &Fate,
        sent: &TransportCall,
        sync: &mut Option<Synced>,
    ) -> Option<Result<Value, CallError>> {
        let is_cut = || wire.is_cut.load(Ordering::Relaxed);
        if is_cut() {
            return fate.is_known.then_some(Err(CallError::Down));
        }
        pause(fate.outbound).await;
        if is_cut() || fate.is_lost {
            return None;
        }
        if self.is_another(*primary) {
            return Some(Err(if fate.is_known { CallError::Down } else { CallError::Broken }));
        }
        let reply = self.execute(&wire.name, sent, "call").await;
        if let Some(sync) = sync {
            sync.done_us = self.truth.now_us();
        }
        if fate.is_unanswered {
            return None;
        }
        pause(fate.back).await;
        if is_cut() {
            return None;
        }
        Some(if self.is_another(*primary) { Err(CallError::Broken) } else { reply })
    }

    /// Answers the observer at once under all faults. The observer is no node and does not
    /// register.
    fn shows(&self, sent: &TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        if sent.keys.iter().any(|key| key.windows(7).any(|part| part == b"{nodes}")) {
            return Box::pin(std::future::pending());
        }
        let now = self.truth.now_us();
        let reply = self.state.lock().store.run(sent.script, &sent.keys, &sent.args, now);
        Box::pin(async move { reply.map_err(|error| CallError::Refused(error.into())) })
    }

    /// Whether the primary is down or has changed since the call was sent.
    fn is_another(&self, primary: u64) -> bool {
        let state = self.state.lock();
        state.is_down || state.primary != primary
    }

    async fn execute(
        &self,
        name: &str,
        sent: &TransportCall,
        kind: &str,
    ) -> Result<Value, CallError> {
        loop {
            let until = self.state.lock().stalled_until;
            if until <= Instant::now() {
                break;
            }
            sleep_until(until).await;
        }
        let now = self.truth.event_us();
        let mut state = self.state.lock();
        state.calls += 1;
        let reply = state.store.run(sent.script, &sent.keys, &sent.args, now);
        let keys: Vec<_> = sent.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        self.trace.line(format_args!("{name} {kind} {} -> {reply:?}", keys.join(" ")));
        reply.map_err(|error| {
            state.errors.push(error.clone());
            CallError::Refused(error.into())
        })
    }
}

/// A zero duration does not wait for the next millisecond.
async fn pause(span: Duration) {
    if !span.is_zero() {
        sleep(span).await;
    }
}

/// A call in transit: its sender, primary and send time.
struct CallContext {
    wire: Arc<NodeWire>,
    primary: u64,
    sent_us: u64,
}

impl Synced {
    /// Counts of eventual rules are stored beside records, under `:e`.
    fn of(context: &CallContext, sent: &TransportCall) -> Option<Self> {
        let its = sent.keys.iter().filter(|key| key.ends_with(b":e"));
        let keys: Vec<_> = its.map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        let (process, sent_us) = (context.wire.process, context.sent_us);
        (!keys.is_empty()).then_some(Self { process, keys, sent_us, done_us: 0, received_us: None })
    }
}

impl NodeWire {
    /// Ends the node: it neither sends nor receives.
    pub(crate) fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Starts or ends a partition of the node.
    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Connects to the current primary; a new one may have lost data.
    pub(crate) fn reconnect(&self) {
        let primary = self.net.state.lock().primary;
        if self.primary.swap(primary, Ordering::Relaxed) != primary {
            let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
            for sender in &*self.epoch_senders.lock() {
                sender.send_replace(epoch);
            }
        }
    }

    /// The transport for the engine; calls outlive the caller.
    #[must_use]
    pub(crate) fn as_wire(self: &Arc<Self>) -> Arc<dyn Transport> {
        Arc::new(Shared(self.clone()))
    }
}

/// Implements [`Transport`] with shared ownership of the wire.
#[derive(Debug)]
struct Shared(Arc<NodeWire>);

impl Transport for Shared {
    fn call(&self, sent: TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        let wire = self.0.clone();
        if wire.is_gone.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let net = wire.net.clone();
        if wire.is_onlooker {
            return net.shows(&sent);
        }
        let (reply_to, receiver) = oneshot::channel();
        let primary = wire.primary.load(Ordering::Relaxed);
        let sent_us = net.truth.now_us();
        tokio::spawn(net.carry(CallContext { wire, primary, sent_us }, sent, reply_to));
        Box::pin(async move {
            match receiver.await {
                Ok(reply) => reply,
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn epoch(&self) -> u64 {
        self.0.epoch.load(Ordering::Relaxed)
    }

    fn changed(&self) -> watch::Receiver<u64> {
        let (sender, receiver) = watch::channel(self.epoch());
        self.0.epoch_senders.lock().push(sender);
        receiver
    }

    fn timeout(&self) -> Duration {
        self.0.timeout
    }

    fn is_up(&self) -> bool {
        !self.0.is_cut.load(Ordering::Relaxed)
    }
}
