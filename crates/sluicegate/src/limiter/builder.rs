//! Builder of a limiter.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use sluicegate_core::mode::{Gate, Mode};
use sluicegate_rules::limit::LimitConfig;

use super::{Inner, Limiter, section, wait};
use crate::clock::{Clock, TimeSource};
use crate::limit::{IntoLimit, LimitError};
use crate::listener::Listener;
use crate::memory::{Memory, Overflow, ShardCount, Shards};
use crate::plan::Rule;

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

    /// The name in events and snapshots.
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

    /// The store; a separate one by default.
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

    /// The clock; the system clock by default.
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
        Self { time: Some(TimeSource::Custom(Arc::new(clock))), ..self }
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
    /// When there is no limit or more than [`LIMITS_MAX`](crate::LIMITS_MAX), a number is out of
    /// range, or a limit does not support the mode.
    pub fn build(mut self) -> Result<Limiter, LimitError> {
        let limits = std::mem::take(&mut self.limits).into_iter().collect::<Result<Vec<_>, _>>()?;
        let rule = Rule::new(limits, self.mode)?;
        Ok(self.build_with(Arc::new(rule)))
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
            retired: AtomicBool::new(false),
        });
        section::introduce(&inner, now);
        Limiter { inner }
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
