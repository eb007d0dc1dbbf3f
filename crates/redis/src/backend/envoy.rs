//! Limits in Envoy's form on the keys of envoyproxy/ratelimit, for fleets that migrate from it.
//!
//! They are decided first, in one pipeline, and charged regardless of the others. The others
//! follow, and are only evaluated if the request is already denied.

use sluicegate::backend::{BoundStep, Call, ChargedLimits, Operation, StoreError, StoreFailure};
use sluicegate::{LimitState, Snapshot, Status};
use sluicegate_core::account::Account;
use sluicegate_core::mode::Mode;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::request::Override;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::write_envoy_key;

use super::RedisBackend;
use super::steps::RedisStep;
use crate::{EnvoyCheck, EnvoyOp};

impl RedisBackend {
    /// Whether a step is counted on envoyproxy/ratelimit's keys.
    pub(super) fn is_on_envoy_keys(&self, rules: &Snapshot<'_>, step: &BoundStep<'_>) -> bool {
        self.envoy.is_some() && envoy_limit_of(rules, step).is_some()
    }

    /// State of the limit of such a step; `None` if it is on other keys.
    pub(super) async fn inspect_on_envoy_keys(
        &self,
        rules: &Snapshot<'_>,
        plan: &Plan,
        step: &BoundStep<'_>,
    ) -> Result<Option<Vec<LimitState>>, StoreFailure> {
        let text = envoy_key(plan, step);
        let (Some(counters), Some(check)) = (&self.envoy, envoy_check(rules, step, &text)) else {
            return Ok(None);
        };
        let one = [EnvoyCheck { cost: 1, ..check }];
        let verdicts = counters.apply(EnvoyOp::Peek, &one, self.clock.now()).await;
        let verdicts = verdicts.map_err(|error| StoreFailure::from(&error))?;
        let limit = Override { requests_per_unit: check.requests_per_unit, unit: check.unit };
        let state = |verdict: &Verdict| {
            let state = Snapshot::override_state(limit, verdict);
            match step.mode.limits {
                ChargedLimits::Rule(no) => match rules.policies(no) {
                    [policy, ..] => LimitState { policy: policy.clone(), ..state },
                    [] => state,
                },
                ChargedLimits::Override(_) => state,
            }
        };
        Ok(Some(verdicts.iter().map(state).collect()))
    }

    /// Decides those steps, in their order.
    pub(super) async fn decide_on_envoy_keys(
        &self,
        operation: Operation,
        call: Call<'_>,
        plan: &Plan,
        steps: &[RedisStep<'_>],
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let Some(counters) = self.envoy.as_ref().filter(|_| !steps.is_empty()) else {
            return Ok(());
        };
        let texts: Vec<Vec<u8>> = steps.iter().map(|step| envoy_key(plan, step)).collect();
        let checks = steps.iter().zip(&texts);
        let checks: Vec<EnvoyCheck<'_>> =
            checks.filter_map(|(step, text)| envoy_check(call.rules, step, text)).collect();
        let op = match operation {
            Operation::Hit => EnvoyOp::Hit,
            Operation::Peek => EnvoyOp::Peek,
            Operation::Refund => EnvoyOp::Refund,
            Operation::Reset => EnvoyOp::Reset,
        };
        match counters.apply(op, &checks, call.now).await {
            Ok(verdicts) => {
                for (step, verdict) in steps.iter().zip(verdicts) {
                    if operation == Operation::Hit {
                        self.observe(step, &verdict);
                    }
                    statuses[step.index].verdict = verdict;
                }
                Ok(())
            }
            // Admissions meanwhile are not journalled: the keys are of a window that may be over.
            Err(error) => {
                let steps: Vec<&RedisStep<'_>> = steps.iter().collect();
                self.fall_back(operation, (&call, plan), &steps, &error, statuses)
            }
        }
    }

    /// Remembers the count of all nodes, for decisions without the store.
    fn observe(&self, step: &RedisStep<'_>, verdict: &Verdict) {
        let now = self.store.store_time();
        let left = u64::try_from(verdict.remaining.unwrap_or(0)).unwrap_or(0);
        let used = step.script.capacity().saturating_sub(left).saturating_add(verdict.beyond);
        let mut account = Account::default();
        account.record_admission(step.script.rule.steps(), used, None, now);
        self.store.observe(&step.script, account, now);
    }
}

fn envoy_key(plan: &Plan, step: &BoundStep<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    write_envoy_key(plan.identity(&plan.steps()[step.index]), &mut text);
    text
}

/// The limit of a step in Envoy's form, and whether it is in shadow mode.
fn envoy_limit_of(rules: &Snapshot<'_>, step: &BoundStep<'_>) -> Option<(Override, bool)> {
    match step.mode.limits {
        ChargedLimits::Override(limit) => Some((limit, false)),
        ChargedLimits::Rule(no) => {
            let rule = rules.rules().rule(no);
            let Limits::Envoy { requests_per_unit, unit } = rule.limits else { return None };
            Some((Override { requests_per_unit, unit }, rule.mode == Mode::Shadow))
        }
    }
}

fn envoy_check<'a>(
    rules: &Snapshot<'_>,
    step: &BoundStep<'_>,
    text: &'a [u8],
) -> Option<EnvoyCheck<'a>> {
    let (Override { requests_per_unit, unit }, shadow) = envoy_limit_of(rules, step)?;
    Some(EnvoyCheck { text, unit, requests_per_unit, shadow, cost: step.cost })
}
