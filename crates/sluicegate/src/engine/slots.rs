//! Slots of concurrency limits: which requests take them, and how long they are held.

use sluicegate_core::limit::Limit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::Request;
use sluicegate_rules::rule::{Limits, RuleConfig};

use super::Snapshot;
use super::admission::{Checked, Operation, Status};
use super::inspect::LimitState;
use crate::hold_time::HoldTime;

/// Whether a rule has a concurrency limit.
pub(super) fn has_slots(rule: &RuleConfig) -> bool {
    let is_slots =
        |limit: &LimitConfig| matches!(limit.at(Timestamp::EPOCH), Limit::Concurrency(_));
    native_limits(rule).iter().any(is_slots)
}

fn native_limits(rule: &RuleConfig) -> &[LimitConfig] {
    match &rule.limits {
        Limits::Native(limits) => limits,
        Limits::Unlimited | Limits::Envoy { .. } => &[],
    }
}

impl Snapshot<'_> {
    /// Whether any rule has a concurrency limit.
    #[inline]
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.active.has_slots
    }

    /// The first descriptor of a request that takes a slot of a concurrency limit, by its index.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: llm
    /// descriptors:
    ///   - { key: user, limits: { algorithm: token_bucket, rate: 100/s } }
    ///   - { key: calls, limits: { algorithm: concurrency, max: 2, lease: 1m } }
    /// ",
    /// )?)?;
    /// let (user, calls) = ([Entry::new("user", "a")], [Entry::new("calls", "a")]);
    /// let descriptors = [Descriptor::of(&user), Descriptor::of(&calls)];
    /// let request = Request { domain: "llm", descriptors: &descriptors, hits: 1 };
    /// let rules = engine.snapshot();
    /// assert_eq!(rules.slot_descriptor(&request), Some(1));
    /// assert!(!rules.takes_slots_only(&request));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn slot_descriptor(&self, request: &Request<'_>) -> Option<usize> {
        if !self.has_slots() {
            return None;
        }
        let mut plan = Plan::default();
        self.rules().plan(request, &mut plan);
        let takes = |target: &Target| match target {
            Target::Rule(no) => has_slots(self.rules().rule(*no)),
            Target::None(_) | Target::Replaced(_) | Target::Override(_) => false,
        };
        plan.steps().iter().position(|step| takes(&step.target))
    }

    /// Whether a request is under concurrency limits and under nothing else.
    #[must_use]
    pub fn takes_slots_only(&self, request: &Request<'_>) -> bool {
        let mut plan = Plan::default();
        self.rules().plan(request, &mut plan);
        let mut steps = self.bind_all(Operation::Hit, &plan);
        steps.all(|step| step.counter.has_slots_only())
    }

    /// Whether an admitted request holds a slot.
    #[must_use]
    pub fn holds_slot(&self, checked: &Checked) -> bool {
        let holds = |status: &Status| {
            let verdict = &status.verdict;
            let is_charged = verdict.shadow.is_none_or(|outcome| outcome.is_allowed());
            verdict.is_allowed() && is_charged && self.slot_rule(status.target).is_some()
        };
        self.has_slots() && checked.allowed && checked.statuses.iter().any(holds)
    }

    /// The shortest lease of a slot that a request takes.
    #[must_use]
    pub fn lease(&self, plan: &Plan, now: Timestamp) -> Option<Span> {
        if !self.has_slots() {
            return None;
        }
        self.bind_all(Operation::Hit, plan).filter_map(|step| step.counter.lease(now)).min()
    }

    /// Records that the slots of a request were released at `now`, and how long they were held.
    pub fn observe_hold(&self, checked: &Checked, held: Span, now: Timestamp) {
        self.hold_times(&checked.plan).for_each(|time| time.observe(held, now));
    }

    /// Records what the slots of a request are taken for: a lifetime, or the whole lease.
    pub fn take_slots(&self, plan: &Plan, lifetime: Option<Span>) {
        self.hold_times(plan).for_each(|time| time.take(lifetime));
    }

    /// Replaces the end of a lease, where a denial has it, by an estimate of when a slot is
    /// released: see `hold_time`. Backends call it once for each decision.
    pub fn estimate_slot_waits(&self, checked: &mut Checked, now: Timestamp) {
        if !self.has_slots() || checked.allowed {
            return;
        }
        for status in &mut checked.statuses {
            if let Some((rule, time)) = self.slot_rule(status.target) {
                time.estimate_wait(native_limits(rule), &mut status.verdict, now);
            }
        }
    }

    /// The same for the states of all limits of a rule.
    pub(super) fn estimate_inspected(
        &self,
        target: Target,
        states: &mut [LimitState],
        now: Timestamp,
    ) {
        let Some((rule, time)) = self.slot_rule(target) else { return };
        for (limit, state) in native_limits(rule).iter().zip(states) {
            state.retry_after = state.retry_after.map(|wait| time.wait_for(limit, wait, now));
        }
    }

    fn hold_times(&self, plan: &Plan) -> impl Iterator<Item = &HoldTime> {
        plan.steps().iter().filter_map(|step| Some(self.slot_rule(step.target)?.1))
    }

    /// The rule of a target, if it has slots, and how long they are held.
    fn slot_rule(&self, target: Target) -> Option<(&RuleConfig, &HoldTime)> {
        let Target::Rule(no) = target else { return None };
        let rule =
            Some(self.rules().rule(no)).filter(|rule| self.has_slots() && has_slots(rule))?;
        Some((rule, self.rule_state(no).limiter()?.hold_time()))
    }
}
