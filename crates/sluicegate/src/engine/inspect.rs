//! State of single limits, and what is published about them.

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict};
use sluicegate_rules::plan::Target;
use sluicegate_rules::request::Override;
use sluicegate_rules::set::RuleNo;

use super::admission::{ChargedLimits, Operation};
use super::backend::{Backend, BoundStep, Call, StoreError};
use super::memory::apply_one;
use super::pools::AllPools;
use super::{Checked, Engine, Snapshot};
use crate::answer::Policy;

/// State of the limits of one descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The rule or limit that applies to it.
    pub target: Target,
    /// Its limits, in the order of the rule; none if nothing limits it.
    pub limits: Vec<LimitState>,
    /// The further pools of its rule, in the order that requests draw from them. None if the
    /// descriptor names its pool.
    pub pools: Vec<Self>,
}

/// State of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitState {
    /// What the limit is.
    pub policy: Policy,
    /// Remaining quota in whole units; negative in debt; `None` where there is no such number.
    pub remaining: Option<i64>,
    /// Time until the limit is full.
    pub reset_after: Span,
    /// Whether it admits a cost of 1.
    pub allowed: bool,
    /// Time until it admits a cost of 1; `None` if it does now, or never will.
    pub retry_after: Option<Span>,
}

impl<B: Backend + ?Sized> Engine<B> {
    /// State of every limit of every descriptor, in their order. Nothing is charged; hits and lists
    /// have no effect.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::backend::ready;
    /// use sluicegate::{Engine, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: shop
    /// descriptors:
    ///   - key: user
    ///     limits:
    ///       - { name: burst, algorithm: token_bucket, rate: 10/h, burst: 3 }
    ///       - { name: daily, algorithm: fixed_window, rate: 100/day }
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("user", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "shop", descriptors: &descriptors, hits: 2 };
    /// assert!(engine.check(&request).allowed);
    ///
    /// let rules = engine.snapshot();
    /// let inspected = ready(engine.inspect(engine.call(&rules, &request))).expect("on memory")?;
    /// let [burst, daily] = inspected[0].limits.as_slice() else { panic!("two limits") };
    /// assert_eq!((burst.policy.name.as_str(), burst.remaining), ("burst", Some(1)));
    /// assert_eq!((daily.policy.name.as_str(), daily.remaining), ("daily", Some(98)));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the store does not answer, whatever the rules' `on_store_failure` is.
    pub async fn inspect(&self, call: Call<'_>) -> Result<Vec<Inspected>, StoreError> {
        let mut checked = Checked::default();
        let pools = AllPools::new(call.rules.rules(), call.request);
        let request = pools.request();
        call.rules.begin(Operation::Reset, &request, &mut checked);
        let plan = &checked.plan;
        let mut all = Vec::with_capacity(plan.steps().len());
        for (index, step) in plan.steps().iter().enumerate() {
            let limits = match call.rules.bind(Operation::Peek, plan, index) {
                None => Vec::new(),
                Some(bound) => {
                    let states = self.backend().inspect(call, plan, bound).await;
                    let failed = |failure| StoreError { failure, descriptor: index };
                    let mut states = states.map_err(failed)?;
                    call.rules.estimate_inspected(step.target, &mut states, call.now);
                    states
                }
            };
            all.push(Inspected { target: step.target, limits, pools: Vec::new() });
        }
        let mut further = all.split_off(pools.len()).into_iter();
        for (index, inspected) in all.iter_mut().enumerate() {
            let count = pools.further(index).count();
            inspected.pools = further.by_ref().take(count).collect();
        }
        Ok(all)
    }
}

impl Snapshot<'_> {
    /// State of a step's limits in this node's memory.
    pub(super) fn inspect_in_memory(
        &self,
        step: &BoundStep<'_>,
        now: Timestamp,
    ) -> Vec<LimitState> {
        match step.mode.limits {
            ChargedLimits::Override(limit) => {
                let (key, peek) = (step.counter.key, Operation::Peek);
                let verdict = apply_one(self, peek, step.mode, key, 1, now, None);
                vec![Self::override_state(limit, &verdict)]
            }
            ChargedLimits::Rule(no) => {
                let (rule, decisions) = step.counter.decisions(1, now);
                // A reload may have moved the states to other limits meanwhile.
                let is_ours =
                    step.counter.rule.is_some_and(|ours| ours.generation == rule.generation);
                let policies = if is_ours { self.policies(no) } else { &rule.policies };
                limit_states(policies, decisions)
            }
        }
    }

    /// State of a limit that came with a request, by its verdict.
    #[must_use]
    pub fn override_state(limit: Override, verdict: &Verdict) -> LimitState {
        LimitState {
            policy: Self::override_policy(limit),
            remaining: verdict.remaining,
            reset_after: verdict.reset_after,
            allowed: verdict.is_allowed(),
            retry_after: verdict.retry_after(),
        }
    }

    /// What is published about the limits of a rule, in the order of
    /// [`Verdict::decided_by`](sluicegate_core::verdict::Verdict::decided_by).
    ///
    /// A limit in Envoy's form has the name of its rule or, if that has none, [its
    /// path](sluicegate_rules::set::RuleSet::path_of).
    ///
    /// ```
    /// use sluicegate::Engine;
    /// use sluicegate::rules::domain::{DescriptorConfig, Domain};
    /// use sluicegate::rules::rule::{Limits, RuleConfig};
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::rules::unit::Unit;
    ///
    /// let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 10, unit: Unit::Minute });
    /// let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user_id") };
    /// let domain = Domain { descriptors: vec![users], ..Domain::new("shop") };
    /// let engine = Engine::new(RuleSet::new(vec![domain])?)?;
    ///
    /// let snapshot = engine.snapshot();
    /// let no = snapshot.rules().rules().next().expect("a rule");
    /// let policies = snapshot.policies(no);
    /// assert_eq!((policies[0].name.as_str(), policies[0].quota), ("shop/user_id", Some(10)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the number belongs to another set of rules.
    #[must_use]
    pub fn policies(&self, no: RuleNo) -> &[Policy] {
        self.active.policies(no)
    }

    /// What is published about a limit that came with a request.
    ///
    /// ```
    /// use sluicegate::rules::request::Override;
    /// use sluicegate::rules::unit::Unit;
    /// use sluicegate::{Snapshot, Span};
    ///
    /// let policy = Snapshot::override_policy(Override { requests_per_unit: 5, unit: Unit::Minute });
    /// assert_eq!((policy.quota, policy.window), (Some(5), Some(Span::from_secs(60))));
    /// ```
    #[must_use]
    pub fn override_policy(limit: Override) -> Policy {
        Policy {
            name: "override".to_owned(),
            algorithm: "tally",
            quota: Some(u64::from(limit.requests_per_unit)),
            window: Some(limit.unit.span()),
            enforced: true,
        }
    }
}

fn retry_after(outcome: Outcome) -> Option<Span> {
    match outcome {
        Outcome::Deny { retry_after } => Some(retry_after),
        Outcome::Allow { .. } | Outcome::Never { .. } => None,
    }
}

/// State of limits, by the decision of each on a cost of 1.
#[must_use]
pub fn limit_states(policies: &[Policy], decisions: Vec<Decision>) -> Vec<LimitState> {
    let both = policies.iter().zip(decisions);
    both.map(|(policy, decision)| LimitState {
        policy: policy.clone(),
        remaining: decision.remaining,
        reset_after: decision.reset_after,
        allowed: decision.outcome.is_allowed(),
        retry_after: retry_after(decision.outcome),
    })
    .collect()
}
