//! Builder of a limiter.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use sluicegate_core::mode::{Gate, Mode};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Consistency, Limits, OnStoreFailure, RuleConfig};

use super::{Inner, Limiter, section, wait};
use crate::clock::{Clock, TimeSource};
use crate::engine::EngineBuilder;
use crate::engine::backend::Backend;
use crate::hold_time::HoldTime;
use crate::limit::{IntoLimit, LimitError};
use crate::listener::Listener;
use crate::memory::{Memory, Overflow, ShardCount, Shards};
use crate::plan::{Rule, check_count, check_names, check_shared};
use crate::store::CounterStore;

/// Builder of a limiter: see [`Limiter::builder`].
#[derive(Default)]
#[must_use = "nothing is limited until it is built"]
pub struct Builder {
    pub(crate) name: String,
    pub(crate) limits: Vec<Result<LimitConfig, LimitError>>,
    pub(crate) mode: Mode,
    pub(crate) overflow: Overflow,
    pub(crate) shards: ShardCount,
    pub(crate) memory: Option<Memory>,
    pub(crate) time: Option<TimeSource>,
    pub(crate) gate: Arc<Mutex<Gate>>,
    pub(crate) listener: Option<Box<dyn Listener>>,
    pub(crate) consistency: Consistency,
    pub(crate) on_store_failure: Option<OnStoreFailure>,
}

