//! The shared store: operations on records, membership, and recovery after outages.
//!
//! | module | content |
//! |---|---|
//! | `hit`, `batcher`, `denials` | hits and refunds, batched into script calls; cached denials |
//! | `membership`, `demand`, `weight` | heartbeats; shares of a limit by demand, during outages |
//! | `journal`, `observed`, `recovery`, `rejoin` | replay of missed or lost data |
//! | `key`, `store_clock`, `stats` | key names; the store's clock; counters |
//! | `values` | plain values and locks that nodes share |

mod batcher;
mod demand;
mod denials;
mod hit;
mod journal;
mod key;
mod membership;
mod observed;
mod recovery;
mod rejoin;
mod stats;
mod store_clock;
mod values;
mod weight;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluicegate::clock::{Clock, TimeSource};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Decision;
use tokio::sync::{Mutex, MutexGuard, mpsc};

use super::call::CallError;
use super::connection::Link;
use super::script::{
    self, Applied, LeaseOutcome, LeaseRequest, OptimisticError, OptimisticPart, OptimisticUpdates,
    RuleRegistry, ScriptPart, ScriptRequest, ScriptRule,
};
use batcher::Pending;
use demand::Demands;
use denials::Denials;
use journal::Journal;
use key::KeyHasher;
use membership::Phase;
use observed::{Observation, Observations, Observed};
use stats::{StoreCounters, WriteStatus};
use store_clock::StoreClock;

pub(crate) use demand::RuleWeight;
pub(crate) use hit::{HitError, LateOutcome};
pub(crate) use membership::HEARTBEAT;
pub use stats::StoreStats;
pub(crate) use weight::Weight;

/// Queued requests of one batcher. With more, the store is overloaded and waiting does not help.
const QUEUE_MAX: usize = 8_192;
/// Batchers, each a task; an identity always uses the same one. One for two processors: a single
/// one fills its calls best (with two on two processors a request took a fifth more CPU time), and
/// saturates about two processors.
const BATCHERS_MAX: usize = 8;
/// Locks that serialize optimistic updates of an identity, so that only other nodes contend.
const IDENTITY_LOCKS: usize = 256;

/// A Redis or Valkey store that many nodes share. Clones share their state.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

/// Options of a [`Store`].
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Prefix of all keys, so that one Redis serves several deployments. `sg` by default.
    pub namespace: String,
    /// Replaces the store's clock, for tests.
    pub clock: Option<Arc<dyn Clock>>,
    /// Replaces this node's clock. The system clock by default.
    pub own_clock: Option<Arc<dyn Clock>>,
    /// Seed of all randomness, for reproducible tests.
    pub seed: Option<u64>,
    /// Id of this node, if it has several stores. Random by default.
    pub node: Option<u64>,
}

pub(super) struct StoreInner {
    link: Link,
    options: StoreOptions,
    batchers: Vec<mpsc::Sender<Pending>>,
    hasher: KeyHasher,
    /// Id of this node among those that share the store.
    node: u64,
    /// Number of nodes, from heartbeats.
    nodes: AtomicU64,
    /// Whether this node has left the others. Held during a heartbeat.
    has_left: Mutex<bool>,
    demands: Demands,
    denials: Denials,
    journal: Journal,
    identity_locks: Vec<Mutex<()>>,
    registry: RuleRegistry,
    publish_lock: Mutex<()>,
    publish_failures: AtomicU64,
    write_status: WriteStatus,
    observed: Observed,
    /// Whether this node decides locally until it has rejoined the others (`rejoin`).
    is_local_mode: AtomicBool,
    /// The link's epoch up to which all observations were re-asserted.
    recovered_epoch: AtomicU64,
    /// Whether the journal is being absorbed in the background.
    is_settling: AtomicBool,
    store_clock: Arc<StoreClock>,
    counters: Arc<StoreCounters>,
}

