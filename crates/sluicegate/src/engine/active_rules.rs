//! The active set of rules, and the state of each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Gate, GateLevels, Mode};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::domain::LIMITER_DOMAIN;
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Consistency, Limits, Overflow, RuleConfig};
use sluicegate_rules::set::{RuleNo, RuleSet};
use sluicegate_rules::unit::Unit;

use super::backend::Extension;
use super::metering::Metering;
use super::pools::counts_denied;
use super::slots::has_slots;
use super::stats::{HitCounters, HitCounts};
use super::traffic::{TrafficMonitor, TrafficState};
use super::unmatched::{self, UnmatchedCounters};
use super::value_stats::{ValueBudget, ValueCounters, ValueStats};
use super::{LimiterStore, Snapshot, Stats};
use crate::answer::Policy;
use crate::limit::LimitError;
use crate::limiter::{Builder, Limiter};
use crate::memory::ShardCount;
use crate::plan::{Rule, check_count, check_shared, new_number, policies_of};

/// Up to this many rules, each has as many shards as a limiter of its own.
const MANY_SHARDS_MAX: usize = 100;

/// A set of rules, with a slot for each.
pub(super) struct ActiveRules {
    pub(super) rules: RuleSet,
    pub(super) slots: Box<[RuleSlot]>,
    /// The elastic rules.
    elastic: Box<[(RuleNo, GateLevels)]>,
    /// Whether nodes may decide any rule without asking a store.
    has_local: bool,
    /// Whether any of those exchange their counts.
    has_eventual: bool,
    /// Unmatched requests by domain.
    pub(super) unmatched: UnmatchedCounters,
    /// Whether any rule has a concurrency limit.
    pub(super) has_slots: bool,
    /// Whether thresholds of any rule are reported.
    pub(super) has_notify: bool,
    /// Whether usage of any rule is metered.
    pub(super) has_metered: bool,
    /// Whether a denied hit changes counters of any rule. Only where rules have pools.
    pub(super) counts_denied: bool,
}

/// A rule of the active set.
#[derive(Debug, Default)]
pub(super) struct RuleSlot {
    /// What it keeps over reloads.
    pub(super) state: Arc<RuleState>,
    /// Its limits, once they were needed. When they are set, the limiter has them or later ones, or
    /// is being moved to them by a reload.
    rule: OnceLock<Arc<Rule>>,
    /// How often the rule was changed.
    generation: u64,
    /// What is published about its limits, once that was needed. Not that of `rule`, whose states
    /// may continue under another name.
    policies: OnceLock<Box<[Policy]>>,
    /// Whether its hits are counted by value.
    pub(super) counts_values: bool,
    /// Whether its usage is metered.
    pub(super) is_metered: bool,
}

/// State of a rule, which outlives reloads. All of it is created on first use: an unused rule takes
/// next to no memory.
#[derive(Debug)]
pub struct RuleState {
    limiter: OnceLock<Limiter>,
    /// Distinguishes the rules of a request.
    number: usize,
    /// Load gate of an elastic rule, created by the first signal.
    gate: OnceLock<Arc<Mutex<Gate>>>,
    hits: OnceLock<HitCounters>,
    /// Hits by value. They are not part of `hits`.
    values: OnceLock<ValueCounters>,
    /// Observed traffic; `None` if there is no room for it.
    traffic: OnceLock<Option<Box<TrafficState>>>,
    /// State of the backend.
    extension: Extension,
    /// Whether the rule was removed. Requests in flight may still use it.
    is_retired: AtomicBool,
}

/// Counters for limits that come with requests, one limiter for each unit. They only count: the
/// limit is that of the request.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    units: [OnceLock<Limiter>; Unit::ALL.len()],
    hits: HitCounters,
}

impl ActiveRules {
    /// Rules without any state.
    pub(super) fn first(
        rules: RuleSet,
        values: &ValueBudget,
        metering: &Metering,
    ) -> Result<Self, LimitError> {
        check_all(&rules)?;
        let slots = rules.rules().map(|_| RuleSlot::default()).collect();
        let unmatched = unmatched::counters(&rules, None);
        Ok(Self::new(rules, slots, unmatched, values, metering))
    }