impl Builder {
    /// Adds a limit. Several limits are one decision: all are charged, or none.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::{FixedWindow, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit(TokenBucket::per_second(100).named("burst"))
    ///     .limit(FixedWindow::per_day(1).named("daily"))
    ///     .build()?;
    /// limiter.hit("alice");
    /// assert!(!limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn limit(mut self, limit: impl IntoLimit) -> Self {
        self.limits.push(limit.into_limit());
        self
    }

    /// Adds several limits at once.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let both = [FixedWindow::per_minute(5).named("minute"), FixedWindow::per_day(9).named("day")];
    /// assert_eq!(Limiter::builder().limits(both).build()?.policies().len(), 2);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn limits<L: IntoLimit>(mut self, limits: impl IntoIterator<Item = L>) -> Self {
        self.limits.extend(limits.into_iter().map(IntoLimit::into_limit));
        self
    }

    /// Adds the limits of a YAML text: one mapping or a list, in the format of `sluicegate try
    /// --limit`.
    ///
    /// ```
    /// use sluicegate::Limiter;
    ///
    /// let limiter = Limiter::builder()
    ///     .yaml("[{ name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }]")
    ///     .build()?;
    /// assert_eq!(limiter.hit("alice").remaining, Some(49));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[cfg(feature = "config")]
    pub fn yaml(mut self, text: &str) -> Self {
        match sluicegate_config::limit::limits("limits", text) {
            Ok(limits) => self.limits.extend(limits.into_iter().map(Ok)),
            Err(problems) => self.limits.push(Err(LimitError::Text(problems.to_string()))),
        }
        self
    }

    /// The enforcement mode; hard by default.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Mode};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit(FixedWindow::per_hour(1))
    ///     .mode(Mode::Shadow)
    ///     .build()?;
    /// limiter.hit("alice");
    /// let verdict = limiter.hit("alice");
    /// assert!(verdict.is_allowed());
    /// assert!(!verdict.shadow.unwrap().is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The name of the limiter in events, snapshots and stores, which finds its counters. A store
    /// or shared memory has one limiter of a name. (Responses name limits instead, by their
    /// `named`.)
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = Limiter::builder().limit(FixedWindow::per_hour(1)).name("logins").build()?;
    /// assert_eq!(limiter.name(), "logins");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The memory; a separate one by default. On another store, it is what this process counts in
    /// while the store does not answer.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Memory};
    ///
    /// let memory = Memory::with_entries(1_000);
    /// let limiter = Limiter::builder().limit(FixedWindow::per_hour(1)).memory(&memory).build()?;
    /// limiter.hit("alice");
    /// assert_eq!(memory.entries(), 1);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn memory(self, memory: &Memory) -> Self {
        Self { memory: Some(memory.clone()), ..self }
    }

    /// The decision for an identity that exceeds the store's cap.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Memory, Overflow};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit(FixedWindow::per_hour(1))
    ///     .memory(&Memory::with_entries(0))
    ///     .overflow(Overflow::Shared)
    ///     .build()?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// assert!(!limiter.hit("bob").is_allowed(), "both share one");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn overflow(self, overflow: Overflow) -> Self {
        Self { overflow, ..self }
    }

    /// How processes that share a store count together; `Strict` by default. On memory it has no
    /// effect.
    ///
    /// `Leased` needs greedy token buckets, fixed or sliding windows; `Eventual` needs sliding
    /// windows, or fixed windows that are not aligned to the first hit. Both need [`Mode::Hard`].
    /// Other limits are refused on every store. (In rule files, a mode or `quota_mode` that makes a
    /// rule count as strict is a warning of `sluicegate check`.)
    ///
    /// ```
    /// use sluicegate::limit::{Concurrency, TokenBucket};
    /// use sluicegate::{Consistency, Limiter, Memory};
    ///
    /// let leased = || Limiter::builder().name("api").consistency(Consistency::Leased);
    /// let limiter = leased().limit(TokenBucket::per_second(1_000)).on(&Memory::new())?;
    /// let error = leased().limit(Concurrency::at_most(5)).on(&Memory::new()).unwrap_err();
    /// assert!(error.to_string().starts_with("`leased` needs a greedy `token_bucket`"), "{error}");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn consistency(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }

    /// What happens while the store does not answer; by default each process enforces its share of
    /// the limits (`Local`). On memory it has no effect.
    ///
    /// Reservations, permits and waiting need the store: under `Local` they fail, as under `Error`.
    ///
    /// ```
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::{Limiter, Memory, OnStoreFailure};
    ///
    /// let limiter = Limiter::builder()
    ///     .name("api")
    ///     .limit(TokenBucket::per_second(1_000))
    ///     .on_store_failure(OnStoreFailure::Allow)
    ///     .on(&Memory::new())?;
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn on_store_failure(self, policy: OnStoreFailure) -> Self {
        Self { on_store_failure: Some(policy), ..self }
    }

    /// The clock; the system clock by default. On another store it replaces the clock of the store
    /// too, for tests; `SystemClock::get()` does not, so that code can take either as an argument,
    /// of type `impl Clock + Clone + 'static`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::Limiter;
    /// use sluicegate::clock::ManualClock;
    /// use sluicegate::limit::TokenBucket;
    ///
    /// let clock = ManualClock::new();
    /// let limiter =
    ///     Limiter::builder().limit(TokenBucket::per_minute(1)).clock(clock.clone()).build()?;
    /// limiter.hit("alice");
    /// assert!(!limiter.hit("alice").is_allowed());
    /// clock.advance(Duration::from_secs(60));
    /// assert!(limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { time: Some(TimeSource::from_clock(clock)), ..self }
    }

    /// The listener that receives every decision: see [`Listener`].
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Event, Limiter, Listener};
    ///
    /// struct Log;
    ///
    /// impl Listener for Log {
    ///     fn decided(&self, event: &Event<'_>) {
    ///         println!("{}: {:?}", event.limiter, event.verdict.outcome);
    ///     }
    /// }
    ///
    /// let limiter = Limiter::builder().limit(FixedWindow::per_hour(1)).listener(Log).build()?;
    /// limiter.hit("alice");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn listener(self, listener: impl Listener + 'static) -> Self {
        Self { listener: Some(Box::new(listener)), ..self }
    }

    /// The limiter.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    ///
    /// let error = Limiter::builder().limit(TokenBucket::per_second(0)).build().unwrap_err();
    /// assert_eq!(error.to_string(), "the rate's number must be at least 1, got `0`");
    /// ```
    ///
    /// # Errors
    /// When there is no limit or more than [`LIMITS_MAX`](crate::LIMITS_MAX), two limits have the
    /// same name, a number is out of range, a limit does not support the mode or the consistency,
    /// or the memory has a limiter of the same name.
    pub fn build(mut self) -> Result<Limiter, LimitError> {
        let limits = self.take_limits()?;
        let rule = Rule::new(limits, self.mode)?;
        if let Some(memory) = self.memory.as_ref().filter(|_| !self.name.is_empty()) {
            let limiters = memory.store.limiters();
            if limiters.iter().any(|limiter| limiter.name() == self.name) {
                return Err(LimitError::NameTaken { name: self.name });
            }
        }
        Ok(self.build_with(Arc::new(rule)))
    }

    /// The limiter, with its counters in a store: [`Memory`], or Redis with the crate
    /// `sluicegate-redis`.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Memory};
    ///
    /// let store = Memory::new();
    /// let logins = || Limiter::builder().name("logins").limit(FixedWindow::per_hour(5));
    /// let limiter = logins().on(&store)?;
    /// let error = logins().on(&store).unwrap_err();
    /// assert!(error.to_string().contains("`logins`"), "{error}");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::build`]; and when it has no name, unless the store is memory.
    pub fn on<S: CounterStore>(self, store: &S) -> Result<Limiter<S::Backend>, LimitError> {
        store.limiter(self)
    }

    /// The limiter on a backend, for implementations of [`CounterStore`]: `backend` gets the name
    /// and the clock.
    ///
    /// # Errors
    /// As [`Builder::on`], and those of `backend`.
    pub fn build_on<B: Backend>(
        mut self,
        backend: impl FnOnce(&str, &TimeSource) -> Result<B, LimitError>,
    ) -> Result<Limiter<B>, LimitError> {
        if self.name.is_empty() {
            return Err(LimitError::NameMissing);
        }
        let limits = self.take_limits()?;
        check_count(limits.len())?;
        let mut rule = RuleConfig::new(Limits::Native(limits.into()));
        (rule.mode, rule.consistency) = (self.mode, self.consistency);
        rule.overflow = self.overflow;
        rule.on_store_failure = self.on_store_failure.unwrap_or(rule.on_store_failure);
        let Self { name, memory, time, listener, .. } = self;
        let engine = |rules| {
            let engine = EngineBuilder::for_limiter(rules, memory, time).build()?;
            let backend = backend(&name, engine.clock())?;
            Ok(engine.with_backend(backend))
        };
        Limiter::on_backend(&name, rule, engine, listener.map(Arc::from))
    }

    /// The limits, whose given names are unique. They and their mode must support the consistency.
    fn take_limits(&mut self) -> Result<Vec<LimitConfig>, LimitError> {
        let limits: Vec<_> =
            std::mem::take(&mut self.limits).into_iter().collect::<Result<_, _>>()?;
        check_names(&limits)?;
        check_shared(self.consistency, &limits)?;
        let got = match self.mode {
            Mode::Hard => return Ok(limits),
            Mode::Soft { .. } => "soft",
            Mode::Elastic { .. } => "elastic",
            Mode::Shadow => "shadow",
        };
        match self.consistency {
            Consistency::Strict => Ok(limits),
            other => {
                let (consistency, needs) = (other.name(), "the mode `hard`");
                Err(LimitError::Unshared { consistency, needs, got })
            }
        }
    }

    /// The limiter of a rule, which replaces the limits and the mode.
    pub(crate) fn build_with(self, rule: Arc<Rule>) -> Limiter {
        let time = self.time.unwrap_or_default();
        let now = time.now();
        let store = self.memory.unwrap_or_default().store;
        let bits = self.shards.bits(&self.name, &store);
        let shards = Shards::new(store, &rule, self.overflow, bits, now);
        let inner = Arc::new(Inner {
            name: self.name,
            shards,
            time,
            listener: self.listener,
            rule: RwLock::new(rule),
            changing: Mutex::new(()),
            gate: self.gate,
            waiters: wait::Waiters::default(),
            hold_time: HoldTime::default(),
            retired: AtomicBool::new(false),
        });
        section::introduce(&inner, now);
        Limiter { inner, shared: None, is_quiet: false }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
