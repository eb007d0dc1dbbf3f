//! What is said in the place of a store that does not answer: each rule's own policy.

use std::sync::Arc;

use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::rule::OnStoreFailure;
use sluicegate_rules::set::RuleNo;

use super::parts::Part;
use super::{SharedEngine, StoreError};
use crate::engine::check::Want;
use crate::engine::{Engine, Snapshot};
use crate::limiter::{Asked, ask_each};
use crate::memory::UNCOUNTED;
use crate::redis::script::Stand;
use crate::redis::{CallError, Weight};

/// When whoever is denied for want of the store may try again.
const RETRY_AFTER: Span = Span::from_secs(1);

impl SharedEngine {
    /// Answers for parts that the store did not answer.
    pub(super) fn fall_back(
        &self,
        want: Want,
        parts: &[Part<'_>],
        error: &CallError,
        now: Timestamp,
        mut tell: impl FnMut(usize, Verdict),
    ) -> Result<(), StoreError> {
        parts.iter().for_each(|part| self.store.fell_back(part.policy));
        let told = |part: &&Part<'_>| part.policy == OnStoreFailure::Error;
        if let Some(part) = parts.iter().find(told) {
            return Err(StoreError { error: error.clone(), descriptor: part.place });
        }
        let mut local = Vec::new();
        for part in parts {
            match part.policy {
                OnStoreFailure::Allow | OnStoreFailure::Error => tell(part.place, UNCOUNTED),
                OnStoreFailure::Deny => tell(part.place, denied(want)),
                OnStoreFailure::Local => local.push(part),
            }
        }
        self.ask_locally(want, &local, now, tell);
        Ok(())
    }

    /// Asks this node's own memory for its share: as if every hit came to all nodes at once.
    fn ask_locally(
        &self,
        want: Want,
        parts: &[&Part<'_>],
        now: Timestamp,
        mut tell: impl FnMut(usize, Verdict),
    ) {
        let op = |cost| match want {
            Want::Hit => Op::Hit { cost, holder: Some(Engine::new_holder()) },
            Want::Peek => Op::Peek { cost },
            Want::Refund => Op::Refund { cost },
            Want::Reset => Op::Reset,
        };
        let (together, alone): (Vec<&&Part<'_>>, Vec<&&Part<'_>>) =
            parts.iter().partition(|part| part.part.stand == Stand::Together);
        let mut is_allowed = true;
        let mut said = Vec::with_capacity(parts.len());
        for part in alone {
            let charge = self.charge_of(want, part);
            let verdict = part.asked.ask(op(charge), now);
            if want == Want::Hit && verdict.is_allowed() {
                self.carry_on(part, charge, now);
            }
            is_allowed &= verdict.is_allowed() || part.part.stand == Stand::Quota;
            said.push((part, verdict));
        }
        let asked: Vec<(Asked<'_>, u64)> =
            together.iter().map(|part| (part.asked, self.charge_of(want, part))).collect();
        let mut each = Vec::new();
        let peek = |cost| Op::Peek { cost };
        // A hit that brings its own id and a peek are not refused by any algorithm.
        let _ = ask_each(&asked, if is_allowed { &op } else { &peek }, now, &mut each);
        is_allowed &= each.iter().all(Verdict::is_allowed);
        if want == Want::Hit && is_allowed {
            together.iter().zip(&asked).for_each(|(part, (_, charge))| {
                self.carry_on(part, *charge, now);
            });
        }
        said.extend(together.into_iter().zip(each));
        for (part, verdict) in said {
            if want == Want::Hit && is_allowed && verdict.is_allowed() && !part.is_told {
                self.store.write_down(&part.part);
            }
            // In the same measure.
            let remaining = verdict.remaining.map(|left| part.weight.part_of(left));
            tell(part.place, Verdict { remaining, ..verdict });
        }
    }

    /// What the store admits is charged to this node's share too, so that the share is right when it is needed.
    pub(super) fn keep_warm(&self, part: &Part<'_>, now: Timestamp) {
        // A slot of its own would be held until its lease ends, whoever gives back the other.
        if part.policy == OnStoreFailure::Local && !part.asked.has_slots() {
            let charge = self.charge_of(Want::Hit, part);
            // If there is no room left, then there is none.
            if part.asked.hit(charge, now).is_allowed() {
                self.carry_on(part, charge, now);
            }
        }
    }

    /// What a hit under a rule weighs on this node: the limit by the node's share of it, which goes by demand.
    pub(super) fn weight_of(&self, rules: &Snapshot<'_>, no: RuleNo) -> Weight {
        let kept = rules.kept(no);
        let weight = kept.weight.get_or_init(|| {
            let counted = Arc::downgrade(kept);
            let hits = move || Some(counted.upgrade()?.stats().total_hits);
            self.store.watch_demand(&rules.rules().lasting_key(no), hits)
        });
        weight.get()
    }

    /// What a part is charged in this node's own memory.
    fn charge_of(&self, want: Want, part: &Part<'_>) -> u64 {
        match want {
            Want::Hit | Want::Peek | Want::Reset => {
                at_most_all(part, self.store.would_charge(&part.part, part.weight))
            }
            Want::Refund => at_most_all(part, part.weight.whole(part.part.cost)),
        }
    }

    /// A part was charged so much: the next hit of its identity is rounded from there. Only then, or in a limit that is always asked for just those would pass that are rounded down.
    fn carry_on(&self, part: &Part<'_>, charged: u64, now: Timestamp) {
        let due = at_most_all(part, self.store.charge(&part.part, part.weight));
        // Somebody else was charged meanwhile.
        match due.checked_sub(charged) {
            Some(0) => {}
            Some(more) => {
                let _ = part.asked.ask(Op::Charge { cost: more }, now);
            }
            None => {
                let _ = part.asked.ask(Op::Refund { cost: charged - due }, now);
            }
        }
    }
}

/// Of a limit that is smaller than a hit weighs each node has one.
fn at_most_all(part: &Part<'_>, charge: u64) -> u64 {
    let capacities = part.part.charter.steps().iter().filter_map(|step| step.limit().capacity());
    charge.min(capacities.min().unwrap_or(u64::MAX).max(part.part.cost))
}

pub(super) fn denied(want: Want) -> Verdict {
    match want {
        Want::Hit | Want::Peek => {
            let outcome = Outcome::Deny { retry_after: RETRY_AFTER };
            Verdict { outcome, remaining: Some(0), ..UNCOUNTED }
        }
        Want::Refund | Want::Reset => UNCOUNTED,
    }
}
