//! Admission: which steps of a request are charged, and how their verdicts combine.
//!
//! ```text
//!   lists           deny: the request is denied · allow: it is admitted and not counted
//!   Independent     charged by itself, whatever the others say: Envoy's form, overrides
//!   Quota           the same, but it denies the request only if all of its quotas deny
//!   AllOrNothing    charged together, and only if the request is admitted so far
//! ```
//!
//! Refunds and resets apply to each step by itself. The script of the Redis backend implements the
//! same rules in Lua, and a property compares the two.

use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::plan::{DomainStatus, List, ListMatch, Plan, Step, Target};
use sluicegate_rules::request::{Override, Request};
use sluicegate_rules::rule::{Limits, OnStoreFailure, RuleConfig};
use sluicegate_rules::set::RuleNo;

use super::Snapshot;
use super::backend::BoundStep;
use crate::answer::{Level, Promise};
use crate::limiter::CounterRef;
use crate::memory::UNCOUNTED;

/// Result of a request. Reused for the next one, it needs no more memory.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// Whether the request is admitted.
    pub allowed: bool,
    /// Result of each descriptor, in their order.
    pub statuses: Vec<Status>,
    /// The steps that the request was matched to.
    pub plan: Plan,
    /// Hits that each limit got back by a refund, commit or cancel, in the order of descriptors and
    /// limits. Nothing of a descriptor that repeats another, and of limits that nodes synchronize
    /// later (eventual rules, keys of envoyproxy/ratelimit).
    pub returned: Vec<Returned>,
    pub(super) verdicts: Vec<Verdict>,
}

/// Hits that a limit got back: slots of a concurrency limit, else quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// Index of the descriptor.
    pub descriptor: usize,
    /// Index of the limit, in the order of the rule.
    pub limit: usize,
    /// The hits.
    pub hits: u64,
}

/// Result of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The rule or limit that applies to it.
    pub target: Target,
    /// Verdict of its limits; admitted where none applies.
    pub verdict: Verdict,
    /// Accuracy of the verdict, where nodes share a limit.
    pub promise: Promise,
}

/// An operation on all limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Checks and charges.
    Hit,
    /// Checks and charges nothing.
    Peek,
    /// Returns the charge of a request that did not happen.
    Refund,
    /// Resets every limit: full, nothing pending, every slot free.
    Reset,
}

/// How the verdict of a step combines with those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// Charged by itself, whatever the others say.
    Independent,
    /// The same, but it denies the request only if all quotas do.
    Quota,
    /// Charged together with the others of its kind, or not at all; only evaluated where the
    /// request is denied already.
    AllOrNothing,
}

/// How a step is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChargeMode {
    /// The counter's limits.
    pub limits: ChargedLimits,
    /// How its verdict combines with the others.
    pub combine: Combine,
    /// Whether steps of the same counter are charged once, with the largest cost; otherwise each
    /// is.
    pub is_once: bool,
}

/// The limits of a step's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargedLimits {
    /// Those of a rule.
    Rule(RuleNo),
    /// The limit that came with the request.
    Override(Override),
}

/// Order in which a backend decides the steps of a request: one at a time, then those that are
/// charged all or nothing.
#[derive(Debug)]
pub struct Admission<'a> {
    rules: &'a Snapshot<'a>,
    plan: &'a Plan,
    operation: Operation,
    next: usize,
    is_together_decided: bool,
}

/// Steps to be decided next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The step of this index, by itself.
    One(usize, ChargeMode),
    /// All that are charged all or nothing.
    Together {
        /// Whether they are charged; otherwise only evaluated, since the request is denied already.
        is_charged: bool,
    },
}

/// Whether a request is admitted: no step denies it, and of its quotas not all do.
#[inline]
pub fn admits(verdicts: impl Iterator<Item = (Combine, bool)>) -> bool {
    let (mut quotas, mut exhausted) = (0u32, 0u32);
    for (combine, is_allowed) in verdicts {
        match combine {
            Combine::Quota => {
                quotas += 1;
                exhausted += u32::from(!is_allowed);
            }
            Combine::Independent | Combine::AllOrNothing if !is_allowed => return false,
            Combine::Independent | Combine::AllOrNothing => {}
        }
    }
    quotas == 0 || exhausted < quotas
}

