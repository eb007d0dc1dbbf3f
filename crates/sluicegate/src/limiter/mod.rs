//! The limiter: limits, the state of each identity under them, and the operations.

mod builder;
mod change;
mod counter;
mod guard;
mod keyed;
#[cfg(feature = "tokio")]
mod queued;
mod section;
mod shared;
mod together;
mod wait;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use builder::Builder;
pub use counter::{CounterRef, apply_each};
pub use guard::{Permit, Reservation};
pub use keyed::KeyedOps;
use parking_lot::{Mutex, RwLock};
#[cfg(feature = "tokio")]
pub(crate) use queued::Queued;
use shared::SharedCounters;
use sluicegate_core::account::{Answer, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::mode::Gate;
use sluicegate_core::op::{Op, OpKind, Refusal};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;
pub use together::Together;
#[cfg(feature = "tower")]
pub(crate) use together::split;
pub use wait::Booking;

use crate::answer::Policy;
use crate::clock::TimeSource;
use crate::engine::MemoryBackend;
use crate::hold_time::HoldTime;
use crate::limit::{IntoLimit, LimitError};
use crate::listener::{Event, Listener};
use crate::memory::{Answered, Shards, UNCOUNTED, prefetch};
use crate::plan::Rule;

/// Admits or denies requests.
///
/// A limiter has one limit or several, and stores the state of each identity: a user, an address, a
/// tenant or any other key. Clones share their state.
///
/// The state is in the memory of this process, where every operation answers at once, or in a
/// [`CounterStore`](crate::CounterStore) such as Redis, where the operations are async: `hit_async`
/// for `hit`. The async operations exist on memory too, with the same results. A `Limiter<dyn
/// Backend>`, which is on any store, has the async operations only.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::FixedWindow;
///
/// let limiter = Limiter::new(FixedWindow::per_day(2).named("daily"))?;
/// let verdict = limiter.hit("alice");
/// assert!(verdict.is_allowed());
/// assert_eq!(limiter.decided_by(&verdict).unwrap().name, "daily");
/// assert_eq!(limiter.policies()[verdict.decided_by.unwrap()].name, "daily");
/// assert_eq!(limiter.hit_at("alice", limiter.now()).remaining, Some(0));
/// assert!(!limiter.hit("alice").is_allowed());
/// assert!(limiter.of("bob").cost(2).hit().is_allowed());
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub struct Limiter<B: ?Sized = MemoryBackend> {
    inner: Arc<Inner>,
    /// The counters of a backend. `None` on memory, where `inner` has them.
    shared: Option<Arc<SharedCounters<B>>>,
    /// Whether its owner reports decisions: nothing but plain hits on memory reaches the listener.
    is_quiet: bool,
}

struct Inner {
    name: String,
    shards: Shards,
    time: TimeSource,
    listener: Option<Box<dyn Listener>>,
    rule: RwLock<Arc<Rule>>,
    /// Held while the limits change, or while a snapshot writes them with their states.
    changing: Mutex<()>,
    /// Shared with the rule of this limiter, if any.
    gate: Arc<Mutex<Gate>>,
    waiters: wait::Waiters,
    /// How long its slots are held.
    hold_time: HoldTime,
    /// Whether snapshots exclude it.
    retired: AtomicBool,
}

impl Limiter {
    /// A limiter with one limit, on a separate store.
    ///
    /// # Errors
    /// When a number of the limit is out of range; the message contains the number and the range.
    pub fn new(limit: impl IntoLimit) -> Result<Self, LimitError> {
        Self::builder().limit(limit).build()
    }

    /// A limiter with the limits of a YAML text, in the format of `sluicegate try --limit`.
    ///
    /// ```
    /// use sluicegate::Limiter;
    ///
    /// let limiter = Limiter::from_yaml("{ algorithm: token_bucket, rate: 10/s, burst: 50 }")?;
    /// assert_eq!(limiter.hit("alice").remaining, Some(49));
    ///
    /// let error = Limiter::from_yaml("{ algorithm: token_bukket, rate: 10/s }").unwrap_err();
    /// assert!(error.to_string().contains("token_bucket"), "{error}");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// Every problem of the text with its position, value and remedy.
    #[cfg(feature = "config")]
    pub fn from_yaml(text: &str) -> Result<Self, LimitError> {
        Self::builder().yaml(text).build()
    }

    /// Starts a builder, for more than one limit or other options.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::{FixedWindow, TokenBucket};
    ///
    /// // Both, or neither.
    /// let limiter = Limiter::builder()
    ///     .limit(TokenBucket::per_second(10).burst(50).named("burst"))
    ///     .limit(FixedWindow::per_day(10_000).named("daily"))
    ///     .build()?;
    /// assert_eq!(limiter.hit("alice").remaining, Some(49));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Charges 1 to `key` if the limits admit it.
    #[inline]
    pub fn hit(&self, key: impl AsRef<[u8]>) -> Verdict {
        self.hit_at(key, self.inner.now())
    }

    /// The same at a time that the caller has already read.
    #[inline]
    pub fn hit_at(&self, key: impl AsRef<[u8]>, now: Timestamp) -> Verdict {
        let key = key.as_ref();
        let mut verdict = UNCOUNTED;
        let hash = self.inner.shards.hash(key);
        self.inner.hit(hash, key, 1, now, &mut verdict);
        verdict
    }

    /// Releases unused memory.
    ///
    /// Calling it is optional: traffic releases memory incrementally.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::clock::ManualClock;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::{Limiter, Memory};
    ///
    /// let (clock, memory) = (ManualClock::new(), Memory::new());
    /// let limiter = Limiter::builder()
    ///     .limit(TokenBucket::per_second(1))
    ///     .clock(clock.clone())
    ///     .memory(&memory)
    ///     .build()?;
    /// for user in 0..10_000 {
    ///     limiter.hit(format!("user:{user}"));
    /// }
    /// clock.advance(Duration::from_secs(1));
    /// limiter.sweep();
    /// assert_eq!(memory.entries(), 0);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn sweep(&self) {
        self.inner.shards.sweep(self.now());
    }
}

