//! Reconciliation of a decision with the store, which charges the admissions made without it.
//!
//! ```text
//!                               the store charged it      it did not, or that is unknown
//!   admitted without it         nothing to do             journal: the store absorbs it later
//!   denied without it           stays charged             nothing to do
//! ```
//!
//! A call that missed its deadline is reconciled when its outcome arrives: the request was decided
//! without the store, which may still have executed the call. A charge for a denied request is not
//! refunded: so late, a refund would return tokens that have been refilled meanwhile, and more
//! would pass than the limit allows.

use sluicegate::Status;
use sluicegate::backend::{ChargeMode, Combine, charges};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::rule::OnStoreFailure;

use super::steps::RedisStep;
use super::{Group, RedisBackend};
use crate::script::{ScriptAnswer, ScriptOp, ScriptPart, ScriptRequest};
use crate::{HitError, Store};

/// A group of steps that was decided without the store.
struct DecidedGroup {
    parts: Vec<ScriptPart>,
    modes: Vec<(ChargeMode, bool)>,
    holder: Option<Holder>,
    /// Which steps this node's shares were charged for.
    admitted: Vec<bool>,
}

impl RedisBackend {
    /// Charges admissions to the store that were made without it, and refunds its charges for a
    /// denied request. In the background.
    pub(super) fn reconcile(&self, groups: Vec<Group<'_>>, statuses: &[Status], allowed: bool) {
        let is_one = groups.len() < 2;
        for group in groups {
            match &group.reply {
                // One call charges all or nothing.
                Ok(_) if allowed || is_one => {}
                Ok(answer) => self.refund(group.steps, answer.allowed),
                Err(_) => self.journal(group, statuses, allowed),
            }
        }
    }

    /// Refunds the charges of a request that ends with an error.
    pub(super) fn refund_answered(&self, groups: Vec<Group<'_>>) {
        for Group { steps, reply, .. } in groups {
            match reply {
                Ok(answer) => self.refund(steps, answer.allowed),
                Err(HitError { late: Some(late), .. }) => {
                    tokio::spawn(late.decision());
                }
                Err(_) => {}
            }
        }
    }

    /// Refunds the steps that are charged all or nothing.
    fn refund(&self, steps: Vec<RedisStep<'_>>, is_charged: bool) {
        let parts: Vec<ScriptPart> = steps
            .into_iter()
            .map(|step| step.script)
            .filter(|part| is_charged && part.combine == Combine::AllOrNothing)
            .map(|part| ScriptPart { combine: Combine::Independent, ..part })
            .collect();
        if !parts.is_empty() {
            let store = self.store.clone();
            tokio::spawn(async move {
                let op = ScriptOp::Refund;
                // If that fails too, slightly less passes than the limit allows.
                let _ = store.refund(ScriptRequest { parts, op, holder: None, count: 1 }).await;
            });
        }
    }

    fn journal(&self, group: Group<'_>, statuses: &[Status], allowed: bool) {
        let Group { steps, holder, reply } = group;
        let verdicts: Vec<Verdict> =
            steps.iter().map(|step| statuses[step.index].verdict).collect();
        let modes: Vec<_> =
            steps.iter().map(|step| (step.mode, step.script.counts_denied_hits())).collect();
        let is_local = |step: &RedisStep<'_>| step.on_store_failure == OnStoreFailure::Local;
        let charged = charges(&modes, &verdicts, allowed);
        let admitted = steps.iter().zip(charged).map(|(step, charged)| charged && is_local(step));
        let admitted = admitted.collect();
        let parts = steps.into_iter().map(|step| step.script).collect();
        let decided = DecidedGroup { parts, modes, holder, admitted };
        let Err(HitError { late: Some(late), .. }) = reply else {
            return decided.journal(&self.store, None);
        };
        let store = self.store.clone();
        // Also where nothing was admitted: the late reply is observed.
        tokio::spawn(async move {
            let decision = late.decision().await;
            decided.journal(&store, decision.as_ref());
        });
    }
}

impl DecidedGroup {
    /// Journals admissions that the store has not charged.
    fn journal(&self, store: &Store, decision: Option<&ScriptAnswer>) {
        let charged: Vec<bool> = match decision {
            Some(answer) => charges(&self.modes, &answer.verdicts, answer.allowed).collect(),
            None => vec![false; self.parts.len()],
        };
        for ((part, is_admitted), is_charged) in self.parts.iter().zip(&self.admitted).zip(charged)
        {
            if *is_admitted && !is_charged {
                store.journal(part, self.holder);
            }
        }
    }
}
