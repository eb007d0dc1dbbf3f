//! GCRA: a whole limit in one theoretical arrival time (TAT).
//!
//! Think of a bucket that leaks one unit per interval. `tat` is the moment at which everything
//! charged so far has leaked; charging `cost` moves it on by the time of that cost.
//!
//! ```text
//!            now         tat             tat_max = now + full
//!   ----------|-----------|------------------|-------> time
//!             |<- in use->|<---- free ------>|
//! ```
//!
//! A TAT in the past means that nothing is in use, so the state need not be stored. A TAT beyond
//! `tat_max` is a debt or a booking. Three limits are variants of it:
//!
//! - a **bucket** of tokens admits a cost whose TAT stays within `tat_max`;
//! - a **queue** (leaky bucket) does the same and makes the caller wait until `tat`, when the
//!   callers before it have drained;
//! - a **smooth** limiter admits any cost once `tat <= tat_max`: the next caller pays.
//!
//! This is the generic cell rate algorithm (ITU-T I.371) with the fraction of the interval kept,
//! costs above one, and debts. Why the bound holds: in a span from `s` to `e` the first admission
//! leaves `tat >= s + its time`, the last leaves `tat <= e + full`, and the TAT moves by what is
//! charged; so at most `full + (e - s)` worth of units passed in between. A clock that steps back
//! makes `now` smaller and the room with it: fewer pass. (A booking is used at a whole microsecond,
//! rounded up, and keeps the fraction; moments of use may so exceed the exact bound by less than 1
//! µs worth.)

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack, forgotten_at};
use crate::arithmetic::{clamp_amount, muldiv, signed};
use crate::change::CarryOver;
use crate::quota::{ExactTime, Rate};
use crate::time::{Span, Timestamp};

/// A limit whose state is a TAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    pub(crate) rate: Rate,
    pub(crate) variant: Variant,
    /// Units that fit; for a smooth limiter the whole permits it can store.
    pub(crate) capacity: u64,
    /// The time of a full bucket.
    pub(crate) full: ExactTime,
    /// The time in use of a new identity.
    pub(crate) start: ExactTime,
    pub(crate) forget_after: Span,
}

/// The limit that the GCRA implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Bucket,
    Queue,
    Smooth,
}

/// The state of a GCRA limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcraState {
    /// The theoretical arrival time: when everything charged so far has leaked.
    pub tat: ExactTime,
    /// Units added beyond the capacity, spent first. The bucket is full while there are any.
    pub extra: u64,
    /// When the state was last written. Stored only where `tat` does not imply it: in debt, with
    /// extra units, or where a new identity does not start full.
    pub seen: Option<Timestamp>,
    /// Until then a cancelled booking leaves a gap before others, and no second one may be made.
    pub hole_until: Option<Timestamp>,
}

impl Gcra {
    /// Whether a new identity has less than a full bucket.
    #[inline]
    pub(crate) fn starts_partial(&self) -> bool {
        self.start != ExactTime::default()
    }

    /// The TAT, not before `now`.
    fn in_use_until(state: &GcraState, now: Timestamp) -> ExactTime {
        state.tat.max(ExactTime::at(now))
    }

    /// Whether a cost must fit the capacity: a smooth limiter admits any.
    #[inline]
    pub(crate) fn cost_must_fit(&self) -> bool {
        self.variant != Variant::Smooth
    }

    /// Whether an admitted caller waits for its turn.
    #[inline]
    pub(crate) fn is_queue(&self) -> bool {
        self.variant == Variant::Queue
    }

    /// The latest TAT that is not a debt.
    #[inline]
    pub(crate) fn tat_max(&self, now: Timestamp) -> ExactTime {
        self.full.moved_on(now.since(Timestamp::EPOCH))
    }

    /// The earliest moment at which this state can have been written.
    fn written(&self, state: &GcraState) -> Timestamp {
        state.seen.unwrap_or_else(|| self.rate.earlier(state.tat, self.full).ceil())
    }

    /// Stores the time of writing where `tat` does not imply it.
    pub(crate) fn stamp(&self, state: &mut GcraState, now: Timestamp) {
        let needed = self.starts_partial() || state.extra > 0 || state.tat > self.tat_max(now);
        // A clock that stepped back does not make the state older than it is.
        state.seen = needed.then(|| state.seen.map_or(now, |seen| seen.max(now)));
    }

    fn refund_time(&self, state: &mut GcraState, time: ExactTime, now: Timestamp) {
        state.tat = self.rate.earlier(state.tat, time).max(ExactTime::at(now));
        self.stamp(state, now);
    }
}

