//! The sliding window counter: two counts stand in for a log.
//!
//! ```text
//!      previous window          current window
//!   |---------- 5 ----------|----- 3 ---:-----------|
//!                :<------- one window ->:
//!                                      now, 30 % into the current window
//!   estimate = 3 + 5 × 0.7 = 6.5
//! ```
//!
//! The hits of the previous window are taken to be spread evenly over it; that is the whole error
//! of this algorithm. The estimate is floored (6.5 of 7 admits one more) or, for the strict
//! variant, rounded up. With the floor a rolling window can hold more than the limit when the
//! previous window's hits all came late: less than twice the limit in the worst case.
//!
//! A booking is a hit in the window of its slot: the state then belongs to a window that has not
//! begun, and everyone else waits until it fits behind.

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack};
use crate::arithmetic::{cut_amount, muldiv, muldiv_ceil, signed, within};
use crate::change::Keep;
use crate::quota::{QuotaError, Rate, proportion};
use crate::time::{Span, Timestamp};

/// A sliding window counter.
///
/// ```
/// use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(7, Span::from_secs(60)).unwrap();
/// let limit = SlidingWindow::new(rate, Rounding::Floor).unwrap();
/// assert_eq!(limit.rate(), rate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
    window: NonZeroU64,
    rounding: Rounding,
}

/// What happens to a fraction of a hit in the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// It does not count: 6.5 of 7 admits one more.
    #[default]
    Floor,
    /// It counts as a whole hit: the strict variant.
    Up,
}

/// The two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterState {
    /// When the current window began; after a booking, the window it was booked in.
    pub start: Timestamp,
    /// Hits of the window before it.
    pub previous: u64,
    /// Hits of it.
    pub current: u64,
    /// When the state was last written, kept while it belongs to a coming window.
    pub seen: Option<Timestamp>,
}

// === impl SlidingWindow ===

impl SlidingWindow {
    /// At most the rate's number in any window of its period, by estimate.
    ///
    /// # Errors
    /// None today; a rate that cannot be held is refused when it is made.
    pub fn new(rate: Rate, rounding: Rounding) -> Result<Self, QuotaError> {
        let window = crate::quota::length("the window", rate.period())?;
        Ok(Self { rate, window, rounding })
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The rounding.
    #[must_use]
    pub const fn rounding(&self) -> Rounding {
        self.rounding
    }

    fn window_span(&self) -> Span {
        Span::from_micros(self.window.get())
    }

    /// The estimate at `at`, which lies in the state's window.
    fn estimate(&self, state: &CounterState, at: Timestamp) -> u64 {
        let overlap = self.window_span().less(at.since(state.start)).as_micros();
        let weighted = match self.rounding {
            Rounding::Floor => muldiv(state.previous, overlap, self.window).quotient,
            Rounding::Up => muldiv_ceil(state.previous, overlap, self.window),
        };
        cut_amount(state.current.saturating_add(weighted))
    }

    /// The counts as they stand once the window of `at` has begun.
    fn rolled(&self, state: &CounterState, at: Timestamp) -> CounterState {
        let into = at.since(state.start);
        if into < self.window_span() {
            return *state;
        }
        let start = at.aligned(self.window_span());
        let adjacent = start == state.start.after(self.window_span());
        let previous = if adjacent { state.current } else { 0 };
        CounterState { start, previous, current: 0, seen: None }
    }

    /// When, within the state's own window, the estimate first leaves `room` for others; `None` if
    /// not before the window ends.
    fn leaves_room_at(&self, state: &CounterState, room: i64) -> Option<Timestamp> {
        // What the previous window may still weigh.
        let weight = u64::try_from(room.saturating_sub(signed(state.current))).ok()?;
        let Some(previous) = NonZeroU64::new(state.previous) else {
            return Some(state.start);
        };
        // floor(previous × overlap / window) <= weight, solved for the longest overlap.
        let overlap = match self.rounding {
            Rounding::Floor => {
                // previous × overlap < (weight + 1) × window
                muldiv_ceil(weight.saturating_add(1), self.window.get(), previous).saturating_sub(1)
            }
            Rounding::Up => muldiv(weight, self.window.get(), previous).quotient,
        };
        let into = self.window_span().less(Span::from_micros(overlap));
        (into < self.window_span()).then(|| state.start.after(into))
    }

    fn count_of(&self) -> u64 {
        self.rate.count()
    }

    fn stamp(state: &mut CounterState, now: Timestamp) {
        state.seen = (state.start > now).then(|| state.seen.map_or(now, |seen| seen.max(now)));
    }

    /// When `units` more fit, with the state as it stands.
    fn fits_at(&self, state: &CounterState, units: u64, now: Timestamp) -> Timestamp {
        let room = signed(self.count_of()).saturating_sub(signed(units));
        let from = now.max(state.start);
        if let Some(at) = self.leaves_room_at(state, room) {
            // A clock that stepped back into the window before is taken to stand still; a booking
            // in a coming window is not an excuse to overfill the one before.
            let booked_ahead = state.start > now && state.seen.is_some();
            return if at <= from && !booked_ahead { now } else { at.max(now) };
        }
        // Not in this window: the next one weighs it against the hits of this one.
        let next = self.rolled(state, state.start.after(self.window_span()));
        match self.leaves_room_at(&next, room) {
            Some(at) => at.max(now),
            None => next.start.after(self.window_span()).max(now),
        }
    }
}

impl Algorithm for SlidingWindow {
    type State = CounterState;

