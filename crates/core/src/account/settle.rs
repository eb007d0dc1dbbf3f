//! After a charge: refund, commit, cancel and expiry.

use super::holds::{Hold, HoldKind, Receipt, exceeding};
use super::transaction::{Judgement, Transaction};
use super::{Account, Part};
use crate::algorithm::concurrency::Holder;
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::op::{Op, Refusal};
use crate::time::{Span, Timestamp};

impl Transaction<'_, '_> {
    pub(super) fn refund(&mut self, cost: u64, now: Timestamp) -> Judgement {
        let before = self.remaining(now);
        self.each_for(cost, |limit, state, cost| limit.refund(state, cost, now));
        self.enforce_leases(now);
        let gained = |(after, before): (Option<i64>, Option<i64>)| {
            u64::try_from(after?.saturating_sub(before?)).ok()
        };
        let returned = self.remaining(now).into_iter().zip(before).map(gained).collect();
        let mut judged = Judgement::new(self.current_decisions(now));
        judged.returned = returned;
        judged
    }

    /// The remaining quota of each limit.
    fn remaining(&self, now: Timestamp) -> Vec<Option<i64>> {
        self.steps().map(|(step, state)| step.limit.remaining(&state.plain, now)).collect()
    }

    pub(super) fn commit(
        &mut self,
        actual: u64,
        holder: Holder,
        now: Timestamp,
    ) -> Result<Judgement, Refusal> {
        let mut each = Vec::new();
        let mut returned = None;
        for part in &mut *self.parts {
            let actual = part.cost.unwrap_or(actual);
            let mut of_part = vec![None; part.plan.len()];
            let least = part.account.commit(part.plan, actual, holder, now, &mut of_part);
            returned = min(returned, least);
            each.append(&mut of_part);
        }
        Ok(Judgement::new(self.debt_decisions(now)).with_returned(returned.unwrap_or(0), each))
    }

    pub(super) fn commit_part(
        &mut self,
        amount: u64,
        holder: Holder,
        now: Timestamp,
    ) -> Result<Judgement, Refusal> {
        let mut held = None;
        for part in &mut *self.parts {
            let amount = part.cost.unwrap_or(amount);
            let Some((more, rest)) = part.account.holds.use_part(holder, amount) else { continue };
            held = min(held, Some(rest));
            part.account.charge_more(part.plan, more, now);
        }
        Ok(Judgement::new(self.debt_decisions(now)).with_held(held.unwrap_or(0)))
    }

    pub(super) fn cancel(&mut self, holder: Holder, now: Timestamp) -> Result<Judgement, Refusal> {
        let (mut held, mut returned, mut freed) = (false, None, None);
        let mut each = Vec::new();
        for part in &mut *self.parts {
            let mut of_part = vec![None; part.plan.len()];
            freed = freed.max(part.account.free(part.plan, holder, &mut of_part));
            if let Some((after, hold)) = part.account.holds.take(holder) {
                held = true;
                let back = part.account.release(part.plan, &hold, after, now, &mut of_part);
                returned = min(returned, back.map(|back| back.min(hold.cost)));
            }
            each.append(&mut of_part);
        }
        // Slots count as returned only if nothing was booked.
        let returned = match returned.or(freed) {
            Some(returned) => returned,
            None if held => 0,
            None => return Err(Refusal::UnknownHolder),
        };
        Ok(Judgement::new(self.current_decisions(now)).with_returned(returned, each))
    }

    /// Refuses a missing, unknown or used id.
    pub(super) fn check_holder(&self, op: &Op, now: Timestamp) -> Result<(), Refusal> {
        match *op {
            Op::Hit { cost, holder: None } | Op::Acquire { cost, holder: None, .. }
                if cost > 0 && self.plan().any(EnforcedLimit::has_slots) =>
            {
                Err(Refusal::NeedsHolder)
            }
            Op::Acquire { holder: Some(holder), .. } | Op::Reserve { holder, .. } => {
                self.parts.iter().try_for_each(|part| part.account.holds.check_add(holder, now))
            }
            Op::Commit { holder, .. } | Op::CommitPart { holder, .. } => {
                self.check_commit(holder, now)
            }
            Op::Renew { holder, .. } => self.check_renew(holder, now),
            Op::Cancel { holder } => self.check_cancel(holder, now),
            _ => Ok(()),
        }
    }

    /// All identities must know the id. A booking is reported first: an identity with slots only
    /// has no hold.
    fn check_commit(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        let decision =
            || self.parts.iter().map(|part| part.account.holds.check_commit(holder, now));
        if decision().any(|decision| decision == Err(Refusal::NotReserved)) {
            return Err(Refusal::NotReserved);
        }
        decision().reduce(|one, other| one.and(other)).unwrap_or(Err(Refusal::UnknownHolder))
    }

    /// No identity may have an expired reservation, and one that knows the id is enough.
    fn check_renew(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        let mut is_known = false;
        for part in &*self.parts {
            is_known |= part.account.holds.check_renew(holder, now)?
                || part.account.has_slot(part.plan, holder, now);
        }
        if is_known { Ok(()) } else { Err(Refusal::UnknownHolder) }
    }

