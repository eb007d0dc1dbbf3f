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
use sluicegate_redis::{CallError, SLOTS, Transport, TransportCall, slot_of};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::conditions::{Conditions, quantile};
use crate::rng::SimRng;
use crate::scenario::StorePlan;
use crate::store::Store;
use crate::time::WorldClock;
use crate::trace::Trace;

/// The store and the network to it.
#[derive(Debug)]
pub(crate) struct Net {
    truth: Arc<WorldClock>,
    trace: Trace,
    has_breaker: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: SimRng,
    conditions: Conditions,
    /// Quantiles of the store's latency: thousandths and milliseconds.
    latency: Vec<(u64, u64)>,
    shards: Vec<Shard>,
    stalled_until: Instant,
    /// How far the store's clock is ahead of true time, in microseconds.
    ahead_us: i64,
    /// Errors of scripts: always violations.
    errors: Vec<String>,
    calls: u64,
    syncs: Vec<Synced>,
}

/// A primary, with the slots of its share.
#[derive(Debug)]
struct Shard {
    store: Store,
    /// Number of the current primary.
    primary: u64,
    is_down: bool,
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
    /// Number of the connected primary of each shard.
    primaries: Vec<AtomicU64>,
    /// Conditions of this node, if they differ.
    link: Mutex<Option<Conditions>>,
    has_breaker: bool,
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

impl Net {
    /// A store without nodes.
    ///
    /// # Errors
    /// When Lua cannot be set up.
    pub(crate) fn new(
        truth: &Arc<WorldClock>,
        trace: &Trace,
        plan: &StorePlan,
        rng: SimRng,
    ) -> anyhow::Result<Arc<Self>> {
        let shard = |_| Store::new().map(|store| Shard { store, primary: 0, is_down: false });
        let shards: Result<Vec<Shard>, _> = (0..plan.shards.max(1)).map(shard).collect();
        let state = State {
            rng,
            conditions: Conditions::NORMAL,
            latency: plan.latency.clone(),
            shards: shards.map_err(|error| anyhow::anyhow!("{error}"))?,
            stalled_until: Instant::now(),
            ahead_us: 0,
            errors: Vec::new(),
            calls: 0,
            syncs: Vec::new(),
        };
        let (truth, trace, has_breaker) = (truth.clone(), trace.clone(), plan.has_breaker);
        Ok(Arc::new(Self { truth, trace, has_breaker, state: Mutex::new(state) }))
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
            primaries: self.primaries().into_iter().map(AtomicU64::new).collect(),
            link: Mutex::default(),
            has_breaker: self.has_breaker && process != OBSERVER,
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

    /// Loses the first primary; its replica lacks the writes of the last milliseconds.
    pub(crate) fn lose(&self, last_ms: u64) {
        let mut state = self.state.lock();
        let since = self.truth.event_us().saturating_sub(last_ms * 1_000);
        let since = since.saturating_add_signed(state.ahead_us);
        if let Some(shard) = state.shards.first_mut() {
            shard.store.roll_back(since);
            (shard.primary, shard.is_down) = (shard.primary + 1, true);
        }
    }

    /// Loses all primaries with all data.
    pub(crate) fn lose_all(&self) {
        for shard in &mut self.state.lock().shards {
            shard.store.clear();
            (shard.primary, shard.is_down) = (shard.primary + 1, true);
        }
    }

    /// A primary is unreachable and loses nothing; all, if `None`.
    pub(crate) fn set_down(&self, shard: Option<usize>) {
        for (index, known) in self.state.lock().shards.iter_mut().enumerate() {
            known.is_down |= shard.is_none_or(|shard| shard == index);
        }
    }

    /// Restores all primaries.
    pub(crate) fn is_back(&self) {
        self.state.lock().shards.iter_mut().for_each(|shard| shard.is_down = false);
    }

    /// Whether any primary accepts connections.
    fn is_up(&self) -> bool {
        self.state.lock().shards.iter().any(|shard| !shard.is_down)
    }

    /// Steps the clock of the store.
    pub(crate) fn step_clock(&self, by_us: i64) {
        self.state.lock().ahead_us += by_us;
    }

    fn primaries(&self) -> Vec<u64> {
        self.state.lock().shards.iter().map(|shard| shard.primary).collect()
    }

    /// The shard of a call: that of its first key.
    fn shard_of(&self, sent: &TransportCall) -> usize {
        let slot = sent.keys.first().map_or(0, |key| usize::from(slot_of(key)));
        slot * self.state.lock().shards.len() / SLOTS
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

    fn fate(&self, link: Option<Conditions>) -> Fate {
        let mut state = self.state.lock();
        let conditions = link.unwrap_or(state.conditions);
        let Conditions { least_ms, delay_ms, late, lost, unanswered, twice } = conditions;
        let State { rng, latency, .. } = &mut *state;
        let mut delay = || {
            let max = if rng.permille(late.0) { late.1.max(least_ms) } else { delay_ms };
            Duration::from_millis(rng.within(least_ms, max))
        };
        let (outbound, back) = (delay(), delay());
        let back = back + Duration::from_millis(quantile(rng, latency));
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
        let link = *wire.wire.link.lock();
        let fate = self.fate(link);
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
            if !self.is_another(&wire) {
                let _ = self.execute(&wire, &sent, "again").await;
            }
        }
    }

    async fn round_trip(
        &self,
        context: &CallContext,
        fate: &Fate,
        sent: &TransportCall,
        sync: &mut Option<Synced>,
    ) -> Option<Result<Value, CallError>> {
        let is_cut = || context.wire.is_cut.load(Ordering::Relaxed);
        if is_cut() {
            return fate.is_known.then_some(Err(CallError::Down));
        }
        pause(fate.outbound).await;
        if is_cut() || fate.is_lost {
            return None;
        }
        if self.is_another(context) {
            return Some(Err(if fate.is_known { CallError::Down } else { CallError::Broken }));
        }
        let reply = self.execute(context, sent, "call").await;
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
        Some(if self.is_another(context) { Err(CallError::Broken) } else { reply })
    }

    /// Answers the observer at once under all faults. The observer is no node and does not
    /// register.
    fn shows(&self, sent: &TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        if sent.keys.iter().any(|key| key.windows(7).any(|part| part == b"{nodes}")) {
            return Box::pin(std::future::pending());
        }
        let shard = self.shard_of(sent);
        let mut state = self.state.lock();
        let now = self.truth.now_us().saturating_add_signed(state.ahead_us);
        let reply = state.shards[shard].store.run(sent.script, &sent.keys, &sent.args, now);
        drop(state);
        Box::pin(async move { reply.map_err(|error| CallError::Refused(error.into())) })
    }

    /// Whether the primary is down or has changed since the call was sent.
    fn is_another(&self, context: &CallContext) -> bool {
        let state = self.state.lock();
        let shard = &state.shards[context.shard];
        shard.is_down || shard.primary != context.primary
    }

    async fn execute(
        &self,
        context: &CallContext,
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
        let mut state = self.state.lock();
        let now = self.truth.event_us().saturating_add_signed(state.ahead_us);
        state.calls += 1;
        let store = &mut state.shards[context.shard].store;
        let reply = store.run(sent.script, &sent.keys, &sent.args, now);
        let name = &context.wire.name;
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
    shard: usize,
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

    /// Changes the conditions of this node; those of all apply, if `None`.
    pub(crate) fn set_link(&self, conditions: Option<Conditions>) {
        *self.link.lock() = conditions;
    }

    /// Connects to the current primaries; a new one may have lost data.
    pub(crate) fn reconnect(&self) {
        let primaries = self.net.primaries();
        let mut is_new = false;
        for (known, primary) in self.primaries.iter().zip(primaries) {
            is_new |= known.swap(primary, Ordering::Relaxed) != primary;
        }
        if is_new {
            let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
            for sender in &*self.epoch_senders.lock() {
                sender.send_replace(epoch);
            }
        }
    }

    /// Whether a probe is answered: all primaries that this node is connected to are reachable.
    async fn ping(self: Arc<Self>) -> bool {
        let link = *self.link.lock();
        let fate = self.net.fate(link);
        pause(fate.outbound + fate.back).await;
        let is_reached = !fate.is_lost && !fate.is_unanswered;
        let is_gone = self.is_gone.load(Ordering::Relaxed) || self.is_cut.load(Ordering::Relaxed);
        let state = self.net.state.lock();
        let is_down = state.shards.iter().all(|shard| shard.is_down);
        is_reached && !is_gone && !is_down && state.stalled_until <= Instant::now()
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
        let shard = net.shard_of(&sent);
        let primary = wire.primaries[shard].load(Ordering::Relaxed);
        let sent_us = net.truth.now_us();
        tokio::spawn(net.carry(CallContext { wire, shard, primary, sent_us }, sent, reply_to));
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
        !self.0.is_cut.load(Ordering::Relaxed) && (!self.0.has_breaker || self.0.net.is_up())
    }

    fn is_cluster(&self) -> bool {
        self.0.primaries.len() > 1
    }

    fn probe(&self) -> Option<BoxFuture<'static, bool>> {
        self.0.has_breaker.then(|| -> BoxFuture<'static, bool> { Box::pin(self.0.clone().ping()) })
    }
}
