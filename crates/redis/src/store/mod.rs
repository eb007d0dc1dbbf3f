//! A store that many nodes share, as the engine asks it.

mod batcher;
mod demand;
mod denials;
mod hasher;
mod hit;
mod journal;
mod key;
mod membership;
mod observed;
mod outage;
mod recovery;
mod rejoin;
mod stats;
mod store_clock;
mod time;
mod weight;
mod write_status;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Decision;
use tokio::sync::{Mutex, MutexGuard, mpsc};

use super::call::CallError;
use super::connection::Link;
use super::script::{
    self, Applied, LeaseOutcome, LeaseRequest, OptimisticError, OptimisticPart, RuleRegistry,
    ScriptPart, ScriptRequest, ScriptRule,
};
use batcher::Pending;
use demand::Demands;
use denials::Denials;
use hasher::Chance;
use journal::Journal;
use observed::{Observation, Observations, Observed};
use rejoin::Rejoin;
use sluicegate::clock::{Clock, SystemClock};
use stats::POLICIES;
use store_clock::StoreClock;
use write_status::Refusing;

pub(crate) use demand::RuleWeight;
pub use stats::StoreStats;

pub(crate) use hit::HitError;
pub(crate) use weight::Weight;

/// How many asks may wait in one lane. With more the store is too slow for what is wanted of it, and waiting would help nobody.
const WAITING_MAX: usize = 8_192;
/// Lanes, each a task of its own; an identity always takes the same. One fills its calls best: with two on two processors a request took a fifth more of them. One
/// for two processors, since a lane works no more than that many keep it busy.
const LANES_MAX: usize = 8;
/// The long way of one identity is gone by one at a time, so that only other nodes can be faster.
const LONG_LOCKS: usize = 256;

/// Redis or Valkey, as a store that many nodes share. Clones are the same.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// How a store is used.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// What the names of all keys begin with, so that one Redis serves many: `sg` unless told.
    pub namespace: String,
    /// The time, where it is not the store's own: for trials.
    pub clock: Option<Arc<dyn Clock>>,
    /// This node's clock, for what it remembers: that of the system unless told.
    pub own_clock: Option<Arc<dyn Clock>>,
    /// Where randomness comes from, so that a trial can be made again: from nowhere unless told.
    pub seed: Option<u64>,
}

pub(super) struct Inner {
    link: Link,
    options: StoreOptions,
    lanes: Vec<mpsc::Sender<Pending>>,
    chance: Chance,
    /// This node's name among all that share the store.
    node: u64,
    demands: Demands,
    denials: Denials,
    journal: Journal,
    long_locks: Vec<Mutex<()>>,
    registry: RuleRegistry,
    publishing: Mutex<()>,
    /// How often it was tried in vain.
    publish_failures: AtomicU64,
    garbage: Arc<AtomicU64>,
    refusal: Refusing,
    observed: Observed,
    rejoin: Rejoin,
    /// The link's epoch up to which everything observed was re-asserted.
    recovered_epoch: AtomicU64,
    /// Whether the journal is being absorbed in the background.
    is_settling: AtomicBool,
    store_clock: Arc<StoreClock>,
    settled: AtomicU64,
    reasserted: AtomicU64,
    nodes: AtomicU64,
    asked: AtomicU64,
    known: AtomicU64,
    long: AtomicU64,
    failed: AtomicU64,
    fallbacks: [AtomicU64; POLICIES.len()],
}

/// Why an operation was not carried out. Nothing has changed, unless the store was too late to say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationError {
    Store(CallError),
    Refused(Refusal),
}

// === impl Store ===

impl Store {
    /// The store at the other end of a link. To be called where tokio runs.
    #[must_use]
    pub fn new(link: Link, options: StoreOptions) -> Self {
        let garbage = Arc::<AtomicU64>::default();
        let chance = Chance::new(options.seed);
        let own_clock = options.own_clock.clone().or_else(|| options.clock.clone());
        let store_clock = Arc::new(StoreClock::new(own_clock));
        let mut lanes = Vec::new();
        for _ in 0..lanes_for(&options) {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            let shared = batcher::Shared {
                link: link.clone(),
                clock: options.clock.clone(),
                garbage: garbage.clone(),
                store_clock: store_clock.clone(),
            };
            tokio::spawn(batcher::serve(receiver, shared));
            lanes.push(sender);
        }
        let registry = RuleRegistry::new(&key::plain_key(&options.namespace, b""));
        let inner = Arc::new(Inner {
            registry,
            publishing: Mutex::default(),
            publish_failures: AtomicU64::new(0),
            garbage,
            refusal: Refusing::default(),
            observed: Observed::default(),
            rejoin: Rejoin::default(),
            recovered_epoch: AtomicU64::new(link.epoch()),
            is_settling: AtomicBool::new(false),
            store_clock,
            settled: AtomicU64::new(0),
            reasserted: AtomicU64::new(0),
            link,
            options,
            lanes,
            node: chance.hash_one("node"),
            chance,
            demands: Demands::default(),
            denials: Denials::default(),
            journal: Journal::default(),
            long_locks: (0..LONG_LOCKS).map(|_| Mutex::default()).collect(),
            nodes: AtomicU64::new(1),
            asked: AtomicU64::new(0),
            known: AtomicU64::new(0),
            long: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            fallbacks: Default::default(),
        });
        tokio::spawn(membership::greet(Arc::downgrade(&inner)));
        tokio::spawn(recovery::reassert_after_data_loss(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// The way to it.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.inner.link
    }

    /// How many nodes there are, as far as was heard; at least one.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.inner.nodes.load(Ordering::Relaxed)
    }

    /// This node's name among all that share the store.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.inner.node
    }

