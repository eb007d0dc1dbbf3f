//! Reconciliation of a decision with the store: what the store charged and what was admitted are made the same.
//!
//! ```text
//!                       the store charged it     it did not, or nobody knows
//!   admitted locally    nothing to do            journal: the store absorbs it later
//!   denied              refund                   nothing to do
//! ```
//!
//! A call that missed its deadline is reconciled when its outcome arrives: its request was decided without the store, and the store may have executed it all the same.

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::plan::Under;
use sluicegate_rules::rule::OnStoreFailure;

use super::parts::Part;
use super::{Group, SharedEngine};
use crate::engine::check::Status;
use crate::redis::script::{Answered, Ask, AskPart, ShortOp, Stand};
use crate::redis::{Store, Unanswered};

/// A part of a request that was decided, and what has to become of it in the store.
struct Decided {
    part: AskPart,
    under: Under,
    holder: Option<Holder>,
    due: Due,
}

/// Whether a part has to be charged in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Charged,
    Uncharged,
    /// Both are right: nothing was promised.
    Either,
}

impl SharedEngine {
    /// Makes the store charge what was admitted, and nothing else. In the background: nobody waits for it. Without statuses nothing was decided, and the client
    /// got an error.
    pub(super) fn reconcile(
        &self,
        groups: Vec<Group<'_>>,
        statuses: Option<&[Status]>,
        allowed: bool,
    ) {
        let is_one = groups.len() < 2;
        for group in groups {
            // Parts that were decided by one call are charged all or none.
            if group.reply.is_ok() && (allowed || is_one) {
                continue;
            }
            let dues = match statuses {
                Some(statuses) => group.dues(statuses, allowed),
                None => group.dues_of_error(),
            };
            let Group { parts, holder, reply } = group;
            let decided = parts.into_iter().zip(dues).map(|(part, due)| Decided {
                part: part.part,
                under: part.under,
                holder,
                due,
            });
            let decided: Vec<Decided> = decided.collect();
            match reply {
                Ok(answered) => self.settle_later(decided, async { Some(answered) }),
                Err(Unanswered { late: Some(late), .. }) => {
                    self.settle_later(decided, late.decision());
                }
                Err(Unanswered { late: None, .. }) => {
                    let charged = vec![false; decided.len()];
                    journal(&self.store, &decided, &charged);
                }
            }
        }
    }

    fn settle_later(
        &self,
        decided: Vec<Decided>,
        decision: impl Future<Output = Option<Answered>> + Send + 'static,
    ) {
        let store = self.store.clone();
        tokio::spawn(async move { settle(&store, decided, decision.await).await });
    }
}

impl Group<'_> {
    /// What has to become of each part in the store.
    fn dues(&self, statuses: &[Status], allowed: bool) -> Vec<Due> {
        let verdict = |part: &Part<'_>| &statuses[part.place].verdict;
        let is_local =
            |part: &Part<'_>| part.policy == OnStoreFailure::Local && self.reply.is_err();
        // All counters of a rule in shadow mode are charged, or none of them.
        let rule_agrees = |under: Under| {
            let its = self.parts.iter().filter(|part| part.under == under);
            its.into_iter().all(|part| agrees(verdict(part)))
        };
        let due = |part: &Part<'_>| match part.part.stand {
            _ if counts_always(part) && is_local(part) => Due::Charged,
            _ if counts_always(part) => Due::Either,
            Stand::Quota if !verdict(part).is_allowed() => Due::Uncharged,
            Stand::Quota if !is_local(part) => Due::Either,
            Stand::Quota => Due::of(agrees(verdict(part))),
            _ if !allowed => Due::Uncharged,
            _ if !is_local(part) => Due::Either,
            _ => Due::of(rule_agrees(part.under)),
        };
        self.parts.iter().map(due).collect()
    }
}

impl Group<'_> {
    /// The same for a request that got an error.
    fn dues_of_error(&self) -> Vec<Due> {
        let due = |part: &Part<'_>| match counts_always(part) {
            true => Due::Either,
            false => Due::Uncharged,
        };
        self.parts.iter().map(due).collect()
    }
}

impl Due {
    const fn of(is_charged: bool) -> Self {
        if is_charged { Self::Charged } else { Self::Uncharged }
    }
}

/// Whether a part is charged whatever the verdict.
fn counts_always(part: &Part<'_>) -> bool {
    part.part.stand == Stand::Alone || part.part.counts_first()
}

/// Whether a verdict charges: shadow limits let everything pass, and charge only what they would have let pass.
fn agrees(verdict: &Verdict) -> bool {
    let shadow = verdict.shadow.as_ref();
    verdict.is_allowed() && shadow.is_none_or(Outcome::is_allowed)
}

async fn settle(store: &Store, decided: Vec<Decided>, decision: Option<Answered>) {
    let charged = match &decision {
        None => vec![false; decided.len()],
        Some(answered) => charged_by(&decided, answered),
    };
    journal(store, &decided, &charged);
    let refunds = decided.into_iter().zip(charged);
    let refunds = refunds.filter(|(one, charged)| *charged && one.due == Due::Uncharged);
    let parts: Vec<AskPart> =
        refunds.map(|(one, _)| AskPart { stand: Stand::Alone, ..one.part }).collect();
    if !parts.is_empty() {
        // If that fails too, a little less passes than might.
        let ask = Ask { parts, op: ShortOp::Refund, holder: None, count: 1 };
        let _ = store.refund(ask).await;
    }
}

fn journal(store: &Store, decided: &[Decided], charged: &[bool]) {
    for (one, charged) in decided.iter().zip(charged) {
        if !charged && one.due == Due::Charged {
            store.journal(&one.part, one.holder);
        }
    }
}

/// Which parts the store charged.
fn charged_by(decided: &[Decided], answered: &Answered) -> Vec<bool> {
    let verdicts = &answered.verdicts;
    let rule_agrees = |under: Under| {
        let its = decided.iter().zip(verdicts).filter(|(one, _)| one.under == under);
        its.into_iter().all(|(_, verdict)| agrees(verdict))
    };
    let is_charged = |(one, verdict): (&Decided, &Verdict)| match one.part.stand {
        Stand::Alone | Stand::Quota => one.part.counts_first() || agrees(verdict),
        Stand::Together => answered.allowed && rule_agrees(one.under),
    };
    decided.iter().zip(verdicts).map(is_charged).collect()
}
