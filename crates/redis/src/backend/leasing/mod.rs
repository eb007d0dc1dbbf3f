//! Leases: quota that a node acquires ahead for identities that it often decides.
//!
//! A frequent identity (`count_min_sketch`) is promoted to a lease (`lease`). Hits that
//! the lease covers are decided in memory; all others go to the store. Background tasks
//! (`acquire`) acquire, renew, release and re-assert leases in batches.
//!
//! *Never more passes than the limit allows*: the store charges a lease when it is granted and
//! counts it until it expires (`core/lease`); the node stops spending before that, even if the
//! reply was as late as possible. The quota of a node that crashes is lost until it expires.

mod acquire;
mod count_min_sketch;
mod demand;
mod quota_lease;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::RuleNo;
use tokio::sync::{Notify, mpsc};

use super::LevelCounters;
use super::levels::{add, subtract};
use super::local::{BuildPrehashed, Local, LocalStep};
use crate::Store;
use crate::script::{LeaseRequest, ScriptRule};
use count_min_sketch::CountMinSketch;
use quota_lease::{LeaseCall, LeaseDecision, QuotaLease, Serials};
use sluicegate::backend::Rule;
use sluicegate::clock::TimeSource;
use sluicegate::{Level, Promise};

const SHARDS: usize = 64;
/// Largest number of leased identities; the store decides hits of others.
const LEASED_MAX: usize = 65_536;
/// Recent requests, within about a second, from which an identity is leased.
const PROMOTE_AT: u32 = 3;
/// The same for identities of a rule that is strict until hot.
const PROMOTE_STRICT_AT: u32 = 100;
/// A denial is reused for a sixteenth of the shortest window, at most for this long.
const DENIAL_GAP_MAX: Span = Span::from_millis(5);

const LEASED: Promise = Promise { level: Level::Leased, over: 0 };

/// The leases of this node. Clones share state.
#[derive(Clone)]
pub(super) struct QuotaLeases {
    inner: Arc<Inner>,
}

/// Lease of one identity, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Its rule.
    pub rule: RuleNo,
    /// Domain and entries of the identity, as matched.
    pub identity: Box<[u8]>,
    /// Whether the rule is strict and the identity leased because it is hot.
    pub is_hot: bool,
    /// Amount that this node may still spend.
    pub unspent: u64,
    /// Demand per second.
    pub per_second: u64,
    /// Time until the lease expires.
    pub ttl: Span,
}

pub(super) struct Inner {
    clock: TimeSource,
    store: Store,
    shards: [Mutex<Shard>; SHARDS],
    leased_count: AtomicUsize,
    sketch: CountMinSketch,
    serials: Serials,
    queue: mpsc::UnboundedSender<QueuedCall>,
    is_closing: AtomicBool,
    /// Notified after each completed call.
    completed: Notify,
}

/// By hash; of two identities with the same hash only the first is leased.
type Shard = HashMap<u64, LeasedIdentity, BuildPrehashed>;

/// A leased identity.
struct LeasedIdentity {
    no: RuleNo,
    identity: Box<[u8]>,
    key: Arc<[u8]>,
    rule: Arc<Rule>,
    is_hot: bool,
    denial_gap: Span,
    lease: QuotaLease,
    counters: Arc<LevelCounters>,
    /// Local decisions not yet added to the counters.
    local: u64,
    /// Amount of this lease within `short_bound`.
    counted: u64,
}

/// A call that waits to be sent.
struct QueuedCall {
    hash: u64,
    request: LeaseRequest,
}

