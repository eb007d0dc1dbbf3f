//! Compiled rules as the oracle knows them, and the rules that a request meets.
//!
//! The oracle judges limits whose guarantee it knows: hard limits of a greedy token bucket, a fixed
//! window aligned to the clock, or a sliding window. Other rules are run and measured.

use std::collections::BTreeMap;

use sluicegate::rules::limit::LimitConfig;
use sluicegate::rules::plan::{Plan, Target};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::rule::{Limits, RuleConfig};
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Consistency, Mode, OnStoreFailure};
use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::quota::Rate;

use super::rules::{LevelPlan, LimitPlan, Policy, RulePlan};
use super::traffic::{RequestPlan, StepPlan};

/// The rules that requests meet, in the order in which they are met first.
#[derive(Debug)]
pub(super) struct MetRules<'a> {
    set: &'a RuleSet,
    numbers: BTreeMap<usize, usize>,
    /// The number of each identity, with its rule.
    identities: BTreeMap<(usize, Vec<u8>), usize>,
    /// The rules.
    pub(super) plans: Vec<RulePlan>,
    ids: Vec<String>,
}

impl<'a> MetRules<'a> {
    pub(super) fn new(set: &'a RuleSet) -> Self {
        let (numbers, identities) = (BTreeMap::new(), BTreeMap::new());
        Self { set, numbers, identities, plans: Vec::new(), ids: Vec::new() }
    }

    /// Plans a request; `None` if no rule limits it.
    pub(super) fn request(
        &mut self,
        domain: &str,
        descriptors: Vec<Vec<(String, String)>>,
    ) -> Option<RequestPlan> {
        let entries: Vec<Vec<Entry<'_>>> = descriptors
            .iter()
            .map(|entries| entries.iter().map(|(key, value)| Entry::new(key, value)).collect())
            .collect();
        let list: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let mut plan = Plan::default();
        self.set.plan(&Request { domain, descriptors: &list, hits: 1 }, &mut plan);
        let mut steps: Vec<StepPlan> = Vec::new();
        for (step, entries) in plan.steps().iter().zip(&descriptors) {
            let Target::Rule(no) = step.target else { continue };
            let rule = self.rule(no);
            let key = (rule, plan.identity(step).to_vec());
            let identities = &mut self.plans[rule].identities;
            let identity = *self.identities.entry(key).or_insert_with(|| {
                let values: Vec<&str> = entries.iter().map(|(_, value)| value.as_str()).collect();
                identities.push(values.join(" "));
                identities.len() - 1
            });
            // Steps of the same counter are charged once.
            if !steps.iter().any(|step| (step.rule, step.identity) == (rule, identity)) {
                steps.push(StepPlan { rule, identity, weight: step.cost });
            }
        }
        let domain = domain.to_owned();
        (!steps.is_empty()).then_some(RequestPlan { domain, descriptors, steps })
    }

    fn rule(&mut self, no: RuleNo) -> usize {
        if let Some(rule) = self.numbers.get(&no.index()) {
            return *rule;
        }
        let rule = self.plans.len();
        self.numbers.insert(no.index(), rule);
        self.plans.push(plan_of(self.set, no));
        self.ids.push(self.set.id(no));
        rule
    }

    /// Compares with a later revision: the looser number of each limit counts, and a rule that
    /// changes otherwise is not judged.
    pub(super) fn follow(&mut self, later: &RuleSet) {
        for (plan, id) in self.plans.iter_mut().zip(&self.ids) {
            let Some(no) = later.rules().find(|no| later.id(*no) == *id) else {
                plan.is_judged = false;
                continue;
            };
            let next = plan_of(later, no);
            let is_same = next.is_judged
                && next.limits.len() == plan.limits.len()
                && (next.level, next.policy) == (plan.level, plan.policy);
            let limits = plan.loosest.iter().zip(&next.limits);
            let loosest: Option<Vec<_>> = limits.map(|(one, other)| looser(*one, *other)).collect();
            match loosest {
                Some(loosest) if is_same => plan.loosest = loosest,
                _ => plan.is_judged = false,
            }
        }
    }
}