impl Store {
    /// A store over a link. Must be called within a Tokio runtime.
    #[must_use]
    pub fn new(link: Link, options: StoreOptions) -> Self {
        let counters = Arc::<StoreCounters>::default();
        let hasher = KeyHasher::new(options.seed);
        let node = options.node.unwrap_or_else(|| hasher.hash_one("node"));
        let own_clock = options.own_clock.clone().or_else(|| options.clock.clone());
        let store_clock = Arc::new(StoreClock::new(TimeSource::new(own_clock)));
        let mut batchers = Vec::new();
        for _ in 0..batcher_count(&options) {
            let (sender, receiver) = mpsc::channel(QUEUE_MAX);
            let context = batcher::BatcherContext {
                link: link.clone(),
                clock: options.clock.clone(),
                counters: counters.clone(),
                store_clock: store_clock.clone(),
            };
            tokio::spawn(batcher::run(receiver, context));
            batchers.push(sender);
        }
        let inner = Arc::new(StoreInner {
            registry: RuleRegistry::new(&key::plain_key(&options.namespace, b"")),
            publish_lock: Mutex::default(),
            publish_failures: AtomicU64::new(0),
            write_status: WriteStatus::default(),
            observed: Observed::default(),
            is_local_mode: AtomicBool::new(false),
            recovered_epoch: AtomicU64::new(link.epoch()),
            is_settling: AtomicBool::new(false),
            store_clock,
            link,
            options,
            batchers,
            node,
            nodes: AtomicU64::new(1),
            has_left: Mutex::default(),
            hasher,
            demands: Demands::default(),
            denials: Denials::default(),
            journal: Journal::default(),
            identity_locks: (0..IDENTITY_LOCKS).map(|_| Mutex::default()).collect(),
            counters,
        });
        tokio::spawn(membership::send_heartbeats(Arc::downgrade(&inner)));
        tokio::spawn(recovery::reassert_after_data_loss(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// The connections to the store.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.inner.link
    }

    /// Number of nodes that share the store; at least one.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.inner.nodes.load(Ordering::Relaxed)
    }

    /// Leaves the nodes that share the store: their next heartbeat does not count this one. To be
    /// called last before a process stops; no heartbeat is sent any more.
    pub async fn leave(&self) {
        self.inner.heartbeat(Phase::Left).await;
    }

    /// Id of this node.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.inner.node
    }

    /// The time by this node's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// Why the store refuses writes, if it does: out of memory, or read-only.
    #[must_use]
    pub fn refuses(&self) -> Option<Box<str>> {
        self.inner.write_status.refusal()
    }

    /// The key of an identity; `suffix` separates counters of one identity.
    pub(crate) fn key_of(&self, identity: &[u8], suffix: &str) -> Arc<[u8]> {
        key::key_of(&self.inner.options.namespace, identity, suffix)
    }

    /// A keyed hash of an identity.
    #[inline]
    pub(crate) fn hash_of(&self, identity: &[u8]) -> u64 {
        self.inner.hasher.hash_one(identity)
    }

    /// The time for scripts, if it is not the store's.
    pub(crate) fn script_time(&self) -> Option<Timestamp> {
        self.inner.clock()
    }

