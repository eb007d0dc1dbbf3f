//! Slots of concurrency limits: which requests take them, and how long they are held.
//!
//! A denial by a concurrency limit promises the end of a lease, which is the latest time at which
//! a slot is free. Most are released long before. The mean of observed hold times, one number per
//! rule, gives an estimate.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::algorithm::concurrency::Concurrency;
use sluicegate_core::limit::Limit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Outcome;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::Request;
use sluicegate_rules::rule::{Limits, RuleConfig};

use super::Snapshot;
use super::admission::{Checked, Operation, Status};

/// Weight of the mean so far against a new observation.
const MEAN_WEIGHT: u64 = 7;
/// The shortest estimate.
const ESTIMATE_MIN: Span = Span::from_millis(1);

/// Mean time that slots of a rule are held, exponentially weighted.
#[derive(Debug, Default)]
pub(super) struct HoldTime {
    /// In microseconds; 0 before the first observation.
    mean: AtomicU64,
}

impl HoldTime {
    fn observe(&self, held: Span) {
        let held = held.as_micros().max(1);
        let next = |mean: u64| match mean {
            0 => Some(held),
            _ => {
                let sum = mean.saturating_mul(MEAN_WEIGHT).saturating_add(held);
                Some((sum / (MEAN_WEIGHT + 1)).max(1))
            }
        };
        let _ = self.mean.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn mean(&self) -> Option<Span> {
        Some(self.mean.load(Ordering::Relaxed)).filter(|mean| *mean > 0).map(Span::from_micros)
    }
}

/// Whether a rule has a concurrency limit.
pub(super) fn has_slots(rule: &RuleConfig) -> bool {
    concurrency(rule, Timestamp::EPOCH).next().is_some()
}

/// The concurrency limits of a rule, with their indices.
fn concurrency(
    rule: &RuleConfig,
    now: Timestamp,
) -> impl Iterator<Item = (usize, Concurrency)> + '_ {
    let limits = match &rule.limits {
        Limits::Native(limits) => limits.as_ref(),
        Limits::Unlimited | Limits::Envoy { .. } => &[],
    };
    limits.iter().enumerate().filter_map(move |(index, limit)| match limit.at(now) {
        Limit::Concurrency(slots) => Some((index, slots)),
        _ => None,
    })
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

    /// Records how long the slots of a request were held.
    pub fn observe_hold(&self, checked: &Checked, held: Span) {
        for status in checked.statuses.iter().filter(|_| self.has_slots()) {
            if let (Target::Rule(no), Some(_)) = (status.target, self.slot_rule(status.target)) {
                self.rule_state(no).hold_time.observe(held);
            }
        }
    }

    /// Replaces the end of a lease, where a denial promises it, by an estimate of when a slot is
    /// released. The end of the lease is its upper bound.
    pub fn estimate_slot_waits(&self, checked: &mut Checked, now: Timestamp) {
        if !self.has_slots() || checked.allowed {
            return;
        }
        for status in &mut checked.statuses {
            let (Target::Rule(no), Outcome::Deny { retry_after }, Some(index)) =
                (status.target, status.verdict.outcome, status.verdict.decided_by)
            else {
                continue;
            };
            let mut limits = concurrency(self.rules().rule(no), now);
            let decided_by = limits.find(|(at, _)| *at == index);
            let mean = self.rule_state(no).hold_time.mean();
            if let (Some((_, slots)), Some(mean)) = (decided_by, mean) {
                let estimate = estimate(&slots, mean, retry_after);
                status.verdict.outcome = Outcome::Deny { retry_after: estimate };
            }
        }
    }

    fn slot_rule(&self, target: Target) -> Option<&RuleConfig> {
        let Target::Rule(no) = target else { return None };
        Some(self.rules().rule(no)).filter(|rule| has_slots(rule))
    }
}

/// When a slot is released: the mean hold time after it was taken, and no sooner than releases
/// follow each other while all slots are in use.
fn estimate(slots: &Concurrency, mean: Span, lease_end: Span) -> Span {
    let age = slots.lease().as_micros().saturating_sub(lease_end.as_micros());
    let rest = mean.as_micros().saturating_sub(age);
    let spacing = mean.as_micros() / slots.max();
    Span::from_micros(rest.max(spacing)).max(ESTIMATE_MIN).min(lease_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_within_the_lease() {
        let slots = Concurrency::new(4, Span::from_secs(60)).expect("valid");
        let seconds = |mean, lease_end| {
            estimate(&slots, Span::from_secs(mean), Span::from_secs(lease_end)).as_micros() as f64
                / 1e6
        };
        assert_eq!(seconds(8, 60), 8.0, "all slots were taken just now");
        assert_eq!(seconds(8, 57), 5.0);
        assert_eq!(seconds(8, 30), 2.0, "overdue: one of four every two seconds");
        assert_eq!(seconds(8, 1), 1.0, "the lease ends first");
        assert_eq!(seconds(3_600, 60), 60.0);
    }

    #[test]
    fn the_mean_follows_what_is_observed() {
        let time = HoldTime::default();
        assert_eq!(time.mean(), None);
        time.observe(Span::from_secs(8));
        assert_eq!(time.mean(), Some(Span::from_secs(8)));
        time.observe(Span::from_secs(16));
        assert_eq!(time.mean(), Some(Span::from_secs(9)));
        time.observe(Span::MAX);
        assert!(time.mean().is_some());
    }
}
