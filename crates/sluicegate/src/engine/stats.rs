//! Hits, counted by rule and outcome.
//!
//! Totals that follow from others are not counted, so that nearly every hit is one addition.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::RuleNo;

use super::admission::{ChargeMode, ChargedLimits, Operation, Status, first_same, largest_cost};
use super::backend::Call;
use super::{Checked, Snapshot};
use crate::answer::Policy;
use crate::striped::Striped;

/// The share of a limit from which hits are near it, by default.
pub(super) const NEAR_LIMIT_RATIO: f32 = 0.8;

/// The count from which a hit is near its limit. Computed in 32-bit floats, as envoyproxy/ratelimit
/// does, so that the same hit is near here and there.
#[derive(Debug, Clone, Copy)]
pub(super) struct NearLimit {
    ratio: f32,
}

/// Hits under one rule since the engine was created, by the verdict of that rule.
///
/// The verdict of the rule counts, not that of the request: a hit that this rule admits and another
/// denies is within the limit here. A hit counts as often as it costs. Lists, peeks and refunds are
/// not counted.
///
/// For a rule in Envoy's form these are the numbers of envoyproxy/ratelimit, which counts denied
/// hits too: of a hit that crosses the limit only the part above is over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// All hits.
    pub total_hits: u64,
    /// Hits above the limit; of a native rule the denied ones.
    pub over_limit: u64,
    /// Hits near the limit
    /// ([`EngineBuilder::near_limit_ratio`](crate::EngineBuilder::near_limit_ratio)).
    pub near_limit: u64,
    /// Admitted hits, also those near the limit.
    pub within_limit: u64,
    /// Hits above the limit of a rule in shadow mode, which were admitted.
    pub shadow_mode: u64,
}

/// Counts that one hit adds, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HitCounts {
    pub(super) within: u64,
    pub(super) over: u64,
    /// The part of a denied hit that is below the limit.
    pub(super) below: u64,
    pub(super) near: u64,
    pub(super) shadow: u64,
}

/// Counters of one rule, striped by thread.
#[derive(Debug)]
pub(super) struct HitCounters(Striped<RuleCounters>);

#[derive(Debug, Default)]
struct RuleCounters {
    within: AtomicU64,
    over: AtomicU64,
    below: AtomicU64,
    near: AtomicU64,
    shadow: AtomicU64,
}

