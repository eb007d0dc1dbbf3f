//! What lies between nodes and their store: delay, loss, calls that happen twice, partitions, and a
//! store that stalls, fails over or is started anew.
//!
//! The store executes one call after the other, as Redis does. What a node has sent stays on its
//! way even if the node is gone; calls overtake each other.

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

/// How calls fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// The longest that a call is on its way, and its answer, in milliseconds.
    pub delay_ms: u64,
    /// How many of a thousand take far longer, and how long those take at most.
    pub late: (u64, u64),
    /// How many of a thousand never arrive.
    pub lost: u64,
    /// Of how many of a thousand the answer never arrives.
    pub unanswered: u64,
    /// How many of a thousand happen once more, later.
    pub twice: u64,
}

/// The store, and the ways to it.
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
    /// Which primary it is.
    primary: u64,
    is_down: bool,
    stalled_until: Instant,
    /// Scripts that failed: always a mistake.
    errors: Vec<String>,
    calls: u64,
    syncs: Vec<Synced>,
}

/// A call that tells a node's own counts of some identities, and is told those of others.
#[derive(Debug, Clone)]
pub struct Synced {
    /// Whose.
    pub process: u64,
    /// Of which identities.
    pub keys: Vec<String>,
    /// When it was sent, and carried out.
    pub sent_us: u64,
    /// When it was carried out.
    pub done_us: u64,
    /// When the answer was heard, if it was.
    pub received_us: Option<u64>,
}

/// A node's way to the store.
#[derive(Debug)]
pub(crate) struct NodeWire {
    name: String,
    process: u64,
    net: Arc<Net>,
    timeout: Duration,
    /// Whether it is that of somebody who looks on, from beside the store.
    is_onlooker: bool,
    is_gone: AtomicBool,
    is_cut: AtomicBool,
    /// Which primary it is connected to.
    primary: AtomicU64,
    epoch: AtomicU64,
    /// One for everybody who wants to know, so that they hear of it in this order.
    epoch_senders: Mutex<Vec<watch::Sender<u64>>>,
}

/// What becomes of one call.
struct Fate {
    outbound: Duration,
    back: Duration,
    is_lost: bool,
    is_unanswered: bool,
    again_after: Option<Duration>,
    /// Where there is no way: whether that is known at once.
    is_known: bool,
}

/// The process that looks on.
pub(crate) const ONLOOKER: u64 = 0;

impl Conditions {
    /// Everything arrives, soon and once.
    pub const FAIR: Self = Self { delay_ms: 2, late: (0, 0), lost: 0, unanswered: 0, twice: 0 };
}

// === impl Net ===

impl Net {
    /// A store and nobody who asks it.
    #[must_use]
    pub(crate) fn new(
        truth: &Arc<WorldClock>,
        trace: &Trace,
        store: Store,
        rng: SimRng,
    ) -> Arc<Self> {
        let state = State {
            rng,
            conditions: Conditions::FAIR,
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

    /// A way for a node.
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
            is_onlooker: process == ONLOOKER,
            is_gone: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            primary: AtomicU64::new(self.state.lock().primary),
            epoch: AtomicU64::new(0),
            epoch_senders: Mutex::default(),
        })
    }

    /// From now on calls fare like this.
    pub(crate) fn set_conditions(&self, conditions: Conditions) {
        self.state.lock().conditions = conditions;
    }

    /// The store does nothing for a while; what arrives meanwhile waits.
    pub(crate) fn stall(&self, ms: u64) {
        self.state.lock().stalled_until = Instant::now() + Duration::from_millis(ms);
    }

    /// The primary is lost; its replica has nothing of the last milliseconds.
    pub(crate) fn lose(&self, last_ms: u64) {
        let since = self.truth.event_us().saturating_sub(last_ms * 1_000);
        let mut state = self.state.lock();
        state.store.roll_back(since);
        state.primary += 1;
        state.is_down = true;
    }

    /// The store is gone, with everything.
    pub(crate) fn lose_all(&self) {
        let mut state = self.state.lock();
        state.store.clear();
        state.primary += 1;
        state.is_down = true;
    }

    /// There is a primary again.
    pub(crate) fn is_back(&self) {
        self.state.lock().is_down = false;
    }

    /// What failed that never should, and how many calls there were.
    #[must_use]
    pub(crate) fn errors(&self) -> (Vec<String>, u64) {
        let state = self.state.lock();
        (state.errors.clone(), state.calls)
    }

    /// Calls that tell counts, in the order in which they were carried out.
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

    /// Carries a call to the store and its answer back; without an answer, whoever waits for it
    /// waits on.
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

    /// Answers who looks on at once, whatever is wrong. It is no node, so it has nothing to say of
    /// itself.
    fn shows(&self, sent: &TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        if sent.keys.iter().any(|key| key.windows(7).any(|part| part == b"{nodes}")) {
            return Box::pin(std::future::pending());
        }
        let now = self.truth.now_us();
        let reply = self.state.lock().store.run(sent.script, &sent.keys, &sent.args, now);
        Box::pin(async move { reply.map_err(|error| CallError::Refused(error.into())) })
    }

    /// Whether the store is not the one that this was sent to.
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

/// What takes no time does not wait for the next millisecond.
async fn pause(span: Duration) {
    if !span.is_zero() {
        sleep(span).await;
    }
}

/// A call on its way: whose it is, to which primary, and since when.
struct CallContext {
    wire: Arc<NodeWire>,
    primary: u64,
    sent_us: u64,
}

// === impl Synced ===

impl Synced {
    /// Counts of nodes lie beside records, under `:e`.
    fn of(context: &CallContext, sent: &TransportCall) -> Option<Self> {
        let its = sent.keys.iter().filter(|key| key.ends_with(b":e"));
        let keys: Vec<_> = its.map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        let (process, sent_us) = (context.wire.process, context.sent_us);
        (!keys.is_empty()).then_some(Self { process, keys, sent_us, done_us: 0, received_us: None })
    }
}

// === impl NodeWire ===

impl NodeWire {
    /// The node is gone: nothing is sent any more, and nobody hears.
    pub(crate) fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Whether there is no way for now.
    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Connects to whoever is the primary now: another one may have forgotten something.
    pub(crate) fn reconnect(&self) {
        let primary = self.net.state.lock().primary;
        if self.primary.swap(primary, Ordering::Relaxed) != primary {
            let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
            for sender in &*self.epoch_senders.lock() {
                sender.send_replace(epoch);
            }
        }
    }

    /// The same with itself, for calls that outlive the caller.
    #[must_use]
    pub(crate) fn as_wire(self: &Arc<Self>) -> Arc<dyn Transport> {
        Arc::new(Shared(self.clone()))
    }
}

/// A wire that can say who it is.
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
