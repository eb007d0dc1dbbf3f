//! Holds: bookings that can be cancelled and reservations to be settled.

use super::step_state::StepState;
use crate::algorithm::concurrency::Holder;
use crate::algorithm::{FORGET_AFTER, Ticket, clock_slack};
use crate::arithmetic::clamp_amount;
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::op::Refusal;
use crate::time::{Span, Timestamp};

/// Maximum number of bookings and reservations that one identity may have pending.
pub const HOLDS_MAX: usize = 10_000;

/// All holds, in order of creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Holds {
    all: Vec<Hold>,
}

/// A charge held under an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) holder: Holder,
    pub(super) kind: HoldKind,
    pub(super) cost: u64,
    /// One for each step of the plan.
    pub(super) receipts: Vec<Receipt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldKind {
    /// An acquire, cancellable until `turn`, which is common to all identities of its request.
    Booking { made: Timestamp, turn: Timestamp },
    /// A reservation, cancelled automatically at its deadline. `used` of it is final.
    Reservation { deadline: Timestamp, ttl: Span, used: u64 },
    /// A reservation past its deadline, kept so that a late commit is charged and not refused.
    Expired { deadline: Timestamp },
}

/// The charges to one step, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Receipt {
    pub(super) plain: Option<Ticket>,
    pub(super) boost: Option<Ticket>,
}

impl Holds {
    /// Holds with distinct ids.
    pub(super) const fn new(all: Vec<Hold>) -> Self {
        Self { all }
    }