    /// The slot of a key on a Cluster. Parts of one call must share it.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<u16> {
        self.inner.link.slot_of(key)
    }

    /// Executes lease requests of one slot.
    pub(crate) async fn lease(
        &self,
        requests: &[LeaseRequest],
    ) -> Result<Vec<LeaseOutcome>, CallError> {
        let inner = &*self.inner;
        inner.counters.requests.fetch_add(1, Ordering::Relaxed);
        // In local mode the record may lack what other nodes admitted.
        if inner.is_local_mode() && requests.iter().any(|request| request.want > 0) {
            return Err(CallError::Down);
        }
        for request in requests {
            inner.publish_if_new(&request.rule).await;
        }
        let call = script::encode_lease(requests, inner.clock());
        let reply = inner.link.call_awaiting_late_reply(&call).await;
        let outcomes = reply.and_then(|value| {
            let outcomes = script::decode_lease(requests, value);
            outcomes.map_err(|bad| CallError::Refused(bad.to_string().into()))
        });
        let outcomes = outcomes.inspect_err(|error| inner.on_call_failed(error))?;
        for (request, outcome) in requests.iter().zip(&outcomes) {
            if let LeaseOutcome::Granted { now, account, epoch, .. } = outcome {
                let (rule, account) = (request.rule.clone(), account.clone());
                let observation = Observation::new(rule, account, *epoch, *now, inner.link.epoch());
                inner.observe(request.key.clone(), inner.hash(&request.key), observation);
            }
        }
        Ok(outcomes)
    }

    /// Applies any operation to parts of one slot, or to none of them.
    pub(crate) async fn apply(
        &self,
        parts: &[ScriptPart],
        op: Op,
    ) -> Result<Applied, OptimisticError> {
        let inner = &self.inner;
        inner.counters.optimistic.fetch_add(1, Ordering::Relaxed);
        if inner.needs_recovery() {
            Box::pin(inner.recover_all(parts)).await.map_err(OptimisticError::Store)?;
        }
        let mut optimistic: Vec<_> = parts.iter().map(OptimisticPart::new).collect();
        if let [only] = optimistic.as_mut_slice() {
            // Some operations derive the cost of the verdict from theirs.
            only.cost = None;
        }
        let applied = {
            let _guard = inner.lock_first(parts).await;
            inner.updates().apply(&optimistic, op).await
        };
        if !op.is_read_only() {
            self.forget_denials(parts);
        }
        if let Ok(Applied { is_corrupt: true, .. }) = &applied {
            inner.counters.corrupt.fetch_add(1, Ordering::Relaxed);
        }
        applied.inspect_err(|error| {
            if !matches!(error, OptimisticError::Refused(_)) {
                inner.counters.failed.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Renews the slots of a holder, and returns their number.
    pub(crate) async fn renew(
        &self,
        part: &ScriptPart,
        holder: Holder,
    ) -> Result<u64, OptimisticError> {
        self.inner.updates().renew(&OptimisticPart::new(part), holder).await
    }

    /// Removes a due booking.
    pub(crate) async fn forget(
        &self,
        part: &ScriptPart,
        holder: Holder,
    ) -> Result<(), OptimisticError> {
        self.inner.updates().forget(&OptimisticPart::new(part), holder).await
    }

    /// The decision of each limit of a part on its own. Changes nothing.
    pub(crate) async fn inspect(
        &self,
        part: &ScriptPart,
    ) -> Result<Vec<Decision>, OptimisticError> {
        let inner = &self.inner;
        if inner.needs_recovery() {
            let recovering = Box::pin(inner.recover_all(std::slice::from_ref(part)));
            recovering.await.map_err(OptimisticError::Store)?;
        }
        inner.updates().inspect(&OptimisticPart::new(part)).await
    }

    fn forget_denials(&self, parts: &[ScriptPart]) {
        for part in parts {
            self.inner.denials.remove(&part.key, self.inner.hash(&part.key));
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("link", &self.inner.link).finish_non_exhaustive()
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { namespace: "sg".to_owned(), clock: None, own_clock: None, seed: None, node: None }
    }
}

impl StoreInner {
    fn key(&self, name: &[u8]) -> Arc<[u8]> {
        key::plain_key(&self.options.namespace, name)
    }

    /// Publishes a rule before its first record is written, so that nodes with other rules can
    /// convert that; and again after a loss of data.
    #[inline]
    async fn publish_if_new(&self, rule: &ScriptRule) {
        let epoch = self.link.epoch();
        if !rule.is_published(epoch) {
            Box::pin(self.publish(rule, epoch)).await;
        }
    }

    async fn publish(&self, rule: &ScriptRule, epoch: u64) {
        let failures = self.publish_failures.load(Ordering::Acquire);
        let _guard = self.publish_lock.lock().await;
        // After a failure of another caller, a retry by each waiting one would add up.
        let has_failed = self.publish_failures.load(Ordering::Acquire) != failures;
        if rule.is_published(epoch) || has_failed {
            return;
        }
        if self.registry.publish(&self.link, rule).await.is_err() {
            self.publish_failures.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn updates(&self) -> OptimisticUpdates<'_> {
        OptimisticUpdates { link: &self.link, registry: &self.registry, clock: self.clock() }
    }

    fn on_call_failed(&self, error: &CallError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        self.write_status.failed(error);
    }

    /// Remembers the records of a reply; the hash of the first key is known.
    fn observe_all(&self, observations: Option<Observations>, first_hash: u64) {
        for (index, (key, observation)) in observations.into_iter().flatten().enumerate() {
            let hash = if index == 0 { first_hash } else { self.hash(&key) };
            self.observe(key, hash, observation);
        }
    }

    fn observe(&self, key: Arc<[u8]>, hash: u64, observation: Observation) {
        self.observed.insert(key, hash, observation, self.is_local_mode());
    }

    /// The time by this node's clock.
    fn now(&self) -> Timestamp {
        self.store_clock.own.now()
    }

    /// Monotonic time by this node's clock.
    fn ticks(&self) -> Timestamp {
        self.store_clock.own.ticks()
    }

    /// The time for scripts, if it is not the store's.
    fn clock(&self) -> Option<Timestamp> {
        self.options.clock.as_deref().map(Clock::now)
    }

    async fn lock_first(&self, parts: &[ScriptPart]) -> Option<MutexGuard<'_, ()>> {
        Some(self.lock_identity(&parts.first()?.key).await)
    }

    async fn lock_identity(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.identity_locks[self.hash(key) as usize % IDENTITY_LOCKS].lock().await
    }

    /// The hash of a request's first identity.
    fn request_hash(&self, request: &ScriptRequest) -> u64 {
        request.parts.first().map_or(0, |part| self.hash(&part.key))
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }
}

/// With a seed a single one, for a reproducible order.
fn batcher_count(options: &StoreOptions) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if options.seed.is_some() { 1 } else { (processors / 2).clamp(1, BATCHERS_MAX) }
}

impl From<OptimisticError> for CallError {
    fn from(error: OptimisticError) -> Self {
        match error {
            OptimisticError::Store(error) => error,
            OptimisticError::Contended => Self::Busy,
            OptimisticError::Refused(_) | OptimisticError::BadReply => {
                Self::Refused(error.to_string().into())
            }
        }
    }
}