fn looser(one: LimitPlan, other: LimitPlan) -> Option<LimitPlan> {
    use LimitPlan::{Bucket, Sliding, Window};
    match (one, other) {
        (
            Bucket { rate, per_ms, burst },
            Bucket { rate: rate_2, per_ms: per_2, burst: burst_2 },
        ) => (per_ms == per_2).then(|| Bucket {
            rate: rate.max(rate_2),
            per_ms,
            burst: burst.max(burst_2),
        }),
        (Window { count, per_ms }, Window { count: other, per_ms: per_2 }) => {
            (per_ms == per_2).then(|| Window { count: count.max(other), per_ms })
        }
        (Sliding { count, per_ms }, Sliding { count: other, per_ms: per_2 }) => {
            (per_ms == per_2).then(|| Sliding { count: count.max(other), per_ms })
        }
        _ => None,
    }
}

fn plan_of(set: &RuleSet, no: RuleNo) -> RulePlan {
    let rule = set.rule(no);
    let limits: Option<Vec<LimitPlan>> = match &rule.limits {
        Limits::Unlimited => Some(Vec::new()),
        Limits::Envoy { requests_per_unit, unit } => {
            let per_ms = unit.span().as_micros() / 1_000;
            Some(vec![LimitPlan::Window { count: u64::from(*requests_per_unit), per_ms }])
        }
        Limits::Native(limits) => limits.iter().map(limit_of).collect(),
    };
    let is_judged = limits.is_some() && rule.mode == Mode::Hard && !is_special(rule);
    let limits = limits.unwrap_or_default();
    RulePlan {
        name: rule.name.as_deref().map_or_else(|| set.path_of(no), str::to_owned),
        loosest: limits.clone(),
        limits,
        level: match rule.consistency {
            Consistency::Strict => LevelPlan::Strict,
            Consistency::StrictUntilHot => LevelPlan::Hot,
            Consistency::Leased => LevelPlan::Leased,
            Consistency::Eventual { sync_interval } => {
                LevelPlan::Eventual { sync_ms: (sync_interval.as_micros() / 1_000).max(1) }
            }
        },
        policy: match rule.on_store_failure {
            OnStoreFailure::Local => Policy::Local,
            OnStoreFailure::Allow => Policy::Allow,
            // An error denies too, as far as limits are concerned.
            OnStoreFailure::Deny | OnStoreFailure::Error => Policy::Deny,
        },
        identities: Vec::new(),
        is_judged,
    }
}

/// Pools, schedules and overrides admit more than the limits of the rule.
fn is_special(rule: &RuleConfig) -> bool {
    rule.quota_mode
        || rule.rare.as_deref().is_some_and(|rare| {
            !rare.pools.is_empty() || rare.schedule.is_some() || rare.overridden.is_some()
        })
}

fn limit_of(limit: &LimitConfig) -> Option<LimitPlan> {
    if limit.is_calendar() {
        return None;
    }
    match limit.at(sluicegate::Timestamp::EPOCH) {
        Limit::TokenBucket(bucket) if bucket.refill() == Refill::Greedy => {
            let (rate, per_ms) = parts(bucket.rate())?;
            Some(LimitPlan::Bucket { rate, per_ms, burst: bucket.burst() })
        }
        Limit::FixedWindow(window) if window.align() == Align::Clock => {
            parts(window.rate()).map(|(count, per_ms)| LimitPlan::Window { count, per_ms })
        }
        Limit::SlidingWindow(window) => {
            parts(window.rate()).map(|(count, per_ms)| LimitPlan::Sliding { count, per_ms })
        }
        _ => None,
    }
}

fn parts(rate: Rate) -> Option<(u64, u64)> {
    let us = rate.period().as_micros();
    (us >= 1_000 && us.is_multiple_of(1_000)).then(|| (rate.count(), us / 1_000))
}