    /// The time by this node's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// What it says when it refuses what it is asked, if it does so now: it is full, or a replica.
    #[must_use]
    pub fn refuses(&self) -> Option<Box<str>> {
        self.inner.refusal.now()
    }

    /// The name of what is kept of an identity.
    pub(crate) fn key_of(&self, identity: &[u8], beside: &str) -> Arc<[u8]> {
        key::key_of(&self.inner.options.namespace, identity, beside)
    }

    /// A hash of an identity, under this node's secret.
    #[inline]
    pub(crate) fn hash_of(&self, identity: &[u8]) -> u64 {
        self.inner.chance.hash_one(identity)
    }

    /// Buys ahead and gives back, for identities that can be asked together.
    pub(crate) async fn lease(
        &self,
        asks: &[LeaseRequest],
    ) -> Result<Vec<LeaseOutcome>, CallError> {
        let inner = &*self.inner;
        inner.asked.fetch_add(1, Ordering::Relaxed);
        // Nothing is bought from a record that may lack what other nodes know.
        if inner.rejoin.is_local_mode() && asks.iter().any(|ask| ask.want > 0) {
            return Err(CallError::Down);
        }
        for ask in asks {
            inner.publish_if_new(&ask.rule).await;
        }
        let call = script::encode_lease(asks, inner.clock());
        let answered = inner.link.call_awaiting_late_reply(&call).await;
        let told = answered.and_then(|value| {
            let told = script::decode_lease(asks, value);
            told.map_err(|bad| CallError::Refused(bad.to_string().into()))
        });
        let told = told.inspect_err(|error| {
            inner.failed.fetch_add(1, Ordering::Relaxed);
            inner.refusal.heard(error);
        })?;
        for (ask, told) in asks.iter().zip(&told) {
            if let LeaseOutcome::Granted { now, account, epoch, .. } = told {
                let (rule, account) = (ask.rule.clone(), account.clone());
                let seen = Observation::new(rule, account, *epoch, *now, inner.link.epoch());
                inner.observe(ask.key.clone(), inner.hash_of_key(&ask.key), seen);
            }
        }
        Ok(told)
    }

    /// Which parts of a request can be asked together.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<u16> {
        self.inner.link.slot_of(key)
    }

    /// Any operation on parts that can be asked together, all or nothing.
    pub(crate) async fn apply(
        &self,
        parts: &[ScriptPart],
        op: Op,
    ) -> Result<Applied, OperationError> {
        let inner = &self.inner;
        inner.long.fetch_add(1, Ordering::Relaxed);
        if inner.needs_recovery() {
            Box::pin(inner.recover_all(parts)).await.map_err(OperationError::Store)?;
        }
        let long: Vec<OptimisticPart> = parts.iter().map(OptimisticPart::of).collect();
        let done = {
            let _one_at_a_time = inner.long_lock(parts).await;
            script::apply(&inner.link, &inner.registry, &long, op, inner.clock()).await
        };
        if !op.is_read_only() {
            self.forget_denials(parts);
        }
        if let Ok(Applied { garbage: true, .. }) = &done {
            inner.garbage.fetch_add(1, Ordering::Relaxed);
        }
        done.map_err(|error| {
            let not = OperationError::from(error);
            if matches!(not, OperationError::Store(_)) {
                inner.failed.fetch_add(1, Ordering::Relaxed);
            }
            not
        })
    }

    /// Starts the leases of slots anew that are held under an id.
    pub(crate) async fn renew(
        &self,
        part: &ScriptPart,
        holder: Holder,
    ) -> Result<u64, OperationError> {
        let inner = &*self.inner;
        let part = OptimisticPart::of(part);
        let renewed =
            script::renew(&inner.link, &inner.registry, &part, holder, inner.clock()).await;
        renewed.map_err(OperationError::from)
    }

    /// Forgets a booking whose turn has come.
    pub(crate) async fn forget(
        &self,
        part: &ScriptPart,
        holder: Holder,
    ) -> Result<(), OperationError> {
        let inner = &*self.inner;
        let part = OptimisticPart::of(part);
        let gone = script::forget(&inner.link, &inner.registry, &part, holder, inner.clock()).await;
        gone.map_err(OperationError::from)
    }

    /// What each limit of a part says to a cost on its own. Leaves no trace.
    pub(crate) async fn look(&self, part: &ScriptPart) -> Result<Vec<Decision>, OperationError> {
        let inner = &self.inner;
        if inner.needs_recovery() {
            let recovering = Box::pin(inner.recover_all(std::slice::from_ref(part)));
            recovering.await.map_err(OperationError::Store)?;
        }
        let said =
            script::look(&inner.link, &inner.registry, &OptimisticPart::of(part), inner.clock())
                .await;
        said.map_err(OperationError::from)
    }

    fn forget_denials(&self, parts: &[ScriptPart]) {
        for part in parts {
            let hash = self.inner.hash_of(part);
            self.inner.denials.forget(&part.key, hash);
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
        Self { namespace: "sg".to_owned(), clock: None, own_clock: None, seed: None }
    }
}

