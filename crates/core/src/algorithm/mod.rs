//! The ten algorithms, on seven kernels.
//!
//! | kernel | state | serves |
//! |---|---|---|
//! | [`gcra`] | a theoretical arrival time | greedy token bucket, leaky bucket, smooth bursty |
//! | [`periodic`] | a level and its period | interval and aligned bucket, fixed window, cycle |
//! | [`sliding_window`] | two counts | sliding window counter |
//! | [`sliding_log`] | every admitted hit, or a count per slice | sliding log, window of slices |
//! | [`tally`] | one count, including denials | tally: the counter of Envoy's form |
//! | [`warm_up`] | when it is free and how cold it is | smooth warming up |
//! | [`concurrency`] | holders of slots with their leases | concurrency limit |
//!
//! A kernel implements the private trait `Algorithm` over (limit, state, cost, now). Every
//! operation (hit, peek, acquire, take, reserve …) is built from it in [`crate::limit`] and
//! [`crate::account`].

pub mod concurrency;
pub mod cycle;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub(crate) mod period;
pub mod periodic;
pub mod sliding_log;
pub mod sliding_slices;
pub mod sliding_window;
pub mod smooth;
pub mod tally;
pub mod token_bucket;
pub mod warm_up;

use crate::change::CarryOver;
use crate::quota::ExactTime;
use crate::time::{CLOCK_SLACK, Span, Timestamp};

/// How long an identity is remembered after its last hit where a new one does not start full.
pub const FORGET_AFTER: Span = Span::from_secs(24 * 3600);

/// When a cost would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// At this moment, `now` or later, if no other request comes first.
    At(Timestamp),
    /// Not at any time.
    Never {
        /// The largest cost that could pass.
        max_cost: u64,
    },
}

/// The receipt of a charge, for cancelling or settling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The amount charged, including units that a booking made unusable.
    pub(crate) charged: u64,
    /// When the charge may be used.
    pub(crate) slot: Timestamp,
    pub(crate) trace: Trace,
}

/// The position of a charge in its limit's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// The TAT after the charge.
    Tat(ExactTime),
    /// The level after the charge, in the period that starts at `anchor`, and the moment of use.
    Level { level: i64, anchor: Timestamp, cost: u64, slot: Timestamp },
    /// The count after the charge, in the window that starts at `start`.
    Count { start: Timestamp, count: u64 },
    /// The log's entry at this moment.
    Entry { at: Timestamp },
    /// When the limiter was free after the charge, the time charged, and the stored time used.
    Price { free: ExactTime, price: ExactTime, cool: ExactTime },
    /// No position: a slot is freed by its id.
    Untracked,
}

/// The operations of a kernel. `now` is never before the time of the state.
///
/// A state is advanced to `now` (and repaired after a clock jump) before any other call.
pub(crate) trait Algorithm {
    type State;

    /// The state of a new identity.
    fn fresh(&self, now: Timestamp) -> Self::State;

    /// Advances the state to `now`; after the clock was set back, moves it to the new time.
    fn advance(&self, state: &mut Self::State, now: Timestamp);

    /// When the state equals a fresh one.
    fn expires_at(&self, state: &Self::State) -> Timestamp;

    /// When `cost` (at least 1, or 0 for a limit that counts first) gets its turn if booked now.
    fn slot(&self, state: &Self::State, cost: u64, now: Timestamp) -> Slot;

    /// From when on a caller that waits at most `max_wait` is admitted.
    fn ready(&self, state: &Self::State, cost: u64, max_wait: Span, now: Timestamp) -> Slot {
        match self.slot(state, cost, now) {
            Slot::At(slot) => Slot::At(slot.before(max_wait).max(now)),
            never @ Slot::Never { .. } => never,
        }
    }

    /// The maximum wait of a plain hit: none, unless the limit shapes.
    fn hit_max_wait(&self) -> Span {
        Span::ZERO
    }

    /// Charges `cost`, to be used at `at`: `now`, or the slot of a booking. May go into debt.
    fn spend(&self, state: &mut Self::State, cost: u64, at: Timestamp, now: Timestamp) -> Ticket;

    /// Refunds `amount`, at most until full.
    fn refund(&self, state: &mut Self::State, amount: u64, now: Timestamp);

    /// Adds `amount`, beyond the capacity too; only for limits that support it.
    fn add_beyond_capacity(&self, state: &mut Self::State, amount: u64, now: Timestamp) {
        self.refund(state, amount, now);
    }

    /// Cancels a booking whose slot has not come, less what was booked after it. Returns the
    /// refund.
    fn cancel_booking(&self, state: &mut Self::State, ticket: &Ticket, now: Timestamp) -> u64;

    /// Refunds `amount` of a settled reservation where it was charged, if that is still open.
    /// Returns the refund.
    fn release(&self, state: &mut Self::State, ticket: &Ticket, amount: u64, now: Timestamp)
    -> u64;

    /// Whole units left, rounded down; negative in debt.
    fn remaining(&self, state: &Self::State, now: Timestamp) -> i64;

    /// The largest amount, up to `max`, that a hit could take now.
    fn available(&self, state: &Self::State, max: u64, now: Timestamp) -> u64 {
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(max)
    }

    /// The amount that a drain takes.
    fn left(&self, state: &Self::State, now: Timestamp) -> u64 {
        u64::try_from(self.remaining(state, now)).unwrap_or(0)
    }

    /// When a debt is paid; `now` without one.
    fn debt_paid_at(&self, state: &Self::State, now: Timestamp) -> Timestamp;

    /// When the limit is full again.
    fn full_at(&self, state: &Self::State, now: Timestamp) -> Timestamp;

    /// The state under this limit of an identity that had `state` under `old`.
    fn carry(
        &self,
        old: &Self,
        state: &Self::State,
        carry: CarryOver,
        now: Timestamp,
    ) -> Self::State;
}

/// When an identity that does not start full is forgotten: `forget_after` its last hit, or after it
/// is full if that is later.
pub(crate) fn forgotten_at(seen: Timestamp, full: Timestamp, forget_after: Span) -> Timestamp {
    let forgotten = seen.after(forget_after);
    if full < forgotten { forgotten } else { full.after(forget_after) }
}

/// How far a clock may step back before a state is moved: the limit's own span, at least a minute.
pub(crate) fn clock_slack(span: Span) -> Span {
    span.max(CLOCK_SLACK)
}

impl Ticket {
    /// What was charged.
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// What was charged, without units that a booking made unusable.
    pub(crate) const fn usable(&self) -> u64 {
        match self.trace {
            Trace::Level { cost, .. } => cost,
            _ => self.charged,
        }
    }

    /// When the charge may be used.
    #[must_use]
    pub const fn slot(&self) -> Timestamp {
        self.slot
    }
}
