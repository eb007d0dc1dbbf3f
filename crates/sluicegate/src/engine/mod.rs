//! The engine: rules, and the admission of requests by them.
//!
//! A request is matched to the active rules ([`Snapshot`]); a [`backend`] decides its steps, in the
//! order and with the charges that `admission` defines.

mod active_rules;
mod admission;
pub mod backend;
mod builder;
#[cfg(feature = "config")]
mod follow;
mod hold;
mod inspect;
mod memory;
mod metering;
mod pools;
mod reload;
mod slots;
mod stats;
mod traffic;
mod unmatched;
mod usage;
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
use sluicegate_core::mode::LOAD_STALE_AFTER;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::request::Request;
use sluicegate_rules::set::RuleSet;

pub use admission::{Checked, Operation, Returned, Status};
pub use builder::EngineBuilder;
#[cfg(feature = "config")]
pub use follow::{
    Change, FollowWaker, Follower, Following, RULES_POLL_INTERVAL, RulesError, rules_of,
};
pub use hold::HoldError;
pub use inspect::{Inspected, LimitState};
pub use memory::MemoryBackend;
pub use metering::{MeteredUsage, UsageKind, UsageMeter, descriptor_text};
pub use reload::Reloaded;
pub use stats::Stats;
pub use traffic::{
    DISTINCT_STANDARD_ERROR, DistinctIdentities, HeavyHitters, IdentityHits, RULES_OBSERVED_MAX,
    RuleTraffic, SKETCHED_PER_SECOND, TRACKED_IDENTITIES, TopIdentities,
};
pub use usage::{REMEMBERED_MAX, ThresholdReached, UsageListener};
pub use value_stats::{ListedValue, ValueStats};
#[cfg(feature = "tokio")]
pub use wait::Waited;
#[cfg(feature = "config")]
pub use withheld::{REMOVAL_GRACE, REPORT_EVERY, WithheldDomain};

use crate::clock::TimeSource;
use crate::limit::LimitError;
use crate::memory::Memory;
use active_rules::{ActiveRules, Overrides};
use backend::{Backend, Call, Deferred, StoreError};
use metering::Metering;
use stats::NearLimit;
use traffic::TrafficMonitor;
use usage::UsageMonitor;
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
    usage: UsageMonitor,
    /// Observer of traffic, if it is on.
    traffic: Option<TrafficMonitor>,
    metering: Metering,
}

/// What limiters are made of, beside their limits.
#[derive(Debug, Clone)]
struct LimiterStore {
    memory: Memory,
    clock: TimeSource,
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
        EngineBuilder::new(rules)
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
        if call.rules.rules().has_pools() {
            return self.apply_pools(operation, call, checked);
        }
        self.backend.apply(operation, call, checked)
    }

    /// Checks a request without waiting. `false` if the backend would have to wait: then nothing is
    /// charged.
    #[inline]
    pub fn check_now(&self, call: &Call<'_>, checked: &mut Checked) -> bool {
        if call.rules.rules().has_pools() {
            return self.check_pools_now(call, checked);
        }
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

    /// The load signal, while it has not expired.
    #[must_use]
    pub fn load(&self) -> Option<u64> {
        let (load, at) = (*self.state.load.lock())?;
        (self.now() < at.after(LOAD_STALE_AFTER)).then_some(load)
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