    pub(super) fn all(&self) -> &[Hold] {
        &self.all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a hold may be added under this id.
    pub(super) fn check_add(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        let pending = |hold: &Hold| hold.is_pending(now);
        if self.all.iter().any(|hold| hold.holder == holder && pending(hold)) {
            return Err(Refusal::HolderInUse);
        }
        if self.all.len() >= HOLDS_MAX
            && self.all.iter().filter(|h| pending(h)).count() >= HOLDS_MAX
        {
            return Err(Refusal::TooManyHolds { max: HOLDS_MAX });
        }
        Ok(())
    }

    pub(super) fn contains(&self, holder: Holder, now: Timestamp) -> bool {
        self.find(holder, now).is_some()
    }

    pub(super) fn check_commit(&self, holder: Holder, now: Timestamp) -> Result<(), Refusal> {
        match self.find(holder, now) {
            None => Err(Refusal::UnknownHolder),
            Some(Hold { kind: HoldKind::Booking { .. }, .. }) => Err(Refusal::NotReserved),
            Some(_) => Ok(()),
        }
    }

    /// Whether the hold under an id can be renewed; false if there is none.
    pub(super) fn check_renew(&self, holder: Holder, now: Timestamp) -> Result<bool, Refusal> {
        match self.find(holder, now).map(|hold| hold.kind) {
            None => Ok(false),
            Some(HoldKind::Booking { .. }) => Ok(true),
            Some(HoldKind::Reservation { deadline, .. }) if deadline > now => Ok(true),
            Some(HoldKind::Reservation { .. } | HoldKind::Expired { .. }) => Err(Refusal::Expired),
        }
    }

    /// Restarts the deadline of the hold under an id, from its turn on if that has not come.
    pub(super) fn renew(&mut self, holder: Holder, ttl: Span, now: Timestamp) -> bool {
        let Some(hold) = self.all.iter_mut().find(|hold| hold.holder == holder) else {
            return false;
        };
        let (from, used) = match hold.kind {
            HoldKind::Booking { turn, .. } => (turn.max(now), 0),
            HoldKind::Reservation { used, .. } => (now, used),
            HoldKind::Expired { .. } => return false,
        };
        hold.kind = HoldKind::Reservation { deadline: from.after(ttl), ttl, used };
        true
    }

    /// Adds to the final part of a reservation; returns the amount that exceeds it, and the rest
    /// that stays reserved.
    pub(super) fn use_part(&mut self, holder: Holder, amount: u64) -> Option<(u64, u64)> {
        let hold = self.all.iter_mut().find(|hold| hold.holder == holder)?;
        let HoldKind::Reservation { used, .. } = &mut hold.kind else { return Some((amount, 0)) };
        let before = *used;
        *used = clamp_amount(before.saturating_add(amount));
        let rest = hold.cost.saturating_sub(*used);
        Some((exceeding(*used, hold.cost).saturating_sub(exceeding(before, hold.cost)), rest))
    }

    /// The hold under an id, unless it is forgotten or about to be.
    fn find(&self, holder: Holder, now: Timestamp) -> Option<&Hold> {
        self.all.iter().find(|hold| hold.holder == holder && !hold.is_too_old(now))
    }

    /// Adds a hold, replacing a finished one under the same id.
    pub(super) fn add(&mut self, hold: Hold, now: Timestamp) {
        self.all.retain(|other| other.holder != hold.holder);
        if self.all.len() >= HOLDS_MAX {
            // Full, but not of pending holds: the oldest finished one makes room.
            if let Some(over) = self.all.iter().position(|hold| !hold.is_pending(now)) {
                self.all.remove(over);
            }
        }
        self.all.push(hold);
    }

    /// Drops all refundable charges: the limits were filled.
    pub(super) fn void(&mut self, now: Timestamp) {
        for hold in &mut self.all {
            hold.receipts.fill(Receipt::default());
            match &mut hold.kind {
                // No charge is left.
                HoldKind::Booking { made, turn } => *turn = *made,
                kind @ HoldKind::Reservation { .. } => *kind = HoldKind::Expired { deadline: now },
                HoldKind::Expired { .. } => {}
            }
        }
    }

    /// Removes the hold under an id; returns it with the index of the next one.
    pub(super) fn take(&mut self, holder: Holder) -> Option<(usize, Hold)> {
        let index = self.all.iter().position(|hold| hold.holder == holder)?;
        Some((index, self.all.remove(index)))
    }

    /// Adjusts the reservations made after `from`: something charged to `step` before them was
    /// refunded.
    pub(super) fn shift_tickets(
        &mut self,
        from: usize,
        (index, step): (usize, &EnforcedLimit),
        (before, after): (&StepState, &StepState),
    ) {
        let later = self.all.iter_mut().skip(from).filter(|hold| hold.deadline().is_some());
        for receipt in later.filter_map(|hold| hold.receipts.get_mut(index)) {
            if let Some(ticket) = &mut receipt.plain {
                step.limit.follow(ticket, &before.plain, &after.plain);
            }
            if let (Some(ticket), Some(boost)) = (&mut receipt.boost, &step.boost) {
                boost.follow(ticket, &before.boost, &after.boost);
            }
        }
    }

    /// Marks the first reservation past its deadline as expired; returns it with its index and
    /// deadline.
    pub(super) fn next_expired(&mut self, now: Timestamp) -> Option<(usize, Hold, Timestamp)> {
        self.all.retain(|hold| !hold.is_forgotten(now));
        for hold in &mut self.all {
            hold.follow_clock(now);
        }
        let due = |hold: &Hold| hold.deadline().filter(|deadline| *deadline <= now);
        let all = self.all.iter().enumerate();
        let (index, deadline) = all
            .filter_map(|(index, hold)| due(hold).map(|deadline| (index, deadline)))
            .min_by_key(|(_, deadline)| *deadline)?;
        let hold = self.all.get_mut(index)?;
        let expired = hold.clone();
        hold.kind = HoldKind::Expired { deadline };
        Some((index, expired, deadline))
    }

    /// The last deadline of any reservation.
    pub(super) fn last_deadline(&self) -> Option<Timestamp> {
        self.all.iter().filter_map(Hold::deadline).max()
    }

    /// The last deadline of a reservation charged to this step, with the receipt and the part of
    /// it that is final.
    pub(super) fn last_expiring(&self, index: usize) -> Option<(Timestamp, Receipt, u64)> {
        let charged = |hold: &Hold| {
            let receipt = hold.receipts.get(index).filter(|one| **one != Receipt::default())?;
            Some((hold.deadline()?, *receipt, hold.used()))
        };
        self.all.iter().filter_map(charged).max_by_key(|(deadline, ..)| *deadline)
    }

    /// The interval in which holds do not change by themselves: after a later time one expires,
    /// before an earlier one the clock was set back. `None` without holds.
    pub(super) fn stable_during(&self) -> Option<(Timestamp, Timestamp)> {
        let set_back = self.all.iter().map(Hold::set_back_before).max()?;
        let changes = self.all.iter().map(|hold| hold.deadline().unwrap_or(hold.forgotten_at()));
        Some((set_back, changes.min()?))
    }

    /// When the last hold is forgotten.
    pub(super) fn forgotten_at(&self) -> Timestamp {
        self.all.iter().map(Hold::forgotten_at).max().unwrap_or_default()
    }

    /// Moves the receipts to the new indices of their steps.
    pub(super) fn follow(&mut self, from: &[Option<usize>]) {
        for hold in &mut self.all {
            let receipt = |index: &Option<usize>| {
                index.and_then(|index| hold.receipts.get(index).copied()).unwrap_or_default()
            };
            hold.receipts = from.iter().map(receipt).collect();
            if let (None, HoldKind::Booking { made, turn }) = (hold.slot(), &mut hold.kind) {
                *turn = *made;
            }
        }
    }
}

/// The part of an amount above a maximum.
pub(super) const fn exceeding(amount: u64, max: u64) -> u64 {
    amount.saturating_sub(max)
}

impl Hold {
    /// The part of a reservation that is final already.
    pub(super) const fn used(&self) -> u64 {
        match self.kind {
            HoldKind::Reservation { used, .. } => used,
            HoldKind::Booking { .. } | HoldKind::Expired { .. } => 0,
        }
    }