    /// One identity that knows the id is enough.
    fn check_cancel(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        let knows = |part: &Part<'_>| {
            part.account.holds.contains(holder, now)
                || part.account.has_slot(part.plan, holder, now)
        };
        if self.parts.iter().any(knows) { Ok(()) } else { Err(Refusal::UnknownHolder) }
    }
}

impl Account {
    /// Settles the reservation of `holder` and frees its slots; returns the smallest refund of any
    /// limit, and that of each in `each`.
    fn commit(
        &mut self,
        plan: &[EnforcedLimit],
        actual: u64,
        holder: Holder,
        now: Timestamp,
        each: &mut [Option<u64>],
    ) -> Option<u64> {
        let (after, hold) = self.holds.take(holder)?;
        self.free(plan, holder, each);
        let expired = matches!(hold.kind, HoldKind::Expired { .. });
        let reserved = if expired { 0 } else { hold.cost };
        let total = actual.saturating_add(hold.used());
        let none = Receipt::default();
        let mut returned = None;
        for (index, (step, state)) in plan.iter().zip(&mut self.states).enumerate() {
            let receipt = if expired { &none } else { hold.receipts.get(index).unwrap_or(&none) };
            let before = state.clone();
            let states = (&mut state.plain, &mut state.boost);
            let back = receipt.release(step, states, total, now);
            record(each, index, back);
            returned = min(returned, back);
            self.holds.shift_tickets(after, (index, step), (&before, state));
        }
        let more = exceeding(total, reserved).saturating_sub(exceeding(hold.used(), reserved));
        self.charge_more(plan, more, now);
        returned
    }

    /// Charges what exceeds a reservation, into debt if need be.
    fn charge_more(&mut self, plan: &[EnforcedLimit], more: u64, now: Timestamp) {
        // Slots have no partial use.
        let steps = plan.iter().zip(&mut self.states).filter(|(step, _)| !step.has_slots());
        for (step, state) in steps.filter(|_| more > 0) {
            step.limit.spend(&mut state.plain, more, now, now);
            if let Some(boost) = &step.boost {
                boost.spend(&mut state.boost, more, now, now);
            }
        }
    }

    /// Restarts the deadline and the leases of what is held under an id.
    pub(super) fn renew_hold(
        &mut self,
        plan: &[EnforcedLimit],
        holder: Holder,
        ttl: Span,
        now: Timestamp,
    ) {
        self.holds.renew(holder, ttl, now);
        self.renew_slots(plan, holder, ttl, now);
    }

    /// Whether a slot is held under an id at `now`.
    fn has_slot(&self, plan: &[EnforcedLimit], holder: Holder, now: Timestamp) -> bool {
        let slots = plan.iter().zip(&self.states).filter(|(step, _)| step.has_slots());
        slots.into_iter().any(|(step, state)| {
            let mut state = state.plain.clone();
            step.limit.open(&mut state, now);
            matches!(state, State::Slots(slots) if slots.holds(holder))
        })
    }

    /// Frees the slots of `holder`; returns how many, if any, and those of each limit in `each`.
    fn free(
        &mut self,
        plan: &[EnforcedLimit],
        holder: Holder,
        each: &mut [Option<u64>],
    ) -> Option<u64> {
        let mut freed = None;
        let states = plan.iter().zip(&mut self.states).enumerate();
        for (index, (step, state)) in states.filter(|(_, (step, _))| step.has_slots()) {
            let slots = step.limit.free(&mut state.plain, holder);
            if let Some(boost) = &step.boost {
                boost.free(&mut state.boost, holder);
            }
            let slots = (slots > 0).then_some(slots);
            record(each, index, slots);
            freed = freed.max(slots);
        }
        freed
    }

    /// Refunds a hold; returns the smallest refund of any limit, and that of each in `each`. Holds
    /// from `after` on were made later.
    fn release(
        &mut self,
        plan: &[EnforcedLimit],
        hold: &Hold,
        after: usize,
        now: Timestamp,
        each: &mut [Option<u64>],
    ) -> Option<u64> {
        let mut returned = None;
        let states = plan.iter().zip(&mut self.states).zip(&hold.receipts);
        for (index, ((step, state), receipt)) in states.enumerate() {
            let before = state.clone();
            let states = (&mut state.plain, &mut state.boost);
            let back = match hold.kind {
                HoldKind::Booking { .. } => receipt.cancel_booking(step, states, now),
                HoldKind::Reservation { used, .. } => receipt.release(step, states, used, now),
                HoldKind::Expired { .. } => Some(0),
            };
            if !step.has_slots() {
                record(each, index, back);
            }
            returned = min(returned, back);
            self.holds.shift_tickets(after, (index, step), (&before, state));
        }
        returned
    }

    pub(super) fn expire_reservations(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        while let Some((index, hold, deadline)) = self.holds.next_expired(now) {
            self.open_states(plan, deadline);
            self.free(plan, hold.holder, &mut []);
            self.release(plan, &hold, index.saturating_add(1), deadline, &mut []);
            self.close_states(plan, deadline);
        }
    }
}

/// Notes the amount that a limit got back, if any, where the caller wants to know.
fn record(each: &mut [Option<u64>], index: usize, amount: Option<u64>) {
    if let (Some(of_limit), Some(amount)) = (each.get_mut(index), amount) {
        *of_limit = Some(amount);
    }
}

/// The smaller of two amounts, if known.
fn min(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
