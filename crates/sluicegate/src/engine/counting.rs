//! What became of a request, counted by rule.

use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::RuleNo;

use super::check::{Manner, Status, Want, first_alike, most_of};
use super::stats::Added;
use super::{Snapshot, Stats};
use crate::policy::Policy;

/// From which share of a limit on hits are near it, unless told.
pub(super) const NEAR_LIMIT_RATIO: f32 = 0.8;

/// Above how much of a limit a hit is near it. envoyproxy/ratelimit works it out in 32-bit floats, and so it is near at the
/// same hit here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Near {
    ratio: f32,
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// What became of the hits under a rule; of one that nobody came to, nothing.
    ///
    /// A rule that goes on when the rules are replaced goes on counting.
    ///
    /// ```
    /// use sluicegate::rules::domain::{Domain, DescriptorConfig};
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the number is of another set of rules.
    #[must_use]
    pub fn stats(&self, no: RuleNo) -> Stats {
        self.live.seats[no.index()].kept.stats()
    }

    /// What became of the hits under limits that came with their requests, all together.
    ///
    /// ```
    /// # use sluicegate::{Engine, Stats};
    /// let engine = Engine::new(Default::default())?;
    /// assert_eq!(engine.snapshot().override_stats(), Stats::default());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[must_use]
    pub fn override_stats(&self) -> Stats {
        self.engine.overrides.counters().read()
    }

    /// Counts a hit by what was said of it.
    pub fn count(&self, plan: &Plan, statuses: &[Status]) {
        let near = self.engine.near;
        for (place, (step, status)) in plan.steps().iter().zip(statuses).enumerate() {
            let verdict = &status.verdict;
            match self.manner(Want::Hit, step) {
                Manner::Free => {}
                Manner::Override(limit) => {
                    let most = u64::from(limit.requests_per_unit);
                    let added = counted_first(most, near, step.cost, verdict);
                    self.engine.overrides.counters().add(added);
                }
                Manner::Alone(no) => self.count_one(no, step.cost, verdict),
                Manner::Once(no) | Manner::Together(no) => {
                    if first_alike(plan, place) == place {
                        self.count_one(no, most_of(plan, place), verdict);
                    }
                }
            }
        }
    }

    fn count_one(&self, no: RuleNo, cost: u64, verdict: &Verdict) {
        let near = self.engine.near;
        let seat = &self.live.seats[no.index()];
        let added = match &self.live.rules.rule(no).limits {
            Limits::Unlimited => return,
            Limits::Envoy { requests_per_unit, .. } => {
                counted_first(u64::from(*requests_per_unit), near, cost, verdict)
            }
            Limits::Native(_) => all_or_nothing(seat.known_policies(), near, cost, verdict),
        };
        seat.kept.counters().add(added);
    }
}

/// A hit on a limit that counts whatever it says.
fn counted_first(limit: u64, near: Near, cost: u64, verdict: &Verdict) -> Added {
    let cost = cost.min(EXACT_MAX);
    let over = is_over(verdict);
    if verdict.decided_by.is_none() {
        // There was no room for who came, and so no count.
        return whole(cost, over);
    }
    let left = u64::try_from(verdict.remaining.unwrap_or(0)).unwrap_or(0);
    let after = match verdict.beyond {
        0 => limit.saturating_sub(left),
        beyond => limit.saturating_add(beyond),
    };
    let before = after.saturating_sub(cost);
    let from = before.max(near.of(limit));
    if !over {
        return Added { near: after.saturating_sub(from), ..whole(cost, over) };
    }
    let above = after.saturating_sub(before.max(limit));
    Added {
        over: above,
        below: limit.saturating_sub(before),
        near: limit.saturating_sub(from),
        shadow: if verdict.shadow.is_some() { above } else { 0 },
        ..Added::default()
    }
}

/// A hit on limits that are charged only where they admit it.
fn all_or_nothing(policies: &[Policy], near: Near, cost: u64, verdict: &Verdict) -> Added {
    let cost = cost.min(EXACT_MAX);
    let over = is_over(verdict);
    let added = whole(cost, over);
    if over {
        let shadow = if verdict.shadow.is_some() { cost } else { 0 };
        return Added { shadow, ..added };
    }
    let decided_by = verdict.decided_by.and_then(|place| policies.get(place));
    let quota = decided_by.and_then(|policy| policy.quota);
    let (Some(quota), Some(left)) = (quota, verdict.remaining) else { return added };
    let used = i64::try_from(quota).unwrap_or(i64::MAX).saturating_sub(left);
    let is_near = u64::try_from(used).is_ok_and(|used| used > near.of(quota));
    Added { near: if is_near { cost } else { 0 }, ..added }
}

fn whole(cost: u64, over: bool) -> Added {
    match over {
        true => Added { over: cost, ..Added::default() },
        false => Added { within: cost, ..Added::default() },
    }
}

/// Whether the rule denied it, or would have done so.
fn is_over(verdict: &Verdict) -> bool {
    !verdict.shadow.unwrap_or(verdict.outcome).is_allowed()
}

// === impl Near ===

impl Near {
    /// From this share on, between nothing and all; what is no number is the share that it is unless told.
    pub(super) const fn from(ratio: f32) -> Self {
        Self { ratio: if ratio.is_nan() { NEAR_LIMIT_RATIO } else { ratio.clamp(0.0, 1.0) } }
    }

    #[inline]
    fn of(self, limit: u64) -> u64 {
        // Signed, since processors turn those into floats and back in one step.
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        ((limit as f32 * self.ratio) as i64).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_32_bit_floats() {
        let near = Near::from(NEAR_LIMIT_RATIO);
        let all = [(0, 0), (1, 0), (5, 4), (10, 8), (14, 11), (15, 12), (16_777_217, 13_421_773)];
        for (limit, due) in all {
            assert_eq!(near.of(limit), due, "of {limit}");
        }
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        let of_ten = |ratio| Near::from(ratio).of(10);
        assert_eq!([of_ten(-1.0), of_ten(7.0), of_ten(f32::INFINITY)], [0, 10, 10]);
        assert_eq!(of_ten(f32::NAN), 8);
    }
}
