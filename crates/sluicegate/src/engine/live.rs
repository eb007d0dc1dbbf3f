//! A set of rules with what is kept of everybody under each.

use std::sync::{Arc, OnceLock};

use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit as CoreLimit;
use sluicegate_core::mode::{Mode, Step};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::Limit;
use sluicegate_rules::rule::{Limits, Overflow, Rule as Written};
use sluicegate_rules::set::{RuleNo, RuleSet};
use sluicegate_rules::unit::Unit;

use super::{Inner, Parts};
use crate::limit::LimitError;
use crate::limiter::Limiter;
use crate::memory::ShardCount;
use crate::plan::Rule;

/// Up to how many rules each has as much room for threads as a limiter of its own.
const MANY_SHARDS_MAX: usize = 100;

/// A set of rules, and the seat of each.
pub(super) struct Live {
    pub(super) rules: RuleSet,
    pub(super) seats: Box<[Seat]>,
}

/// A rule at work.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Everybody's states; those of a rule that goes on after a reload are the same.
    pub(super) kept: Arc<Kept>,
    /// The rule as the states are judged by it, once it was needed.
    rule: OnceLock<Arc<Rule>>,
    /// How often the rule was changed.
    pub(super) generation: u64,
}

/// The limiter of a rule, once somebody came. A rule that nobody asks for takes next to nothing.
#[derive(Debug, Default)]
pub(super) struct Kept {
    limiter: OnceLock<Limiter>,
}

/// Counters for limits that come with the request, one limiter for each unit: they only count, and what is
/// too much is said by the request.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    units: [OnceLock<Limiter>; Unit::ALL.len()],
}

// === impl Live ===

impl Live {
    /// Rules that nothing is kept of yet.
    pub(super) fn first(rules: RuleSet) -> Result<Self, LimitError> {
        check_all(&rules)?;
        let seats = rules.rules().map(|_| Seat::default()).collect();
        Ok(Self { rules, seats })
    }

    /// Seats the rules that a restored store has something of, so that the next snapshot has it too.
    pub(super) fn take_over_restored(&self, parts: &Parts) {
        for no in self.rules.rules() {
            if parts.is_restored(&self.rules.lasting_key(no)) {
                self.take_seat(no, parts);
            }
        }
    }

    /// The limiters that there are.
    pub(super) fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        self.seats.iter().filter_map(|seat| seat.kept.limiter.get())
    }

    /// Gives back what the limiter of one rule, whose turn it is, has no use for.
    pub(super) fn sweep_one(&self, turn: usize) {
        let Some(place) = turn.checked_rem(self.seats.len()) else { return };
        if let Some(limiter) = self.seats[place].kept.limiter.get() {
            limiter.sweep_next();
        }
    }

    /// A rule's limiter, and the rule to be asked by it.
    #[inline]
    pub(super) fn seat(&self, no: RuleNo, engine: &Inner) -> (&Limiter, &Arc<Rule>) {
        let seat = &self.seats[no.index()];
        match (seat.kept.limiter.get(), seat.rule.get()) {
            (Some(limiter), Some(rule)) => (limiter, rule),
            _ => self.take_seat_late(no, engine),
        }
    }

    #[cold]
    fn take_seat_late(&self, no: RuleNo, engine: &Inner) -> (&Limiter, &Arc<Rule>) {
        let (limiter, rule) = self.take_seat(no, &engine.store);
        if let Some((load, at)) = *engine.load.lock() {
            limiter.hear(load, at);
        }
        (limiter, rule)
    }

    fn take_seat(&self, no: RuleNo, parts: &Parts) -> (&Limiter, &Arc<Rule>) {
        let rule = self.rule(no);
        let limiter = self.seats[no.index()].kept.limiter.get_or_init(|| {
            let shards = match self.rules.is_one_identity(no) {
                true => ShardCount::One,
                // With 48 KB each, a hundred rules take 5 MB before anybody has come.
                false if self.seats.len() > MANY_SHARDS_MAX => ShardCount::Few,
                false => ShardCount::Many,
            };
            let overflow = self.rules.rule(no).overflow;
            parts.limiter(self.rules.lasting_key(no), rule.clone(), overflow, shards)
        });
        (limiter, rule)
    }

    /// A rule as states are judged by it.
    pub(super) fn rule(&self, no: RuleNo) -> &Arc<Rule> {
        let seat = &self.seats[no.index()];
        seat.rule.get_or_init(|| {
            let written = self.rules.rule(no);
            let rule = Rule::new(limits_of(written), written.mode);
            // It was checked when the rules were taken over.
            let rule = rule.unwrap_or_else(|_| Rule::closed());
            Arc::new(rule.with_generation(seat.generation))
        })
    }
}

impl Seat {
    /// The seat of the same rule in the next set.
    pub(super) fn kept_on(&self) -> Self {
        Self { kept: self.kept.clone(), rule: self.rule.clone(), generation: self.generation }
    }

    /// The seat of this rule in the next set, where it has other limits.
    pub(super) fn changed(&self) -> Self {
        let (kept, rule) = (self.kept.clone(), OnceLock::new());
        Self { kept, rule, generation: self.generation + 1 }
    }
}

impl Kept {
    pub(super) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.get()
    }
}

/// That every rule can be enforced.
pub(super) fn check_all(rules: &RuleSet) -> Result<(), LimitError> {
    for no in rules.rules() {
        let written = rules.rule(no);
        if matches!(written.limits, Limits::Unlimited) {
            continue;
        }
        for limit in limits_of(written) {
            Step::new(limit.at(Timestamp::EPOCH), written.mode)
                .map_err(|error| LimitError::InRule { rule: rules.id(no), error })?;
        }
    }
    Ok(())
}

/// The limits of a rule as the engine enforces them.
pub(super) fn limits_of(written: &Written) -> Vec<Limit> {
    match &written.limits {
        Limits::Unlimited => vec![Limit::fixed(None, CoreLimit::Unlimited)],
        Limits::Native(limits) => limits.to_vec(),
        Limits::Envoy { requests_per_unit, unit } => {
            let name = written.name.as_ref().map(|name| name.to_string());
            vec![Limit::fixed(name, tally(u64::from(*requests_per_unit), *unit))]
        }
    }
}

/// A counter of Envoy's form.
fn tally(most: u64, unit: Unit) -> CoreLimit {
    // Neither a 32-bit number nor a unit is beyond what it holds.
    Tally::new(most, unit.span()).map_or(CoreLimit::Closed, CoreLimit::Tally)
}

// === impl Overrides ===

impl Overrides {
    /// The counter of a unit: how many are left of [`EXACT_MAX`] says how many came.
    pub(super) fn of(&self, unit: Unit, parts: &Parts) -> &Limiter {
        let place = Unit::ALL.iter().position(|known| *known == unit).unwrap_or(0);
        self.units[place].get_or_init(|| {
            let limit = Limit::fixed(None, tally(EXACT_MAX, unit));
            let rule = Rule::new(vec![limit], Mode::Hard).unwrap_or_else(|_| Rule::closed());
            parts.limiter(override_name(unit), Arc::new(rule), Overflow::Shared, ShardCount::Many)
        })
    }

    /// Makes those that a restored store has something of.
    pub(super) fn take_over_restored(&self, parts: &Parts) {
        let known = Unit::ALL.into_iter().filter(|unit| parts.is_restored(&override_name(*unit)));
        known.for_each(|unit| {
            self.of(unit, parts);
        });
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
    ) -> Limiter {
        Limiter::of_rule(name, rule, overflow, shards, &self.memory, self.clock.clone())
    }
}
