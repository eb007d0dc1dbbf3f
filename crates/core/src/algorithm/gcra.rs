//! The meter: a whole limit in one mark.
//!
//! Think of a bucket that leaks one unit per interval. `mark` is the moment it will have run empty
//! of everything poured in so far; pouring in `cost` moves it on by the time of that cost.
//!
//! ```text
//!            now        mark             now + full
//!   ----------|-----------|------------------|-------> time
//!             |<- in use->|<---- free ------>|
//! ```
//!
//! A mark in the past means nothing is in use, so the state need not be kept. A mark beyond
//! `now + full` is a debt or a booking. Three limits are this one machine:
//!
//! - a **bucket** of tokens admits a cost whose mark stays within `now + full`;
//! - a **queue** (leaky bucket) does the same and tells the caller to wait for `mark`, when those
//!   before it have drained;
//! - a **smooth** limiter admits any cost once `mark <= now + full`: the next caller pays.
//!
//! This is the generic cell rate algorithm (ITU-T I.371) with the fraction of the interval kept,
//! costs above one, and debts. Why the bound holds: in a span from `s` to `e` the first admission
//! leaves `mark >= s + its time`, the last leaves `mark <= e + full`, and the mark moves by what is
//! charged; so at most `full + (e - s)` worth of units passed in between. A clock that steps back makes
//! `now` smaller and the room with it: fewer pass. (A booking is used at a whole microsecond, rounded up, and
//! keeps the fraction; moments of use may so exceed the exact bound by less than 1 µs worth.)

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack, forgotten_at};
use crate::arithmetic::{cut_amount, muldiv, signed};
use crate::change::Keep;
use crate::quota::{Mark, Rate};
use crate::time::{Span, Timestamp};

/// A limit that is one mark in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    pub(crate) rate: Rate,
    pub(crate) face: Face,
    /// Units that fit; for a smooth limiter the whole permits it can store.
    pub(crate) capacity: u64,
    /// The time of a full bucket.
    pub(crate) full: Mark,
    /// How much of it is already in use when an identity is new.
    pub(crate) start: Mark,
    pub(crate) forget_after: Span,
}

/// What the meter stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Bucket,
    Queue,
    Smooth,
}

/// The state of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeterState {
    /// When everything poured in so far will have run out.
    pub mark: Mark,
    /// Units added by force beyond the capacity; spent first. The bucket is full while there are any.
    pub extra: u64,
    /// When the state was last written. Kept only where the mark does not tell it: in debt, with
    /// extra units, or where a new identity is not a full one.
    pub seen: Option<Timestamp>,
    /// Until when a cancelled booking has left a hole before others: no second one is made meanwhile.
    pub hole_until: Option<Timestamp>,
}

// === impl Meter ===

impl Meter {
    /// Whether an identity never seen before has less than a full bucket.
    #[inline]
    pub(crate) fn starts_short(&self) -> bool {
        self.start != Mark::default()
    }

    /// The mark as it counts at `now`: what ran out in the past does not.
    fn in_use_until(state: &MeterState, now: Timestamp) -> Mark {
        state.mark.max(Mark::at(now))
    }

    /// Whether a cost has to fit: a smooth limiter grants any.
    #[inline]
    pub(crate) fn pours(&self) -> bool {
        self.face != Face::Smooth
    }

    /// Whether an admitted caller waits for its turn.
    #[inline]
    pub(crate) fn queues(&self) -> bool {
        self.face == Face::Queue
    }

    /// The latest mark that is not a debt.
    #[inline]
    pub(crate) fn brim(&self, now: Timestamp) -> Mark {
        self.full.moved_on(now.since(Timestamp::EPOCH))
    }

    /// The earliest moment at which this state can have been written.
    fn written(&self, state: &MeterState) -> Timestamp {
        state.seen.unwrap_or_else(|| self.rate.earlier(state.mark, self.full).ceil())
    }

    /// Notes the time of writing where the mark alone would not tell it.
    pub(crate) fn stamp(&self, state: &mut MeterState, now: Timestamp) {
        let needed = self.starts_short() || state.extra > 0 || state.mark > self.brim(now);
        // A clock that stepped back does not make the state older than it is.
        state.seen = needed.then(|| state.seen.map_or(now, |seen| seen.max(now)));
    }

    fn give_time(&self, state: &mut MeterState, time: Mark, now: Timestamp) {
        state.mark = self.rate.earlier(state.mark, time).max(Mark::at(now));
        self.stamp(state, now);
    }
}

