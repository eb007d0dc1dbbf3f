//! The sliding window counter: two counts approximate a log.
//!
//! ```text
//!      previous window          current window
//!   |---------- 5 ----------|----- 3 ---:-----------|
//!                :<------- one window ->:
//!                                      now, 30 % into the current window
//!   estimate = 3 + 5 × 0.7 = 6.5
//! ```
//!
//! The hits of the previous window are assumed to be spread evenly; that is the only error of this
//! algorithm. The estimate is floored (6.5 of 7 admits one more) or, in the strict variant, rounded
//! up. With the floor a rolling window can hold up to twice the limit, if all hits of the previous
//! window came late.
//!
//! A booking is a hit in the window of its slot. The next window has its own count, and later
//! callers wait until they fit behind it. A booking further ahead moves the state there; only
//! bookings within the three counts can be cancelled.

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack};
use crate::arithmetic::{clamp_amount, clamp_signed, muldiv, muldiv_ceil, signed};
use crate::change::CarryOver;
use crate::quota::{Rate, proportion};
use crate::time::{Span, Timestamp};

/// A sliding window counter.
///
/// ```
/// use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(7, Span::from_secs(60)).unwrap();
/// let limit = SlidingWindow::new(rate, Rounding::Floor);
/// assert_eq!(limit.rate(), rate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
    window: NonZeroU64,
    rounding: Rounding,
}

/// How a fraction of a hit in the estimate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// It does not count: 6.5 of 7 admits one more.
    #[default]
    Floor,
    /// It counts as a whole hit: the strict variant.
    Up,
}

/// The counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterState {
    /// Start of the current window; after a booking far ahead, of the window before that.
    pub start: Timestamp,
    /// Hits in the previous window.
    pub previous: u64,
    /// Hits in the current window.
    pub current: u64,
    /// Booked hits in the next window.
    pub next: u64,
    /// When the state was last written, stored while the state is in a coming window.
    pub seen: Option<Timestamp>,
}

