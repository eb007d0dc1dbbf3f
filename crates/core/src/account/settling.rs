//! What comes after a charge: settling, cancelling, running out.

use super::holds::{Hold, Kind, Receipt};
use super::{Account, Answer};
use crate::algorithm::concurrency::Holder;
use crate::mode::Step;
use crate::op::{Op, Refusal};
use crate::time::Timestamp;
use crate::verdict::judge;

impl Account {
    pub(super) fn commit(
        &mut self,
        plan: &[Step],
        actual: u64,
        holder: Holder,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let (after, hold) = self.holds.take(holder).ok_or(Refusal::UnknownHolder)?;
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
            if more > 0 {
                step.limit.spend(&mut cell.plain, more, now, now);
                if let Some(boost) = &step.boost {
                    boost.spend(&mut cell.boost, more, now, now);
                }
            }
        }
        let verdict = judge(&self.in_debt(plan, now));
        Ok(Answer { verdict, taken: None, returned: Some(returned.unwrap_or(0)) })
    }

    pub(super) fn cancel(
        &mut self,
        plan: &[Step],
        holder: Holder,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let hold = self.holds.take(holder);
        let mut freed = None;
        for (step, cell) in plan.iter().zip(&mut self.cells) {
            if step.has_slots() {
                let slots = step.limit.free(&mut cell.plain, holder);
                if let Some(boost) = &step.boost {
                    boost.free(&mut cell.boost, holder);
                }
                freed = freed.max((slots > 0).then_some(slots));
            }
        }
        let returned = match hold {
            Some((after, hold)) => self.give_back(plan, &hold, after, now).min(hold.cost),
            None => freed.ok_or(Refusal::UnknownHolder)?,
        };
        let verdict = judge(&self.as_it_stands(plan, now));
        Ok(Answer { verdict, taken: None, returned: Some(returned) })
    }

    /// Gives back all that can be of a hold; how much the least generous limit returned.
    /// Holds from `after` on were made later.
    fn give_back(&mut self, plan: &[Step], hold: &Hold, after: usize, now: Timestamp) -> u64 {
        let mut returned = None;
        let cells = plan.iter().zip(&mut self.cells).zip(&hold.receipts);
        for (place, ((step, cell), receipt)) in cells.enumerate() {
            let before = cell.clone();
            let states = (&mut cell.plain, &mut cell.boost);
            let back = match hold.kind {
                Kind::Booking => receipt.unbook(step, states, now),
                Kind::Reservation { .. } => receipt.give_back(step, states, 0, now),
                Kind::Expired { .. } => Some(0),
            };
            returned = least(returned, back);
            self.holds.follow_give_back(after, (place, step), (&before, cell));
        }
        returned.unwrap_or(0)
    }

    pub(super) fn expire_reservations(&mut self, plan: &[Step], now: Timestamp) {
        while let Some((place, hold, deadline)) = self.holds.next_expired(now) {
            self.open(plan, deadline);
            self.give_back(plan, &hold, place.saturating_add(1), deadline);
            self.close(plan, deadline);
        }
    }

    /// Refuses what needs an id and has none, or one that cannot be used.
    pub(super) fn check_holder(
        &self,
        plan: &[Step],
        op: &Op,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let has_slots = plan.iter().any(Step::has_slots);
        match *op {
            Op::Hit { cost, holder: None } | Op::Acquire { cost, holder: None, .. }
                if has_slots && cost > 0 =>
            {
                Err(Refusal::NeedsHolder)
            }
            Op::Acquire { holder: Some(holder), .. } | Op::Reserve { holder, .. } => {
                self.holds.may_add(holder, now)
            }
            Op::Commit { holder, .. } => self.holds.may_commit(holder),
            _ => Ok(()),
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