// === impl Inner ===

impl Inner {
    fn key(&self, name: &[u8]) -> Arc<[u8]> {
        key::plain_key(&self.options.namespace, name)
    }

    /// Leaves the limits of parts in the store before anything is counted by them: whoever has others finds no record that it cannot read.
    #[inline]
    async fn publish_rules(&self, parts: &[ScriptPart]) {
        for part in parts {
            self.publish_if_new(&part.rule).await;
        }
    }

    #[inline]
    async fn publish_if_new(&self, rule: &ScriptRule) {
        let epoch = self.link.epoch();
        if !rule.is_published(epoch) {
            // Once for each set of limits, and again when the store has forgotten something.
            Box::pin(self.publish_rule(rule, epoch)).await;
        }
    }

    async fn publish_rule(&self, rule: &ScriptRule, epoch: u64) {
        let tried = self.publish_failures.load(Ordering::Acquire);
        let _one_at_a_time = self.publishing.lock().await;
        // Where somebody else has just failed, so would we; and everybody behind us would wait for it.
        let has_failed = self.publish_failures.load(Ordering::Acquire) != tried;
        if rule.is_published(epoch) || has_failed {
            return;
        }
        match self.registry.publish(&self.link, rule).await {
            Ok(()) => rule.mark_published(epoch),
            Err(_) => {
                self.publish_failures.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Remembers records, for the case that the store loses them or cannot be reached.
    fn note(&self, records: Option<Observations>, first: u64) {
        for (index, (key, observation)) in records.into_iter().flatten().enumerate() {
            // The hash of the first part is known.
            let hash = if index == 0 { first } else { self.chance.hash_one(&key) };
            self.observe(key, hash, observation);
        }
    }

    fn observe(&self, key: Arc<[u8]>, hash: u64, observation: Observation) {
        self.observed.note(key, hash, observation, self.rejoin.is_local_mode());
    }

    /// By this node's clock, which serves for what is remembered here.
    fn now(&self) -> Timestamp {
        self.store_clock.own_now()
    }

    /// By the same clock, a time that never goes back.
    fn ticks(&self) -> Timestamp {
        match self.options.own_clock.as_ref().or(self.options.clock.as_ref()) {
            Some(clock) => clock.ticks(),
            None => SystemClock::get().read_ticks(),
        }
    }

    fn clock(&self) -> Option<Timestamp> {
        clock_of(self.options.clock.as_deref())
    }

    async fn long_lock(&self, parts: &[ScriptPart]) -> Option<MutexGuard<'_, ()>> {
        Some(self.identity_lock(&parts.first()?.key).await)
    }

    async fn identity_lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.long_locks[self.hash_of_key(key) as usize % LONG_LOCKS].lock().await
    }

    /// Of whom an ask is: that of its first part, so that a lane is an identity's and not a cost's.
    fn hash(&self, ask: &ScriptRequest) -> u64 {
        ask.parts.first().map_or(0, |part| self.hash_of(part))
    }

    fn hash_of(&self, part: &ScriptPart) -> u64 {
        self.hash_of_key(&part.key)
    }

    fn hash_of_key(&self, key: &[u8]) -> u64 {
        self.chance.hash_one(key)
    }
}

/// How many lanes there are: one where a trial is to be made again.
fn lanes_for(options: &StoreOptions) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if options.seed.is_some() { 1 } else { (processors / 2).clamp(1, LANES_MAX) }
}

/// The time that a script is told, where it is not the store's own.
fn clock_of(clock: Option<&dyn Clock>) -> Option<Timestamp> {
    clock.map(Clock::now)
}

fn call_error(not: OperationError) -> CallError {
    match not {
        OperationError::Store(error) => error,
        OperationError::Refused(refusal) => CallError::Refused(refusal.to_string().into()),
    }
}

impl From<OptimisticError> for OperationError {
    fn from(error: OptimisticError) -> Self {
        match error {
            OptimisticError::Store(error) => Self::Store(error),
            OptimisticError::Refused(refusal) => Self::Refused(refusal),
            OptimisticError::Contended => Self::Store(CallError::Busy),
            OptimisticError::BadReply => Self::Store(CallError::Refused(error.to_string().into())),
        }
    }
}
