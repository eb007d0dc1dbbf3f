//! The engine: rules, and the admission of requests by them.
//!
//! A request is matched to the active rules ([`Snapshot`]); a [`backend`] decides its steps, in the
//! order and with the charges that `admission` defines.

mod active_rules;
mod admission;
pub mod backend;
#[cfg(feature = "config")]
mod follow;
mod hold;
mod inspect;
mod memory;
mod reload;
mod slots;
mod stats;
mod unmatched;
mod value_stats;
#[cfg(feature = "tokio")]
mod wait;
#[cfg(feature = "config")]
mod withheld;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::request::Request;
use sluicegate_rules::set::RuleSet;

pub use admission::{Checked, Operation, Returned, Status};
#[cfg(feature = "config")]
pub use follow::{Change, Follower, Following, RULES_POLL_INTERVAL, RulesError, rules_of};
pub use hold::HoldError;
pub use inspect::{Inspected, LimitState};
pub use memory::MemoryBackend;
pub use reload::Reloaded;
pub use stats::Stats;
pub use value_stats::{ListedValue, ValueStats};
#[cfg(feature = "tokio")]
pub use wait::Waited;
#[cfg(feature = "config")]
pub use withheld::{REMOVAL_GRACE, REPORT_EVERY, WithheldDomain};

use crate::clock::{Clock, TimeSource};
use crate::limit::LimitError;
use crate::memory::Memory;
use crate::store::CounterStore;
use active_rules::{ActiveRules, Overrides, refuse_reserved};
use backend::{Backend, Call, Deferred, StoreError};
use stats::{NEAR_LIMIT_RATIO, NearLimit};
use value_stats::ValueBudget;

/// Enforces a set of rules on requests.
///
/// A request names a domain and has descriptors. The rules say which limits apply to each; every
/// identity has its own counter; the answer is one for the whole request, with a status for each
/// descriptor. Clones share everything.
///
/// The counters are where the backend has them: in this process ([`MemoryBackend`], which answers
/// without waiting), or elsewhere ([`Engine::with_backend`]).
///
/// ```
/// use sluicegate::Engine;
/// use sluicegate::rules::domain::{DescriptorConfig, Domain};
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::rules::rule::{Limits, RuleConfig};
/// use sluicegate::rules::set::RuleSet;
/// use sluicegate::rules::unit::Unit;
///
/// let mut users = DescriptorConfig::any("user_id");
/// users.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 2, unit: Unit::Year }));
/// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
/// let engine = Engine::new(rules)?;
/// assert_eq!((engine.snapshot().rules().rules().len(), engine.memory().entries()), (1, 0));
/// assert!(engine.now() > sluicegate::Timestamp::EPOCH);
///
/// let allowed = |user| {
///     let entries = [Entry::new("user_id", user)];
///     let descriptors = [Descriptor::of(&entries)];
///     engine.check(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }).allowed
/// };
/// assert_eq!([allowed("alice"), allowed("alice"), allowed("alice")], [true, true, false]);
/// assert!(allowed("bob"));
///
/// let entries = [Entry::new("user_id", "alice")];
/// let descriptors = [Descriptor::of(&entries)];
/// let alice = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
/// assert!(!engine.peek(&alice).allowed);
/// engine.reset(&alice);
/// assert_eq!([allowed("alice"), allowed("alice")], [true, true]);
/// assert!(engine.refund(&alice).allowed);
/// assert!(allowed("alice"));
/// engine.sweep();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<B: ?Sized = MemoryBackend> {
    state: Arc<EngineState>,
    backend: Arc<B>,
}

/// The rules, and this node's memory.
struct EngineState {
    active: ArcSwap<ActiveRules>,
    overrides: Overrides,
    store: LimiterStore,
    near_limit: NearLimit,
    values: ValueBudget,
    denies_unmatched: bool,
    /// Requests for domains without rules.
    unknown_domains: AtomicU64,
    /// Held while the rules are replaced.
    reloading: Mutex<()>,
    /// The last load signal, and its time.
    load: Mutex<Option<(u64, Timestamp)>>,
    /// The rule whose memory is swept next.
    next_swept: AtomicUsize,
}