    fn deadline(&self) -> Option<Timestamp> {
        match self.kind {
            HoldKind::Reservation { deadline, .. } => Some(deadline),
            HoldKind::Booking { .. } | HoldKind::Expired { .. } => None,
        }
    }

    /// A deadline further ahead than its TTL means that the clock was set back.
    fn follow_clock(&mut self, now: Timestamp) {
        if let HoldKind::Reservation { deadline, ttl, .. } = &mut self.kind
            && *deadline > now.after(*ttl).after(clock_slack(*ttl))
        {
            *deadline = now.after(*ttl);
        }
    }

    /// Before this time the clock was set back, as in [`Hold::follow_clock`].
    fn set_back_before(&self) -> Timestamp {
        match self.kind {
            HoldKind::Reservation { deadline, ttl, .. } => {
                deadline.before(ttl).before(clock_slack(ttl))
            }
            HoldKind::Booking { .. } | HoldKind::Expired { .. } => Timestamp::EPOCH,
        }
    }

    /// Whether it holds a charge that may be refunded.
    fn is_pending(&self, now: Timestamp) -> bool {
        match self.kind {
            HoldKind::Booking { .. } => self.slot().is_some_and(|slot| slot > now),
            HoldKind::Reservation { deadline, .. } => deadline > now,
            HoldKind::Expired { .. } => false,
        }
    }

    /// Whether it is forgotten at `now`, or will be after its expiry.
    fn is_too_old(&self, now: Timestamp) -> bool {
        match self.kind {
            HoldKind::Reservation { deadline, .. } => deadline.after(FORGET_AFTER) <= now,
            HoldKind::Booking { .. } | HoldKind::Expired { .. } => self.is_forgotten(now),
        }
    }

    /// Whether it ended long enough ago to be removed. A reservation must expire first.
    fn is_forgotten(&self, now: Timestamp) -> bool {
        self.deadline().is_none() && self.forgotten_at() <= now
    }

    /// When it is forgotten if nothing happens to it until then.
    fn forgotten_at(&self) -> Timestamp {
        let over = match self.kind {
            HoldKind::Booking { turn, .. } => turn,
            HoldKind::Reservation { deadline, .. } | HoldKind::Expired { deadline } => deadline,
        };
        over.after(FORGET_AFTER)
    }

    /// The moment of use of its last charge.
    fn slot(&self) -> Option<Timestamp> {
        let tickets = self.receipts.iter().flat_map(|receipt| [receipt.plain, receipt.boost]);
        tickets.flatten().map(|ticket| ticket.slot()).max()
    }
}

impl Receipt {
    /// The same charges for use at another moment.
    pub(super) fn with_turn(mut self, turn: Timestamp) -> Self {
        for ticket in [&mut self.plain, &mut self.boost].into_iter().flatten() {
            ticket.slot = turn;
        }
        self
    }

    /// Refunds charges beyond `used`; returns the refund, if anything was charged.
    pub(super) fn release(
        &self,
        step: &EnforcedLimit,
        (plain, boost): (&mut State, &mut State),
        used: u64,
        now: Timestamp,
    ) -> Option<u64> {
        let unused = |ticket: &Ticket| ticket.usable().saturating_sub(used);
        if let (Some(limit), Some(ticket)) = (&step.boost, &self.boost) {
            limit.release(boost, ticket, unused(ticket), now);
        }
        self.plain.map(|ticket| step.limit.release(plain, &ticket, unused(&ticket), now))
    }

    /// Cancels a booking.
    pub(super) fn cancel_booking(
        &self,
        step: &EnforcedLimit,
        (plain, boost): (&mut State, &mut State),
        now: Timestamp,
    ) -> Option<u64> {
        if let (Some(limit), Some(ticket)) = (&step.boost, &self.boost) {
            limit.cancel_booking(boost, ticket, now);
        }
        self.plain.map(|ticket| step.limit.cancel_booking(plain, &ticket, now))
    }
}