    fn fresh(&self, now: Timestamp) -> CounterState {
        let start = now.aligned(self.window_span());
        CounterState { start, previous: 0, current: 0, seen: None }
    }

    fn settle(&self, state: &mut CounterState, now: Timestamp) {
        let written = state.seen.unwrap_or(state.start);
        if written > now.after(clock_slack(self.window_span())) {
            let ahead = state.start.since(written);
            state.start = now.after(ahead).aligned(self.window_span());
            state.seen = state.seen.map(|_| now);
        }
        *state = self.rolled(state, now);
    }

    fn expires_at(&self, state: &CounterState) -> Timestamp {
        let windows = match (state.previous, state.current) {
            (0, 0) => return Timestamp::EPOCH,
            (_, 0) => self.window_span(),
            _ => Span::from_micros(self.window.get().saturating_mul(2)),
        };
        state.start.after(windows)
    }

    fn slot(&self, state: &CounterState, cost: u64, now: Timestamp) -> Slot {
        let most = self.count_of();
        if cost > most {
            return Slot::Never { max_cost: most };
        }
        Slot::At(self.fits_at(state, cost, now))
    }

    fn spend(&self, state: &mut CounterState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        let seen = state.seen;
        *state = self.rolled(state, at.max(now));
        state.seen = seen;
        state.current = cut_amount(state.current.saturating_add(cost));
        Self::stamp(state, now);
        let trace = Trace::Count { start: state.start, count: state.current };
        Ticket { charged: cost, slot: at, trace }
    }

    fn put(&self, state: &mut CounterState, amount: u64, now: Timestamp) {
        let from_current = amount.min(state.current);
        state.current = state.current.saturating_sub(from_current);
        state.previous = state.previous.saturating_sub(amount.saturating_sub(from_current));
        Self::stamp(state, now);
    }

    fn unbook(&self, state: &mut CounterState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Count { start, count } = ticket.trace else {
            return 0;
        };
        if now >= ticket.slot {
            return 0;
        }
        let next = start.after(self.window_span());
        let booked_after = if start == state.start {
            state.current.saturating_sub(count)
        } else if next == state.start {
            state.previous.saturating_sub(count).saturating_add(state.current)
        } else {
            return 0;
        };
        self.unspend(state, ticket, ticket.charged.saturating_sub(booked_after), now)
    }

    fn unspend(
        &self,
        state: &mut CounterState,
        ticket: &Ticket,
        amount: u64,
        now: Timestamp,
    ) -> u64 {
        let Trace::Count { start, .. } = ticket.trace else { return 0 };
        let count = if start == state.start {
            &mut state.current
        } else if start.after(self.window_span()) == state.start {
            &mut state.previous
        } else {
            return 0;
        };
        let given = amount.min(*count);
        *count = count.saturating_sub(given);
        Self::stamp(state, now);
        given
    }

    fn remaining(&self, state: &CounterState, now: Timestamp) -> i64 {
        let estimate = self.estimate(state, now.max(state.start));
        within(signed(self.count_of()).saturating_sub(signed(estimate)))
    }

    fn available(&self, state: &CounterState, most: u64, now: Timestamp) -> u64 {
        // A state that belongs to a coming window leaves nothing for now.
        if state.start > now && state.seen.is_some() {
            return 0;
        }
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(most)
    }

    fn left(&self, state: &CounterState, now: Timestamp) -> u64 {
        self.available(state, self.count_of(), now)
    }

    fn debt_paid_at(&self, state: &CounterState, now: Timestamp) -> Timestamp {
        self.fits_at(state, 0, now)
    }

    fn full_at(&self, state: &CounterState, now: Timestamp) -> Timestamp {
        self.fits_at(state, self.count_of(), now)
    }

    fn carry(&self, old: &Self, state: &CounterState, keep: Keep, now: Timestamp) -> CounterState {
        let (from, to) = (old.count_of(), self.count_of());
        let shifted = |count: u64| match keep {
            Keep::Proportion => proportion(count, from, to),
            _ => count,
        };
        let mut carried = if old.window == self.window {
            CounterState {
                previous: shifted(state.previous),
                current: shifted(state.current),
                ..*state
            }
        } else {
            // Windows of another length: what the estimate holds counts from now on.
            let estimate = old.estimate(state, now.max(state.start));
            CounterState { current: shifted(estimate), ..self.fresh(now) }
        };
        match keep {
            Keep::Nothing => return self.fresh(now),
            Keep::Remaining => {
                let left = old.remaining(state, now);
                let gap = self.remaining(&carried, now).saturating_sub(left);
                match u64::try_from(gap) {
                    Ok(more) => carried.current = cut_amount(carried.current.saturating_add(more)),
                    Err(_) => self.put(&mut carried, gap.unsigned_abs(), now),
                }
            }
            Keep::Used | Keep::Proportion => {}
        }
        Self::stamp(&mut carried, now);
        carried
    }
}
