//! Periodic refill: a level that is raised once per period.
//!
//! ```text
//!   level
//!     5 |--.            .--.           .--
//!       |  '--.         |  '-----.     |        each period adds `refill`, up to `capacity`
//!     0 |     '---------'        '-----'
//!       +---------------|--------------|----> time
//!     anchor         + period       + 2 periods
//! ```
//!
//! A level below zero is a debt or a booking, paid by coming periods first. Three limits are
//! variants:
//!
//! - a **bucket** refilled per interval or aligned to the clock: `refill` may differ from
//!   `capacity`;
//! - a **window**: `refill = capacity`, so each window starts anew. Only a count above the limit (a
//!   debt, or a booking of a coming window) is carried over;
//! - a **cycle** of permits: as a window, except that a booking may use the rest of this cycle and
//!   more from coming ones.
//!
//! A booking in a bucket or a window is a hit at its slot, to the letter: the rest of the periods
//! before it lapses, so that no window ever holds more than its number.

use std::num::NonZeroU64;

use super::period::Period;
pub use super::period::{BadEdges, EDGES_MAX, EDGES_MIN, Edges};
use super::{Algorithm, Slot, Ticket, Trace, clock_slack, forgotten_at};
use crate::arithmetic::{clamp_amount, clamp_signed, signed};
use crate::change::CarryOver;
use crate::quota::{periods, proportion};
use crate::time::{Span, Timestamp};

/// A limit that is refilled once per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic {
    pub(crate) variant: PeriodicVariant,
    pub(crate) capacity: NonZeroU64,
    pub(crate) refill: NonZeroU64,
    pub(crate) period: Period,
    /// The level of an identity never seen before.
    pub(crate) start: u64,
    pub(crate) forget_after: Span,
}

/// The limit that the periodic refill implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeriodicVariant {
    Bucket,
    Window,
    Cycle,
}

/// A level and the start of its period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodicState {
    /// Units left; below zero in debt, above the capacity after a forced addition.
    pub level: i64,
    /// Start of the period that the level belongs to.
    pub anchor: Timestamp,
    /// When the state was last written, stored if a new identity does not start full.
    pub seen: Option<Timestamp>,
    /// Until then a cancelled booking leaves a gap before others, and no second one may be made.
    pub hole_until: Option<Timestamp>,
}

impl Periodic {
    #[inline]
    pub(crate) fn capacity_signed(&self) -> i64 {
        signed(self.capacity.get())
    }

    #[inline]
    pub(crate) fn starts_partial(&self) -> bool {
        self.start < self.capacity.get()
    }

    fn stamp(&self, state: &mut PeriodicState, now: Timestamp) {
        let bonus = self.variant == PeriodicVariant::Bucket && state.level > self.capacity_signed();
        let needed = self.starts_partial() || bonus;
        state.seen = needed.then(|| state.seen.map_or(now, |seen| seen.max(now)));
    }

    /// The level after `refills`.
    fn refilled(&self, level: i64, refills: u64) -> i64 {
        let capacity = self.capacity_signed();
        if refills == 0 {
            return level;
        }
        let short = u64::try_from(capacity.saturating_sub(level)).unwrap_or(0);
        if short == 0 {
            // A forced addition stays in a bucket until used; in a window it ends with it.
            return if self.variant == PeriodicVariant::Bucket { level } else { capacity };
        }
        if refills >= periods(short, self.refill) {
            return capacity;
        }
        clamp_signed(level.saturating_add(signed(refills.saturating_mul(self.refill.get()))))
    }

    /// How many refills lift `level` to `target`.
    fn refills_to(&self, level: i64, target: i64) -> u64 {
        let short = u64::try_from(target.saturating_sub(level)).unwrap_or(0);
        periods(short, self.refill)
    }

    /// When the period of `anchor` has been followed by `refills`.
    fn refill_at(&self, anchor: Timestamp, refills: u64, now: Timestamp) -> Timestamp {
        if refills == 0 { now } else { self.period.nth_after(anchor, refills).max(now) }
    }

    /// The largest refund that leaves the last booking paid for in its own period. A cycle's
    /// booking may have used several periods, and refunds to earlier ones would pay for it too.
    fn spare(&self, level: i64) -> u64 {
        let earlier = self.refills_to(level, 0).saturating_sub(1);
        let paid_earlier = signed(earlier.saturating_mul(self.refill.get()));
        let owed_then = level.saturating_neg().saturating_sub(paid_earlier);
        u64::try_from(owed_then.saturating_sub(1)).unwrap_or(0)
    }

    /// How much was charged after a ticket, beyond what was given back.
    fn charged_since(&self, state: &PeriodicState, ticket: &Ticket) -> u64 {
        let Trace::Level { level, anchor, .. } = ticket.trace else { return 0 };
        let refills = self.period.passed(anchor, state.anchor);
        let untouched = level.saturating_add(signed(refills.saturating_mul(self.refill.get())));
        u64::try_from(untouched.saturating_sub(state.level)).unwrap_or(0)
    }