impl Snapshot<'_> {
    /// Hits under a rule. A reload that keeps the rule keeps its counts.
    ///
    /// ```
    /// use sluicegate::rules::domain::{DescriptorConfig, Domain};
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::rules::rule::{Limits, RuleConfig};
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::rules::unit::Unit;
    /// use sluicegate::{Engine, Stats};
    ///
    /// let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 10, unit: Unit::Year });
    /// let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user_id") };
    /// let domain = Domain { descriptors: vec![users], ..Domain::new("shop") };
    /// let engine = Engine::new(RuleSet::new(vec![domain])?)?;
    ///
    /// let entries = [Entry::new("user_id", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// for hits in [8, 5] {
    ///     let _ = engine.check(&Request { domain: "shop", descriptors: &descriptors, hits });
    /// }
    /// let snapshot = engine.snapshot();
    /// let no = snapshot.rules().rules().next().expect("a rule");
    /// let due = Stats { total_hits: 13, over_limit: 3, near_limit: 2, within_limit: 8, shadow_mode: 0 };
    /// assert_eq!(snapshot.stats(no), due);
    /// assert_eq!(snapshot.override_stats(), Stats::default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the number belongs to another set of rules.
    #[must_use]
    pub fn stats(&self, no: RuleNo) -> Stats {
        self.rule_state(no).stats()
    }

    /// Hits under limits that came with their requests, all together.
    #[must_use]
    pub fn override_stats(&self) -> Stats {
        self.engine.overrides.hits().read().into()
    }

    /// Counts a hit by the verdicts of its steps, and observes and meters the usage of its
    /// identities.
    pub fn count(&self, plan: &Plan, statuses: &[Status]) {
        self.count_hits(plan, statuses);
        self.observe_statuses(plan, statuses);
        self.meter_hits(plan, statuses);
    }

    fn count_hits(&self, plan: &Plan, statuses: &[Status]) {
        let traffic = self.engine.traffic.as_ref().map(|monitor| (monitor, monitor.begin()));
        for (index, (step, status)) in plan.steps().iter().zip(statuses).enumerate() {
            let Some(mode) = self.charge_mode(Operation::Hit, step) else { continue };
            let ChargeMode { limits, is_once, .. } = mode;
            match limits {
                _ if is_once && first_same(plan, index) < index => {}
                ChargedLimits::Rule(no) => {
                    let cost = if is_once { largest_cost(plan, index) } else { step.cost };
                    self.count_one(no, cost, &status.verdict, || plan.identity(step));
                    if let Some((monitor, weight)) = traffic
                        && let Some(state) = self.rule_state(no).traffic(monitor)
                    {
                        monitor.observe(state, weight, plan.identity(step), cost, &status.verdict);
                    }
                }
                ChargedLimits::Override(limit) => {
                    let (max, near) = (u64::from(limit.requests_per_unit), self.engine.near_limit);
                    let counts = counted_first(max, near, step.cost, &status.verdict);
                    self.engine.overrides.hits().add(counts);
                }
            }
        }
    }

    /// Counts a hit, unless it was decided without its limits.
    pub fn count_decided(&self, checked: &Checked) {
        self.count_reserved(checked);
        self.observe_usage(checked);
        self.meter_decided(checked);
    }

    /// The same for a reservation, whose usage is known when it is settled.
    pub(super) fn count_reserved(&self, checked: &Checked) {
        if checked.listed().is_none() && checked.denied_unmatched().is_none() {
            self.count_hits(&checked.plan, &checked.statuses);
        }
    }

    /// Counts the hits of a request, unless it was decided without its limits, or tries again; and
    /// estimates the waits for slots.
    pub(super) fn finish_held(&self, checked: &mut Checked, call: &Call<'_>) {
        if checked.allowed || !call.retries {
            self.count_decided(checked);
        }
        self.estimate_slot_waits(checked, call.now);
    }

    /// The same for a reservation.
    pub(super) fn finish_reserved(&self, checked: &mut Checked, call: &Call<'_>) {
        if checked.allowed || !call.retries {
            self.count_reserved(checked);
        }
        if !checked.allowed && !call.retries {
            self.meter_decided(checked);
        }
        self.estimate_slot_waits(checked, call.now);
    }

    #[inline]
    fn count_one<'p>(
        &self,
        no: RuleNo,
        cost: u64,
        verdict: &Verdict,
        identity: impl FnOnce() -> &'p [u8],
    ) {
        let near = self.engine.near_limit;
        let slot = &self.active.slots[no.index()];
        let counts = match &self.active.rules.rule(no).limits {
            Limits::Unlimited => return,
            Limits::Envoy { requests_per_unit, .. } => {
                counted_first(u64::from(*requests_per_unit), near, cost, verdict)
            }
            Limits::Native(_) => all_or_nothing(slot.known_policies(), near, cost, verdict),
        };
        match slot.counts_values {
            false => slot.state.hits().add(counts),
            true => self.count_value(no, identity(), counts),
        }
    }
}

/// A hit on a limit that counts denied hits too.
fn counted_first(limit: u64, near: NearLimit, cost: u64, verdict: &Verdict) -> HitCounts {
    let cost = cost.min(EXACT_MAX);
    let over = is_over(verdict);
    if verdict.decided_by.is_none() {
        // There was no room for the identity, and so no count.
        return whole(cost, over);
    }
    let left = u64::try_from(verdict.remaining.unwrap_or(0)).unwrap_or(0);
    let after = match verdict.beyond {
        0 => limit.saturating_sub(left),
        beyond => limit.saturating_add(beyond),
    };
    let before = after.saturating_sub(cost);
    let from = before.max(near.count(limit));
    if !over {
        return HitCounts { near: after.saturating_sub(from), ..whole(cost, over) };
    }
    let above = after.saturating_sub(before.max(limit));
    HitCounts {
        over: above,
        below: limit.saturating_sub(before),
        near: limit.saturating_sub(from),
        shadow: if verdict.shadow.is_some() { above } else { 0 },
        ..HitCounts::default()
    }
}