impl SlidingWindow {
    /// At most the rate's number in any window of its period, by estimate.
    #[must_use]
    pub const fn new(rate: Rate, rounding: Rounding) -> Self {
        let (_, window) = rate.parts();
        Self { rate, window, rounding }
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

    #[inline]
    pub(crate) fn window_span(&self) -> Span {
        Span::from_micros(self.window.get())
    }

    /// The estimate at `at`, which lies in the state's window.
    #[inline]
    pub(crate) fn estimate(&self, state: &CounterState, at: Timestamp) -> u64 {
        let overlap = self.window_span().less(at.since(state.start)).as_micros();
        let weighted = match self.rounding {
            Rounding::Floor => muldiv(state.previous, overlap, self.window).quotient,
            Rounding::Up => muldiv_ceil(state.previous, overlap, self.window),
        };
        clamp_amount(state.current.saturating_add(weighted))
    }

    /// The counts in the window of `at`.
    fn rolled(&self, state: &CounterState, at: Timestamp) -> CounterState {
        let mut rolled = *state;
        while at.since(rolled.start) >= self.window_span() {
            if rolled.is_empty() {
                return CounterState { seen: state.seen, ..self.fresh(at) };
            }
            rolled = self.one_later(&rolled);
        }
        rolled
    }

    /// The counts one window later; after three there are none left.
    #[inline]
    pub(crate) fn one_later(&self, state: &CounterState) -> CounterState {
        CounterState {
            start: state.start.after(self.window_span()),
            previous: state.current,
            current: state.next,
            next: 0,
            seen: state.seen,
        }
    }

    /// When, within the state's own window, the estimate first leaves `room` for others; `None` if
    /// not before the window ends.
    fn leaves_room_at(&self, state: &CounterState, room: i64) -> Option<Timestamp> {
        // The weight left to the previous window.
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

    /// When `units` more fit.
    pub(crate) fn fits_at(&self, state: &CounterState, units: u64, now: Timestamp) -> Timestamp {
        let room = signed(self.count_of()).saturating_sub(signed(units));
        // After a booking of the next window nothing more fits into this one.
        let first = if state.next > 0 { self.one_later(state) } else { *state };
        let from = now.max(first.start);
        let mut window = first;
        for _ in 0..3 {
            if let Some(at) = self.leaves_room_at(&window, room) {
                // A clock that stepped back into the previous window is taken to stand still; a
                // booking in a coming window must not overfill the one before.
                let stands = at <= from && !state.has_bookings(now);
                return if stands { now } else { at.max(now) };
            }
            window = self.one_later(&window);
        }
        window.start.max(now)
    }
}

impl Algorithm for SlidingWindow {
    type State = CounterState;

    fn fresh(&self, now: Timestamp) -> CounterState {
        let start = now.aligned(self.window_span());
        CounterState { start, previous: 0, current: 0, next: 0, seen: None }
    }

    fn advance(&self, state: &mut CounterState, now: Timestamp) {
        let written = state.seen.unwrap_or(state.start);
        if written > now.after(clock_slack(self.window_span())) {
            let ahead = state.start.since(written);
            state.start = now.after(ahead).aligned(self.window_span());
            state.seen = state.seen.map(|_| now);
        }
        *state = self.rolled(state, now);
    }

    fn expires_at(&self, state: &CounterState) -> Timestamp {
        let windows = match (state.previous, state.current, state.next) {
            // Moved ahead by a cancelled booking: earlier hits are not known any more.
            (0, 0, 0) if state.seen.is_some() => 0,
            (0, 0, 0) => return Timestamp::EPOCH,
            (_, 0, 0) => 1,
            (_, _, 0) => 2,
            _ => 3,
        };
        state.start.after(Span::from_micros(self.window.get().saturating_mul(windows)))
    }

    fn slot(&self, state: &CounterState, cost: u64, now: Timestamp) -> Slot {
        let max = self.count_of();
        if cost > max {
            return Slot::Never { max_cost: max };
        }
        Slot::At(self.fits_at(state, cost, now))
    }

    fn spend(&self, state: &mut CounterState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        // In this window, in the next, or further ahead where the state is moved to; never before a
        // booking.
        let mut window = state.start.after(self.window_span());
        let at = if state.has_bookings(now) { at.max(window) } else { at };
        if at >= window.after(self.window_span()) {
            let before = at.aligned(self.window_span()).before(self.window_span());
            *state = self.rolled(state, before);
            window = state.start.after(self.window_span());
        }
        let (start, count) = if at >= window {
            (window, &mut state.next)
        } else {
            (state.start, &mut state.current)
        };
        *count = clamp_amount(count.saturating_add(cost));
        let trace = Trace::Count { start, count: *count };
        Self::stamp(state, now);
        Ticket { charged: cost, slot: at, trace }
    }

    fn refund(&self, state: &mut CounterState, amount: u64, now: Timestamp) {
        // Coming windows hold bookings, which are cancelled, not refunded.
        let begun = |start: Timestamp| start <= now || state.seen.is_none();
        if !begun(state.start.before(self.window_span())) {
            return;
        }
        let from_current = if begun(state.start) { amount.min(state.current) } else { 0 };
        state.current = state.current.saturating_sub(from_current);
        state.previous = state.previous.saturating_sub(amount.saturating_sub(from_current));
        Self::stamp(state, now);
    }

    fn cancel_booking(&self, state: &mut CounterState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Count { start, count } = ticket.trace else {
            return 0;
        };
        if now >= ticket.slot {
            return 0;
        }
        let one_later = |start: Timestamp| start.after(self.window_span());
        let since = |now: u64| now.saturating_sub(count);
        let booked_after = if start == one_later(state.start) {
            since(state.next)
        } else if start == state.start {
            since(state.current).saturating_add(state.next)
        } else {
            return 0;
        };
        self.release(state, ticket, ticket.charged.saturating_sub(booked_after), now)
    }

    fn release(
        &self,
        state: &mut CounterState,
        ticket: &Ticket,
        amount: u64,
        now: Timestamp,
    ) -> u64 {
        let Trace::Count { start, .. } = ticket.trace else { return 0 };
        let count = if start == state.start.after(self.window_span()) {
            &mut state.next
        } else if start == state.start {
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
        // After a booking, the remaining quota is that of its window.
        let first = if state.next > 0 { self.one_later(state) } else { *state };
        let estimate = self.estimate(&first, now.max(first.start));
        clamp_signed(signed(self.count_of()).saturating_sub(signed(estimate)))
    }

    fn available(&self, state: &CounterState, max: u64, now: Timestamp) -> u64 {
        // Bookings of a coming window leave nothing now.
        if state.has_bookings(now) {
            return 0;
        }
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(max)
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

    fn carry(
        &self,
        old: &Self,
        state: &CounterState,
        carry: CarryOver,
        now: Timestamp,
    ) -> CounterState {
        let (from, to) = (old.count_of(), self.count_of());
        let shifted = |count: u64| match carry {
            CarryOver::Proportion => proportion(count, from, to),
            _ => count,
        };
        let mut carried = if old.window == self.window {
            CounterState {
                previous: shifted(state.previous),
                current: shifted(state.current),
                next: shifted(state.next),
                ..*state
            }
        } else {
            // Windows of another length: the estimate counts from now on.
            let estimate = old.estimate(state, now.max(state.start));
            let held = clamp_amount(estimate.saturating_add(state.next));
            CounterState { current: shifted(held), ..self.fresh(now) }
        };
        match carry {
            CarryOver::Nothing => return self.fresh(now),
            CarryOver::Remaining => {
                let used = signed(to).saturating_sub(old.remaining(state, now));
                let current = clamp_amount(u64::try_from(used).unwrap_or(0));
                carried = CounterState { current, ..self.fresh(now) };
            }
            CarryOver::Used | CarryOver::Proportion => {}
        }
        Self::stamp(&mut carried, now);
        carried
    }
}

impl CounterState {
    const fn is_empty(&self) -> bool {
        self.previous == 0 && self.current == 0 && self.next == 0
    }

    /// Whether a coming window is booked: the next, or one so far ahead that the state was moved
    /// there.
    fn has_bookings(&self, now: Timestamp) -> bool {
        self.next > 0 || (self.start > now && self.seen.is_some())
    }
}