/// Which steps are charged, given their verdicts and whether the request is admitted. `true` beside
/// a mode: its limits count denied hits too.
///
/// Limits in shadow mode admit everything, and charge what they would have admitted: all counters
/// of their rule, or none.
pub fn charges<'a>(
    steps: &'a [(ChargeMode, bool)],
    verdicts: &'a [Verdict],
    is_admitted: bool,
) -> impl Iterator<Item = bool> + 'a {
    let would_admit = |verdict: &Verdict| {
        verdict.is_allowed() && verdict.shadow.as_ref().is_none_or(Outcome::is_allowed)
    };
    let rule_would_admit = move |limits: ChargedLimits| {
        let all = steps.iter().zip(verdicts).filter(move |((mode, _), _)| mode.limits == limits);
        all.into_iter().all(|(_, verdict)| would_admit(verdict))
    };
    steps.iter().zip(verdicts).map(move |((mode, counts_denied), verdict)| match mode.combine {
        _ if *counts_denied => true,
        Combine::Independent | Combine::Quota => would_admit(verdict),
        Combine::AllOrNothing => is_admitted && rule_would_admit(mode.limits),
    })
}

impl Snapshot<'_> {
    /// Matches a request to its rules. Whether it is decided already: by a list, or since it is
    /// unmatched.
    #[inline]
    pub fn begin(
        &self,
        operation: Operation,
        request: &Request<'_>,
        checked: &mut Checked,
    ) -> bool {
        let Checked { allowed, statuses, plan, returned, .. } = checked;
        self.active.rules.plan(request, plan);
        returned.clear();
        statuses.clear();
        statuses.extend(plan.steps().iter().map(Status::unlimited));
        *allowed = true;
        match (plan.listed(), operation) {
            (None, Operation::Hit | Operation::Peek) if self.engine.denies_unmatched => {
                checked.deny_unmatched()
            }
            (None, _) | (_, Operation::Reset) => false,
            (Some(listed), Operation::Hit | Operation::Peek) if listed.list == List::Deny => {
                checked.deny_listed(listed);
                true
            }
            (Some(_), _) => true,
        }
    }

    /// How a step is charged; `None` if nothing limits it.
    #[inline]
    #[must_use]
    pub fn charge_mode(&self, operation: Operation, step: &Step) -> Option<ChargeMode> {
        let no = match step.target {
            Target::None(_) | Target::Replaced(_) => return None,
            Target::Override(limit) => {
                let limits = ChargedLimits::Override(limit);
                return Some(ChargeMode { limits, combine: Combine::Independent, is_once: false });
            }
            Target::Rule(no) => no,
        };
        let is_each_by_itself = matches!(operation, Operation::Refund | Operation::Reset);
        let (combine, is_once) = match self.active.rules.rule(no) {
            RuleConfig { limits: Limits::Unlimited, .. } => return None,
            RuleConfig { limits: Limits::Envoy { .. }, quota_mode, .. } => {
                let is_quota = *quota_mode && !is_each_by_itself;
                (if is_quota { Combine::Quota } else { Combine::Independent }, false)
            }
            _ if is_each_by_itself => (Combine::Independent, true),
            RuleConfig { quota_mode: true, .. } => (Combine::Quota, true),
            _ => (Combine::AllOrNothing, true),
        };
        Some(ChargeMode { limits: ChargedLimits::Rule(no), combine, is_once })
    }

    /// The counter of a step, in this node's memory.
    #[inline]
    #[must_use]
    pub fn counter<'a>(&'a self, limits: ChargedLimits, identity: &'a [u8]) -> CounterRef<'a> {
        match limits {
            ChargedLimits::Rule(no) => {
                let (limiter, rule) = self.active.slot(no, &self.engine.store);
                CounterRef { limiter, rule: Some(rule), key: identity }
            }
            ChargedLimits::Override(limit) => {
                let limiter = self.engine.overrides.of(limit.unit, &self.engine.store);
                CounterRef { limiter, rule: None, key: identity }
            }
        }
    }

    /// A step with its counter; `None` if nothing limits it.
    #[must_use]
    pub fn bind<'a>(
        &'a self,
        operation: Operation,
        plan: &'a Plan,
        index: usize,
    ) -> Option<BoundStep<'a>> {
        let step = &plan.steps()[index];
        let mode = self.charge_mode(operation, step)?;
        let on_store_failure = match mode.limits {
            ChargedLimits::Rule(no) => self.rules().rule(no).on_store_failure,
            ChargedLimits::Override(_) => OnStoreFailure::Error,
        };
        Some(BoundStep {
            index,
            mode,
            cost: if mode.is_once { largest_cost(plan, index) } else { step.cost },
            counter: self.counter(mode.limits, plan.identity(step)),
            on_store_failure,
        })
    }

    /// Every step that is limited, each counter once where it is charged once.
    pub fn bind_all<'a>(
        &'a self,
        operation: Operation,
        plan: &'a Plan,
    ) -> impl Iterator<Item = BoundStep<'a>> {
        (0..plan.steps().len()).filter_map(move |index| {
            let bound = self.bind(operation, plan, index)?;
            (!bound.mode.is_once || first_same(plan, index) == index).then_some(bound)
        })
    }

    /// Whether a request is admitted by the verdicts of its steps so far.
    #[inline]
    #[must_use]
    pub fn admits(&self, statuses: &[Status]) -> bool {
        let combine = |status: &Status| match status.target {
            Target::Rule(no) if self.active.rules.rule(no).is_quota() => Combine::Quota,
            _ => Combine::Independent,
        };
        admits(statuses.iter().map(|status| (combine(status), status.verdict.is_allowed())))
    }
}

