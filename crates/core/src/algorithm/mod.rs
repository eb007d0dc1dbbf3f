//! The ten algorithms, on seven kernels.
//!
//! | kernel | state | serves |
//! |---|---|---|
//! | [`gcra`] | one mark in time | greedy token bucket, leaky bucket, smooth bursty |
//! | [`periodic`] | a level and the period it belongs to | interval and aligned token bucket, fixed window, cycle |
//! | [`sliding_window`] | two counts | sliding window counter |
//! | [`sliding_log`] | every admitted hit | sliding window log |
//! | [`tally`] | one count, of the denied too | tally: the counter of Envoy's form |
//! | [`warm_up`] | a mark and how cold it is | smooth warming up |
//! | [`concurrency`] | who holds a slot until when | concurrency limit |
//!
//! A kernel answers a handful of questions about (limit, state, cost, now); everything else (hit,
//! peek, acquire, take, reserve …) is said once, in terms of these, in [`crate::limit`] and
//! [`crate::account`]. The questions are those of the private trait `Algorithm`.

pub mod concurrency;
pub mod cycle;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub(crate) mod period;
pub mod periodic;
pub mod sliding_log;
pub mod sliding_window;
pub mod smooth;
pub mod tally;
pub mod token_bucket;
pub mod warm_up;

use crate::change::CarryOver;
use crate::quota::ExactTime;
use crate::time::{CLOCK_SLACK, Span, Timestamp};

/// How long an identity is remembered after its last hit where "new" and "full" differ.
pub const FORGET_AFTER: Span = Span::from_secs(24 * 3600);

/// When a cost would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// At this moment, `now` or later, if nobody else comes.
    At(Timestamp),
    /// Not at any time.
    Never {
        /// The largest cost that could pass.
        max_cost: u64,
    },
}

/// What a charge leaves behind for whoever may cancel or settle it: a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// What was charged, including what a booking made unusable for others.
    pub(crate) charged: u64,
    /// When the charge may be used.
    pub(crate) slot: Timestamp,
    pub(crate) trace: Trace,
}

/// Where in its limit's state a charge stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// The mark after the charge.
    Tat(ExactTime),
    /// The level after the charge, in the period that starts here, and when it may be used.
    Level { level: i64, anchor: Timestamp, cost: u64, slot: Timestamp },
    /// The count after the charge, in the window that starts here.
    Count { start: Timestamp, count: u64 },
    /// The log's entry at this moment.
    Entry { at: Timestamp },
    /// When the limiter was free after the charge, the time charged, and the gathered time taken.
    Price { free: ExactTime, price: ExactTime, cool: ExactTime },
    /// Nothing to come back to: a slot is freed by its id.
    Untracked,
}

/// The questions that a kernel answers. `now` is never before the moment a state was settled at.
///
/// States are settled (rolled forward, and repaired after a clock jump) before any other question.
pub(crate) trait Algorithm {
    type State;

    /// The state of an identity never seen before.
    fn fresh(&self, now: Timestamp) -> Self::State;

    /// Rolls the state forward to `now`; after a clock was set back, moves it to the new time.
    fn advance(&self, state: &mut Self::State, now: Timestamp);

    /// From when on the state is as good as a fresh one.
    fn expires_at(&self, state: &Self::State) -> Timestamp;

    /// When `cost` (at least 1, except for a limit that asks for nothing too) would get its turn if booked now.
    fn slot(&self, state: &Self::State, cost: u64, now: Timestamp) -> Slot;

    /// From when on a caller who waits at most `max_wait` for its turn is let in.
    fn ready(&self, state: &Self::State, cost: u64, max_wait: Span, now: Timestamp) -> Slot {
        match self.slot(state, cost, now) {
            Slot::At(slot) => Slot::At(slot.before(max_wait).max(now)),
            never @ Slot::Never { .. } => never,
        }
    }

    /// How long a plain hit is willing to wait: not at all, unless the limit shapes.
    fn hit_max_wait(&self) -> Span {
        Span::ZERO
    }

    /// Charges `cost`, to be used at `at`: `now`, or the slot of a booking. May go into debt.
    fn spend(&self, state: &mut Self::State, cost: u64, at: Timestamp, now: Timestamp) -> Ticket;

    /// Gives back `amount`, at most until full.
    fn refund(&self, state: &mut Self::State, amount: u64, now: Timestamp);

    /// Adds `amount`, also beyond the capacity; only for limits that [`crate::limit::Limit`] lets through.
    fn add_beyond_capacity(&self, state: &mut Self::State, amount: u64, now: Timestamp) {
        self.refund(state, amount, now);
    }

    /// Gives back a booking whose slot has not come, less what was booked after it.
    /// Returns how many units came back.
    fn cancel_booking(&self, state: &mut Self::State, ticket: &Ticket, now: Timestamp) -> u64;

    /// Gives back `amount` of a settled reservation to where it was charged, if that is still open.
    /// Returns how many units came back.
    fn release(&self, state: &mut Self::State, ticket: &Ticket, amount: u64, now: Timestamp)
    -> u64;

    /// Whole units left, rounded down; negative in debt.
    fn remaining(&self, state: &Self::State, now: Timestamp) -> i64;

    /// The most, up to `most`, that a hit could take now.
    fn available(&self, state: &Self::State, max: u64, now: Timestamp) -> u64 {
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(max)
    }

    /// What a drain takes.
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

/// When an identity is forgotten whose new state is not a full one: so long after its last hit; but who
/// takes longer than that to fill is remembered for as long after, or it would never be full.
pub(crate) fn forgotten_at(seen: Timestamp, full: Timestamp, forget_after: Span) -> Timestamp {
    let forgotten = seen.after(forget_after);
    if full < forgotten { forgotten } else { full.after(forget_after) }
}

/// How far a clock may step back before a state is moved: the limit's own span, at least a minute.
pub(crate) fn clock_slack(span: Span) -> Span {
    span.max(CLOCK_SLACK)
}

// === impl Ticket ===

impl Ticket {
    /// What was charged.
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// When the charge may be used.
    #[must_use]
    pub const fn slot(&self) -> Timestamp {
        self.slot
    }
}