    pub(super) fn new(
        rules: RuleSet,
        mut slots: Box<[RuleSlot]>,
        unmatched: UnmatchedCounters,
        values: &ValueBudget,
        metering: &Metering,
    ) -> Self {
        for (no, slot) in rules.rules().zip(&mut slots) {
            slot.counts_values = values.is_enabled() && rules.names_values(no);
            slot.is_metered = metering.is_metered(&rules, no);
        }
        let elastic = rules.rules().filter_map(|no| match rules.rule(no).mode {
            Mode::Elastic { gate, .. } => Some((no, gate)),
            Mode::Hard | Mode::Soft { .. } | Mode::Shadow => None,
        });
        let local =
            || rules.rules().map(|no| rules.rule(no)).filter(|one| one.is_decided_locally());
        let is_eventual =
            |rule: &RuleConfig| matches!(rule.consistency, Consistency::Eventual { .. });
        Self {
            elastic: elastic.collect(),
            has_local: local().next().is_some(),
            has_eventual: local().any(is_eventual),
            has_slots: rules.rules().any(|no| has_slots(rules.rule(no))),
            has_notify: rules.rules().any(|no| !rules.rule(no).notify().is_empty()),
            has_metered: slots.iter().any(|slot| slot.is_metered),
            counts_denied: rules.has_pools()
                && rules
                    .rules()
                    .any(|no| counts_denied(rules.rule(no), rules.next_pool(no).is_some())),
            rules,
            slots,
            unmatched,
        }
    }

    /// Passes a load signal to the elastic rules.
    pub(super) fn signal_load(&self, load: u64, at: Timestamp) {
        for (no, levels) in &self.elastic {
            let mut gate = self.slots[no.index()].state.gate().lock();
            *gate = gate.observe(levels, load, at);
        }
    }

    /// Passes the last load signal, if there was one, to a rule that was not elastic before.
    pub(super) fn signal_last_load(&self, no: RuleNo, load: Option<(u64, Timestamp)>) {
        let Mode::Elastic { gate: levels, .. } = self.rules.rule(no).mode else { return };
        let gate = load.map(|(load, at)| Gate::default().observe(&levels, load, at));
        *self.slots[no.index()].state.gate().lock() = gate.unwrap_or_default();
    }

    /// Creates the limiters that a restored store has states of, so that the next snapshot has
    /// them.
    pub(super) fn adopt_restored(&self, store: &LimiterStore) {
        if !store.memory.store.has_restored() {
            return;
        }
        for no in self.rules.rules() {
            if store.is_restored(&self.rules.stable_key(no)) {
                self.init_slot(no, store);
            }
        }
    }

    /// The limiters that were created.
    pub(super) fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        self.slots.iter().filter_map(|slot| slot.state.limiter.get())
    }

    /// Sweeps the limiter whose turn it is.
    pub(super) fn sweep_one(&self, overrides: &Overrides, turn: usize) {
        let index = turn % (self.slots.len() + overrides.units.len());
        let limiter = match index.checked_sub(self.slots.len()) {
            None => self.slots[index].state.limiter.get(),
            Some(unit) => overrides.units[unit].get(),
        };
        if let Some(limiter) = limiter {
            limiter.sweep_next();
        }
    }

    /// The limiter of a rule, and the limits to judge by.
    #[inline]
    pub(super) fn slot(&self, no: RuleNo, store: &LimiterStore) -> (&Limiter, &Arc<Rule>) {
        let slot = &self.slots[no.index()];
        match (slot.state.limiter.get(), slot.rule.get()) {
            (Some(limiter), Some(rule)) => (limiter, rule),
            _ => self.init_slot(no, store),
        }
    }

    #[cold]
    fn init_slot(&self, no: RuleNo, store: &LimiterStore) -> (&Limiter, &Arc<Rule>) {
        let RuleSlot { state, rule, .. } = &self.slots[no.index()];
        let this = rule.get().cloned().unwrap_or_else(|| self.new_rule(no));
        let overflow = self.rules.rule(no).overflow;
        let limiter = state.limiter.get_or_init(|| {
            let shards = match self.rules.is_one_identity(no) {
                true => ShardCount::One,
                // 48 KB each: a hundred rules take 5 MB before the first request.
                false if self.slots.len() > MANY_SHARDS_MAX => ShardCount::Few,
                false => ShardCount::Many,
            };
            let (name, gate) = (self.rules.stable_key(no), state.gate().clone());
            store.limiter(name, this.clone(), overflow, shards, gate)
        });
        // A request in flight with older rules may have created it.
        limiter.catch_up(&this, overflow);
        // Either this sees that the rule was removed, or the removal sees the limiter.
        if state.is_retired.load(Ordering::SeqCst) {
            limiter.retire();
        }
        (limiter, rule.get_or_init(|| this))
    }

    /// The limits of a rule. The caller moves its limiter to them.
    pub(super) fn rule(&self, no: RuleNo) -> &Arc<Rule> {
        self.slots[no.index()].rule.get_or_init(|| self.new_rule(no))
    }

    /// What is published about the limits of a rule.
    pub(super) fn policies(&self, no: RuleNo) -> &[Policy] {
        self.slots[no.index()].policies.get_or_init(|| {
            let written = self.rules.rule(no);
            let mut policies = match written.limits {
                Limits::Unlimited => Vec::new(),
                // Validated when the rules were loaded.
                _ => policies_of(&limits_of(written), written.mode).unwrap_or_default(),
            };
            if let (Limits::Envoy { .. }, [only]) = (&written.limits, policies.as_mut_slice()) {
                let name = written.name.as_deref().map(str::to_owned);
                only.name = name.unwrap_or_else(|| self.rules.path_of(no));
            }
            policies.into()
        })
    }

    fn new_rule(&self, no: RuleNo) -> Arc<Rule> {
        let (slot, written) = (&self.slots[no.index()], self.rules.rule(no));
        let rule = Rule::new(limits_of(written), written.mode);
        // Validated when the rules were loaded.
        let rule = rule.unwrap_or_else(|_| Rule::closed());
        Arc::new(rule.with_number(slot.state.number).with_generation(slot.generation))
    }
}