/// What limiters are made of, beside their limits.
#[derive(Debug, Clone)]
struct LimiterStore {
    memory: Memory,
    clock: TimeSource,
}

/// Builder of an engine: see [`Engine::builder`].
#[derive(Debug, Default)]
#[must_use = "nothing is enforced until it is built"]
pub struct EngineBuilder {
    rules: RuleSet,
    memory: Option<Memory>,
    clock: Option<TimeSource>,
    near_limit_ratio: Option<f32>,
    metric_values: usize,
    denies_unmatched: bool,
    is_limiter: bool,
}

/// The active rules at one moment. A request is decided by one snapshot, whatever is loaded
/// meanwhile.
pub struct Snapshot<'a> {
    active: Guard<Arc<ActiveRules>>,
    engine: &'a EngineState,
}

impl Engine {
    /// Enforces these rules, on memory of its own.
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency, or a domain is reserved.
    pub fn new(rules: RuleSet) -> Result<Self, LimitError> {
        Self::builder(rules).build()
    }

    /// Builder of an engine with other memory or another clock.
    ///
    /// ```
    /// use sluicegate::clock::{Clock, ManualClock};
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::{Engine, Memory};
    ///
    /// let clock = ManualClock::new();
    /// let engine = Engine::builder(RuleSet::default())
    ///     .memory(&Memory::with_entries(1_000_000))
    ///     .clock(clock.clone())
    ///     .near_limit_ratio(0.95)
    ///     .build()?;
    /// assert_eq!(engine.memory().entries_max(), 1_000_000);
    /// assert_eq!(engine.now(), clock.now());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn builder(rules: RuleSet) -> EngineBuilder {
        EngineBuilder { rules, ..EngineBuilder::default() }
    }

    /// The same rules, with counters in a backend. This node's memory remains for what the backend
    /// decides on this node.
    #[must_use]
    pub fn with_backend<B: Backend>(self, backend: B) -> Engine<B> {
        Engine { state: self.state, backend: Arc::new(backend) }
    }

    /// Checks a request, and charges every limit that applies to it if it is admitted.
    ///
    /// Limits in Envoy's form are charged in any case.
    #[must_use]
    pub fn check(&self, request: &Request<'_>) -> Checked {
        self.apply_now(Operation::Hit, request)
    }

    /// Checks a request, and charges nothing.
    #[must_use]
    pub fn peek(&self, request: &Request<'_>) -> Checked {
        self.apply_now(Operation::Peek, request)
    }

    /// Returns the charge of a request that did not happen.
    pub fn refund(&self, request: &Request<'_>) -> Checked {
        self.apply_now(Operation::Refund, request)
    }

    /// Resets every limit that applies to a request: full, nothing pending, every slot free. Lists
    /// and hits have no effect.
    pub fn reset(&self, request: &Request<'_>) -> Checked {
        self.apply_now(Operation::Reset, request)
    }

    fn apply_now(&self, operation: Operation, request: &Request<'_>) -> Checked {
        let (rules, mut checked) = (self.snapshot(), Checked::default());
        let call = self.call(&rules, request);
        MemoryBackend::apply_now(operation, &call, &mut checked);
        checked
    }
}

impl<B: Backend> From<Engine<B>> for Engine<dyn Backend> {
    fn from(engine: Engine<B>) -> Self {
        Self { state: engine.state, backend: engine.backend }
    }
}

impl<B: Backend + ?Sized> Engine<B> {
    /// Checks a request, and charges every limit that applies to it if it is admitted.
    ///
    /// # Errors
    /// When the store does not answer and a rule has `on_store_failure: error`.
    pub async fn check_async(&self, request: &Request<'_>) -> Result<Checked, StoreError> {
        let (rules, mut checked) = (self.snapshot(), Checked::default());
        self.apply(Operation::Hit, self.call(&rules, request), &mut checked).await?;
        Ok(checked)
    }

