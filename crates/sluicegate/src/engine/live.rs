//! A set of rules with what is kept of everybody under each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Gate, GateLevels, Mode};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Consistency, Limits, Overflow, RuleConfig};
use sluicegate_rules::set::{RuleNo, RuleSet};
use sluicegate_rules::unit::Unit;

use super::stats::Counters;
use super::{Inner, Parts, Stats};
use crate::backend::Extension;
use crate::limit::LimitError;
use crate::limiter::Limiter;
use crate::memory::ShardCount;
use crate::plan::{Rule, check_count, new_number, policies_of};
use crate::policy::Policy;

/// Up to how many rules each has as much room for threads as a limiter of its own.
const MANY_SHARDS_MAX: usize = 100;

/// A set of rules, and the seat of each.
pub(super) struct Live {
    pub(super) rules: RuleSet,
    pub(super) seats: Box<[Seat]>,
    /// The rules that have an ear for the load.
    elastic: Box<[(RuleNo, GateLevels)]>,
    /// Whether any rule is one that nodes may decide by themselves.
    pub(super) has_local: bool,
    /// Whether any of those has counts that nodes tell each other.
    pub(super) has_eventual: bool,
}

/// A rule at work.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Everybody's states; those of a rule that goes on after a reload are the same.
    pub(super) kept: Arc<Kept>,
    /// The rule as the states are judged by it, once it was needed. When it is there, the limiter is at it, or at a later one, or
    /// is being moved to it by whoever reloads.
    rule: OnceLock<Arc<Rule>>,
    /// How often the rule was changed.
    pub(super) generation: u64,
    /// What is told about its limits, once somebody wanted to know. Not that of the rule, whose states go on under another name.
    policies: OnceLock<Box<[Policy]>>,
}

/// The limiter of a rule, once somebody came. A rule that nobody asks for takes next to nothing.
#[derive(Debug)]
pub struct Kept {
    limiter: OnceLock<Limiter>,
    /// Which rule of a request it is.
    number: usize,
    /// What was heard of the load, if the rule has an ear for it; from the first signal on, whether somebody came or not.
    gate: OnceLock<Arc<Mutex<Gate>>>,
    /// What became of hits, from the first on.
    counters: OnceLock<Counters>,
    /// State of the backend.
    extension: Extension,
    /// Whether the rule is gone. Whoever is on its way may still ask for it.
    retired: AtomicBool,
}

/// Counters for limits that come with the request, one limiter for each unit: they only count, and what is
/// too much is said by the request.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    units: [OnceLock<Limiter>; Unit::ALL.len()],
    counters: Counters,
}

// === impl Live ===

impl Live {
    /// Rules that nothing is kept of yet.
    pub(super) fn first(rules: RuleSet) -> Result<Self, LimitError> {
        check_all(&rules)?;
        let seats = rules.rules().map(|_| Seat::default()).collect();
        Ok(Self::new(rules, seats))
    }

    pub(super) fn new(rules: RuleSet, seats: Box<[Seat]>) -> Self {
        let elastic = rules.rules().filter_map(|no| match rules.rule(no).mode {
            Mode::Elastic { gate, .. } => Some((no, gate)),
            Mode::Hard | Mode::Soft { .. } | Mode::Shadow => None,
        });
        let local = || rules.rules().map(|no| rules.rule(no)).filter(|one| decides_here(one));
        let is_eventual =
            |rule: &RuleConfig| matches!(rule.consistency, Consistency::Eventual { .. });
        Self {
            elastic: elastic.collect(),
            has_local: local().next().is_some(),
            has_eventual: local().any(is_eventual),
            rules,
            seats,
        }
    }

    /// Elastic rules hear what the load was at a moment.
    pub(super) fn hear(&self, load: u64, at: Timestamp) {
        for (no, levels) in &self.elastic {
            let mut gate = self.seats[no.index()].kept.gate().lock();
            *gate = gate.observe(levels, load, at);
        }
    }

    /// A rule that was not elastic before knows of the last signal, if there was one, and of no other.
    pub(super) fn hear_first(&self, no: RuleNo, load: Option<(u64, Timestamp)>) {
        let Mode::Elastic { gate: levels, .. } = self.rules.rule(no).mode else { return };
        let heard = load.map(|(load, at)| Gate::default().observe(&levels, load, at));
        *self.seats[no.index()].kept.gate().lock() = heard.unwrap_or_default();
    }

