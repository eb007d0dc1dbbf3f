//! How limits stand, one by one, and what is told about them.

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict};
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::{Override, Request};
use sluicegate_rules::set::RuleNo;

use super::Snapshot;
use super::check::{Manner, Want};
use crate::policy::Policy;

/// How the limits of one descriptor stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// What it is under.
    pub target: Target,
    /// Its limits, in the order of the rule; none if nothing limits it.
    pub limits: Vec<LimitState>,
}

/// How one limit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitState {
    /// What the limit is.
    pub policy: Policy,
    /// Whole units left; negative in debt; `None` without such a number.
    pub remaining: Option<i64>,
    /// How long until the limit is full.
    pub reset_after: Span,
    /// Whether it would let a cost of 1 pass.
    pub allowed: bool,
    /// How long a cost of 1 would have to wait; `None` if it need not, or if waiting does not help.
    pub retry_after: Option<Span>,
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// How every limit of every descriptor stands at `now`, in their order. Nothing is counted; hits and lists do not matter.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
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
    /// let inspected = engine.snapshot().inspect(&request, engine.now());
    /// let [burst, daily] = inspected[0].limits.as_slice() else { panic!("two limits") };
    /// assert_eq!((burst.policy.name.as_str(), burst.remaining), ("burst", Some(1)));
    /// assert_eq!((daily.policy.name.as_str(), daily.remaining), ("daily", Some(98)));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn inspect(&self, request: &Request<'_>, now: Timestamp) -> Vec<Inspected> {
        let mut plan = Plan::default();
        self.live.rules.plan(request, &mut plan);
        let steps = plan.steps().iter();
        steps
            .map(|step| {
                let limits = match self.manner(Want::Peek, step) {
                    Manner::Free => Vec::new(),
                    Manner::Override(limit) => {
                        vec![self.inspect_override(limit, plan.identity(step), now)]
                    }
                    Manner::Alone(no) | Manner::Once(no) | Manner::Together(no) => {
                        self.inspect_rule(no, plan.identity(step), now)
                    }
                };
                Inspected { target: step.target, limits }
            })
            .collect()
    }

    fn inspect_rule(&self, no: RuleNo, key: &[u8], now: Timestamp) -> Vec<LimitState> {
        let asked = self.asked(no, key);
        let (rule, decisions) = asked.look(1, now);
        // Where a newer set has changed the rule meanwhile, its limits are those of that set.
        let is_ours = asked.rule.is_some_and(|ours| ours.generation == rule.generation);
        let policies = if is_ours { self.policies(no) } else { &rule.policies };
        states_of(policies, decisions)
    }

    /// How the limits of a rule stand that have said this.
    #[must_use]
    pub fn inspect_decided(&self, no: RuleNo, said: Vec<Decision>) -> Vec<LimitState> {
        states_of(self.policies(no), said)
    }

    fn inspect_override(&self, limit: Override, key: &[u8], now: Timestamp) -> LimitState {
        Self::override_state(limit, &self.ask_override(Want::Peek, limit, key, 1, now))
    }

    /// State of a limit that came with a request.
    #[must_use]
    pub fn override_state(limit: Override, said: &Verdict) -> LimitState {
        LimitState {
            policy: Self::override_policy(limit),
            remaining: said.remaining,
            reset_after: said.reset_after,
            allowed: said.is_allowed(),
            retry_after: said.retry_after(),
        }
    }

    /// What is told about the limits of a rule, each at the place that
    /// [`Verdict::decided_by`](sluicegate_core::verdict::Verdict::decided_by) names it by. A rule without a limit has none.
    ///
    /// A limit in Envoy's form has the name of its rule or, if that has none, [the way to it](sluicegate_rules::set::RuleSet::path_of).
    ///
    /// ```
    /// use sluicegate::Engine;
    /// use sluicegate::rules::domain::{Domain, DescriptorConfig};
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
    /// When the number is of another set of rules.
    #[must_use]
    pub fn policies(&self, no: RuleNo) -> &[Policy] {
        self.live.policies(no)
    }

    /// What is told about a limit that came with a request.
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

fn wait_of(outcome: Outcome) -> Option<Span> {
    match outcome {
        Outcome::Deny { retry_after } => Some(retry_after),
        Outcome::Allow { .. } | Outcome::Never { .. } => None,
    }
}

fn states_of(policies: &[Policy], decisions: Vec<Decision>) -> Vec<LimitState> {
    let both = policies.iter().zip(decisions);
    both.map(|(policy, said)| LimitState {
        policy: policy.clone(),
        remaining: said.remaining,
        reset_after: said.reset_after,
        allowed: said.outcome.is_allowed(),
        retry_after: wait_of(said.outcome),
    })
    .collect()
}