impl<'a> Admission<'a> {
    /// The order for a request that was matched already.
    #[must_use]
    pub const fn new(rules: &'a Snapshot<'a>, operation: Operation, plan: &'a Plan) -> Self {
        Self { rules, plan, operation, next: 0, is_together_decided: false }
    }

    /// The next group, given the verdicts so far. `None` when all are decided, and every status has
    /// its verdict.
    #[inline]
    pub fn next(&mut self, statuses: &mut [Status]) -> Option<Group> {
        while let Some(step) = self.plan.steps().get(self.next) {
            let index = self.next;
            self.next += 1;
            let Some(mode) = self.rules.charge_mode(self.operation, step) else { continue };
            if mode.combine == Combine::AllOrNothing {
                continue;
            }
            match first_same(self.plan, index) {
                first if mode.is_once && first < index => statuses[index] = statuses[first],
                _ => return Some(Group::One(index, mode)),
            }
        }
        if !self.is_together_decided {
            self.is_together_decided = true;
            if self.together().next().is_some() {
                return Some(Group::Together { is_charged: self.rules.admits(statuses) });
            }
        }
        repeat(self.rules, self.operation, self.plan, statuses);
        None
    }

    /// The steps that are charged all or nothing, each counter once: index, mode and cost.
    pub fn together(&self) -> impl Iterator<Item = (usize, ChargeMode, u64)> + use<'a> {
        let (rules, plan, operation) = (self.rules, self.plan, self.operation);
        plan.steps().iter().enumerate().filter_map(move |(index, step)| {
            let mode = rules.charge_mode(operation, step)?;
            let is_first = || first_same(plan, index) == index;
            (mode.combine == Combine::AllOrNothing && is_first())
                .then(|| (index, mode, largest_cost(plan, index)))
        })
    }

    /// The cost of a step.
    #[inline]
    #[must_use]
    pub fn cost(&self, index: usize, mode: ChargeMode) -> u64 {
        match mode.is_once {
            true => largest_cost(self.plan, index),
            false => self.plan.steps()[index].cost,
        }
    }
}

/// Copies the status of a counter to all steps that name it, where it is charged once.
pub fn repeat(rules: &Snapshot<'_>, operation: Operation, plan: &Plan, statuses: &mut [Status]) {
    for (index, step) in plan.steps().iter().enumerate().skip(1) {
        if rules.charge_mode(operation, step).is_some_and(|mode| mode.is_once) {
            statuses[index] = statuses[first_same(plan, index)];
        }
    }
}