    /// Seats the rules that a restored store has something of, so that the next snapshot has it too.
    pub(super) fn take_over_restored(&self, parts: &Parts) {
        if !parts.memory.store.has_restored() {
            return;
        }
        for no in self.rules.rules() {
            if parts.is_restored(&self.rules.stable_key(no)) {
                self.take_seat(no, parts);
            }
        }
    }

    /// The limiters that there are.
    pub(super) fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        self.seats.iter().filter_map(|seat| seat.kept.limiter.get())
    }

    /// Gives back what one limiter, whose turn it is, has no use for.
    pub(super) fn sweep_one(&self, overrides: &Overrides, turn: usize) {
        let place = turn % (self.seats.len() + overrides.units.len());
        let limiter = match place.checked_sub(self.seats.len()) {
            None => self.seats[place].kept.limiter.get(),
            Some(unit) => overrides.units[unit].get(),
        };
        if let Some(limiter) = limiter {
            limiter.sweep_next();
        }
    }

    /// A rule's limiter, and the rule to be asked by it.
    #[inline]
    pub(super) fn seat(&self, no: RuleNo, engine: &Inner) -> (&Limiter, &Arc<Rule>) {
        let seat = &self.seats[no.index()];
        match (seat.kept.limiter.get(), seat.rule.get()) {
            (Some(limiter), Some(rule)) => (limiter, rule),
            _ => self.take_seat(no, &engine.store),
        }
    }

    #[cold]
    fn take_seat(&self, no: RuleNo, parts: &Parts) -> (&Limiter, &Arc<Rule>) {
        let Seat { kept, rule, .. } = &self.seats[no.index()];
        let this = rule.get().cloned().unwrap_or_else(|| self.new_rule(no));
        let overflow = self.rules.rule(no).overflow;
        let limiter = kept.limiter.get_or_init(|| {
            let shards = match self.rules.is_one_identity(no) {
                true => ShardCount::One,
                // With 48 KB each, a hundred rules take 5 MB before anybody has come.
                false if self.seats.len() > MANY_SHARDS_MAX => ShardCount::Few,
                false => ShardCount::Many,
            };
            let (name, gate) = (self.rules.stable_key(no), kept.gate().clone());
            parts.limiter(name, this.clone(), overflow, shards, gate)
        });
        // Somebody who was on its way with older rules may have been first.
        limiter.catch_up(&this, overflow);
        // Either this sees that the rule is gone, or whoever removes it sees the limiter.
        if kept.retired.load(Ordering::SeqCst) {
            limiter.retire();
        }
        (limiter, rule.get_or_init(|| this))
    }

    /// A rule as states are judged by it. To be called by whoever moves its limiter there.
    pub(super) fn rule(&self, no: RuleNo) -> &Arc<Rule> {
        self.seats[no.index()].rule.get_or_init(|| self.new_rule(no))
    }

    /// What is told about the limits of a rule.
    pub(super) fn policies(&self, no: RuleNo) -> &[Policy] {
        self.seats[no.index()].policies.get_or_init(|| {
            let written = self.rules.rule(no);
            let mut policies = match written.limits {
                Limits::Unlimited => Vec::new(),
                // It was checked when the rules were taken over.
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
        let (seat, written) = (&self.seats[no.index()], self.rules.rule(no));
        let rule = Rule::new(limits_of(written), written.mode);
        // It was checked when the rules were taken over.
        let rule = rule.unwrap_or_else(|_| Rule::closed());
        Arc::new(rule.with_number(seat.kept.number).with_generation(seat.generation))
    }
}

impl Seat {
    /// The seat of the same rule in the next set.
    pub(super) fn kept_on(&self) -> Self {
        Self { rule: self.rule.clone(), generation: self.generation, ..self.of_kept() }
    }

    /// The seat of this rule in the next set, where it has other limits.
    pub(super) fn changed(&self) -> Self {
        Self { generation: self.generation + 1, ..self.of_kept() }
    }

    fn of_kept(&self) -> Self {
        let (rule, policies) = (OnceLock::new(), OnceLock::new());
        Self { kept: self.kept.clone(), rule, generation: 0, policies }
    }

    /// The limits that verdicts name by their places, if somebody came.
    #[inline]
    pub(super) fn known_policies(&self) -> &[Policy] {
        self.rule.get().map_or(&[], |rule| &rule.policies)
    }
}

impl Kept {
    pub(super) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.get()
    }

    /// The rule is gone: what is kept of it is not saved any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        if let Some(limiter) = self.limiter.get() {
            limiter.retire();
        }
    }

    #[inline]
    pub(super) fn counters(&self) -> &Counters {
        self.counters.get_or_init(Counters::default)
    }

    /// State that the backend keeps with the rule, over reloads.
    pub fn extension(&self) -> &Extension {
        &self.extension
    }

    /// Counted hits.
    pub fn stats(&self) -> Stats {
        self.counters.get().map(Counters::read).unwrap_or_default()
    }

    fn gate(&self) -> &Arc<Mutex<Gate>> {
        self.gate.get_or_init(Arc::default)
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            limiter: OnceLock::new(),
            number: new_number(),
            gate: OnceLock::new(),
            counters: OnceLock::new(),
            extension: Extension::default(),
            retired: AtomicBool::new(false),
        }
    }
}

