//! What a request is under, as the store is asked for it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::Override;
use sluicegate_rules::rule::OnStoreFailure;

use super::SharedEngine;
use crate::Weight;
use crate::script::{Combine, ScriptPart, ScriptRule};
use sluicegate::Snapshot;
use sluicegate::Status;
use sluicegate::backend::Asked;
use sluicegate::backend::Rule;
use sluicegate::backend::tally;
use sluicegate::backend::{Manner, Want, first_alike, most_of};

/// Limits that came with requests, as scripts read them.
#[derive(Debug, Default)]
pub(super) struct OverrideRules {
    known: Mutex<HashMap<Override, Arc<ScriptRule>>>,
}

/// The most that are kept; then it begins anew.
const OVERRIDE_RULES_MAX: usize = 1_024;

impl OverrideRules {
    fn of(&self, limit: Override, now: Timestamp) -> Arc<ScriptRule> {
        let mut known = self.known.lock();
        if let Some(rule) = known.get(&limit) {
            return rule.clone();
        }
        let tally = tally(u64::from(limit.requests_per_unit), limit.unit);
        let rule = Rule::new(vec![LimitConfig::fixed(None, tally)], Mode::Hard);
        // A tally fits every mode.
        let rule = rule.unwrap_or_else(|_| Rule::closed());
        let rule = ScriptRule::at(&Arc::new(rule), now);
        if known.len() >= OVERRIDE_RULES_MAX {
            known.clear();
        }
        known.insert(limit, rule.clone());
        rule
    }
}

/// One part of an ask.
pub(super) struct Part<'a> {
    /// Of which descriptor.
    pub(super) place: usize,
    pub(super) part: ScriptPart,
    /// The same in this node's own memory.
    pub(super) asked: Asked<'a>,
    pub(super) policy: OnStoreFailure,
    /// What a hit weighs in this node's own memory.
    pub(super) weight: Weight,
    /// Whether its rule is in shadow mode.
    pub(super) is_shadow: bool,
    pub(super) target: Target,
}

impl SharedEngine {
    /// All parts of a request, in the order of its descriptors.
    pub(super) fn parts<'a>(
        &self,
        want: Want,
        rules: &'a Snapshot<'_>,
        plan: &'a Plan,
        now: Timestamp,
    ) -> Vec<Part<'a>> {
        let places = 0..plan.steps().len();
        let once = |place: &usize| {
            !rules.is_asked_once(want, *place, plan) || first_alike(plan, *place) == *place
        };
        places
            .filter(once)
            .filter_map(|place| self.part_of(want, rules, plan, place, now))
            .collect()
    }

    /// What the descriptor at a place is under, if anything.
    pub(super) fn part_of<'a>(
        &self,
        want: Want,
        rules: &'a Snapshot<'_>,
        plan: &'a Plan,
        place: usize,
        now: Timestamp,
    ) -> Option<Part<'a>> {
        let step = &plan.steps()[place];
        let identity = plan.identity(step);
        let (no, cost, combine) = match rules.manner(want, step) {
            Manner::Free => return None,
            Manner::Override(limit) => {
                let asked = rules.asked_override(limit, identity);
                // Apart from the counters of rules, and from those of other units.
                let beside = format!(":{}", limit.unit.name());
                let part = ScriptPart {
                    key: self.store.key_of(identity, &beside),
                    rule: self.override_rules.of(limit, now),
                    cost: step.cost,
                    spare_capacity: false,
                    combine: Combine::Independent,
                };
                let (policy, weight) = (OnStoreFailure::Error, Weight::even(self.store.nodes()));
                return Some(Part {
                    place,
                    part,
                    asked,
                    policy,
                    weight,
                    is_shadow: false,
                    target: step.target,
                });
            }
            Manner::Alone(no) => (no, step.cost, Combine::Independent),
            Manner::Once(no) => (no, most_of(plan, place), Combine::Independent),
            Manner::Together(no) => (no, most_of(plan, place), Combine::AllOrNothing),
        };
        let written = rules.rules().rule(no);
        // What is given back is so by each on its own.
        let is_quota = written.quota_mode && matches!(want, Want::Hit | Want::Peek);
        let combine = if is_quota { Combine::Quota } else { combine };
        let asked = rules.asked(no, identity);
        let part = ScriptPart {
            key: self.store.key_of(identity, ""),
            rule: ScriptRule::at(asked.rule?, now),
            cost,
            spare_capacity: asked.has_spare_capacity(now),
            combine,
        };
        let weight = self.weight_of(rules, no);
        let weight = weight.for_limit(part.capacity(), part.cost, self.store.nodes());
        let is_shadow = written.mode == Mode::Shadow;
        let policy = written.on_store_failure;
        Some(Part { place, part, asked, policy, weight, is_shadow, target: step.target })
    }
}

/// Descriptors that are about the same counter are told the same, where that is asked for once.
pub(super) fn repeat(plan: &Plan, is_once: impl Fn(usize) -> bool, statuses: &mut [Status]) {
    for place in (0..plan.steps().len()).filter(|place| is_once(*place)) {
        let first = statuses[first_alike(plan, place)];
        (statuses[place].verdict, statuses[place].promise) = (first.verdict, first.promise);
    }
}

/// Whether a hit needs an id to be given back by.
pub(super) fn needs_holder(parts: &[ScriptPart]) -> bool {
    parts.iter().any(|part| part.rule.steps().iter().any(has_slots))
}

fn has_slots(step: &EnforcedLimit) -> bool {
    matches!(step.limit(), Limit::Concurrency(_))
}
