//! What a node says by itself, without asking the store.
//!
//! ```text
//!   leased      covered by what was bought ahead?                     else the store is asked
//!   eventual    own count and the others', as last heard              if that is too long ago, they are heard first
//!   strict      the store is asked
//! ```
//!
//! Those that this node decides are asked first: whoever they deny need not go further, and what they admitted is taken back here if the store denies. What counts
//! whatever the others say, as Envoy's form does, is asked in any case.

use std::sync::Arc;

use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::RuleNo;

use super::eventual::Eventual;
use super::levels::add;
use super::parts::Part;
use super::{Group, LevelCounters, SharedEngine, rule_state};
use crate::script::Combine;
use sluicegate::Promise;
use sluicegate::Snapshot;
use sluicegate::Status;
use sluicegate::backend::Rule;
use sluicegate::backend::decides_here;
use sluicegate::backend::{Manner, Want, first_alike, most_of};

/// One step of a request, as this node asks itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalStep<'a> {
    pub(super) no: RuleNo,
    pub(super) identity: &'a [u8],
    /// Of the identity, under a secret.
    pub(super) hash: u64,
    pub(super) rule: &'a Arc<Rule>,
    pub(super) consistency: Consistency,
    /// Where it is counted.
    pub(super) counters: &'a Arc<LevelCounters>,
    pub(super) cost: u64,
}

/// What this node says of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Local {
    /// That.
    Said(Verdict, Promise),
    /// That it does not know enough.
    Ask,
}

/// The places of a request that this node has decided by itself. Those beyond the 128th are asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Here {
    said: u128,
    admitted: u128,
    /// Whether any of them denied.
    pub(super) denies: bool,
    /// Whether any other is to be asked.
    pub(super) leaves: bool,
}

/// As many as there are bits.
const PLACES: usize = 128;

// === impl SharedEngine ===

impl SharedEngine {
    /// Asks this node for every step that it may decide.
    #[inline]
    pub(super) fn ask_here(
        &self,
        want: Want,
        rules: &Snapshot<'_>,
        plan: &Plan,
        statuses: &mut [Status],
        ticks: Timestamp,
    ) -> Here {
        let mut here = Here::default();
        let is_only = plan.steps().len() == 1;
        for (place, (step, status)) in plan.steps().iter().zip(statuses).enumerate() {
            let is_free = matches!(rules.manner(want, step), Manner::Free);
            if is_free || first_alike(plan, place) < place {
                continue;
            }
            let local = match self.step_at(want, rules, plan, place) {
                Some(step) => self.say(want, &step, is_only, ticks),
                None => Local::Ask,
            };
            match local {
                Local::Said(verdict, promise) => {
                    here.note(place, verdict.is_allowed());
                    (status.verdict, status.promise) = (verdict, promise);
                }
                Local::Ask => here.leaves = true,
            }
        }
        here
    }

    /// What this node says of a step.
    #[inline]
    pub(super) fn say(
        &self,
        want: Want,
        step: &LocalStep<'_>,
        is_only: bool,
        ticks: Timestamp,
    ) -> Local {
        match (want, step.consistency) {
            (Want::Hit, Consistency::Leased | Consistency::StrictUntilHot) => match is_only {
                true => self.leases.hit(step, ticks),
                false => self.leases.try_hit(step, ticks),
            },
            (Want::Peek, Consistency::Leased | Consistency::StrictUntilHot) => {
                self.leases.peek(step, ticks)
            }
            (Want::Hit, Consistency::Eventual { sync_interval }) => {
                let said = self.eventual.hit(step, sync_interval, ticks);
                add(&step.counters.local, u64::from(said != Local::Ask));
                said
            }
            (Want::Peek, Consistency::Eventual { sync_interval }) => {
                self.eventual.peek(step, sync_interval, ticks)
            }
            _ => Local::Ask,
        }
    }

