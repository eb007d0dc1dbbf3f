//! Metering: what identities have used, for audits and bills.
//!
//! ```text
//!   hit, wait      admitted or denied, by the outcome of the whole request
//!   reservation    denied at once; admitted with the actual cost, when it is settled
//!   refund         refunded, with the returned cost
//!   abandoned wait refunded
//! ```
//!
//! A hit that a rule in shadow mode or a soft limit lets pass is admitted. Peeks, resets, credits
//! and lists are not metered, nor are hits that a response with an error left undecided. Without a
//! meter, and for rules that it leaves out, a decision costs nothing.

use std::fmt;
use std::sync::Arc;

use sluicegate_core::time::Timestamp;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::{RuleNo, RuleSet, write_readable};

use super::Snapshot;
use super::admission::{Checked, Status, first_same, largest_cost};

/// Records the usage of identities. Called by the request that causes it, so it must not block.
pub trait UsageMeter: fmt::Debug + Send + Sync {
    /// Whether the usage of a rule is recorded; asked whenever rules are loaded.
    fn is_metered(&self, domain: &str, rule: &str) -> bool;

    /// Records the usage of an identity.
    fn record(&self, usage: &MeteredUsage<'_>);
}

/// What an identity has used.
#[derive(Debug, Clone, Copy)]
pub struct MeteredUsage<'a> {
    rules: &'a RuleSet,
    /// The rule, or the further pool of a rule.
    pub rule: RuleNo,
    /// Identifies the rule for as long as reloads keep it.
    pub rule_serial: usize,
    /// The identity, without the name of a pool.
    pub identity: &'a [u8],
    /// What happened.
    pub kind: UsageKind,
    /// Its cost.
    pub cost: u64,
    /// When.
    pub at: Timestamp,
}

/// What happened to a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageKind {
    /// The request was admitted.
    Admitted,
    /// The request was denied, by this rule or by another one.
    Denied,
    /// It was given back.
    Refunded,
}

/// The meter of an engine, if it has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Metering(pub(super) Option<Arc<dyn UsageMeter>>);

impl Metering {
    pub(super) fn is_metered(&self, rules: &RuleSet, no: RuleNo) -> bool {
        let is_metered =
            |meter: &Arc<dyn UsageMeter>| meter.is_metered(rules.domain_of(no), &rules.id(no));
        self.0.as_ref().is_some_and(is_metered)
    }
}

impl Snapshot<'_> {
    /// Records a hit that was decided by its limits.
    #[inline]
    pub(super) fn meter_hits(&self, plan: &Plan, statuses: &[Status]) {
        if self.active.has_metered {
            let kind = match self.admits(statuses) {
                true => UsageKind::Admitted,
                false => UsageKind::Denied,
            };
            self.meter_plan(plan, statuses, kind);
        }
    }

    /// The same for one that may have been decided by a list.
    pub(super) fn meter_decided(&self, checked: &Checked) {
        if checked.listed().is_none() && checked.denied_unmatched().is_none() {
            self.meter_hits(&checked.plan, &checked.statuses);
        }
    }

    /// Records a refund.
    #[inline]
    pub fn meter_refund(&self, plan: &Plan, statuses: &[Status]) {
        if self.active.has_metered {
            self.meter_plan(plan, statuses, UsageKind::Refunded);
        }
    }

    /// Records the returned cost of booked steps: their indices and costs.
    #[cfg(feature = "tokio")]
    pub(super) fn meter_cancelled(&self, plan: &Plan, steps: &[(usize, u64)]) {
        for (index, cost) in steps {
            self.meter_step(plan, *index, *cost, UsageKind::Refunded);
        }
    }

    /// Records a part of a settlement.
    pub(super) fn meter_settled(&self, plan: &Plan, index: usize, cost: u64) {
        self.meter_step(plan, index, cost, UsageKind::Admitted);
    }

    #[cold]
    fn meter_plan(&self, plan: &Plan, statuses: &[Status], kind: UsageKind) {
        for (index, (step, _)) in plan.steps().iter().zip(statuses).enumerate() {
            let Target::Rule(no) = step.target else { continue };
            // Steps of the same counter are charged once, except in Envoy's form.
            let is_once = matches!(self.rules().rule(no).limits, Limits::Native(_));
            if !is_once {
                self.meter_step(plan, index, step.cost, kind);
            } else if first_same(plan, index) == index {
                self.meter_step(plan, index, largest_cost(plan, index), kind);
            }
        }
    }

    fn meter_step(&self, plan: &Plan, index: usize, cost: u64, kind: UsageKind) {
        let Some(step) = plan.steps().get(index) else { return };
        if let Target::Rule(no) = step.target {
            self.meter(no, plan.identity(step), cost, kind);
        }
    }

    fn meter(&self, no: RuleNo, identity: &[u8], cost: u64, kind: UsageKind) {
        let Some(meter) = &self.engine.metering.0 else { return };
        if cost == 0 || !self.active.slots[no.index()].is_metered {
            return;
        }
        meter.record(&MeteredUsage {
            rules: self.rules(),
            rule: no,
            rule_serial: self.rule_state(no).number(),
            identity: self.rules().without_pool(no, identity),
            kind,
            cost,
            at: self.engine.store.clock.now(),
        });
    }
}

impl MeteredUsage<'_> {
    /// The domain of the rule.
    #[must_use]
    pub fn domain(&self) -> &str {
        self.rules.domain_of(self.rule)
    }

    /// The id of the rule.
    #[must_use]
    pub fn rule_id(&self) -> String {
        self.rules.id(self.rule)
    }

    /// The further pool of the rule, if it is that of one.
    #[must_use]
    pub fn pool(&self) -> Option<&str> {
        self.rules.pool_of(self.rule)
    }
}

/// The entries of an identity, as operators know them: `team=search|model=large`. Separators in
/// values are percent-encoded; values that share a counter are named by their descriptor.
#[must_use]
pub fn descriptor_text(identity: &[u8]) -> String {
    let mut text = Vec::new();
    write_readable(identity, &mut text);
    let text = String::from_utf8_lossy(&text);
    // The first part is the domain.
    text.split_once('|').map_or("", |(_, entries)| entries).to_owned()
}
