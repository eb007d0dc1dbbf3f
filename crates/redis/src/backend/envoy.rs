//! Limits of Envoy's form on the keys of envoyproxy/ratelimit, where a fleet is on its way from there.
//!
//! They are asked first, in one pipeline, and charged whatever the others say; then the others, or they are only looked at if the request is denied already.

use sluicegate_core::account::Account;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::Override;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::write_envoy_key;

use super::SharedEngine;
use super::parts::Part;
use crate::{CallError, EnvoyCheck, EnvoyOp};
use sluicegate::Status;
use sluicegate::backend::StoreError;
use sluicegate::backend::Want;
use sluicegate::{LimitState, Snapshot};

impl SharedEngine {
    /// Whether a part is counted on envoyproxy/ratelimit's keys.
    pub(super) fn is_envoys(&self, rules: &Snapshot<'_>, part: &Part<'_>) -> bool {
        self.envoy.is_some()
            && match part.target {
                Target::Override(_) => true,
                Target::Rule(no) => matches!(rules.rules().rule(no).limits, Limits::Envoy { .. }),
                Target::None | Target::Replaced(_) => false,
            }
    }

    /// How the limit of such a part stands.
    pub(super) async fn look_at_envoys(
        &self,
        rules: &Snapshot<'_>,
        plan: &Plan,
        part: &Part<'_>,
    ) -> Result<Vec<LimitState>, CallError> {
        let mut text = Vec::new();
        write_envoy_key(plan.identity(&plan.steps()[part.place]), &mut text);
        let (Some(counters), Some(ask)) = (self.envoy.as_deref(), ask_of(rules, part, &text))
        else {
            return Ok(Vec::new());
        };
        let one = [EnvoyCheck { cost: 1, ..ask }];
        let said = counters.apply(EnvoyOp::Peek, &one, self.engine.now()).await?;
        let limit = Override { requests_per_unit: ask.requests_per_unit, unit: ask.unit };
        let state = |said: &Verdict| {
            let state = Snapshot::override_state(limit, said);
            match part.target {
                Target::Rule(no) => match rules.policies(no) {
                    [policy, ..] => LimitState { policy: policy.clone(), ..state },
                    [] => state,
                },
                _ => state,
            }
        };
        Ok(said.iter().map(state).collect())
    }

    /// Asks those parts, in their order.
    pub(super) async fn ask_envoys(
        &self,
        want: Want,
        rules: &Snapshot<'_>,
        plan: &Plan,
        parts: &[Part<'_>],
        now: Timestamp,
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let Some(counters) = self.envoy.as_deref().filter(|_| !parts.is_empty()) else {
            return Ok(());
        };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            let mut text = Vec::new();
            write_envoy_key(plan.identity(&plan.steps()[part.place]), &mut text);
            texts.push(text);
        }
        let asks: Vec<EnvoyCheck<'_>> =
            parts.iter().zip(&texts).filter_map(|(part, text)| ask_of(rules, part, text)).collect();
        let op = match want {
            Want::Hit => EnvoyOp::Hit,
            Want::Peek => EnvoyOp::Peek,
            Want::Refund => EnvoyOp::Refund,
            Want::Reset => EnvoyOp::Reset,
        };
        match counters.apply(op, &asks, now).await {
            Ok(said) => {
                for (part, verdict) in parts.iter().zip(said) {
                    if want == Want::Hit {
                        self.observe(part, &verdict);
                    }
                    statuses[part.place].verdict = verdict;
                }
                Ok(())
            }
            // What is admitted meanwhile is not journalled: the keys are of a window that may be
            // over.
            Err(error) => {
                let parts: Vec<&Part<'_>> = parts.iter().collect();
                self.fall_back(want, (rules, plan), &parts, &error, statuses)
            }
        }
    }
}

impl SharedEngine {
    /// Remembers what all nodes have counted, for decisions without the store.
    fn observe(&self, part: &Part<'_>, verdict: &Verdict) {
        let now = self.store.store_time();
        let left = u64::try_from(verdict.remaining.unwrap_or(0)).unwrap_or(0);
        let used = part.part.capacity().saturating_sub(left).saturating_add(verdict.beyond);
        let mut account = Account::default();
        account.record_admission(part.part.rule.steps(), used, None, now);
        self.store.observe(&part.part, account, now);
    }
}

fn ask_of<'a>(rules: &Snapshot<'_>, part: &Part<'_>, text: &'a [u8]) -> Option<EnvoyCheck<'a>> {
    let (requests_per_unit, unit, shadow) = match part.target {
        Target::Override(limit) => (limit.requests_per_unit, limit.unit, false),
        Target::Rule(no) => {
            let rule = rules.rules().rule(no);
            let Limits::Envoy { requests_per_unit, unit } = rule.limits else { return None };
            (requests_per_unit, unit, rule.mode == sluicegate_core::mode::Mode::Shadow)
        }
        Target::None | Target::Replaced(_) => return None,
    };
    Some(EnvoyCheck { text, unit, requests_per_unit, shadow, cost: part.part.cost })
}
