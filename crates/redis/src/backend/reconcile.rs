//! Reconciliation of a decision with the store: what was admitted is charged there.
//!
//! ```text
//!                               the store charged it      it did not, or it is unknown
//!   admitted without it         nothing to do             journal: the store absorbs it later
//!   denied without it           stays charged             nothing to do
//! ```
//!
//! A call that missed its deadline is reconciled when its outcome arrives: its request was decided
//! without the store, and the store may have executed it all the same. What it charged for a denied
//! request stays charged. A refund that comes so late would give back tokens that have been
//! refilled meanwhile, and more would pass than the limit allows.

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::plan::Target;
use sluicegate_rules::rule::OnStoreFailure;

use super::parts::Part;
use super::{Group, SharedEngine};
use crate::script::{Combine, ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest};
use crate::{HitError, Store};
use sluicegate::Status;

/// A part of a request that was decided without the store.
struct Decided {
    part: ScriptPart,
    target: Target,
    holder: Option<Holder>,
    is_admitted: bool,
}

impl SharedEngine {
    /// Makes the store charge what was admitted without it, and give back what it charged to a part
    /// of a denied request. In the background: nobody waits for it.
    pub(super) fn reconcile(&self, groups: Vec<Group<'_>>, statuses: &[Status], allowed: bool) {
        let is_one = groups.len() < 2;
        for group in groups {
            match &group.reply {
                // What was decided by one call was charged all or none.
                Ok(_) if allowed || is_one => {}
                Ok(answered) => self.refund(group.parts, answered.allowed),
                Err(_) => self.journal(group, statuses, allowed),
            }
        }
    }

    /// Gives back what was charged to a request that ends with an error.
    pub(super) fn refund_answered(&self, groups: Vec<Group<'_>>) {
        for Group { parts, reply, .. } in groups {
            match reply {
                Ok(answered) => self.refund(parts, answered.allowed),
                Err(HitError { late: Some(late), .. }) => {
                    tokio::spawn(late.decision());
                }
                Err(_) => {}
            }
        }
    }

    /// Refunds the parts that are charged only if all of a request agree.
    fn refund(&self, parts: Vec<Part<'_>>, is_charged: bool) {
        let parts = parts.into_iter().map(|part| part.part);
        let parts: Vec<ScriptPart> = parts
            .filter(|part| is_charged && part.combine == Combine::AllOrNothing)
            .map(|part| ScriptPart { combine: Combine::Independent, ..part })
            .collect();
        if !parts.is_empty() {
            let store = self.store.clone();
            tokio::spawn(async move {
                let ask = ScriptRequest { parts, op: ScriptOp::Refund, holder: None, count: 1 };
                // If that fails too, a little less passes than might.
                let _ = store.refund(ask).await;
            });
        }
    }

    fn journal(&self, group: Group<'_>, statuses: &[Status], allowed: bool) {
        let admitted = group.admitted(statuses, allowed);
        let Group { parts, holder, reply } = group;
        let decided = parts.into_iter().zip(admitted).map(|(part, is_admitted)| Decided {
            part: part.part,
            target: part.target,
            holder,
            is_admitted,
        });
        let decided: Vec<Decided> = decided.collect();
        let Err(HitError { late: Some(late), .. }) = reply else {
            return journal(&self.store, &decided, None);
        };
        let store = self.store.clone();
        // Also where nothing was admitted: what the store charged is observed.
        tokio::spawn(async move {
            let decision = late.decision().await;
            journal(&store, &decided, decision.as_ref());
        });
    }
}

impl Group<'_> {
    /// Which parts were charged to this node's local shares.
    fn admitted(&self, statuses: &[Status], allowed: bool) -> Vec<bool> {
        let verdict = |part: &Part<'_>| &statuses[part.place].verdict;
        // All counters of a rule in shadow mode are charged, or none of them.
        let rule_agrees = |target: Target| {
            let its = self.parts.iter().filter(|part| part.target == target);
            its.into_iter().all(|part| agrees(verdict(part)))
        };
        let is_admitted = |part: &Part<'_>| {
            part.policy == OnStoreFailure::Local
                && match part.part.combine {
                    _ if part.part.counts_first() => true,
                    Combine::Independent | Combine::Quota => agrees(verdict(part)),
                    Combine::AllOrNothing => allowed && rule_agrees(part.target),
                }
        };
        self.parts.iter().map(is_admitted).collect()
    }
}

/// Whether a verdict charges: shadow limits let everything pass, and charge only what they would
/// have let pass.
fn agrees(verdict: &Verdict) -> bool {
    verdict.is_allowed() && verdict.shadow.as_ref().is_none_or(Outcome::is_allowed)
}

/// Journals what was admitted, unless the store has charged it.
fn journal(store: &Store, decided: &[Decided], decision: Option<&ScriptAnswer>) {
    let rule_agrees = |target: Target, verdicts: &[Verdict]| {
        let its = decided.iter().zip(verdicts).filter(|(one, _)| one.target == target);
        its.into_iter().all(|(_, verdict)| agrees(verdict))
    };
    for (place, one) in decided.iter().enumerate().filter(|(_, one)| one.is_admitted) {
        let is_charged = decision.is_some_and(|answered| match one.part.combine {
            _ if one.part.counts_first() => true,
            Combine::Independent | Combine::Quota => agrees(&answered.verdicts[place]),
            Combine::AllOrNothing => {
                answered.allowed && rule_agrees(one.target, &answered.verdicts)
            }
        });
        if !is_charged {
            store.journal(&one.part, one.holder);
        }
    }
}