impl Algorithm for Meter {
    type State = MeterState;

    fn fresh(&self, now: Timestamp) -> MeterState {
        let mark = self.start.moved_on(now.since(Timestamp::EPOCH));
        MeterState { mark, extra: 0, seen: self.starts_short().then_some(now), hole_until: None }
    }

    fn settle(&self, state: &mut MeterState, now: Timestamp) {
        let written = self.written(state);
        let slack = clock_slack(self.full.ceil().since(Timestamp::EPOCH));
        if written > now.after(slack) {
            state.mark = state.mark.moved_back(written.since(now));
            state.seen = state.seen.map(|_| now);
        }
        state.hole_until = state.hole_until.filter(|until| *until > now);
    }

    fn expires_at(&self, state: &MeterState) -> Timestamp {
        let drained = state.mark.ceil();
        match state.seen {
            Some(seen) if self.starts_short() || state.extra > 0 => {
                forgotten_at(seen, drained, self.forget_after)
            }
            _ => drained,
        }
    }

    fn slot(&self, state: &MeterState, cost: u64, now: Timestamp) -> Slot {
        match self.face {
            Face::Bucket => {
                let beyond_extra = cost.saturating_sub(state.extra);
                if beyond_extra == 0 {
                    return Slot::At(now);
                }
                if beyond_extra > self.capacity {
                    return Slot::Never { max_cost: self.capacity.saturating_add(state.extra) };
                }
                Slot::At(self.fits_at(state, beyond_extra, now))
            }
            Face::Queue if cost > self.capacity => Slot::Never { max_cost: self.capacity },
            Face::Queue => Slot::At(state.mark.ceil().max(now)),
            Face::Smooth => Slot::At(self.debt_paid_at(state, now)),
        }
    }

    fn ready(&self, state: &MeterState, cost: u64, patience: Span, now: Timestamp) -> Slot {
        match (self.face, self.slot(state, cost, now)) {
            (Face::Queue, Slot::At(slot)) => {
                Slot::At(self.fits_at(state, cost, now).max(slot.before(patience)))
            }
            (_, Slot::At(slot)) => Slot::At(slot.before(patience).max(now)),
            (_, never) => never,
        }
    }

    fn hit_patience(&self) -> Span {
        if self.face == Face::Queue { Span::MAX } else { Span::ZERO }
    }

    fn spend(&self, state: &mut MeterState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        let from_extra = cost.min(state.extra);
        let rest = cost.saturating_sub(from_extra);
        state.extra = state.extra.saturating_sub(from_extra);
        state.mark = self.rate.later(Self::in_use_until(state, now), self.rate.time_of(rest));
        self.stamp(state, now);
        Ticket { charged: cost, slot: at, trace: Trace::Mark(state.mark) }
    }

    fn put(&self, state: &mut MeterState, amount: u64, now: Timestamp) {
        self.give_time(state, self.rate.time_of(amount), now);
    }

    fn put_beyond(&self, state: &mut MeterState, amount: u64, now: Timestamp) {
        let in_use = self.rate.earlier(Self::in_use_until(state, now), Mark::at(now));
        // A unit that is partly refilled counts as in use: what it had of itself is given up.
        let filling = self.rate.units_covering(in_use);
        self.put(state, amount, now);
        let beyond = amount.saturating_sub(filling);
        state.extra = cut_amount(state.extra.saturating_add(beyond));
        self.stamp(state, now);
    }

    fn unbook(&self, state: &mut MeterState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Mark(booked) = ticket.trace else {
            return 0;
        };
        if now >= ticket.slot {
            return 0;
        }
        let booked_after = self.rate.earlier(state.mark, booked);
        if booked_after > Mark::default() {
            // A hole in the middle of a queue cannot be given to anyone: those behind it keep their
            // slots, and two in one slot would break the outflow. A bucket has room for one hole:
            // what is given back less what was booked after it fits beside them. A second would
            // count the same bookings again.
            if self.face != Face::Bucket || state.hole_until.is_some() {
                return 0;
            }
            state.hole_until = Some(self.debt_paid_at(state, now));
        }
        let give = self.rate.earlier(self.rate.time_of(ticket.charged), booked_after);
        self.give_time(state, give, now);
        self.rate.units_in(give)
    }

