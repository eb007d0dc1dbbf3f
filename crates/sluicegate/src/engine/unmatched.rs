//! Requests that no rule matches: their number by domain, and their denial where that is chosen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::verdict::Outcome;
use sluicegate_rules::plan::{NoRule, Target};
use sluicegate_rules::set::RuleSet;

use super::active_rules::ActiveRules;
use super::{Checked, Snapshot};

/// Unmatched requests of each domain, in the order of the rules.
pub(super) type UnmatchedCounters = Box<[Arc<AtomicU64>]>;

/// The counters of a new set of rules. A domain that was there before keeps its count.
pub(super) fn counters(rules: &RuleSet, old: Option<&ActiveRules>) -> UnmatchedCounters {
    let before: HashMap<&str, &Arc<AtomicU64>> =
        old.map(|old| old.rules.domains().zip(&old.unmatched).collect()).unwrap_or_default();
    rules
        .domains()
        .map(|name| before.get(name).map(|old| (*old).clone()).unwrap_or_default())
        .collect()
}

impl Snapshot<'_> {
    /// Counts a request that has a descriptor without a rule, unless a list decided it.
    #[inline]
    pub fn count_unmatched(&self, checked: &Checked) {
        if checked.unmatched().is_some() && checked.listed().is_none() {
            let domain = checked.plan.domain_no();
            let of_domain = domain.and_then(|no| self.active.unmatched.get(no.index()));
            let counter = of_domain.map_or(&self.engine.unknown_domains, |counter| counter);
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counted requests with a descriptor that no rule of their domain matches, by domain.
    pub fn unmatched(&self) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.active.unmatched.iter().map(|count| count.load(Ordering::Relaxed));
        self.rules().domains().zip(counts)
    }

    /// Counted requests for domains without rules.
    #[must_use]
    pub fn unknown_domains(&self) -> u64 {
        self.engine.unknown_domains.load(Ordering::Relaxed)
    }
}

impl Checked {
    /// The first descriptor that no rule matches, and the reason.
    #[inline]
    #[must_use]
    pub fn unmatched(&self) -> Option<(usize, NoRule)> {
        self.plan.unmatched()
    }

    /// The same if the request was denied for it.
    #[must_use]
    pub fn denied_unmatched(&self) -> Option<(usize, NoRule)> {
        let is_denied = |index: usize| {
            self.statuses.get(index).is_some_and(|status| !status.verdict.is_allowed())
        };
        self.unmatched().filter(|(index, _)| self.listed().is_none() && is_denied(*index))
    }

    /// Denies the request if a descriptor has no rule. Returns whether that is so.
    #[cold]
    pub(super) fn deny_unmatched(&mut self) -> bool {
        for status in &mut self.statuses {
            if matches!(status.target, Target::None(NoRule::UnknownDomain | NoRule::Unmatched)) {
                status.verdict.outcome = Outcome::Never { max_cost: 0 };
                self.allowed = false;
            }
        }
        !self.allowed
    }
}
