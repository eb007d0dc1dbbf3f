//! Whether what happened may happen.
//!
//! A hit is decided at some moment between the ask and the answer, and nobody outside knows which. So a limit was kept if there are moments by which it was: each judge
//! looks for an interval, or a window, that holds more hits *for certain* than may pass.
//!
//! | room | what is judged |
//! |---|---|
//! | `bucket`, `window`, `sliding` | never more than the limit and what the level and the faults allow |
//! | `allowance` | what that is |
//! | `books` | what passed and what is held was charged |
//! | `eventual` | the same for nodes that tell each other afterwards |
//! | `usage` | never much less than there is; nobody locked out; nodes with the same demand have about the same |

mod allowance;
mod books;
mod bucket;
mod eventual;
mod sliding;
mod usage;
mod window;

use crate::scenario::{LevelPlan, LimitPlan, RulePlan, Scenario};
use crate::world::{History, Hit};
use allowance::Allowance;

/// Something that must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule and identity it is about, if it is about one.
    pub whom: String,
    /// What happened.
    pub what: String,
}

/// What was asked for one identity of one rule.
struct Case<'a> {
    scenario: &'a Scenario,
    history: &'a History,
    plan: &'a RulePlan,
    /// All its hits, in the order of their answers.
    hits: Vec<Hit>,
}

/// Everything that must not have happened.
#[must_use]
pub fn judge(scenario: &Scenario, history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let everywhere = |what: String| Violation { whom: "the store".to_owned(), what };
    violations.extend(history.errors.iter().take(1).map(|error| everywhere(error.clone())));
    if history.disagreements > 0 {
        violations.push(everywhere("script and core disagree".to_owned()));
    }
    for (rule, plan) in scenario.rules.iter().enumerate() {
        for identity in 0..plan.identities {
            let is_its = |hit: &&Hit| hit.rule == rule && hit.identity == identity;
            let hits = history.hits.iter().filter(is_its).copied().collect();
            let case = Case { scenario, history, plan, hits };
            violations.extend(case.judge().into_iter().map(|what| {
                let level = plan.level;
                Violation { whom: format!("rule{rule} who{identity} ({level:?})"), what }
            }));
        }
    }
    violations
}

// === impl Case ===

impl Case<'_> {
    fn judge(&self) -> Vec<String> {
        let mut found = Vec::new();
        for limit in &self.plan.limits {
            // While rules change, either holds.
            let most = if self.scenario.trouble.reloads() { self.scenario.reloaded } else { 0 };
            let limit = limit.times(most.max(1_000));
            found.extend(self.over(limit));
            found.extend(books::judge(self, limit));
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
                bucket::judge(&admitted, allowance.rate(rate), allowance.count(burst), &allowance)
            }
            LimitPlan::Window { count, per_ms } => {
                window::judge(&admitted, allowance.count(count), per_ms * 1_000, &allowance)
            }
            LimitPlan::Sliding { count, per_ms } => {
                sliding::judge(&admitted, allowance.count(count), per_ms * 1_000, &allowance)
            }
        }
    }

    /// What may go, in the order of the answers.
    fn admitted(&self) -> Vec<Hit> {
        self.hits.iter().filter(|hit| hit.allowed).copied().collect()
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.whom, self.what)
    }
}
