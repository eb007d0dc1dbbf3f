//! Replacing the rules while they are in use.
//!
//! The new set is compiled beside the old one. A rule that was there before, by its name or by the way to it, keeps what is
//! kept of everybody; where its limits have changed, what was used stays used. Then one pointer is exchanged. Whoever asks from
//! there on is judged by the new rules alone: the first to come to a part of the memory moves it to the new limits, and the rest is
//! moved by whoever reloads. Whoever was already on its way is matched by the old rules, and judged by whichever
//! limits it finds: there is no moment without any.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_rules::rule::{Limits, Rule as Written};
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
    /// use sluicegate::rules::domain::{Domain, Node};
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::rules::rule::{Limits, Rule};
    /// use sluicegate::rules::set::RuleSet;
    /// use sluicegate::rules::unit::Unit;
    ///
    /// let rules = |requests_per_unit| {
    ///     let rule = Rule::new(Limits::Envoy { requests_per_unit, unit: Unit::Year });
    ///     let users = Node { rule: Some(rule), ..Node::any("user_id") };
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
        let Joined { seats, moved, reloaded } = join(&old, &rules);
        let live = Arc::new(Live { rules, seats });
        let moved: Vec<_> = moved
            .iter()
            .filter_map(|no| Some((live.seats[no.index()].kept.limiter()?, *no)))
            .collect();
        // Nobody writes states down under limits that they do not belong to any more.
        let _held: Vec<_> = moved.iter().map(|(limiter, _)| limiter.hold_changes()).collect();
        self.inner.live.store(live.clone());
        let now = self.now();
        for (limiter, no) in &moved {
            limiter.follow(live.rule(*no), live.rules.rule(*no).overflow, now);
        }
        Ok(reloaded)
    }
}

/// The old rules and the new, side by side.
struct Joined {
    seats: Box<[Seat]>,
    /// The new rules whose limits are not those of the old ones.
    moved: Vec<RuleNo>,
    reloaded: Reloaded,
}

fn join(old: &Live, rules: &RuleSet) -> Joined {
    let mut before: HashMap<String, RuleNo> =
        old.rules.rules().map(|no| (old.rules.lasting_key(no), no)).collect();
    let mut moved = Vec::new();
    let mut reloaded = Reloaded::default();
    let mut seats = Vec::with_capacity(rules.rules().len());
    for no in rules.rules() {
        // What is taken is not there for another of the same name.
        let Some(was) = before.remove(&rules.lasting_key(no)) else {
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
    Joined { seats: seats.into(), moved, reloaded }
}

/// Whether everybody is judged alike.
fn is_same(old: &Written, new: &Written) -> bool {
    let limits = match (&old.limits, &new.limits) {
        // The name of a limit is part of what the outside is told.
        (Limits::Envoy { .. }, Limits::Envoy { .. }) => old.name == new.name,
        _ => true,
    };
    limits && old.limits == new.limits && old.mode == new.mode && old.overflow == new.overflow
}
