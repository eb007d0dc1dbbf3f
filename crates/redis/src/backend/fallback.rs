//! Decisions without the store, for parts that it did not answer: each rule's own failure policy.
//!
//! The admission rule is that of every other request. Policies that say yes or no come first, then
//! limits that count by themselves, and last those that are charged all together or not at all.
//! What `local` admits is charged to this node's share of the quota that it last observed in the
//! store, and reconciled with the store afterwards (`reconcile`).

use std::sync::Arc;

use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::plan::Plan;
use sluicegate_rules::rule::OnStoreFailure;
use sluicegate_rules::set::RuleNo;

use super::parts::{self, Part};
use super::{SharedEngine, rule_state};
use crate::script::Combine;
use crate::{CallError, Weight};
use sluicegate::Status;
use sluicegate::backend::StoreError;
use sluicegate::backend::UNCOUNTED;
use sluicegate::backend::Want;
use sluicegate::backend::limits_of;
use sluicegate::backend::{Asked, ask_each};
use sluicegate::{Engine, Snapshot};

/// When a client that is denied for want of the store may try again.
const RETRY_AFTER: Span = Span::from_secs(1);

impl SharedEngine {
    /// The most that this node admits for one key of a rule while the store does not answer: its
    /// share of the limit. `None` where another policy applies, or nothing is counted.
    #[must_use]
    pub fn outage_bound(&self, rules: &Snapshot<'_>, no: RuleNo) -> Option<u64> {
        let written = rules.rules().rule(no);
        if written.on_store_failure != OnStoreFailure::Local {
            return None;
        }
        let now = self.engine.now();
        let capacities = limits_of(written);
        let capacity = capacities.iter().filter_map(|limit| limit.at(now).capacity()).min()?;
        let weight = self.weight_of(rules, no).for_limit(capacity, 1, self.store.nodes());
        let share = weight.part_of(i64::try_from(capacity).unwrap_or(i64::MAX));
        // Of a limit that cannot be divided each node has one.
        Some(u64::try_from(share).unwrap_or(0).max(capacity.min(1)))
    }

    /// Decides parts that the store did not answer. `statuses` holds the verdicts of all other
    /// steps.
    pub(super) fn fall_back(
        &self,
        want: Want,
        (rules, plan): (&Snapshot<'_>, &Plan),
        parts: &[&Part<'_>],
        error: &CallError,
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        parts.iter().for_each(|part| self.store.fell_back(part.policy));
        // A rule in shadow mode decides nothing, not even that there is an error.
        let fails = |part: &&&Part<'_>| part.policy == OnStoreFailure::Error && !part.is_shadow;
        if let Some(part) = parts.iter().find(fails) {
            return Err(StoreError { failure: error.into(), descriptor: part.place });
        }
        let now = self.store.store_time();
        for part in parts {
            let verdict = match part.policy {
                OnStoreFailure::Local => continue,
                OnStoreFailure::Deny if !part.is_shadow => denied(want),
                OnStoreFailure::Allow | OnStoreFailure::Deny | OnStoreFailure::Error => UNCOUNTED,
            };
            statuses[part.place].verdict = verdict;
        }
        if parts.iter().any(|part| part.policy == OnStoreFailure::Local) {
            self.store.decides_locally();
        }
        let local = parts.iter().filter(|part| part.policy == OnStoreFailure::Local);
        let (together, alone): (Vec<&Part<'_>>, Vec<&Part<'_>>) =
            local.partition(|part| part.part.combine == Combine::AllOrNothing);
        for part in alone {
            self.decide_locally(want, &[part], now, statuses);
        }
        parts::repeat(plan, |place| rules.is_asked_once(want, place, plan), statuses);
        let is_denied = want == Want::Hit && !rules.is_allowed(statuses);
        let want = if is_denied { Want::Peek } else { want };
        self.decide_locally(want, &together, now, statuses);
        Ok(())
    }

    /// Decides parts from this node's share, all or nothing: each hit costs as much as if it came
    /// to all nodes at once.
    fn decide_locally(
        &self,
        want: Want,
        parts: &[&Part<'_>],
        now: Timestamp,
        statuses: &mut [Status],
    ) {
        for part in parts {
            if let Some(observed) = self.store.local_seed(&part.part) {
                part.asked.replace(observed, now);
                self.charge_peers_leases(part, now);
            }
        }
        let op = |cost| match want {
            Want::Hit => Op::Hit { cost, holder: Some(Engine::new_holder()) },
            Want::Peek => Op::Peek { cost },
            Want::Refund => Op::Refund { cost },
            Want::Reset => Op::Reset,
        };
        let asked: Vec<(Asked<'_>, u64)> =
            parts.iter().map(|part| (part.asked, self.charge_of(want, part))).collect();
        let mut verdicts = Vec::new();
        // A hit that brings its own id and a peek are not refused by any algorithm.
        let _ = ask_each(&asked, &op, now, &mut verdicts);
        let is_admitted = want == Want::Hit && verdicts.iter().all(Verdict::is_allowed);
        for ((part, verdict), (_, charge)) in parts.iter().zip(verdicts).zip(&asked) {
            if is_admitted {
                self.carry_on(part, *charge, now);
            }
            let remaining = verdict.remaining.map(|left| part.weight.part_of(left));
            statuses[part.place].verdict = Verdict { remaining, ..verdict };
        }
    }

    /// A record that was observed when this node last bought a lease lacks what its peers bought
    /// since. By demand that is as much as this node holds, for each of them.
    fn charge_peers_leases(&self, part: &Part<'_>, now: Timestamp) {
        let held = self.leases.held(self.store.hash_of(part.asked.key));
        let peers = part.weight.whole(held).saturating_sub(held);
        if peers > 0 {
            let _ = part.asked.ask(Op::Take { cost: peers }, now);
        }
    }

    /// What a hit under a rule weighs on this node: the limit by the node's share of it, which goes by demand.
    pub(super) fn weight_of(&self, rules: &Snapshot<'_>, no: RuleNo) -> Weight {
        let kept = rules.kept(no);
        let weight = rule_state(rules, no).weight.get_or_init(|| {
            let counted = Arc::downgrade(kept);
            let hits = move || Some(counted.upgrade()?.stats().total_hits);
            self.store.watch_demand(&rules.rules().stable_key(no), hits)
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
        // Another request was charged meanwhile.
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
    charge.min(part.part.capacity().max(part.part.cost))
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