impl RuleSlot {
    /// The slot of the same rule in the next set.
    pub(super) fn unchanged(&self) -> Self {
        Self { rule: self.rule.clone(), generation: self.generation, ..self.successor() }
    }

    /// The slot of this rule in the next set, with other limits.
    pub(super) fn changed(&self) -> Self {
        Self { generation: self.generation + 1, ..self.successor() }
    }

    fn successor(&self) -> Self {
        let (rule, policies) = (OnceLock::new(), OnceLock::new());
        let (counts_values, is_metered) = (false, false);
        Self { state: self.state.clone(), rule, generation: 0, policies, counts_values, is_metered }
    }

    /// The limits that verdicts refer to by index, if they were needed yet.
    #[inline]
    pub(super) fn known_policies(&self) -> &[Policy] {
        self.rule.get().map_or(&[], |rule| &rule.policies)
    }
}

impl RuleState {
    /// Distinguishes it from those of other rules.
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    pub(super) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.get()
    }

    /// The rule was removed: its states are not saved any more.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
        if let Some(limiter) = self.limiter.get() {
            limiter.retire();
        }
    }

    #[inline]
    pub(super) fn hits(&self) -> &HitCounters {
        self.hits.get_or_init(HitCounters::default)
    }

    /// State that the backend keeps with the rule, over reloads.
    pub fn extension(&self) -> &Extension {
        &self.extension
    }

    /// Hits by value.
    pub(super) fn values(&self, budget: &ValueBudget) -> &ValueCounters {
        self.values.get_or_init(|| ValueCounters::new(budget))
    }

    /// Observed traffic; `None` if there is no room for it.
    #[inline]
    pub(super) fn traffic(&self, monitor: &TrafficMonitor) -> Option<&TrafficState> {
        self.traffic.get_or_init(|| monitor.new_state()).as_deref()
    }

    /// The same, if the rule had hits.
    pub(super) fn traffic_slot(&self) -> Option<&Option<Box<TrafficState>>> {
        self.traffic.get()
    }

    /// Counted hits.
    pub fn stats(&self) -> Stats {
        let by_value = self.values.get().map(ValueCounters::total).unwrap_or_default();
        self.plain_hits().plus(by_value).into()
    }

    pub(super) fn value_stats(&self) -> ValueStats {
        ValueStats::new(self.values.get(), self.plain_hits())
    }

    /// Hits that were not counted by value.
    fn plain_hits(&self) -> HitCounts {
        self.hits.get().map(HitCounters::read).unwrap_or_default()
    }

    fn gate(&self) -> &Arc<Mutex<Gate>> {
        self.gate.get_or_init(Arc::default)
    }
}

impl Default for RuleState {
    fn default() -> Self {
        Self {
            limiter: OnceLock::new(),
            number: new_number(),
            gate: OnceLock::new(),
            hits: OnceLock::new(),
            values: OnceLock::new(),
            traffic: OnceLock::new(),
            extension: Extension::default(),
            is_retired: AtomicBool::new(false),
        }
    }
}