    fn raise(&self, state: &mut PeriodicState, amount: u64, top: i64, now: Timestamp) {
        let raised = clamp_signed(state.level.saturating_add(signed(amount)));
        state.level = raised.min(top.max(state.level));
        self.stamp(state, now);
    }
}

impl Algorithm for Periodic {
    type State = PeriodicState;

    fn fresh(&self, now: Timestamp) -> PeriodicState {
        let anchor = self.period.start_of(now);
        let seen = self.starts_partial().then_some(now);
        PeriodicState { level: signed(self.start), anchor, seen, hole_until: None }
    }

    fn advance(&self, state: &mut PeriodicState, now: Timestamp) {
        state.hole_until = state.hole_until.filter(|until| *until > now);
        if state.anchor > now.after(clock_slack(self.period.longest())) {
            state.anchor = self.period.start_of(now);
            state.seen = state.seen.map(|_| now);
            return;
        }
        let refills = self.period.passed(state.anchor, now);
        if refills == 0 {
            return;
        }
        let filling = self.refills_to(state.level, self.capacity_signed());
        state.level = self.refilled(state.level, refills);
        state.anchor = match self.variant {
            // A full bucket stores when it became full, from which its expiry counts.
            PeriodicVariant::Bucket if refills >= filling => match filling {
                0 => state.anchor,
                _ => self.period.nth_after(state.anchor, filling),
            },
            _ => self.period.start_after(state.anchor, refills, now),
        };
    }

    fn expires_at(&self, state: &PeriodicState) -> Timestamp {
        let capacity = self.capacity_signed();
        let lapses = self.variant != PeriodicVariant::Bucket && state.level > capacity;
        let refills = if lapses { 1 } else { self.refills_to(state.level, capacity) };
        let full_at = match state.seen {
            Some(_) => self.refill_at(state.anchor, refills, state.anchor),
            None => self.refill_at(state.anchor, refills, Timestamp::EPOCH),
        };
        match state.seen {
            Some(seen) => forgotten_at(seen, full_at, self.forget_after),
            None => full_at,
        }
    }

    fn slot(&self, state: &PeriodicState, cost: u64, now: Timestamp) -> Slot {
        let max = self.capacity_signed().max(state.level);
        if self.variant != PeriodicVariant::Cycle && signed(cost) > max {
            return Slot::Never { max_cost: u64::try_from(max).unwrap_or(0) };
        }
        let refills = self.refills_to(state.level, signed(cost));
        Slot::At(self.refill_at(state.anchor, refills, now))
    }

    fn ready(&self, state: &PeriodicState, cost: u64, max_wait: Span, now: Timestamp) -> Slot {
        match self.slot(state, cost, now) {
            Slot::At(slot) if slot <= now.after(max_wait) => Slot::At(now),
            Slot::At(_) if signed(cost) > self.capacity_signed() => {
                self.ready_across_cycles(state, cost, max_wait, now)
            }
            Slot::At(slot) => Slot::At(slot.before(max_wait).max(now)),
            never @ Slot::Never { .. } => never,
        }
    }

    fn spend(&self, state: &mut PeriodicState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        let capacity = self.capacity_signed();
        if state.level >= capacity && state.anchor < now {
            // The first hit on a full limit begins its period.
            state.anchor = self.period.start_of(now);
        }
        let mut charged = cost;
        if at > now && self.variant != PeriodicVariant::Cycle {
            let refills = self.refills_to(state.level, signed(cost));
            let by_then = signed(refills.saturating_mul(self.refill.get()));
            let lapses = state.level.saturating_add(by_then).saturating_sub(capacity);
            charged = clamp_amount(cost.saturating_add(u64::try_from(lapses).unwrap_or(0)));
        }
        state.level = clamp_signed(state.level.saturating_sub(signed(charged)));
        self.stamp(state, now);
        let trace = Trace::Level { level: state.level, anchor: state.anchor, cost, slot: at };
        Ticket { charged, slot: at, trace }
    }

    fn refund(&self, state: &mut PeriodicState, amount: u64, now: Timestamp) {
        self.raise(state, amount, self.capacity_signed(), now);
    }

    fn add_beyond_capacity(&self, state: &mut PeriodicState, amount: u64, now: Timestamp) {
        self.raise(state, amount, i64::MAX, now);
    }

    fn cancel_booking(&self, state: &mut PeriodicState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Level { cost, slot, .. } = ticket.trace else { return 0 };
        if now >= ticket.slot {
            return 0;
        }
        let booked_after = self.charged_since(state, ticket);
        // A booking in a later period keeps it: a refund now would be paid by an earlier period,
        // and both would then be used in the later one.
        let last = self.refill_at(state.anchor, self.refills_to(state.level, 0), now);
        let give = match booked_after {
            0 => ticket.charged,
            _ if last > slot || state.hole_until.is_some() => 0,
            _ => {
                state.hole_until = Some(last);
                cost.saturating_sub(booked_after).min(self.spare(state.level))
            }
        };
        self.refund(state, give, now);
        give.min(cost)
    }

