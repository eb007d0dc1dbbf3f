//! A request that is settled later, with its counters in the store.
//!
//! Reservations lie beside the counters, in the store: whichever node is asked can settle them. What lies together is held all or nothing; on a Cluster groups are asked one
//! behind the other, and one that denies has what was held before it cancelled.

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::plan::{List, Plan};
use sluicegate_rules::request::Request;
use sluicegate_rules::rule::{Consistency, OnStoreFailure};

use super::SharedEngine;
use super::parts::{self, Part};
use crate::OperationError;
use crate::script::Combine;
use sluicegate::backend::UNCOUNTED;
use sluicegate::backend::{Manner, Want, first_alike};
use sluicegate::{Checked, HoldError, Snapshot};

type OpOf<'a> = &'a (dyn Fn(u64) -> Op + Sync);

impl SharedEngine {
    /// As [`Snapshot::reserve`].
    ///
    /// # Errors
    /// When something that it is under cannot be reserved, or the store does not answer and a rule does not say that everything or nothing passes then.
    pub async fn reserve_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        ttl: Span,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let op = |cost| Op::Reserve { cost, ttl, holder };
        self.hold(&op, rules, request, holder, checked).await?;
        rules.count_unless_listed(checked);
        Ok(())
    }

    /// As [`Snapshot::book`].
    ///
    /// # Errors
    /// As [`SharedEngine::reserve_by`].
    pub async fn book_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        patience: Span,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let op = |cost| Op::Acquire { cost, max_wait: patience, holder: Some(holder) };
        self.hold(&op, rules, request, holder, checked).await?;
        rules.count_unless_listed(checked);
        Ok(())
    }

    /// As [`Snapshot::commit`].
    ///
    /// # Errors
    /// When nothing is held under this id, or the store does not answer.
    pub async fn commit_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        self.settle_held(&|cost| Op::Commit { cost, holder }, rules, request, holder, checked).await
    }

    /// As [`Snapshot::cancel`].
    ///
    /// # Errors
    /// When nothing is held under this id, or the store does not answer.
    pub async fn cancel_by(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        self.settle_held(&|_| Op::Cancel { holder }, rules, request, holder, checked).await
    }

    fn refuse_told(&self, rules: &Snapshot<'_>, plan: &Plan) -> Result<(), HoldError> {
        let is_told = |place: &usize| {
            let step = self.step_at(Want::Hit, rules, plan, *place);
            step.is_some_and(|step| matches!(step.consistency, Consistency::Eventual { .. }))
        };
        let mut places = 0..plan.steps().len();
        match places.find(|place| rules.has_eventual() && is_told(place)) {
            Some(descriptor) => Err(HoldError::Told { descriptor }),
            None => Ok(()),
        }
    }

    /// Asks for all of it, and counts nothing.
    pub(super) async fn hold(
        &self,
        op: OpOf<'_>,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        if let Some(listed) = rules.begin(request, checked) {
            if listed.list == List::Deny {
                checked.deny_listed(listed);
            }
            return Ok(());
        }
        rules.refuse_counting(&checked.plan)?;
        self.refuse_told(rules, &checked.plan)?;
        let now = self.engine.now();
        let Checked { allowed, statuses, plan, .. } = checked;
        let mut held: Vec<Part<'_>> = Vec::new();
        for group in self.held_groups(rules, plan, now) {
            let is_together = group.iter().all(|part| part.part.combine == Combine::AllOrNothing);
            parts::repeat(plan, |_| true, statuses);
            let goes_on = rules.is_allowed(statuses) || !is_together;
            let cost = group.iter().map(|part| part.part.cost).max().unwrap_or(0);
            let op = if goes_on { op(cost) } else { Op::Peek { cost } };
            let asked: Vec<_> = group.iter().map(|part| part.part.clone()).collect();
            match self.store.apply(&asked, op).await {
                Ok(said) => {
                    for (part, verdict) in group.iter().zip(&said.each) {
                        statuses[part.place].verdict = *verdict;
                    }
                    if goes_on && said.answer.verdict.is_allowed() {
                        held.extend(group);
                    }
                }
                Err(OperationError::Refused(refusal)) => {
                    self.cancel_all(held, holder).await;
                    return Err(HoldError::Refused(refusal));
                }
                Err(OperationError::Store(error)) => {
                    for part in &group {
                        match part.policy {
                            OnStoreFailure::Allow => statuses[part.place].verdict = UNCOUNTED,
                            OnStoreFailure::Deny => {
                                statuses[part.place].verdict = super::fallback::denied(Want::Hit);
                            }
                            // What is held here could not be settled elsewhere.
                            OnStoreFailure::Local | OnStoreFailure::Error => {
                                self.cancel_all(held, holder).await;
                                return Err(HoldError::Store((&error).into()));
                            }
                        }
                    }
                }
            }
        }
        parts::repeat(plan, |_| true, statuses);
        *allowed = rules.is_allowed(statuses);
        if !*allowed {
            self.cancel_all(held, holder).await;
        }
        Ok(())
    }

    /// What is held together: quotas each for itself, then the others, by where they lie.
    fn held_groups<'a>(
        &self,
        rules: &'a Snapshot<'_>,
        plan: &'a Plan,
        now: Timestamp,
    ) -> Vec<Vec<Part<'a>>> {
        let parts = self.parts(Want::Hit, rules, plan, now);
        let (together, alone): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.part.combine == Combine::AllOrNothing);
        let mut groups: Vec<Vec<Part<'a>>> = alone.into_iter().map(|part| vec![part]).collect();
        let first = groups.len();
        for part in together {
            let slot = self.store.slot_of(&part.part.key);
            let of_slot = |group: &&mut Vec<Part<'a>>| {
                group.first().is_some_and(|one| self.store.slot_of(&one.part.key) == slot)
            };
            match groups[first..].iter_mut().find(of_slot) {
                Some(group) => group.push(part),
                None => groups.push(vec![part]),
            }
        }
        groups
    }

    async fn cancel_all(&self, held: Vec<Part<'_>>, holder: Holder) {
        for part in held {
            // One that holds nothing says so. If the store is gone it runs out by itself.
            let _ = self.store.apply(&[part.part], Op::Cancel { holder }).await;
        }
    }

    async fn settle_held(
        &self,
        op: OpOf<'_>,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        if rules.begin(request, checked).is_some() {
            return Ok(0);
        }
        let now = self.engine.now();
        let Checked { statuses, plan, .. } = checked;
        let (mut limited, mut returned, mut freed) = (false, None::<u64>, None::<u64>);
        for place in 0..plan.steps().len() {
            let manner = rules.manner(Want::Hit, &plan.steps()[place]);
            if !matches!(manner, Manner::Once(_) | Manner::Together(_)) {
                continue;
            }
            limited = true;
            let first = first_alike(plan, place);
            if first < place {
                statuses[place].verdict = statuses[first].verdict;
                continue;
            }
            let Some(part) = self.part_of(Want::Hit, rules, plan, place, now) else { continue };
            let one = std::slice::from_ref(&part.part);
            let mut settled = self.store.apply(one, op(part.part.cost)).await;
            if matches!(settled, Err(OperationError::Refused(_))) {
                // There may be a slot that came without a reservation.
                settled = self.store.apply(one, Op::Cancel { holder }).await;
            }
            if matches!(settled, Err(OperationError::Refused(_))) {
                settled = self.store.apply(one, Op::Peek { cost: 0 }).await;
            }
            let said = settled.map_err(HoldError::from)?;
            statuses[place].verdict = said.answer.verdict;
            if let Some(back) = said.answer.returned {
                // What a slot was worth is told only where nothing else was held beside it.
                let least = if part.asked.has_slots_only() { &mut freed } else { &mut returned };
                *least = Some(least.map_or(back, |least| least.min(back)));
            }
        }
        match returned.or(freed) {
            Some(returned) => Ok(returned),
            None if limited => Err(HoldError::Unknown),
            None => Ok(0),
        }
    }
}

impl From<OperationError> for HoldError {
    fn from(not: OperationError) -> Self {
        match not {
            OperationError::Store(error) => Self::Store((&error).into()),
            OperationError::Refused(refusal) => Self::Refused(refusal),
        }
    }
}