/// A hit on limits that count admitted hits only.
fn all_or_nothing(policies: &[Policy], near: NearLimit, cost: u64, verdict: &Verdict) -> HitCounts {
    let cost = cost.min(EXACT_MAX);
    let over = is_over(verdict);
    let counts = whole(cost, over);
    if over {
        let shadow = if verdict.shadow.is_some() { cost } else { 0 };
        return HitCounts { shadow, ..counts };
    }
    let decided_by = verdict.decided_by.and_then(|place| policies.get(place));
    let quota = decided_by.and_then(|policy| policy.quota);
    let (Some(quota), Some(left)) = (quota, verdict.remaining) else { return counts };
    let used = i64::try_from(quota).unwrap_or(i64::MAX).saturating_sub(left);
    let is_near = u64::try_from(used).is_ok_and(|used| used > near.count(quota));
    HitCounts { near: if is_near { cost } else { 0 }, ..counts }
}

fn whole(cost: u64, over: bool) -> HitCounts {
    match over {
        true => HitCounts { over: cost, ..HitCounts::default() },
        false => HitCounts { within: cost, ..HitCounts::default() },
    }
}

/// Whether the rule denied the hit, or would have.
fn is_over(verdict: &Verdict) -> bool {
    !verdict.shadow.unwrap_or(verdict.outcome).is_allowed()
}

impl NearLimit {
    /// From this share on, between 0 and 1; the default if it is not a number.
    pub(super) const fn new(ratio: f32) -> Self {
        Self { ratio: if ratio.is_nan() { NEAR_LIMIT_RATIO } else { ratio.clamp(0.0, 1.0) } }
    }

    #[inline]
    fn count(self, limit: u64) -> u64 {
        // Signed: processors convert those to floats and back in one instruction.
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        ((limit as f32 * self.ratio) as i64).unsigned_abs()
    }
}

impl HitCounters {
    #[inline]
    pub(super) fn add(&self, counts: HitCounts) {
        let counters = self.0.mine();
        let HitCounts { within, over, below, near, shadow } = counts;
        add(&counters.within, within);
        if over | below | near | shadow > 0 {
            add(&counters.over, over);
            add(&counters.below, below);
            add(&counters.near, near);
            add(&counters.shadow, shadow);
        }
    }

    pub(super) fn read(&self) -> HitCounts {
        let sum = |counter: fn(&RuleCounters) -> &AtomicU64| self.0.sum(counter);
        HitCounts {
            within: sum(|one| &one.within),
            over: sum(|one| &one.over),
            below: sum(|one| &one.below),
            near: sum(|one| &one.near),
            shadow: sum(|one| &one.shadow),
        }
    }
}

impl HitCounts {
    /// All hits.
    pub(super) const fn hits(self) -> u64 {
        self.within.wrapping_add(self.over).wrapping_add(self.below)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.combine(other, u64::wrapping_add)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.combine(other, u64::wrapping_sub)
    }

    fn combine(self, other: Self, operation: fn(u64, u64) -> u64) -> Self {
        Self {
            within: operation(self.within, other.within),
            over: operation(self.over, other.over),
            below: operation(self.below, other.below),
            near: operation(self.near, other.near),
            shadow: operation(self.shadow, other.shadow),
        }
    }
}

impl From<HitCounts> for Stats {
    fn from(counts: HitCounts) -> Self {
        let HitCounts { within, over, near, shadow, .. } = counts;
        Self {
            total_hits: counts.hits(),
            over_limit: over,
            near_limit: near,
            within_limit: within,
            shadow_mode: shadow,
        }
    }
}

impl Default for HitCounters {
    fn default() -> Self {
        Self(Striped::new(RuleCounters::default))
    }
}

#[inline]
fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_32_bit_floats() {
        let near = NearLimit::new(NEAR_LIMIT_RATIO);
        let all = [(0, 0), (1, 0), (5, 4), (10, 8), (14, 11), (15, 12), (16_777_217, 13_421_773)];
        for (limit, due) in all {
            assert_eq!(near.count(limit), due, "of {limit}");
        }
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        let of_ten = |ratio| NearLimit::new(ratio).count(10);
        assert_eq!([of_ten(-1.0), of_ten(7.0), of_ten(f32::INFINITY)], [0, 10, 10]);
        assert_eq!(of_ten(f32::NAN), 8);
    }
}