    fn release(
        &self,
        state: &mut PeriodicState,
        ticket: &Ticket,
        amount: u64,
        now: Timestamp,
    ) -> u64 {
        let Trace::Level { level, anchor, slot, .. } = ticket.trace else { return 0 };
        // Booked in an earlier period, for use in this one.
        let is_due = anchor < state.anchor && state.anchor <= slot && slot <= now;
        if self.variant != PeriodicVariant::Bucket && anchor != state.anchor && !is_due {
            return 0;
        }
        // What was refilled since is free already.
        let refills = self.period.passed(anchor, now);
        let by_now = level.saturating_add(signed(refills.saturating_mul(self.refill.get())));
        let missing = u64::try_from(self.capacity_signed().saturating_sub(by_now)).unwrap_or(0);
        let before = state.level;
        self.refund(state, amount.min(missing), now);
        u64::try_from(state.level.saturating_sub(before)).unwrap_or(0)
    }

    fn remaining(&self, state: &PeriodicState, _now: Timestamp) -> i64 {
        state.level
    }

    fn debt_paid_at(&self, state: &PeriodicState, now: Timestamp) -> Timestamp {
        self.refill_at(state.anchor, self.refills_to(state.level, 0), now)
    }

    fn full_at(&self, state: &PeriodicState, now: Timestamp) -> Timestamp {
        let refills = self.refills_to(state.level, self.capacity_signed());
        self.refill_at(state.anchor, refills, now)
    }

    fn carry(
        &self,
        old: &Self,
        state: &PeriodicState,
        carry: CarryOver,
        now: Timestamp,
    ) -> PeriodicState {
        let capacity = self.capacity_signed();
        let used = old.capacity_signed().saturating_sub(state.level);
        let level = match (carry, self.variant) {
            (CarryOver::Nothing, _) => return self.fresh(now),
            // A cycle keeps its level; the new number applies from the next one.
            (_, PeriodicVariant::Cycle) => state.level,
            (CarryOver::Used, _) => clamp_signed(capacity.saturating_sub(used)),
            (CarryOver::Remaining, _) => state.level.min(capacity),
            (CarryOver::Proportion, _) => {
                let used = u64::try_from(used).unwrap_or(0);
                let scaled = proportion(used, old.capacity.get(), self.capacity.get());
                clamp_signed(capacity.saturating_sub(signed(scaled)))
            }
        };
        let anchor = match (self.period, old.period) {
            (new, old) if new == old => state.anchor,
            // A period that would be over already starts now: usage stays.
            (Period::FirstHit(_), Period::FirstHit(_))
                if self.period.passed(state.anchor, now) == 0 =>
            {
                state.anchor
            }
            (new, _) => new.start_of(now),
        };
        let mut carried =
            PeriodicState { level, anchor, seen: state.seen, hole_until: state.hole_until };
        self.stamp(&mut carried, now);
        carried
    }
}

impl Periodic {
    /// From when on a cost above one cycle's permits gets its turn within `max_wait`.
    ///
    /// The slot stays where it is while the level rises, period by period, so waiting brings it
    /// nearer, until the cycle is full: from then on the slot moves away as fast as time goes by,
    /// and the best moment of a cycle is its last.
    fn ready_across_cycles(
        &self,
        state: &PeriodicState,
        cost: u64,
        max_wait: Span,
        now: Timestamp,
    ) -> Slot {
        let until_full = self.refills_to(state.level, self.capacity_signed());
        if until_full > 0
            && let Slot::At(slot) = self.slot(state, cost, now)
        {
            let near_enough = slot.before(max_wait).max(now);
            if near_enough < self.refill_at(state.anchor, until_full, now) {
                return Slot::At(near_enough);
            }
        }
        let full_from = self.refill_at(state.anchor, until_full, now);
        let more = self.refills_to(self.capacity_signed(), signed(cost));
        let start = self.period.nth_after(state.anchor, until_full);
        let slot = self.period.nth_after(start, more);
        let near_enough = slot.before(max_wait).max(full_from);
        if near_enough < self.period.nth_after(start, 1) {
            return Slot::At(near_enough);
        }
        Slot::Never { max_cost: self.max_cost_within(max_wait) }
    }

    /// The largest cost whose turn can come within `max_wait`: a full cycle and as many more as
    /// start within it, counted from the last moment of a cycle.
    fn max_cost_within(&self, max_wait: Span) -> u64 {
        let length = self.period.longest().as_micros();
        let starts = max_wait.as_micros().saturating_add(length).saturating_sub(1);
        let cycles = starts.checked_div(length).unwrap_or(0).saturating_add(1);
        clamp_amount(cycles.saturating_mul(self.capacity.get()))
    }
}