/// The first step of the same counter.
#[inline]
#[must_use]
pub fn first_same(plan: &Plan, index: usize) -> usize {
    let (all, step) = (plan.steps(), &plan.steps()[index]);
    all[..index].iter().position(|other| is_same(plan, other, step)).unwrap_or(index)
}

/// The largest cost of a step and the later ones of the same counter.
#[inline]
#[must_use]
pub fn largest_cost(plan: &Plan, index: usize) -> u64 {
    let (all, step) = (plan.steps(), &plan.steps()[index]);
    let later = all[index + 1..].iter().filter(|other| is_same(plan, other, step));
    later.map(|other| other.cost).max().unwrap_or(0).max(step.cost)
}

fn is_same(plan: &Plan, one: &Step, other: &Step) -> bool {
    one.target == other.target && plan.identity(one) == plan.identity(other)
}

/// Verdict of a limit that came with the request, from that of its counter, which only counts.
pub(super) fn override_verdict(
    operation: Operation,
    limit: Override,
    cost: u64,
    counter: Verdict,
) -> Verdict {
    // A peek leaves the cost uncounted.
    let ahead = if operation == Operation::Peek { cost } else { 0 };
    let left = u64::try_from(counter.remaining.unwrap_or(0)).unwrap_or(0);
    let counted = EXACT_MAX.saturating_sub(left);
    let max = u64::from(limit.requests_per_unit);
    let gives = matches!(operation, Operation::Refund | Operation::Reset);
    let outcome = match counted.saturating_add(ahead) <= max || gives {
        true => Outcome::Allow { wait: Span::ZERO },
        false if cost > max => Outcome::Never { max_cost: max },
        false => Outcome::Deny { retry_after: counter.reset_after },
    };
    let remaining = i64::try_from(max.saturating_sub(counted)).ok();
    Verdict { outcome, remaining, beyond: counted.saturating_sub(max), ..counter }
}

impl Checked {
    /// Whether the request's domain is known.
    #[must_use]
    pub const fn domain(&self) -> DomainStatus {
        self.plan.domain()
    }

    /// The entry that is on one of the domain's lists, if there is one.
    #[must_use]
    pub const fn listed(&self) -> Option<ListMatch> {
        self.plan.listed()
    }

    /// How long an admitted request has to wait for its turn: the longest wait of its limits.
    #[must_use]
    pub fn wait(&self) -> Span {
        self.statuses.iter().map(|status| status.verdict.wait()).max().unwrap_or_default()
    }

    /// The rule that denied: the first that did so by itself, else the first quota.
    pub fn denying_rule(&self, is_quota: impl Fn(&Status) -> bool) -> Option<RuleNo> {
        if self.listed().is_some() {
            return None;
        }
        let mut denials = self.statuses.iter().filter(|status| !status.verdict.is_allowed());
        let by_itself = denials.clone().find(|status| !is_quota(status));
        by_itself.or_else(|| denials.next()).and_then(Status::rule)
    }

    #[cold]
    fn deny_listed(&mut self, listed: ListMatch) {
        self.allowed = false;
        if let Some(status) = self.statuses.get_mut(listed.at.0) {
            status.verdict.outcome = Outcome::Never { max_cost: 0 };
        }
    }
}

impl Status {
    /// The rule that the descriptor is under.
    #[must_use]
    pub const fn rule(&self) -> Option<RuleNo> {
        match self.target {
            Target::Rule(no) => Some(no),
            Target::None(_) | Target::Replaced(_) | Target::Override(_) => None,
        }
    }

    /// Whether its rule is in shadow mode and would deny the request.
    #[must_use]
    pub fn is_shadow_denied(&self) -> bool {
        self.verdict.shadow.is_some_and(|outcome| !outcome.is_allowed())
    }

    const fn unlimited(step: &Step) -> Self {
        let promise = Promise { level: Level::Strict, over: 0 };
        Self { target: step.target, verdict: UNCOUNTED, promise }
    }
}

impl Returned {
    /// The hits that the limits of a descriptor got back.
    pub fn of_limits(
        descriptor: usize,
        hits: &[Option<u64>],
    ) -> impl Iterator<Item = Self> + use<'_> {
        let limits = hits.iter().enumerate();
        limits.map(move |(limit, hits)| Self { descriptor, limit, hits: hits.unwrap_or(0) })
    }
}