impl QuotaLeases {
    /// Starts the background tasks. Must be called within a Tokio runtime.
    pub(super) fn start(clock: &TimeSource, store: &Store) -> Self {
        let (queue, calls) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            clock: clock.clone(),
            store: store.clone(),
            shards: std::array::from_fn(|_| Mutex::default()),
            leased_count: AtomicUsize::new(0),
            sketch: CountMinSketch::new(),
            serials: Serials::default(),
            queue,
            is_closing: AtomicBool::new(false),
            completed: Notify::new(),
        });
        tokio::spawn(acquire::send_calls(Arc::downgrade(&inner), calls));
        tokio::spawn(acquire::maintain(Arc::downgrade(&inner)));
        tokio::spawn(acquire::reassert_after_data_loss(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// Decides a hit, if the lease covers it.
    #[inline]
    pub(super) fn hit(&self, step: &LocalStep<'_>, ticks: Timestamp) -> Local {
        self.inner.decide_with(step, ticks, |leased| {
            let decision = leased.lease.hit(step.cost, ticks);
            leased.local += u64::from(decision != LeaseDecision::Uncovered);
            // A reload may renumber the rules.
            leased.no = step.no;
            decision
        })
    }

    /// Decides a hit of a request with further steps, to be followed by `commit` or `undo`.
    pub(super) fn try_hit(&self, step: &LocalStep<'_>, ticks: Timestamp) -> Local {
        self.inner.decide_with(step, ticks, |leased| {
            let decision = leased.lease.try_hit(step.cost, ticks);
            leased.local += u64::from(decision != LeaseDecision::Uncovered);
            leased.no = step.no;
            decision
        })
    }

    /// Confirms a hit of `try_hit`.
    pub(super) fn commit(&self, step: &LocalStep<'_>) {
        self.inner.update(step, |leased| leased.lease.commit(step.cost));
    }

    /// Decides without spending. Denials are left to the store, which has the current state.
    pub(super) fn peek(&self, step: &LocalStep<'_>, ticks: Timestamp) -> Local {
        let decision =
            self.inner.decide_with(step, ticks, |leased| leased.lease.peek(step.cost, ticks));
        match decision {
            Local::Decided(verdict, _) if verdict.is_allowed() => decision,
            _ => Local::Unknown,
        }
    }

    /// Returns the cost of a hit of `try_hit` to the lease.
    pub(super) fn undo(&self, step: &LocalStep<'_>, ticks: Timestamp) {
        self.inner.update(step, |leased| leased.lease.undo(step.cost, ticks));
    }

    /// Counts a hit that the store decides, and promotes its identity if that is frequent.
    pub(super) fn record_miss(&self, step: &LocalStep<'_>, ticks: Timestamp) {
        add(&step.counters.remote, 1);
        self.inner.record_miss(step, ticks);
    }

    /// Records the verdict of the store on such a hit.
    pub(super) fn record_verdict(&self, step: &LocalStep<'_>, verdict: &Verdict, ticks: Timestamp) {
        self.inner.update(step, |leased| match verdict.outcome {
            Outcome::Deny { .. } => {
                leased.lease.record_denial(step.cost, *verdict, leased.denial_gap, ticks)
            }
            Outcome::Allow { .. } => leased.lease.record_admission(verdict, ticks),
            Outcome::Never { .. } => {}
        });
    }

    /// Amount held after the last call, spent or not.
    pub(super) fn held(&self, hash: u64) -> u64 {
        self.inner.shard(hash).lock().get(&hash).map_or(0, |leased| leased.lease.held())
    }

    /// Drops the recorded denial, after a refund or a reset.
    pub(super) fn clear_denial(&self, hash: u64) {
        if let Some(leased) = self.inner.shard(hash).lock().get_mut(&hash) {
            leased.lease.clear_denial();
        }
    }

    pub(super) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    pub(super) fn upgrade(inner: &Weak<Inner>) -> Option<Self> {
        Some(Self { inner: inner.upgrade()? })
    }

    /// Releases all leases. The store decides every later hit.
    pub(super) async fn close(&self) {
        acquire::close(&self.inner).await;
    }

    /// The leases with the highest demand.
    pub(super) fn list(&self, max: usize) -> Vec<LeaseInfo> {
        let ticks = self.inner.clock.ticks();
        let mut all = Vec::new();
        for shard in &self.inner.shards {
            all.extend(shard.lock().values().map(|leased| leased.info(ticks)));
        }
        all.sort_by(|one, other| {
            other.per_second.cmp(&one.per_second).then_with(|| one.identity.cmp(&other.identity))
        });
        all.truncate(max);
        all
    }
}

impl fmt::Debug for QuotaLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leased_count = self.inner.leased_count.load(Ordering::Relaxed);
        f.debug_struct("QuotaLeases").field("leased_count", &leased_count).finish_non_exhaustive()
    }
}

impl Inner {
    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The map uses the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    #[inline]
    fn decide_with(
        &self,
        step: &LocalStep<'_>,
        ticks: Timestamp,
        decide: impl FnOnce(&mut LeasedIdentity) -> LeaseDecision,
    ) -> Local {
        let mut shard = self.shard(step.hash).lock();
        let Some(leased) = shard.get_mut(&step.hash) else { return Local::Unknown };
        if !leased.is_of(step) {
            return Local::Unknown;
        }
        let decision = decide(leased);
        if !self.is_closing.load(Ordering::Relaxed)
            && let Some(call) = leased.lease.acquire(&self.serials, ticks)
        {
            self.enqueue(leased, step.hash, call);
        }
        match decision {
            LeaseDecision::Covered(verdict) | LeaseDecision::Denied(verdict) => {
                Local::Decided(verdict, LEASED)
            }
            LeaseDecision::Uncovered => Local::Unknown,
        }
    }

    fn update(&self, step: &LocalStep<'_>, act: impl FnOnce(&mut LeasedIdentity)) {
        let mut shard = self.shard(step.hash).lock();
        if let Some(leased) = shard.get_mut(&step.hash).filter(|leased| leased.is_of(step)) {
            act(leased);
        }
    }