    fn unspend(&self, state: &mut MeterState, ticket: &Ticket, amount: u64, now: Timestamp) -> u64 {
        let Trace::Mark(charged) = ticket.trace else { return 0 };
        if self.face == Face::Queue && charged != state.mark {
            return 0;
        }
        // What has run out since is there already.
        let not_run_out = self.rate.earlier(charged, Mark::at(now));
        let time = self.rate.time_of(amount).min(not_run_out);
        self.give_time(state, time, now);
        amount.min(self.rate.units_covering(time))
    }

    fn remaining(&self, state: &MeterState, now: Timestamp) -> i64 {
        let brim = self.brim(now);
        let until = Self::in_use_until(state, now);
        if until <= brim {
            let free = self.rate.units_in(self.rate.earlier(brim, until));
            return signed(free.saturating_add(state.extra));
        }
        if self.face == Face::Smooth {
            return 0;
        }
        // A clock that stepped back leaves nothing, but it makes no debt that was not there.
        let brim = self.brim(self.written(state).max(now));
        let owed = self.rate.units_covering(self.rate.earlier(until, brim));
        signed(owed).saturating_neg()
    }

    fn available(&self, state: &MeterState, most: u64, now: Timestamp) -> u64 {
        if self.face == Face::Smooth {
            return if self.debt_paid_at(state, now) <= now { most } else { 0 };
        }
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(most)
    }

    fn debt_paid_at(&self, state: &MeterState, now: Timestamp) -> Timestamp {
        self.rate.earlier(state.mark, self.full).ceil().max(now)
    }

    fn full_at(&self, state: &MeterState, now: Timestamp) -> Timestamp {
        state.mark.ceil().max(now)
    }

    fn carry(&self, old: &Self, state: &MeterState, keep: Keep, now: Timestamp) -> MeterState {
        if self.face == Face::Smooth {
            return self.carry_smooth(old, state, now);
        }
        let in_use = old.rate.earlier(Self::in_use_until(state, now), Mark::at(now));
        let used = old.rate.units_covering(in_use);
        let used = match keep {
            // The same interval: the very same time is in use, nothing needs rounding.
            Keep::Used if old.rate.same_pace(&self.rate) => {
                let mut carried = *state;
                self.stamp(&mut carried, now);
                return carried;
            }
            Keep::Used => used,
            Keep::Remaining => self.used_to_leave(old.remaining(state, now)),
            Keep::Proportion => old.rate.share(in_use, old.full, self.capacity),
            Keep::Nothing => return self.fresh(now),
        };
        let extra = if keep == Keep::Used { state.extra } else { 0 };
        let mark = self.rate.later(Mark::at(now), self.rate.time_of(used));
        let mut carried =
            MeterState { mark, extra, seen: state.seen, hole_until: state.hole_until };
        self.stamp(&mut carried, now);
        carried
    }
}

impl Meter {
    /// When `cost`, poured in on top of what is in use, stays below the brim.
    fn fits_at(&self, state: &MeterState, cost: u64, now: Timestamp) -> Timestamp {
        let poured = self.rate.later(Self::in_use_until(state, now), self.rate.time_of(cost));
        self.rate.earlier(poured, self.full).ceil().max(now)
    }

    /// How many units must be in use for `remaining` to be left.
    fn used_to_leave(&self, remaining: i64) -> u64 {
        u64::try_from(signed(self.capacity).saturating_sub(remaining)).unwrap_or(0)
    }

    /// As Guava: the time already booked stays, stored permits scale with the new maximum.
    ///
    /// Permits are stored as time here (`permits × interval`), and the maximum is a time, so the
    /// scaling does not depend on the rate at all.
    fn carry_smooth(&self, old: &Self, state: &MeterState, now: Timestamp) -> MeterState {
        let brim = old.brim(now);
        let mark = if state.mark >= brim {
            let booked = old.rate.earlier(state.mark, old.full).ceil();
            self.full.moved_on(booked.since(Timestamp::EPOCH))
        } else {
            let stored = old.rate.earlier(brim, Self::in_use_until(state, now)).us();
            let stored = match NonZeroU64::new(old.full.us()) {
                Some(most) => muldiv(stored, self.full.us(), most).quotient,
                None => 0,
            };
            self.brim(now).moved_back(Span::from_micros(stored))
        };
        let mut carried = MeterState { mark, extra: 0, seen: state.seen, hole_until: None };
        self.stamp(&mut carried, now);
        carried
    }
}
