//! Rules at work: which limits a request is under, what they say, and how the rules are replaced.

pub(crate) mod check;
mod counting;
mod holding;
mod inspect;
pub(crate) mod live;
mod reload;
mod stats;
#[cfg(feature = "tokio")]
mod waiting;
#[cfg(feature = "config")]
mod watching;
#[cfg(feature = "config")]
mod withheld;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::request::Request;
use sluicegate_rules::set::RuleSet;

pub use check::{Checked, Status};
pub use holding::HoldError;
pub use inspect::{Inspected, LimitState};
pub use reload::Reloaded;
pub use stats::Stats;
#[cfg(feature = "tokio")]
pub use waiting::Waited;
#[cfg(feature = "config")]
pub use watching::{Change, Follower, Following, LOOK_EVERY, RulesError, rules_of};
#[cfg(feature = "config")]
pub use withheld::{REMOVAL_GRACE, REPORT_EVERY, WithheldDomain};

use crate::clock::{Clock, SystemClock};
use crate::limit::LimitError;
use crate::memory::Memory;
use counting::{NEAR_LIMIT_RATIO, Near};
use live::{Live, Overrides};

/// Enforces a set of rules on requests.
///
/// A request names a domain and describes who wants what. The rules say which limits that is under; every identity has
/// its own count; and the answer is one for the whole request, with a status for each of its descriptors. Clones are the same
/// engine.
///
/// ```
/// use sluicegate::Engine;
/// use sluicegate::rules::domain::{Domain, DescriptorConfig};
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::rules::rule::{Limits, RuleConfig};
/// use sluicegate::rules::set::RuleSet;
/// use sluicegate::rules::unit::Unit;
///
/// let mut users = DescriptorConfig::any("user_id");
/// users.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 2, unit: Unit::Year }));
/// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
/// let engine = Engine::new(rules)?;
///
/// let allowed = |user| {
///     let entries = [Entry::new("user_id", user)];
///     let descriptors = [Descriptor::of(&entries)];
///     engine.check(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }).allowed
/// };
/// assert_eq!([allowed("alice"), allowed("alice"), allowed("alice")], [true, true, false]);
/// assert!(allowed("bob"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    live: ArcSwap<Live>,
    overrides: Overrides,
    store: Parts,
    near: Near,
    /// Held while the rules are replaced.
    reloading: Mutex<()>,
    /// The last load that was heard of, and when.
    load: Mutex<Option<(u64, Timestamp)>>,
    /// Which rule's memory is looked after next.
    hand: AtomicUsize,
}

/// What limiters are made of, beside their limits.
#[derive(Debug, Clone)]
struct Parts {
    memory: Memory,
    clock: Option<Arc<dyn Clock>>,
}

/// An engine in the making: see [`Engine::builder`].
#[derive(Debug, Default)]
#[must_use = "nothing is enforced until it is built"]
pub struct EngineBuilder {
    rules: RuleSet,
    memory: Option<Memory>,
    clock: Option<Arc<dyn Clock>>,
    near_limit_ratio: Option<f32>,
}

/// The rules as they are at this moment: what is asked of one snapshot is answered by one set of rules, whatever is
/// loaded meanwhile.
///
/// ```
/// use sluicegate::Engine;
/// use sluicegate::rules::set::RuleSet;
///
/// let engine = Engine::new(RuleSet::default())?;
/// assert_eq!(engine.snapshot().rules().rules().len(), 0);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub struct Snapshot<'a> {
    live: Guard<Arc<Live>>,
    engine: &'a Inner,
}

// === impl Engine ===

impl Engine {
    /// Enforces these rules, on a store of its own.
    ///
    /// # Errors
    /// When a rule's mode has no meaning for one of its limits.
    pub fn new(rules: RuleSet) -> Result<Self, LimitError> {
        Self::builder(rules).build()
    }

