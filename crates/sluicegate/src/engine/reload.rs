//! Replacing the rules while they are in use.
//!
//! The new set is compiled beside the old one. A rule that was there before, by its name or by the way to it, keeps what is
//! kept of everybody; where its limits have changed, what was used stays used. Then one pointer is exchanged. Whoever asks from
//! there on is judged by the new rules alone: the first to come to a part of the memory moves it to the new limits, and the rest is
//! moved by whoever reloads. Whoever was already on its way is matched by the old rules, and judged by whichever
//! limits it finds: there is no moment without any.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_core::mode::Mode;
use sluicegate_rules::rule::RuleConfig;
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::Engine;
use super::live::{Live, Seat, check_all};
use crate::limit::LimitError;

/// What a reload came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reloaded {
    /// Rules that are as they were.
    pub same: usize,
    /// Rules whose limits or mode are others now.
    pub changed: usize,
    /// Rules that were not there before.
    pub added: usize,
    /// Rules that are not there any more.
    pub removed: usize,
}

// === impl Engine ===

impl Engine {
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
    /// When a rule's mode has no meaning for one of its limits; then nothing has changed.
    pub fn reload(&self, rules: RuleSet) -> Result<Reloaded, LimitError> {
        check_all(&rules)?;
        // One at a time, until everybody has moved.
        let _reloading = self.inner.reloading.lock();
        let old = self.inner.live.load_full();
        let Joined { seats, moved, newly_elastic, removed, reloaded } = join(&old, &rules);
        let live = Arc::new(Live::new(rules, seats));
        // A limiter that somebody makes from here on, by the old rules, is moved by the first who comes with the new ones.
        let moved: Vec<_> = moved
            .into_iter()
            .filter_map(|no| {
                let limiter = live.seats[no.index()].kept.limiter()?;
                Some((limiter, live.rule(no), live.rules.rule(no).overflow))
            })
            .collect();
        // Nobody writes states down under limits that they do not belong to any more. Nobody else holds more than one of these
        // locks, or waits for one while it holds another.
        let _held: Vec<_> = moved.iter().map(|(limiter, ..)| limiter.hold_changes()).collect();
        self.exchange(&live, &newly_elastic);
        removed.iter().for_each(|no| old.seats[no.index()].kept.retire());
        let now = self.now();
        for (limiter, rule, overflow) in &moved {
            limiter.follow(rule, *overflow, now);
        }
        // What was restored before there were rules for it.
        live.take_over_restored(&self.inner.store);
        Ok(reloaded)
    }

    fn exchange(&self, live: &Arc<Live>, newly_elastic: &[RuleNo]) {
        let load = self.inner.load.lock();
        newly_elastic.iter().for_each(|no| live.hear_first(*no, *load));
        self.inner.live.store(live.clone());
    }
}

/// The old rules and the new, side by side.
struct Joined {
    seats: Box<[Seat]>,
    /// The new rules whose limits are not those of the old ones.
    moved: Vec<RuleNo>,
    /// The new rules that are elastic and were not.
    newly_elastic: Vec<RuleNo>,
    /// The old rules that are no more.
    removed: Vec<RuleNo>,
    reloaded: Reloaded,
}

fn join(old: &Live, rules: &RuleSet) -> Joined {
    let mut before: HashMap<String, RuleNo> =
        old.rules.rules().map(|no| (old.rules.stable_key(no), no)).collect();
    let (mut moved, mut newly_elastic) = (Vec::new(), Vec::new());
    let mut reloaded = Reloaded::default();
    let mut seats = Vec::with_capacity(rules.rules().len());
    let is_elastic = |rule: &RuleConfig| matches!(rule.mode, Mode::Elastic { .. });
    for no in rules.rules() {
        // What is taken is not there for another of the same name.
        let was = before.remove(&rules.stable_key(no));
        let was_elastic = was.is_some_and(|was| is_elastic(old.rules.rule(was)));
        if is_elastic(rules.rule(no)) && !was_elastic {
            newly_elastic.push(no);
        }
        let Some(was) = was else {
            reloaded.added += 1;
            seats.push(Seat::default());
            continue;
        };
        let seat = &old.seats[was.index()];
        if is_same(old.rules.rule(was), rules.rule(no)) {
            reloaded.same += 1;
            seats.push(seat.kept_on());
        } else {
            reloaded.changed += 1;
            seats.push(seat.changed());
            moved.push(no);
        }
    }
    reloaded.removed = before.len();
    let removed = before.into_values().collect();
    Joined { seats: seats.into(), moved, newly_elastic, removed, reloaded }
}

/// Whether everybody is judged alike.
fn is_same(old: &RuleConfig, new: &RuleConfig) -> bool {
    old.limits == new.limits && old.mode == new.mode && old.overflow == new.overflow
}