    /// Applies an operation to every limit of a request, at once if the backend can.
    pub fn apply<'a>(
        &'a self,
        operation: Operation,
        call: Call<'a>,
        checked: &'a mut Checked,
    ) -> Deferred<'a, Result<(), StoreError>> {
        self.backend.apply(operation, call, checked)
    }

    /// Checks a request without waiting. `false` if the backend would have to wait: then nothing is
    /// charged.
    #[inline]
    pub fn check_now(&self, call: &Call<'_>, checked: &mut Checked) -> bool {
        self.backend.check_now(call, checked)
    }

    /// A request by the rules of a snapshot, at this moment.
    pub fn call<'a>(&self, rules: &'a Snapshot<'a>, request: &'a Request<'a>) -> Call<'a> {
        Call::new(rules, request, self.now())
    }
}

impl<B: ?Sized> Engine<B> {
    /// Where its counters are.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Load signal for elastic rules: the load of the protected service in thousandths of its
    /// capacity. It expires after 10 seconds, and also applies to rules that become elastic later.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: shop
    /// descriptors:
    ///   - key: user
    ///     limits: { algorithm: fixed_window, rate: 1/year }
    ///     mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("user", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    /// assert!(engine.check(&request).allowed);
    /// assert!(!engine.check(&request).allowed);
    /// engine.set_load(500);
    /// assert!(engine.check(&request).allowed);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_load(&self, thousandths: u64) {
        let now = self.now();
        // Held until all rules have it: a reload comes before it or after it.
        let mut load = self.state.load.lock();
        *load = Some((thousandths, now));
        self.state.active.load().signal_load(thousandths, now);
    }

    /// The active rules at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { active: self.state.active.load(), engine: &self.state }
    }

    /// The time by this engine's clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state.store.clock.now()
    }

    /// Monotonic time by the same clock.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> Timestamp {
        self.state.store.clock.ticks()
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &TimeSource {
        &self.state.store.clock
    }

    /// This node's memory, which all its rules share.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.state.store.memory
    }

    /// Frees memory of expired states. Requests do the same now and then.
    pub fn sweep(&self) {
        let active = self.state.active.load_full();
        active.limiters().for_each(|limiter| limiter.sweep());
        self.state.overrides.limiters().for_each(|limiter| limiter.sweep());
    }
}

impl<B: ?Sized> Clone for Engine<B> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), backend: self.backend.clone() }
    }
}

impl<B: ?Sized> Debug for Engine<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.snapshot().rules().rules().len();
        f.debug_struct("Engine").field("rules", &rules).finish_non_exhaustive()
    }
}

impl EngineBuilder {
    /// The memory; by default one of its own.
    pub fn memory(self, memory: &Memory) -> Self {
        Self { memory: Some(memory.clone()), ..self }
    }

