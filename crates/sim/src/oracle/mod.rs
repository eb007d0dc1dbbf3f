//! Judges a history.
//!
//! A hit is decided at an unknown time between request and answer. A limit was enforced if some
//! choice of times satisfies it: each judge searches for an interval or window that *certainly*
//! holds too many hits.
//!
//! | module | property |
//! |---|---|
//! | `limits` | never more than the limit and the allowance |
//! | `allowance` | the excess that the level and the faults permit |
//! | `charges` | admitted and leased quota was charged |
//! | `eventual` | the excess of eventual rules is bounded by the sync interval |
//! | `usage` | the quota is used; no identity starves; nodes with equal demand have about equal shares |

mod allowance;
mod charges;
mod eventual;
mod limits;
mod usage;

use crate::scenario::{LevelPlan, LimitPlan, RulePlan, Scenario};
use crate::world::{History, Hit};
use allowance::Allowance;

/// A violated property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Rule and identity, or the store.
    pub subject: String,
    /// Description of the violation.
    pub description: String,
}

/// The hits of one identity of one rule.
struct Case<'a> {
    scenario: &'a Scenario,
    history: &'a History,
    plan: &'a RulePlan,
    /// All its hits, in the order of their answers.
    hits: Vec<Hit>,
}

/// All violations of a history.
#[must_use]
pub fn judge(scenario: &Scenario, history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let everywhere =
        |description: String| Violation { subject: "the store".to_owned(), description };
    violations.extend(history.errors.iter().take(1).map(|error| everywhere(error.clone())));
    if history.disagreements > 0 {
        violations.push(everywhere("script and core disagree".to_owned()));
    }
    for (rule, plan) in scenario.rules.iter().enumerate() {
        for identity in 0..plan.identities {
            let is_its = |hit: &&Hit| hit.rule == rule && hit.identity == identity;
            let hits = history.hits.iter().filter(is_its).copied().collect();
            let case = Case { scenario, history, plan, hits };
            violations.extend(case.judge().into_iter().map(|description| {
                let level = plan.level;
                Violation { subject: format!("rule{rule} id{identity} ({level:?})"), description }
            }));
        }
    }
    violations
}

impl Case<'_> {
    fn judge(&self) -> Vec<String> {
        let mut found = Vec::new();
        for limit in &self.plan.limits {
            // While rules change, either limit applies.
            let max = if self.scenario.fault_plan.reloads() { self.scenario.reloaded } else { 0 };
            let limit = limit.times(max.max(1_000));
            found.extend(self.over(limit));
            found.extend(charges::judge(self, limit));
        }
        found.extend(usage::judge(self));
        found
    }

    fn over(&self, limit: LimitPlan) -> Option<String> {
        if let LevelPlan::Eventual { sync_ms } = self.plan.level {
            return eventual::judge(self, limit, sync_ms);
        }
        let allowance = Allowance::new(self, limit);
        let admitted = self.admitted();
        match limit {
            LimitPlan::Bucket { rate, burst } => {
                limits::bucket(&admitted, allowance.rate(rate), allowance.count(burst), &allowance)
            }
            LimitPlan::Window { count, per_ms } => {
                limits::fixed(&admitted, allowance.count(count), per_ms * 1_000, &allowance)
            }
            LimitPlan::Sliding { count, per_ms } => {
                limits::sliding(&admitted, allowance.count(count), per_ms * 1_000, &allowance)
            }
        }
    }

    /// Admitted hits, in the order of the answers.
    fn admitted(&self) -> Vec<Hit> {
        self.hits.iter().filter(|hit| hit.allowed).copied().collect()
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.subject, self.description)
    }
}
