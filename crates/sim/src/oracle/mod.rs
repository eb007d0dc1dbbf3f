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
//! | `excess` | measured excess and its bound, for reports |
//! | `eventual` | the excess of eventual rules is bounded by the sync interval |
//! | `store_time` | the history by the store's clock |
//! | `usage` | the quota is used; no identity starves; nodes with equal demand have about equal shares |

mod allowance;
mod charges;
mod eventual;
mod excess;
mod limits;
mod store_time;
mod usage;

use std::collections::BTreeMap;

use crate::scenario::{LevelPlan, LimitPlan, RulePlan, Scenario};
use crate::world::{History, Hit};
use allowance::Allowance;
pub use excess::{bound_of, excess_of};
use limits::Refill;

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
    let mapped = store_time::in_store_time(history);
    let history = mapped.as_ref().unwrap_or(history);
    let mut violations = Vec::new();
    let everywhere =
        |description: String| Violation { subject: "the store".to_owned(), description };
    violations.extend(history.errors.iter().take(1).map(|error| everywhere(error.clone())));
    if history.disagreements > 0 {
        violations.push(everywhere("script and core disagree".to_owned()));
    }
    let mut hits_of: BTreeMap<(usize, usize), Vec<Hit>> = BTreeMap::new();
    for hit in &history.hits {
        hits_of.entry((hit.rule, hit.identity)).or_default().push(*hit);
    }
    for (rule, plan) in scenario.rules.iter().enumerate() {
        for identity in 0..plan.identities.len() {
            let hits = hits_of.remove(&(rule, identity)).unwrap_or_default();
            let case = Case { scenario, history, plan, hits };
            violations.extend(case.judge().into_iter().map(|description| {
                let level = plan.level;
                let (rule, identity) = (&plan.name, &plan.identities[identity]);
                Violation { subject: format!("{rule} {identity} ({level:?})"), description }
            }));
        }
    }
    violations
}

impl Case<'_> {
    fn judge(&self) -> Vec<String> {
        let mut found = Vec::new();
        if !self.plan.is_judged || self.plan.is_open(self.scenario) {
            return found;
        }
        let reloads = self.scenario.fault_plan.reloads();
        let limits = if reloads { &self.plan.loosest } else { &self.plan.limits };
        for limit in limits.iter().copied() {
            found.extend(self.over(limit));
            found.extend(charges::judge(self, limit));
        }
        if self.scenario.judges_usage && self.scenario.is_plain() {
            found.extend(usage::judge(self));
        }
        found
    }

    fn over(&self, limit: LimitPlan) -> Option<String> {
        if let LevelPlan::Eventual { sync_ms } = self.plan.level {
            // Its windows are in the store's time, and its exchanges in true time.
            if self.scenario.fault_plan.steps_store() {
                return None;
            }
            return eventual::judge(self, limit, sync_ms);
        }
        let allowance = Allowance::new(self, limit);
        let admitted = self.admitted();
        match limit {
            LimitPlan::Bucket { rate, per_ms, burst } => {
                let refill = Refill { rate: allowance.rate(rate), per_us: per_ms * 1_000 };
                limits::bucket(&admitted, refill, allowance.count(burst), &allowance)
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
