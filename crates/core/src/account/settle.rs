//! What comes after a charge: settling, cancelling, running out.

use super::holds::{Hold, Kind, Receipt};
use super::transaction::{Desk, Judged};
use super::{Account, Part};
use crate::algorithm::concurrency::Holder;
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::op::{Op, Refusal};
use crate::time::Timestamp;

impl Desk<'_, '_> {
    pub(super) fn commit(
        &mut self,
        actual: u64,
        holder: Holder,
        now: Timestamp,
    ) -> Result<Judged, Refusal> {
        let mut returned = None;
        for part in &mut *self.parts {
            let actual = part.cost.unwrap_or(actual);
            returned = least(returned, part.account.commit(part.plan, actual, holder, now));
        }
        Ok(Judged::by(self.in_debt(now)).returning(returned.unwrap_or(0)))
    }

    pub(super) fn cancel(&mut self, holder: Holder, now: Timestamp) -> Result<Judged, Refusal> {
        let (mut held, mut returned, mut freed) = (false, None, None);
        for part in &mut *self.parts {
            freed = freed.max(part.account.free(part.plan, holder));
            if let Some((after, hold)) = part.account.holds.take(holder) {
                held = true;
                let back = part.account.give_back(part.plan, &hold, after, now);
                returned = least(returned, back.map(|back| back.min(hold.cost)));
            }
        }
        // What a slot was worth is told only where nothing was booked beside it.
        let returned = match returned.or(freed) {
            Some(returned) => returned,
            None if held => 0,
            None => return Err(Refusal::UnknownHolder),
        };
        Ok(Judged::by(self.as_it_stands(now)).returning(returned))
    }

    /// Refuses what needs an id and has none, or one that cannot be used.
    pub(super) fn check_holder(&self, op: &Op, now: Timestamp) -> Result<(), Refusal> {
        match *op {
            Op::Hit { cost, holder: None } | Op::Acquire { cost, holder: None, .. }
                if cost > 0 && self.plan().any(EnforcedLimit::has_slots) =>
            {
                Err(Refusal::NeedsHolder)
            }
            Op::Acquire { holder: Some(holder), .. } | Op::Reserve { holder, .. } => {
                self.parts.iter().try_for_each(|part| part.account.holds.may_add(holder, now))
            }
            Op::Commit { holder, .. } => self.may_commit(holder, now),
            Op::Cancel { holder } => self.may_cancel(holder, now),
            _ => Ok(()),
        }
    }

    /// Unknown to one identity is unknown, whatever the others have reserved. A booking is told first: who has only slots keeps
    /// none.
    fn may_commit(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        let said = || self.parts.iter().map(|part| part.account.holds.may_commit(holder, now));
        if said().any(|said| said == Err(Refusal::NotReserved)) {
            return Err(Refusal::NotReserved);
        }
        said().reduce(|one, other| one.and(other)).unwrap_or(Err(Refusal::UnknownHolder))
    }

    /// Known to one identity is enough.
    fn may_cancel(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        let knows = |part: &Part<'_>| {
            part.account.holds.knows(holder, now) || part.account.has_slot(part.plan, holder, now)
        };
        if self.parts.iter().any(knows) { Ok(()) } else { Err(Refusal::UnknownHolder) }
    }
}

impl Account {
    /// Settles what is reserved under an id, and frees its slots; how much the least generous limit returned.
    fn commit(
        &mut self,
        plan: &[EnforcedLimit],
        actual: u64,
        holder: Holder,
        now: Timestamp,
    ) -> Option<u64> {
        let (after, hold) = self.holds.take(holder)?;
        self.free(plan, holder);
        let expired = matches!(hold.kind, Kind::Expired { .. });
        let reserved = if expired { 0 } else { hold.cost };
        let none = Receipt::default();
        let mut returned = None;
        for (place, (step, cell)) in plan.iter().zip(&mut self.cells).enumerate() {
            let receipt = if expired { &none } else { hold.receipts.get(place).unwrap_or(&none) };
            let before = cell.clone();
            let states = (&mut cell.plain, &mut cell.boost);
            returned = least(returned, receipt.give_back(step, states, actual, now));
            self.holds.follow_give_back(after, (place, step), (&before, cell));
            let more = actual.saturating_sub(reserved);
            // A slot was in use or it was not: there is no more or less of it.
            if more > 0 && !step.has_slots() {
                step.limit.spend(&mut cell.plain, more, now, now);
                if let Some(boost) = &step.boost {
                    boost.spend(&mut cell.boost, more, now, now);
                }
            }
        }
        returned
    }

    /// Whether a slot is held under an id at `now`.
    fn has_slot(&self, plan: &[EnforcedLimit], holder: Holder, now: Timestamp) -> bool {
        let slots = plan.iter().zip(&self.cells).filter(|(step, _)| step.has_slots());
        slots.into_iter().any(|(step, cell)| {
            let mut state = cell.plain.clone();
            step.limit.open(&mut state, now);
            matches!(state, State::Slots(slots) if slots.holds(holder))
        })
    }

    /// Frees the slots held under an id; how many, if any.
    fn free(&mut self, plan: &[EnforcedLimit], holder: Holder) -> Option<u64> {
        let mut freed = None;
        for (step, cell) in plan.iter().zip(&mut self.cells).filter(|(step, _)| step.has_slots()) {
            let slots = step.limit.free(&mut cell.plain, holder);
            if let Some(boost) = &step.boost {
                boost.free(&mut cell.boost, holder);
            }
            freed = freed.max((slots > 0).then_some(slots));
        }
        freed
    }

    /// Gives back all that can be of a hold; how much the least generous limit returned.
    /// Holds from `after` on were made later.
    fn give_back(
        &mut self,
        plan: &[EnforcedLimit],
        hold: &Hold,
        after: usize,
        now: Timestamp,
    ) -> Option<u64> {
        let mut returned = None;
        let cells = plan.iter().zip(&mut self.cells).zip(&hold.receipts);
        for (place, ((step, cell), receipt)) in cells.enumerate() {
            let before = cell.clone();
            let states = (&mut cell.plain, &mut cell.boost);
            let back = match hold.kind {
                Kind::Booking { .. } => receipt.unbook(step, states, now),
                Kind::Reservation { .. } => receipt.give_back(step, states, 0, now),
                Kind::Expired { .. } => Some(0),
            };
            returned = least(returned, back);
            self.holds.follow_give_back(after, (place, step), (&before, cell));
        }
        returned
    }

    pub(super) fn expire_reservations(&mut self, plan: &[EnforcedLimit], now: Timestamp) {
        while let Some((place, hold, deadline)) = self.holds.next_expired(now) {
            self.open_cells(plan, deadline);
            self.free(plan, hold.holder);
            self.give_back(plan, &hold, place.saturating_add(1), deadline);
            self.close_cells(plan, deadline);
        }
    }
}

/// The lesser of two amounts, as far as they are known.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
