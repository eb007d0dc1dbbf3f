//! Builds an engine: its rules, its memory or store, its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluicegate_rules::set::RuleSet;

use super::active_rules::{ActiveRules, Overrides, refuse_reserved};
use super::metering::{Metering, UsageMeter};
use super::stats::{NEAR_LIMIT_RATIO, NearLimit};
use super::traffic::TrafficMonitor;
use super::usage::UsageMonitor;
use super::value_stats::ValueBudget;
use super::{Engine, EngineState, LimiterStore, MemoryBackend};
use crate::clock::{Clock, TimeSource};
use crate::limit::LimitError;
use crate::memory::{HashKey, Memory};
use crate::store::CounterStore;

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
    observes_traffic: bool,
    metering: Metering,
    is_limiter: bool,
}

impl EngineBuilder {
    pub(super) fn new(rules: RuleSet) -> Self {
        Self { rules, ..Self::default() }
    }

    /// The memory; by default one of its own.
    pub fn memory(self, memory: &Memory) -> Self {
        Self { memory: Some(memory.clone()), ..self }
    }

    /// The clock; by default the system's.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Some(TimeSource::from_clock(clock)), ..self }
    }

    /// The share of a limit from which [`Stats`](super::Stats) count a hit as near it, between 0
    /// and 1; by default 0.8.
    pub fn near_limit_ratio(self, ratio: f32) -> Self {
        Self { near_limit_ratio: Some(ratio), ..self }
    }

    /// Maximum number of values that [`Snapshot::value_stats`](super::Snapshot::value_stats) lists
    /// for a rule with `detailed_metric` or `value_to_metric`; by default 0, and hits are counted
    /// by rule alone. All rules together list at most 10,000 values.
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

    /// Whether the traffic of each rule is observed: its identities with the most hits, how many
    /// there are, and when it denied last ([`Snapshot::traffic`](super::Snapshot::traffic)). By
    /// default it is not. The owner of the engine calls
    /// [`Engine::tick_traffic`](super::Engine::tick_traffic) once a second.
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
    ///   - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }
    /// ",
    /// )?;
    /// let engine = Engine::builder(rules).observe_traffic(true).build()?;
    /// for user in ["alice", "bob", "alice", "alice", "alice"] {
    ///     let entries = [Entry::new("user", user)];
    ///     let descriptors = [Descriptor::of(&entries)];
    ///     let _ = engine.check(&Request { domain: "shop", descriptors: &descriptors, hits: 1 });
    /// }
    /// let snapshot = engine.snapshot();
    /// let no = snapshot.rules().rules().next().expect("a rule");
    /// let traffic = snapshot.traffic(no).expect("it had hits");
    /// assert_eq!((traffic.distinct.identities, traffic.distinct.denied), (2, 1));
    /// let most = &traffic.top.denied[0];
    /// assert_eq!((&*most.descriptor, most.hits, most.over_estimate), ("user=alice", 2, 0));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe_traffic(self, observes_traffic: bool) -> Self {
        Self { observes_traffic, ..self }
    }

    /// Records the usage of the identities of the rules that the meter selects.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use std::sync::{Arc, Mutex};
    ///
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, MeteredUsage, UsageKind, UsageMeter, descriptor_text, rules_of};
    ///
    /// #[derive(Debug, Default)]
    /// struct Bill(Mutex<Vec<(String, UsageKind, u64)>>);
    ///
    /// impl UsageMeter for Bill {
    ///     fn is_metered(&self, domain: &str, _rule: &str) -> bool {
    ///         domain == "llm"
    ///     }
    ///
    ///     fn record(&self, usage: &MeteredUsage<'_>) {
    ///         let entry = (descriptor_text(usage.identity), usage.kind, usage.cost);
    ///         self.0.lock().unwrap().push(entry);
    ///     }
    /// }
    ///
    /// let rules = rules_of(
    ///     "
    /// domain: llm
    /// descriptors: [{ key: team, limits: { algorithm: fixed_window, rate: 10/year } }]
    /// ",
    /// )?;
    /// let bill = Arc::new(Bill::default());
    /// let engine = Engine::builder(rules).meter(bill.clone()).build()?;
    /// let entries = [Entry::new("team", "search")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// for hits in [8, 5] {
    ///     let _ = engine.check(&Request { domain: "llm", descriptors: &descriptors, hits });
    /// }
    /// let team = || "team=search".to_owned();
    /// let due = [(team(), UsageKind::Admitted, 8), (team(), UsageKind::Denied, 5)];
    /// assert_eq!(*bill.0.lock().unwrap(), due);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn meter(self, meter: Arc<dyn UsageMeter>) -> Self {
        Self { metering: Metering(Some(meter)), ..self }
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
        let traffic = self
            .observes_traffic
            .then(|| TrafficMonitor::new(HashKey::random(), store.clock.now()));
        let values = ValueBudget::new(self.metric_values);
        let active = ActiveRules::first(self.rules, &values, &self.metering)?;
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
            usage: UsageMonitor::default(),
            traffic,
            metering: self.metering,
        };
        Ok(Engine { state: Arc::new(state), backend: Arc::new(MemoryBackend) })
    }
}
