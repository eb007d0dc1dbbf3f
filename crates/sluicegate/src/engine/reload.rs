//! Replacement of the rules while they are in use.
//!
//! The new set is compiled beside the old one. A rule that existed before, by its name or its path,
//! keeps its states; where its limits changed, what was used stays used. Then one pointer is
//! swapped. Later requests are decided by the new rules: the first to touch a shard moves it to the
//! new limits, and the reload moves the rest. A request in flight is matched by the old rules and
//! decided by the limits that it finds: there is no moment without limits.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_core::mode::Mode;
use sluicegate_rules::rule::RuleConfig;
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::active_rules::{ActiveRules, RuleSlot, check_all, refuse_reserved};
use super::{Engine, unmatched};
use crate::limit::LimitError;

/// Result of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reloaded {
    /// Rules with the same limits and settings.
    pub same: usize,
    /// Rules with other limits or another setting.
    pub changed: usize,
    /// New rules.
    pub added: usize,
    /// Removed rules.
    pub removed: usize,
    /// Domains with any change, also of lists, of descriptors without limits and of what a rule
    /// matches.
    pub domains: usize,
}

impl<B: ?Sized> Engine<B> {
    /// Replaces all rules, in one step.
    ///
    /// ```
    /// use sluicegate::Engine;
    /// use sluicegate::rules::domain::{Domain, DescriptorConfig};
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::rules::rule::{Limits, RuleConfig};
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::rules::unit::Unit;
    ///
    /// let rules = |requests_per_unit| {
    ///     let rule = RuleConfig::new(Limits::Envoy { requests_per_unit, unit: Unit::Year });
    ///     let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user_id") };
    ///     RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])
    /// };
    /// let engine = Engine::new(rules(10)?)?;
    /// let entries = [Entry::new("user_id", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "shop", descriptors: &descriptors, hits: 8 };
    /// assert_eq!(engine.check(&request).statuses[0].verdict.remaining, Some(2));
    ///
    /// assert_eq!(engine.reload(rules(20)?)?.changed, 1);
    /// assert_eq!(engine.check(&request).statuses[0].verdict.remaining, Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a limit of a rule does not support its mode or consistency, or a domain is reserved.
    /// Then nothing has changed.
    pub fn reload(&self, rules: RuleSet) -> Result<Reloaded, LimitError> {
        refuse_reserved(&rules)?;
        check_all(&rules)?;
        // One at a time, until all states have moved.
        let _reloading = self.state.reloading.lock();
        let old = self.state.active.load_full();
        let Joined { slots, moved, newly_elastic, removed, reloaded } = join(&old, &rules);
        let unmatched = unmatched::counters(&rules, Some(&old));
        let active = Arc::new(ActiveRules::new(
            rules,
            slots,
            unmatched,
            &self.state.values,
            &self.state.metering,
        ));
        // A limiter that a request creates from here on by the old rules is moved by the first
        // request with the new ones.
        let moved: Vec<_> = moved
            .into_iter()
            .filter_map(|no| {
                let limiter = active.slots[no.index()].state.limiter()?;
                Some((limiter, active.rule(no), active.rules.rule(no).overflow))
            })
            .collect();
        // No state is saved under limits that it does not belong to any more. No other thread holds
        // two of these locks, so they cannot deadlock.
        let _held: Vec<_> = moved.iter().map(|(limiter, ..)| limiter.hold_changes()).collect();
        self.exchange(&active, &newly_elastic);
        removed.iter().for_each(|no| old.slots[no.index()].state.retire());
        let now = self.now();
        for (limiter, rule, overflow) in &moved {
            limiter.follow(rule, *overflow, now);
        }
        // States that were restored before there were rules for them.
        active.adopt_restored(&self.state.store);
        Ok(reloaded)
    }

    fn exchange(&self, active: &Arc<ActiveRules>, newly_elastic: &[RuleNo]) {
        let load = self.state.load.lock();
        newly_elastic.iter().for_each(|no| active.signal_last_load(*no, *load));
        self.state.active.store(active.clone());
    }
}

/// The old rules and the new, compared.
struct Joined {
    slots: Box<[RuleSlot]>,
    /// New rules with other limits than before.
    moved: Vec<RuleNo>,
    /// New rules that are elastic and were not.
    newly_elastic: Vec<RuleNo>,
    /// Old rules that were removed.
    removed: Vec<RuleNo>,
    reloaded: Reloaded,
}

fn join(old: &ActiveRules, rules: &RuleSet) -> Joined {
    let mut before: HashMap<String, RuleNo> =
        old.rules.rules().map(|no| (old.rules.stable_key(no), no)).collect();
    let (mut moved, mut newly_elastic) = (Vec::new(), Vec::new());
    let mut reloaded = Reloaded::default();
    let mut slots = Vec::with_capacity(rules.rules().len());
    let is_elastic = |rule: &RuleConfig| matches!(rule.mode, Mode::Elastic { .. });
    for no in rules.rules() {
        // Each old rule has one successor.
        let was = before.remove(&rules.stable_key(no));
        let was_elastic = was.is_some_and(|was| is_elastic(old.rules.rule(was)));
        if is_elastic(rules.rule(no)) && !was_elastic {
            newly_elastic.push(no);
        }
        let Some(was) = was else {
            reloaded.added += 1;
            slots.push(RuleSlot::default());
            continue;
        };
        let slot = &old.slots[was.index()];
        let (was, rule) = (old.rules.rule(was), rules.rule(no));
        *(if was == rule { &mut reloaded.same } else { &mut reloaded.changed }) += 1;
        if has_same_limits(was, rule) {
            slots.push(slot.unchanged());
        } else {
            slots.push(slot.changed());
            moved.push(no);
        }
    }
    reloaded.removed = before.len();
    reloaded.domains = changed_domains(&old.rules, rules);
    let removed = before.into_values().collect();
    Joined { slots: slots.into(), moved, newly_elastic, removed, reloaded }
}

/// Whether states of the old rule are states of the new one.
fn has_same_limits(old: &RuleConfig, new: &RuleConfig) -> bool {
    old.limits == new.limits && old.mode == new.mode && old.overflow == new.overflow
}

/// The number of domains that differ, those that only one of them has included.
fn changed_domains(old: &RuleSet, new: &RuleSet) -> usize {
    let mut before: HashMap<&str, u64> = old.domain_digests().collect();
    let mut changed = 0;
    for (name, digest) in new.domain_digests() {
        changed += usize::from(before.remove(name) != Some(digest));
    }
    changed + before.len()
}