/// Whether nodes may decide a rule without asking the store. Soft, elastic and shadow limits have
/// more outcomes than yes and no, and quotas deny only together: these are always strict.
#[inline]
#[must_use]
pub fn decides_here(written: &RuleConfig) -> bool {
    written.consistency != Consistency::Strict
        && written.mode == Mode::Hard
        && !written.quota_mode
        && matches!(written.limits, Limits::Native(_))
}

/// That every rule can be enforced.
pub(super) fn check_all(rules: &RuleSet) -> Result<(), LimitError> {
    for no in rules.rules() {
        let written = rules.rule(no);
        if matches!(written.limits, Limits::Unlimited) {
            continue;
        }
        let in_rule = |error| LimitError::InRule { rule: rules.id(no), error };
        let limits = limits_of(written);
        check_count(limits.len()).map_err(in_rule)?;
        for limit in limits {
            EnforcedLimit::new(limit.at(Timestamp::EPOCH), written.mode).map_err(in_rule)?;
        }
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
            // Without the rule's name: it is known by the way to it, and goes on when it is called something else.
            vec![LimitConfig::fixed(None, tally(u64::from(*requests_per_unit), *unit))]
        }
    }
}

/// A counter of Envoy's form.
#[must_use]
pub fn tally(max: u64, unit: Unit) -> Limit {
    // Neither a 32-bit number nor a unit is beyond what it holds.
    Tally::new(max, unit.span()).map_or(Limit::Closed, Limit::Tally)
}

// === impl Overrides ===

impl Overrides {
    /// The counter of a unit: how many are left of [`EXACT_MAX`] says how many came.
    pub(super) fn of(&self, unit: Unit, parts: &Parts) -> &Limiter {
        let place = Unit::ALL.iter().position(|known| *known == unit).unwrap_or(0);
        self.units[place].get_or_init(|| {
            let limit = LimitConfig::fixed(None, tally(EXACT_MAX, unit));
            let rule = Rule::new(vec![limit], Mode::Hard).unwrap_or_else(|_| Rule::closed());
            let (name, rule) = (override_name(unit), Arc::new(rule));
            parts.limiter(name, rule, Overflow::Shared, ShardCount::Many, Arc::default())
        })
    }

    /// Makes those that a restored store has something of.
    pub(super) fn take_over_restored(&self, parts: &Parts) {
        let known = Unit::ALL.into_iter().filter(|unit| parts.is_restored(&override_name(*unit)));
        known.for_each(|unit| {
            self.of(unit, parts);
        });
    }

    pub(super) const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        self.units.iter().filter_map(OnceLock::get)
    }
}

/// None that a rule could have.
fn override_name(unit: Unit) -> String {
    format!("o{}", unit.name())
}

// === limiters ===

impl Parts {
    /// Whether a restored store has something of the limiter of this name.
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
        let clock = self.clock.clone();
        Limiter::of_rule(name, rule, overflow, shards, &self.memory, clock, gate)
    }
}