    /// The clock; by default the system's.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Some(TimeSource::from_clock(clock)), ..self }
    }

    /// The share of a limit from which [`Stats`] count a hit as near it, between 0 and 1; by
    /// default 0.8.
    pub fn near_limit_ratio(self, ratio: f32) -> Self {
        Self { near_limit_ratio: Some(ratio), ..self }
    }

    /// Maximum number of values that [`Snapshot::value_stats`] lists for a rule with
    /// `detailed_metric` or `value_to_metric`; by default 0, and hits are counted by rule alone.
    /// All rules together list at most 10,000 values.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, rules_of};
    ///
    /// let rules = rules_of(
    ///     "
    /// domain: shop
    /// descriptors:
    ///   - { key: user, value_to_metric: true, rate_limit: { unit: year, requests_per_unit: 9 } }
    /// ",
    /// )?;
    /// let engine = Engine::builder(rules).metric_values(1).build()?;
    /// for user in ["alice", "bob", "alice"] {
    ///     let entries = [Entry::new("user", user)];
    ///     let descriptors = [Descriptor::of(&entries)];
    ///     let _ = engine.check(&Request { domain: "shop", descriptors: &descriptors, hits: 1 });
    /// }
    /// let snapshot = engine.snapshot();
    /// let no = snapshot.rules().rules().next().expect("a rule");
    /// let stats = snapshot.value_stats(no).expect("hits by value");
    /// assert_eq!(stats.values[0].key, "shop.user_alice");
    /// assert_eq!((stats.values[0].stats.total_hits, stats.other.total_hits), (2, 1));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metric_values(self, per_rule: usize) -> Self {
        Self { metric_values: per_rule, ..self }
    }

    /// Whether requests are denied that have a descriptor without a rule, or a domain without
    /// rules; by default they pass. A descriptor that the rules name without a limit is exempt.
    ///
    /// ```
    /// use sluicegate::Engine;
    /// use sluicegate::rules::request::{Descriptor, Request};
    /// use sluicegate::rules::set::RuleSet;
    ///
    /// let engine = Engine::builder(RuleSet::default()).deny_unmatched(true).build()?;
    /// let request = Request { domain: "shop", descriptors: &[Descriptor::of(&[])], hits: 1 };
    /// assert!(!engine.check(&request).allowed);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn deny_unmatched(self, denies_unmatched: bool) -> Self {
        Self { denies_unmatched, ..self }
    }

    /// The rules of a limiter on a backend.
    pub(crate) fn for_limiter(
        rules: RuleSet,
        memory: Option<Memory>,
        time: Option<TimeSource>,
    ) -> Self {
        Self { rules, memory, clock: time, is_limiter: true, ..Self::default() }
    }

    /// The engine, with its counters in a store: [`Memory`], or Redis with the crate
    /// `sluicegate-redis`.
    ///
    /// ```
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::{Engine, Memory};
    ///
    /// let engine = Engine::builder(RuleSet::default()).on(&Memory::with_entries(1_000))?;
    /// assert_eq!(engine.memory().entries_max(), 1_000);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency, or a domain is reserved.
    pub fn on<S: CounterStore>(self, store: &S) -> Result<Engine<S::Backend>, LimitError> {
        store.engine(self)
    }

    /// The engine, with its counters in the memory of this process.
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency, or a domain is reserved.
    pub fn build(self) -> Result<Engine, LimitError> {
        let store = LimiterStore {
            memory: self.memory.unwrap_or_default(),
            clock: self.clock.unwrap_or_default(),
        };
        if !self.is_limiter {
            refuse_reserved(&self.rules)?;
        }
        let values = ValueBudget::new(self.metric_values);
        let active = ActiveRules::first(self.rules, &values)?;
        let overrides = Overrides::default();
        active.adopt_restored(&store);
        overrides.adopt_restored(&store);
        let state = EngineState {
            active: ArcSwap::from_pointee(active),
            overrides,
            store,
            near_limit: NearLimit::new(self.near_limit_ratio.unwrap_or(NEAR_LIMIT_RATIO)),
            values,
            denies_unmatched: self.denies_unmatched,
            unknown_domains: AtomicU64::new(0),
            reloading: Mutex::new(()),
            load: Mutex::new(None),
            next_swept: AtomicUsize::new(0),
        };
        Ok(Engine { state: Arc::new(state), backend: Arc::new(MemoryBackend) })
    }
}

impl Snapshot<'_> {
    /// The same rules, for a longer time: a borrowed snapshot slows down the next ones.
    #[cfg(feature = "tokio")]
    fn owned(self) -> Self {
        let active = Guard::from_inner(Guard::into_inner(self.active));
        Self { active, engine: self.engine }
    }

    /// Whether both are of the same rules.
    #[cfg(feature = "tokio")]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.active, &other.active)
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.active.rules
    }
}

impl Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules().rules().len();
        f.debug_struct("Snapshot").field("rules", &rules).finish_non_exhaustive()
    }
}