impl Snapshot<'_> {
    /// Whether nodes that share a store may decide any rule without asking it.
    #[inline]
    #[must_use]
    pub fn has_local(&self) -> bool {
        self.active.has_local
    }

    /// Whether any of those exchange their counts.
    #[must_use]
    pub fn has_eventual(&self) -> bool {
        self.active.has_eventual
    }

    /// State of a rule.
    #[must_use]
    pub fn rule_state(&self, no: RuleNo) -> &Arc<RuleState> {
        &self.active.slots[no.index()].state
    }
}

/// Rules cannot share the counters of limiters.
pub(super) fn refuse_reserved(rules: &RuleSet) -> Result<(), LimitError> {
    match rules.domain(LIMITER_DOMAIN) {
        Some(_) => Err(LimitError::ReservedDomain),
        None => Ok(()),
    }
}

/// Whether every rule can be enforced.
pub(super) fn check_all(rules: &RuleSet) -> Result<(), LimitError> {
    for no in rules.rules() {
        let written = rules.rule(no);
        if matches!(written.limits, Limits::Unlimited) {
            continue;
        }
        let in_rule = |error: LimitError| {
            let error = Box::new(error);
            LimitError::InRule { rule: rules.id(no), error }
        };
        if let Some(reason) = written.refused_pools() {
            return Err(in_rule(LimitError::Pools { reason }));
        }
        if let Some(reason) = written.refused_notify() {
            return Err(in_rule(LimitError::Notify { reason }));
        }
        let limits = limits_of(written);
        check_count(limits.len()).map_err(|error| in_rule(error.into()))?;
        for limit in &limits {
            let enforced = EnforcedLimit::new(limit.at(Timestamp::EPOCH), written.mode);
            enforced.map_err(|error| in_rule(error.into()))?;
        }
        check_shared(written.effective_consistency(), &limits).map_err(in_rule)?;
    }
    Ok(())
}

/// The limits of a rule as the engine enforces them.
#[must_use]
pub fn limits_of(written: &RuleConfig) -> Vec<LimitConfig> {
    match &written.limits {
        Limits::Unlimited => vec![LimitConfig::fixed(None, Limit::Unlimited)],
        Limits::Native(limits) => limits.to_vec(),
        Limits::Envoy { requests_per_unit, unit } => {
            // Without the name of the rule: renaming it keeps its counters.
            vec![LimitConfig::fixed(None, envoy_limit(u64::from(*requests_per_unit), *unit))]
        }
    }
}

/// A limit in Envoy's form.
#[must_use]
pub fn envoy_limit(max: u64, unit: Unit) -> Limit {
    // A 32-bit number and a unit are always in range.
    Tally::new(max, unit.span()).map_or(Limit::Closed, Limit::Tally)
}

impl Overrides {
    /// The counter of a unit. [`EXACT_MAX`] minus the remaining quota is the count.
    pub(super) fn of(&self, unit: Unit, store: &LimiterStore) -> &Limiter {
        let index = Unit::ALL.iter().position(|known| *known == unit).unwrap_or(0);
        self.units[index].get_or_init(|| {
            let limit = LimitConfig::fixed(None, envoy_limit(EXACT_MAX, unit));
            let rule = Rule::new(vec![limit], Mode::Hard).unwrap_or_else(|_| Rule::closed());
            let (name, rule) = (override_name(unit), Arc::new(rule));
            store.limiter(name, rule, Overflow::Shared, ShardCount::Many, Arc::default())
        })
    }

    /// Creates those that a restored store has states of.
    pub(super) fn adopt_restored(&self, store: &LimiterStore) {
        let known = Unit::ALL.into_iter().filter(|unit| store.is_restored(&override_name(*unit)));
        known.for_each(|unit| {
            self.of(unit, store);
        });
    }

    pub(super) const fn hits(&self) -> &HitCounters {
        &self.hits
    }

    pub(super) fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        self.units.iter().filter_map(OnceLock::get)
    }
}

/// A name that no rule has.
fn override_name(unit: Unit) -> String {
    format!("o{}", unit.name())
}

// === limiters ===

impl LimiterStore {
    /// Whether a restored store has states of the limiter of this name.
    fn is_restored(&self, name: &str) -> bool {
        self.memory.store.restored_bits(name).is_some()
    }

    fn limiter(
        &self,
        name: String,
        rule: Arc<Rule>,
        overflow: Overflow,
        shards: ShardCount,
        gate: Arc<Mutex<Gate>>,
    ) -> Limiter {
        let (memory, time) = (Some(self.memory.clone()), Some(self.clock.clone()));
        Builder { name, overflow, shards, memory, time, gate, ..Builder::default() }
            .build_with(rule)
    }
}
