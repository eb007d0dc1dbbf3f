//! Steps of a request as the store decides them.

use std::ops::Deref;
use std::sync::Arc;

use sluicegate::backend::{
    BoundStep, Call, ChargedLimits, Operation, Rule, StoreFailure, limit_states,
};
use sluicegate::{LimitState, Snapshot};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::Consistency;

use super::RedisBackend;
use super::local::LocalStep;
use crate::script::{ScriptPart, ScriptRule};
use crate::store::RuleWeight;
use crate::{CallError, Weight};

/// A step of a request.
#[derive(Debug)]
pub(super) struct RedisStep<'a> {
    /// The step, with its counter in this node's memory.
    bound: BoundStep<'a>,
    /// The same as the script takes it.
    pub(super) script: ScriptPart,
    /// The weight of its rule; none for an override.
    rule_weight: Option<&'a RuleWeight>,
    /// Whether its rule is in shadow mode.
    pub(super) is_shadow: bool,
}

impl RedisStep<'_> {
    /// The weight of a hit in this node's memory.
    pub(super) fn weight(&self, nodes: u64) -> Weight {
        let Some(weight) = self.rule_weight else { return Weight::even(nodes) };
        weight.get().for_limit(self.script.capacity(), self.script.cost, nodes)
    }
}

impl<'a> Deref for RedisStep<'a> {
    type Target = BoundStep<'a>;

    fn deref(&self) -> &BoundStep<'a> {
        &self.bound
    }
}

impl RedisBackend {
    /// All steps of a request, in the order of its descriptors.
    pub(super) fn steps<'a>(
        &self,
        operation: Operation,
        rules: &'a Snapshot<'_>,
        plan: &'a Plan,
        now: Timestamp,
    ) -> Vec<RedisStep<'a>> {
        rules.bind_all(operation, plan).map(|bound| self.step(rules, bound, now)).collect()
    }

    /// A step as the store decides it.
    pub(super) fn step<'a>(
        &self,
        rules: &'a Snapshot<'_>,
        bound: BoundStep<'a>,
        now: Timestamp,
    ) -> RedisStep<'a> {
        let script = self.script_part(&bound, now);
        let (rule_weight, is_shadow) = match bound.mode.limits {
            ChargedLimits::Override(_) => (None, false),
            ChargedLimits::Rule(no) => {
                (Some(self.rule_weight(rules, no)), rules.rules().rule(no).mode == Mode::Shadow)
            }
        };
        RedisStep { bound, script, rule_weight, is_shadow }
    }

    /// A step as the script takes it.
    pub(super) fn script_part(&self, step: &BoundStep<'_>, now: Timestamp) -> ScriptPart {
        let rule = match (step.mode.limits, step.counter.rule) {
            (ChargedLimits::Override(limit), _) => self.override_rules.of_override(limit, now),
            (ChargedLimits::Rule(_), Some(rule)) => ScriptRule::at(rule, now),
            // Counters of rules have one.
            (ChargedLimits::Rule(_), None) => ScriptRule::at(&Arc::new(Rule::closed()), now),
        };
        let is_rule = matches!(step.mode.limits, ChargedLimits::Rule(_));
        ScriptPart {
            key: self.key_of(step),
            rule,
            cost: step.cost,
            spare_capacity: is_rule && step.counter.has_spare_capacity(now),
            combine: step.mode.combine,
        }
    }

    /// The key of a step's record. Overrides have their own, one for each unit.
    pub(super) fn key_of(&self, step: &BoundStep<'_>) -> Arc<[u8]> {
        match step.mode.limits {
            ChargedLimits::Rule(_) => self.store.key_of(step.counter.key, ""),
            ChargedLimits::Override(limit) => {
                self.store.key_of(step.counter.key, &format!(":{}", limit.unit.name()))
            }
        }
    }

    /// State of every limit of a step.
    pub(super) async fn inspect_step(
        &self,
        call: Call<'_>,
        plan: &Plan,
        step: BoundStep<'_>,
    ) -> Result<Vec<LimitState>, StoreFailure> {
        let rules = call.rules;
        let script = ScriptPart { cost: 1, ..self.script_part(&step, call.now) };
        if let Some(states) = self.inspect_on_envoy_keys(rules, plan, &step).await? {
            return Ok(states);
        }
        match step.mode.limits {
            ChargedLimits::Rule(no) => {
                let local = self.local_step(Operation::Peek, rules, plan, step.index);
                let decisions = match local {
                    Some(local)
                        if let Consistency::Eventual { sync_interval } = local.consistency =>
                    {
                        let one = LocalStep { cost: 1, ..local };
                        self.eventual.decide_each(&one, sync_interval).await
                    }
                    _ => self.store.inspect(&script).await.map_err(CallError::from),
                };
                Ok(limit_states(
                    rules.policies(no),
                    decisions.map_err(|error| StoreFailure::from(&error))?,
                ))
            }
            ChargedLimits::Override(limit) => {
                let applied = self.store.apply(&[script], Op::Peek { cost: 1 }).await;
                let applied =
                    applied.map_err(|error| StoreFailure::from(&CallError::from(error)))?;
                Ok(vec![Snapshot::override_state(limit, &applied.answer.verdict)])
            }
        }
    }
}

/// Whether a hit needs an id that its slot is released by.
pub(super) fn has_slots(part: &ScriptPart) -> bool {
    part.rule.steps().iter().any(|step| matches!(step.limit(), Limit::Concurrency(_)))
}