impl<B: ?Sized> Limiter<B> {
    /// Starts any other operation on `key`: see [`KeyedOps`].
    pub fn of<'a, K: AsRef<[u8]> + ?Sized>(&'a self, key: &'a K) -> KeyedOps<'a, B> {
        KeyedOps::new(self, key.as_ref())
    }

    /// The time of this limiter's clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// Its name; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.as_ref().map_or(&self.inner.name, |shared| shared.name())
    }

    /// The public description of its limits, in order: a verdict's `decided_by` is an index into
    /// it.
    #[must_use]
    pub fn policies(&self) -> Arc<[Policy]> {
        self.inner.rule.read().policies.clone()
    }

    /// The public description of the limit that decided.
    #[must_use]
    pub fn decided_by(&self, verdict: &Verdict) -> Option<Policy> {
        self.policies().get(verdict.decided_by?).cloned()
    }

    /// Reports the decision on a request to the listener, as a hit.
    #[cfg(feature = "tower")]
    pub(crate) fn report(&self, key: &[u8], cost: u64, verdict: &Verdict) {
        match &self.shared {
            None => {
                let now = self.inner.now();
                self.inner.notify(OpKind::Hit, Some(key), cost, verdict, now, false);
            }
            Some(shared) => shared.notify(OpKind::Hit, key, cost, verdict),
        }
    }

    /// An operation on the counters in memory.
    fn apply(
        &self,
        hash: u64,
        key: Option<&[u8]>,
        op: Op,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        match self.is_quiet {
            true => Ok(self.inner.apply_quietly(hash, op, now)?.answer),
            false => self.inner.apply(hash, key, op, now),
        }
    }
}

impl Inner {
    #[inline]
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// A hit; the verdict is written in place.
    fn hit(&self, hash: u64, key: &[u8], cost: u64, now: Timestamp, verdict: &mut Verdict) {
        match self.shards.hit(None, hash, cost, now, verdict) {
            Some(overflowed) => self.notify(OpKind::Hit, Some(key), cost, verdict, now, overflowed),
            None => self.hit_long(hash, key, cost, now, verdict),
        }
    }

    #[cold]
    fn hit_long(&self, hash: u64, key: &[u8], cost: u64, now: Timestamp, verdict: &mut Verdict) {
        // Without an id a slot is held until its lease ends: a fresh id is never used again.
        let op = Op::Hit { cost, holder: Some(new_holder()) };
        // No algorithm refuses a hit with a fresh id.
        if let Ok(answer) = self.apply(hash, Some(key), op, now) {
            *verdict = self.with_estimate(answer.verdict, now);
        }
    }

    /// The same verdict, with an estimate of when a slot is released where a slot is lacking.
    fn with_estimate(&self, mut verdict: Verdict, now: Timestamp) -> Verdict {
        if !verdict.is_allowed() {
            let rule = self.rule.read().clone();
            self.hold_time.estimate_wait(&rule.limits, &mut verdict, now);
        }
        verdict
    }

    /// Records that a slot was released, if the limits have slots.
    fn observe_hold(&self, held: Span, now: Timestamp) {
        if self.rule.read().policies.iter().any(Policy::has_slots) {
            self.hold_time.observe(held, now);
        }
    }