    fn record_miss(&self, step: &LocalStep<'_>, ticks: Timestamp) {
        if self.is_closing.load(Ordering::Relaxed) {
            return;
        }
        let count = self.sketch.count(step.hash);
        let mut shard = self.shard(step.hash).lock();
        let leased = match shard.entry(step.hash) {
            Entry::Occupied(taken) if taken.get().is_of(step) => taken.into_mut(),
            Entry::Occupied(taken) if *taken.get().identity == *step.identity => {
                // The limits have changed.
                let leased = taken.into_mut();
                let old = std::mem::replace(leased, self.promote(step, count, ticks));
                self.demote(old, step.hash, ticks);
                leased
            }
            // A hash collision: the first identity is leased.
            Entry::Occupied(_) => return,
            Entry::Vacant(free) if self.is_promotable(step, count) => {
                free.insert(self.promote(step, count, ticks))
            }
            Entry::Vacant(_) => return,
        };
        leased.lease.record_miss(step.cost, ticks);
        if let Some(call) = leased.lease.acquire(&self.serials, ticks) {
            self.enqueue(leased, step.hash, call);
        }
    }

    fn is_promotable(&self, step: &LocalStep<'_>, count: u32) -> bool {
        let threshold = if is_hot(step) { PROMOTE_STRICT_AT } else { PROMOTE_AT };
        count >= threshold && self.leased_count.load(Ordering::Relaxed) < LEASED_MAX
    }

    fn promote(&self, step: &LocalStep<'_>, count: u32, ticks: Timestamp) -> LeasedIdentity {
        self.leased_count.fetch_add(1, Ordering::Relaxed);
        add(&step.counters.promoted, 1);
        add(&step.counters.leases, 1);
        let key = self.store.key_of(step.identity, "");
        LeasedIdentity::new(step, key, u64::from(count), ticks)
    }

    /// Queues a call. There is at most one per lease, which bounds the queue.
    fn enqueue(&self, leased: &LeasedIdentity, hash: u64, call: LeaseCall) {
        let request = self.lease_request(leased, call);
        let _ = self.queue.send(QueuedCall { hash, request });
    }

    fn lease_request(&self, leased: &LeasedIdentity, call: LeaseCall) -> LeaseRequest {
        let LeaseCall { serial, give, hold, want } = call;
        LeaseRequest {
            key: leased.key.clone(),
            rule: ScriptRule::at(&leased.rule, self.clock.now()),
            node: self.store.node(),
            serial,
            give,
            hold,
            want,
            ttl: quota_lease::TTL,
        }
    }

    /// Ends a lease and releases its quota.
    fn demote(&self, mut leased: LeasedIdentity, hash: u64, ticks: Timestamp) {
        self.leased_count.fetch_sub(1, Ordering::Relaxed);
        if let Some(call) = leased.lease.release_all(&self.serials, ticks) {
            self.enqueue(&leased, hash, call);
        }
        leased.flush_counters();
        add(&leased.counters.demoted, 1);
        subtract(&leased.counters.leases, 1);
    }
}

impl LeasedIdentity {
    fn new(step: &LocalStep<'_>, key: Arc<[u8]>, count: u64, ticks: Timestamp) -> Self {
        let fills_in = step.rule.policies.iter().filter_map(|policy| policy.window).min();
        // Months and years of a calendar have no length here.
        let denial_gap = fills_in.map_or(DENIAL_GAP_MAX, |window| {
            Span::from_micros(window.as_micros() / 16).min(DENIAL_GAP_MAX)
        });
        Self {
            no: step.no,
            identity: step.identity.into(),
            key,
            rule: step.rule.clone(),
            is_hot: is_hot(step),
            denial_gap,
            lease: QuotaLease::new(count, ticks),
            counters: step.counters.clone(),
            local: 0,
            counted: 0,
        }
    }

    /// Whether this is the identity of a step, under the same limits.
    #[inline]
    fn is_of(&self, step: &LocalStep<'_>) -> bool {
        Arc::ptr_eq(&self.rule, step.rule) && *self.identity == *step.identity
    }

    /// Adds the changes to the counters of the rule.
    fn flush_counters(&mut self) {
        let counters = &*self.counters;
        add(&counters.local, std::mem::replace(&mut self.local, 0));
        add(&counters.short_observed, self.lease.take_expired());
        let (held, counted) = (self.lease.unspent(), self.counted);
        match held.checked_sub(counted) {
            Some(more) => add(&counters.short_bound, more),
            None => subtract(&counters.short_bound, counted - held),
        }
        self.counted = held;
    }

    fn info(&self, ticks: Timestamp) -> LeaseInfo {
        LeaseInfo {
            rule: self.no,
            identity: self.identity.clone(),
            is_hot: self.is_hot,
            unspent: self.lease.unspent(),
            per_second: self.lease.per_second(),
            ttl: self.lease.remaining_ttl(ticks),
        }
    }
}

/// Whether an identity is leased although its rule is strict.
fn is_hot(step: &LocalStep<'_>) -> bool {
    step.consistency != Consistency::Leased
}