    /// An engine with more to say about it.
    ///
    /// ```
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::{Engine, Memory};
    ///
    /// let engine = Engine::builder(RuleSet::default()).memory(&Memory::with_entries(1_000_000)).build()?;
    /// assert_eq!(engine.memory().entries_max(), 1_000_000);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn builder(rules: RuleSet) -> EngineBuilder {
        EngineBuilder { rules, ..EngineBuilder::default() }
    }

    /// May this request go now? If so, everything that it is under is charged.
    ///
    /// Limits of Envoy's form are charged in any case, the others only if the whole request may go.
    #[must_use]
    pub fn check(&self, request: &Request<'_>) -> Checked {
        let mut checked = Checked::default();
        self.snapshot().check(request, self.now(), &mut checked);
        checked
    }

    /// Would it go now? Nothing is charged.
    ///
    /// ```
    /// # use sluicegate::Engine;
    /// # use sluicegate::rules::{request::Request, set::RuleSet};
    /// let engine = Engine::new(RuleSet::default())?;
    /// let request = Request { domain: "unknown", descriptors: &[], hits: 1 };
    /// assert!(engine.peek(&request).allowed);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[must_use]
    pub fn peek(&self, request: &Request<'_>) -> Checked {
        let mut checked = Checked::default();
        self.snapshot().peek(request, self.now(), &mut checked);
        checked
    }

    /// Gives back the hits of a request that was charged and did not happen.
    ///
    /// ```
    /// # use sluicegate::Engine;
    /// # use sluicegate::rules::{request::Request, set::RuleSet};
    /// let engine = Engine::new(RuleSet::default())?;
    /// let request = Request { domain: "unknown", descriptors: &[], hits: 1 };
    /// assert!(engine.refund(&request).allowed);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn refund(&self, request: &Request<'_>) -> Checked {
        let mut checked = Checked::default();
        self.snapshot().refund(request, self.now(), &mut checked);
        checked
    }

    /// Makes every limit that this request is under as new for who it describes: full, nothing pending, every slot free.
    ///
    /// The statuses tell how they stand then. Lists and hits do not matter.
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
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("user", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    /// assert!(engine.check(&request).allowed);
    /// assert!(!engine.check(&request).allowed);
    /// engine.reset(&request);
    /// assert!(engine.check(&request).allowed);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(&self, request: &Request<'_>) -> Checked {
        let mut checked = Checked::default();
        self.snapshot().reset(request, self.now(), &mut checked);
        checked
    }

    /// Tells elastic rules how loaded what they protect is, in thousandths of its capacity.
    ///
    /// A signal is believed for 10 seconds. A rule that is loaded later, or becomes elastic then, knows of the last one.
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
        // Held until all have heard it: rules that are loaded meanwhile come before it or after it.
        let mut load = self.inner.load.lock();
        *load = Some((thousandths, now));
        self.inner.live.load().hear(thousandths, now);
    }

    /// The rules as they are at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { live: self.inner.live.load(), engine: &self.inner }
    }

    /// What time it is by this engine's clock.
    ///
    /// ```
    /// # use sluicegate::Engine;
    /// let engine = Engine::new(Default::default())?;
    /// assert!(engine.now() > sluicegate::Timestamp::EPOCH);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.inner.store.clock {
            Some(clock) => clock.now(),
            None => SystemClock::get().read(),
        }
    }

    /// A time that never goes back, by the same clock.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> Timestamp {
        match &self.inner.store.clock {
            Some(clock) => clock.ticks(),
            None => SystemClock::get().read_ticks(),
        }
    }

    /// The clock, if it is not the system's.
    #[must_use]
    pub fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.inner.store.clock.clone()
    }

    /// The store that all its rules share.
    ///
    /// ```
    /// # use sluicegate::Engine;
    /// assert_eq!(Engine::new(Default::default())?.memory().entries(), 0);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.inner.store.memory
    }

    /// Gives back memory that is not needed any more.
    ///
    /// Traffic does the same by and by.
    ///
    /// ```
    /// # use sluicegate::Engine;
    /// Engine::new(Default::default())?.sweep();
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn sweep(&self) {
        let live = self.inner.live.load_full();
        live.limiters().for_each(|limiter| limiter.sweep());
        self.inner.overrides.limiters().for_each(|limiter| limiter.sweep());
    }
}

impl Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.snapshot().rules().rules().len();
        f.debug_struct("Engine").field("rules", &rules).finish_non_exhaustive()
    }
}

// === impl EngineBuilder ===

impl EngineBuilder {
    /// The store; one of its own unless told.
    pub fn memory(self, memory: &Memory) -> Self {
        Self { memory: Some(memory.clone()), ..self }
    }

    /// The clock; the system's unless told.
    ///
    /// ```
    /// use sluicegate::Engine;
    /// use sluicegate::clock::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let engine = Engine::builder(Default::default()).clock(clock.clone()).build()?;
    /// assert_eq!(engine.now(), clock.now());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// From which share of a limit on [`Stats`] count a hit as near it: 0.8 unless told, between 0 and 1.
    ///
    /// ```
    /// use sluicegate::Engine;
    ///
    /// let engine = Engine::builder(Default::default()).near_limit_ratio(0.95).build()?;
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn near_limit_ratio(self, ratio: f32) -> Self {
        Self { near_limit_ratio: Some(ratio), ..self }
    }

    /// The engine.
    ///
    /// # Errors
    /// When a rule's mode has no meaning for one of its limits.
    pub fn build(self) -> Result<Engine, LimitError> {
        let store = Parts { memory: self.memory.unwrap_or_default(), clock: self.clock };
        let live = Live::first(self.rules)?;
        let overrides = Overrides::default();
        live.take_over_restored(&store);
        overrides.take_over_restored(&store);
        let inner = Inner {
            live: ArcSwap::from_pointee(live),
            overrides,
            store,
            near: Near::from(self.near_limit_ratio.unwrap_or(NEAR_LIMIT_RATIO)),
            reloading: Mutex::new(()),
            load: Mutex::new(None),
            hand: AtomicUsize::new(0),
        };
        Ok(Engine { inner: Arc::new(inner) })
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.live.rules
    }
}

impl Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules().rules().len();
        f.debug_struct("Snapshot").field("rules", &rules).finish_non_exhaustive()
    }
}