impl Algorithm for Gcra {
    type State = GcraState;

    fn fresh(&self, now: Timestamp) -> GcraState {
        let tat = self.start.moved_on(now.since(Timestamp::EPOCH));
        GcraState { tat, extra: 0, seen: self.starts_partial().then_some(now), hole_until: None }
    }

    fn advance(&self, state: &mut GcraState, now: Timestamp) {
        let written = self.written(state);
        let slack = clock_slack(self.full.ceil().since(Timestamp::EPOCH));
        if written > now.after(slack) {
            state.tat = state.tat.moved_back(written.since(now));
            state.seen = state.seen.map(|_| now);
        }
        state.hole_until = state.hole_until.filter(|until| *until > now);
    }

    fn expires_at(&self, state: &GcraState) -> Timestamp {
        let drained = state.tat.ceil();
        match state.seen {
            Some(seen) if self.starts_partial() || state.extra > 0 => {
                forgotten_at(seen, drained, self.forget_after)
            }
            _ => drained,
        }
    }

    fn slot(&self, state: &GcraState, cost: u64, now: Timestamp) -> Slot {
        match self.variant {
            Variant::Bucket => {
                let beyond_extra = cost.saturating_sub(state.extra);
                if beyond_extra == 0 {
                    return Slot::At(now);
                }
                if beyond_extra > self.capacity {
                    return Slot::Never { max_cost: self.capacity.saturating_add(state.extra) };
                }
                Slot::At(self.fits_at(state, beyond_extra, now))
            }
            Variant::Queue if cost > self.capacity => Slot::Never { max_cost: self.capacity },
            Variant::Queue => Slot::At(state.tat.ceil().max(now)),
            Variant::Smooth => Slot::At(self.debt_paid_at(state, now)),
        }
    }

    fn ready(&self, state: &GcraState, cost: u64, max_wait: Span, now: Timestamp) -> Slot {
        match (self.variant, self.slot(state, cost, now)) {
            (Variant::Queue, Slot::At(slot)) => {
                Slot::At(self.fits_at(state, cost, now).max(slot.before(max_wait)))
            }
            (_, Slot::At(slot)) => Slot::At(slot.before(max_wait).max(now)),
            (_, never) => never,
        }
    }

    fn hit_max_wait(&self) -> Span {
        if self.variant == Variant::Queue { Span::MAX } else { Span::ZERO }
    }

    fn spend(&self, state: &mut GcraState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        let from_extra = cost.min(state.extra);
        let rest = cost.saturating_sub(from_extra);
        state.extra = state.extra.saturating_sub(from_extra);
        state.tat = self.rate.later(Self::in_use_until(state, now), self.rate.time_of(rest));
        self.stamp(state, now);
        Ticket { charged: cost, slot: at, trace: Trace::Tat(state.tat) }
    }

    fn refund(&self, state: &mut GcraState, amount: u64, now: Timestamp) {
        self.refund_time(state, self.rate.time_of(amount), now);
    }

    fn add_beyond_capacity(&self, state: &mut GcraState, amount: u64, now: Timestamp) {
        let in_use = self.rate.earlier(Self::in_use_until(state, now), ExactTime::at(now));
        // A partly refilled unit counts as in use; its refilled part is lost.
        let filling = self.rate.units_covering(in_use);
        self.refund(state, amount, now);
        let beyond = amount.saturating_sub(filling);
        state.extra = clamp_amount(state.extra.saturating_add(beyond));
        self.stamp(state, now);
    }

    fn cancel_booking(&self, state: &mut GcraState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Tat(booked) = ticket.trace else {
            return 0;
        };
        if now >= ticket.slot {
            return 0;
        }
        let booked_after = self.rate.earlier(state.tat, booked);
        if booked_after > ExactTime::default() {
            // A gap in the middle of a queue cannot be reused: later callers keep their slots, and
            // two in one slot would break the outflow. A bucket can have one gap: the refund less
            // what was booked after it fits beside the later bookings. A second gap would count the
            // same bookings again.
            if self.variant != Variant::Bucket || state.hole_until.is_some() {
                return 0;
            }
            state.hole_until = Some(self.debt_paid_at(state, now));
        }
        let give = self.rate.earlier(self.rate.time_of(ticket.charged), booked_after);
        self.refund_time(state, give, now);
        self.rate.units_in(give)
    }