    /// What this node has admitted of a request happens, or not.
    pub(super) fn settle_here(
        &self,
        here: Here,
        happens: bool,
        rules: &Snapshot<'_>,
        plan: &Plan,
        ticks: Timestamp,
    ) {
        if plan.steps().len() == 1 {
            return;
        }
        for place in here.admitted() {
            let Some(step) = self.step_at(Want::Hit, rules, plan, place) else { continue };
            match (step.consistency, happens) {
                (Consistency::Eventual { .. }, true) => {}
                (Consistency::Eventual { .. }, false) => self.eventual.undo(&step, ticks),
                (_, true) => self.leases.happens(&step),
                (_, false) => self.leases.undo(&step, ticks),
            }
        }
    }

    /// The store is not asked for what this node has decided; nor, where that is a denial, for what is charged only if all agree.
    pub(super) fn leave_out(
        &self,
        want: Want,
        here: Here,
        rules: &Snapshot<'_>,
        plan: &Plan,
        parts: &mut Vec<Part<'_>>,
    ) {
        if !rules.has_local() {
            return;
        }
        let is_in_vain = |part: &Part<'_>| {
            want == Want::Hit && here.denies && part.part.combine == Combine::AllOrNothing
        };
        parts.retain(|part| !here.has(part.place) && !is_in_vain(part));
        if want == Want::Hit {
            let ticks = self.engine.ticks();
            for part in parts {
                if let Some(step) = self.step_at(want, rules, plan, part.place) {
                    self.leases.missed(&step, ticks);
                }
            }
        }
    }

    /// What the store said of those that this node would decide if it could.
    pub(super) fn learn(
        &self,
        want: Want,
        rules: &Snapshot<'_>,
        plan: &Plan,
        groups: &[Group<'_>],
    ) {
        if !rules.has_local() || want == Want::Peek {
            return;
        }
        let ticks = self.engine.ticks();
        for group in groups {
            let Ok(answered) = &group.reply else { continue };
            for (part, verdict) in group.parts.iter().zip(&answered.verdicts) {
                let Some(step) = self.step_at(want, rules, plan, part.place) else { continue };
                match want {
                    Want::Hit => self.leases.answered(&step, verdict, ticks),
                    _ => self.leases.forget_denial(step.hash),
                }
            }
        }
    }

    /// The step at a place as this node asks itself for it, if it may.
    #[inline]
    pub(super) fn step_at<'a>(
        &self,
        want: Want,
        rules: &'a Snapshot<'_>,
        plan: &'a Plan,
        place: usize,
    ) -> Option<LocalStep<'a>> {
        let step = &plan.steps()[place];
        let no = match rules.manner(want, step) {
            Manner::Together(no) | Manner::Once(no) if place < PLACES => no,
            _ => return None,
        };
        let written = rules.rules().rule(no);
        if !decides_here(written) {
            return None;
        }
        let identity = plan.identity(step);
        let asked = rules.asked(no, identity);
        let rule = asked.rule?;
        let is_eventual = matches!(written.consistency, Consistency::Eventual { .. });
        if is_eventual && !Eventual::serves(rule) {
            return None;
        }
        Some(LocalStep {
            no,
            identity,
            hash: self.store.hash_of(identity),
            rule,
            consistency: written.consistency,
            counters: &rule_state(rules, no).levels,
            cost: most_of(plan, place),
        })
    }
}

// === impl Here ===

impl Here {
    /// Nothing was decided here.
    pub(super) fn nothing() -> Self {
        Self { leaves: true, ..Self::default() }
    }

    /// A place is settled, and nothing is to be taken back there.
    pub(super) fn settled(&mut self, place: usize, is_denied: bool) {
        self.said |= 1 << place;
        self.denies |= is_denied;
    }

    /// Whether a place was decided.
    pub(super) const fn has(&self, place: usize) -> bool {
        place < PLACES && self.said & (1 << place) != 0
    }

    pub(super) fn note(&mut self, place: usize, is_admitted: bool) {
        self.said |= 1 << place;
        self.admitted |= u128::from(is_admitted) << place;
        self.denies |= !is_admitted;
    }

    fn admitted(self) -> impl Iterator<Item = usize> {
        (0..PLACES).filter(move |place| self.admitted & (1 << place) != 0)
    }
}