    fn apply(
        &self,
        hash: u64,
        key: Option<&[u8]>,
        op: Op,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let answered = self.apply_quietly(hash, op, now)?;
        let Answered { answer, overflowed } = answered;
        self.notify(op.kind(), key, op.cost(), &answer.verdict, now, overflowed);
        Ok(answer)
    }

    fn apply_quietly(&self, hash: u64, op: Op, now: Timestamp) -> Result<Answered, Refusal> {
        let moment = Moment { now, spare_capacity: self.gate.lock().is_open(now) };
        let answered = self.shards.apply(hash, op, moment)?;
        let Answered { answer, overflowed } = &answered;
        // An operation that frees slots wakes their waiters.
        match op {
            // The slot was in the shared overflow state: any new identity may wait for it.
            Op::Cancel { .. } | Op::Commit { .. } if *overflowed => self.waiters.wake_all(),
            Op::Cancel { .. } => self.waiters.wake(hash, answer.returned.unwrap_or(0).max(1)),
            // The number of freed slots is unknown.
            Op::Commit { .. } | Op::Reset => self.waiters.wake(hash, u64::MAX),
            _ => {}
        }
        Ok(answered)
    }

    #[inline]
    fn notify(
        &self,
        op: OpKind,
        key: Option<&[u8]>,
        cost: u64,
        verdict: &Verdict,
        now: Timestamp,
        overflowed: bool,
    ) {
        if let Some(listener) = &self.listener {
            let decided_by = self.denied_by(verdict);
            listener.decided(&Event {
                limiter: &self.name,
                op,
                key,
                cost,
                verdict,
                limit: decided_by.as_ref().map(|limit| &*limit.name),
                now,
                overflowed,
            });
        }
    }

    /// The limit that denied.
    fn denied_by(&self, verdict: &Verdict) -> Option<Policy> {
        let index = verdict.decided_by.filter(|_| !verdict.is_allowed())?;
        self.rule.read().policies.get(index).cloned()
    }
}

/// An id that is unique across processes and unpredictable: it authorizes the settlement.
///
/// ```
/// assert_ne!(sluicegate::new_holder(), sluicegate::new_holder());
/// ```
#[must_use]
pub fn new_holder() -> Holder {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static KEY: OnceLock<RandomState> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    Holder(KEY.get_or_init(RandomState::new).hash_one(next))
}

impl<B: ?Sized> Clone for Limiter<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: self.shared.clone(), is_quiet: self.is_quiet }
    }
}

impl<B: ?Sized> std::fmt::Debug for Limiter<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rule = self.inner.rule.read().clone();
        f.debug_struct("Limiter").field("name", &self.name()).field("limits", &rule.limits).finish()
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rule = self.rule.read().clone();
        f.debug_struct("Limiter").field("name", &self.name).field("limits", &rule.limits).finish()
    }
}

/// Keys prefetched ahead: more would evict the first lines from the nearest cache.
const AHEAD: usize = 16;

impl Limiter {
    /// One hit for each key, all at the same time; `each` receives the index of the key and the
    /// verdict.
    ///
    /// Keys are decided in order, each independently. A batch is faster than single calls: it reads
    /// the clock once and prefetches memory.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = Limiter::new(FixedWindow::per_hour(2))?;
    /// let mut denied = Vec::new();
    /// limiter.hit_batch(&["alice", "bob", "alice", "alice"], |place, verdict| {
    ///     if !verdict.is_allowed() {
    ///         denied.push(place);
    ///     }
    /// });
    /// assert_eq!(denied, [3]);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn hit_batch<K: AsRef<[u8]>>(&self, keys: &[K], mut each: impl FnMut(usize, Verdict)) {
        let now = self.now();
        let mut hashes = [0; AHEAD];
        let mut bytes = [[].as_slice(); AHEAD];
        for (chunk, keys) in keys.chunks(AHEAD).enumerate() {
            // Each step runs for all keys before the next, so that prefetches overlap.
            for (bytes, key) in bytes.iter_mut().zip(keys) {
                *bytes = key.as_ref();
                prefetch(bytes);
            }
            let bytes = &bytes[..keys.len()];
            for (hash, key) in hashes.iter_mut().zip(bytes) {
                *hash = self.inner.shards.hash(key);
                self.inner.shards.prefetch(*hash);
            }
            for (index, (hash, key)) in hashes.iter().zip(bytes).enumerate() {
                let mut verdict = UNCOUNTED;
                self.inner.hit(*hash, key, 1, now, &mut verdict);
                each(chunk * AHEAD + index, verdict);
            }
        }
    }
}