    fn release(&self, state: &mut GcraState, ticket: &Ticket, amount: u64, now: Timestamp) -> u64 {
        let Trace::Tat(charged) = ticket.trace else { return 0 };
        if self.variant == Variant::Queue && charged != state.tat {
            return 0;
        }
        // What has leaked since is free already.
        let not_run_out = self.rate.earlier(charged, ExactTime::at(now));
        let time = self.rate.time_of(amount).min(not_run_out);
        self.refund_time(state, time, now);
        amount.min(self.rate.units_covering(time))
    }

    fn remaining(&self, state: &GcraState, now: Timestamp) -> i64 {
        let tat_max = self.tat_max(now);
        let until = Self::in_use_until(state, now);
        if until <= tat_max {
            let free = self.rate.units_in(self.rate.earlier(tat_max, until));
            return signed(free.saturating_add(state.extra));
        }
        if self.variant == Variant::Smooth {
            return 0;
        }
        // A clock that stepped back leaves nothing, but makes no debt.
        let tat_max = self.tat_max(self.written(state).max(now));
        let owed = self.rate.units_covering(self.rate.earlier(until, tat_max));
        signed(owed).saturating_neg()
    }

    fn available(&self, state: &GcraState, max: u64, now: Timestamp) -> u64 {
        if self.variant == Variant::Smooth {
            return if self.debt_paid_at(state, now) <= now { max } else { 0 };
        }
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(max)
    }

    fn debt_paid_at(&self, state: &GcraState, now: Timestamp) -> Timestamp {
        self.rate.earlier(state.tat, self.full).ceil().max(now)
    }

    fn full_at(&self, state: &GcraState, now: Timestamp) -> Timestamp {
        state.tat.ceil().max(now)
    }

    fn carry(&self, old: &Self, state: &GcraState, carry: CarryOver, now: Timestamp) -> GcraState {
        if self.variant == Variant::Smooth {
            return self.carry_smooth(old, state, now);
        }
        let in_use = old.rate.earlier(Self::in_use_until(state, now), ExactTime::at(now));
        let used = old.rate.units_covering(in_use);
        let used = match carry {
            // The same interval: the same time is in use, without rounding.
            CarryOver::Used if old.rate.same_interval(&self.rate) => {
                let mut carried = *state;
                self.stamp(&mut carried, now);
                return carried;
            }
            CarryOver::Used => used,
            CarryOver::Remaining => self.used_to_leave(old.remaining(state, now)),
            CarryOver::Proportion => old.rate.share(in_use, old.full, self.capacity),
            CarryOver::Nothing => return self.fresh(now),
        };
        let extra = if carry == CarryOver::Used { state.extra } else { 0 };
        let tat = self.rate.later(ExactTime::at(now), self.rate.time_of(used));
        let mut carried = GcraState { tat, extra, seen: state.seen, hole_until: state.hole_until };
        self.stamp(&mut carried, now);
        carried
    }
}

impl Gcra {
    /// When the TAT after `cost` is within `tat_max`.
    fn fits_at(&self, state: &GcraState, cost: u64, now: Timestamp) -> Timestamp {
        let poured = self.rate.later(Self::in_use_until(state, now), self.rate.time_of(cost));
        self.rate.earlier(poured, self.full).ceil().max(now)
    }

    /// Units in use for `remaining` to be left.
    fn used_to_leave(&self, remaining: i64) -> u64 {
        u64::try_from(signed(self.capacity).saturating_sub(remaining)).unwrap_or(0)
    }

    /// As Guava: booked time stays, stored permits scale with the new maximum.
    ///
    /// Permits are stored as time (`permits x interval`), and so is the maximum: the scaling does
    /// not depend on the rate.
    fn carry_smooth(&self, old: &Self, state: &GcraState, now: Timestamp) -> GcraState {
        let tat_max = old.tat_max(now);
        let tat = if state.tat >= tat_max {
            let booked = old.rate.earlier(state.tat, old.full).ceil();
            self.full.moved_on(booked.since(Timestamp::EPOCH))
        } else {
            let stored = old.rate.earlier(tat_max, Self::in_use_until(state, now)).us();
            let stored = match NonZeroU64::new(old.full.us()) {
                Some(max) => muldiv(stored, self.full.us(), max).quotient,
                None => 0,
            };
            self.tat_max(now).moved_back(Span::from_micros(stored))
        };
        let mut carried = GcraState { tat, extra: 0, seen: state.seen, hole_until: None };
        self.stamp(&mut carried, now);
        carried
    }
}
