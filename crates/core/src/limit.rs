//! Limits (an algorithm with its numbers) and the states of identities.

use crate::algorithm::concurrency::{Concurrency, Holder, SlotsState};
use crate::algorithm::cycle::Cycle;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::gcra::{Gcra, GcraState};
use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::periodic::{Periodic, PeriodicState};
use crate::algorithm::sliding_log::{LogState, SlidingLog};
use crate::algorithm::sliding_slices::SlidingSlices;
use crate::algorithm::sliding_window::{CounterState, SlidingWindow};
use crate::algorithm::smooth::SmoothBursty;
use crate::algorithm::tally::{Tally, TallyState};
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::warm_up::{WarmUp, WarmUpState};
use crate::algorithm::{Algorithm, Slot, Ticket, Trace};
use crate::time::{NOW_MAX, Span, Timestamp};

/// A limit: an algorithm and its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Everything passes.
    Unlimited,
    /// A rate of 0: every cost of 1 or more is denied for ever.
    Closed,
    /// Bursts pass while tokens last.
    TokenBucket(TokenBucket),
    /// A bounded queue, drained at a fixed rate.
    LeakyBucket(LeakyBucket),
    /// A number per window.
    FixedWindow(FixedWindow),
    /// A number in any rolling window, exactly.
    SlidingLog(SlidingLog),
    /// A number in any rolling window, approximately.
    SlidingWindow(SlidingWindow),
    /// A number in any rolling window, at most one slice too strict.
    SlidingSlices(SlidingSlices),
    /// A steady rate; the next caller pays.
    SmoothBursty(SmoothBursty),
    /// A steady rate that has to warm up.
    WarmUp(WarmUp),
    /// Permits per cycle, bookable ahead.
    Cycle(Cycle),
    /// A number in flight.
    Concurrency(Concurrency),
    /// A number per window, counting denials too: Envoy's form.
    Tally(Tally),
}

/// The state of one identity under a limit.
///
/// Most states are a few numbers and `Copy`; only a log and the slots of a concurrency limit have
/// variable size and are boxed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// New or expired: nothing is stored.
    #[default]
    New,
    /// Token bucket (greedy), leaky bucket, smooth bursty.
    Gcra(GcraState),
    /// Token bucket (interval, aligned), fixed window, cycle.
    Periodic(PeriodicState),
    /// Sliding window counter.
    Counter(CounterState),
    /// Sliding window log, sliding window of slices.
    Log(Box<LogState>),
    /// Smooth warming up.
    WarmUp(WarmUpState),
    /// Concurrency limit.
    Slots(Box<SlotsState>),
    /// The counter of Envoy's form.
    Tally(TallyState),
    /// Usage at the time the limit was closed.
    Spent(u64),
}

/// The kernel of a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel<'a> {
    Open,
    Closed,
    Gcra(&'a Gcra),
    Periodic(&'a Periodic),
    Counter(&'a SlidingWindow),
    Log(&'a SlidingLog),
    WarmUp(&'a WarmUp),
    Slots(&'a Concurrency),
    Tally(&'a Tally),
}

/// Evaluates an expression with the matching kernel and state.
macro_rules! with_kernel {
    ($limit:expr, $state:expr, |$kernel:ident, $inner:ident| $body:expr, $otherwise:expr) => {
        match ($limit.kernel(), $state) {
            (Kernel::Gcra($kernel), State::Gcra($inner)) => $body,
            (Kernel::Periodic($kernel), State::Periodic($inner)) => $body,
            (Kernel::Counter($kernel), State::Counter($inner)) => $body,
            (Kernel::Log($kernel), State::Log($inner)) => $body,
            (Kernel::WarmUp($kernel), State::WarmUp($inner)) => $body,
            (Kernel::Slots($kernel), State::Slots($inner)) => $body,
            (Kernel::Tally($kernel), State::Tally($inner)) => $body,
            _ => $otherwise,
        }
    };
}

impl Limit {
    /// The name of the algorithm, as it is written in a rule.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Closed => "closed",
            Self::TokenBucket(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingLog(_) => "sliding_log",
            Self::SlidingWindow(_) | Self::SlidingSlices(_) => "sliding_window",
            Self::SmoothBursty(_) => "smooth_bursty",
            Self::WarmUp(_) => "warm_up",
            Self::Cycle(_) => "cycle",
            Self::Concurrency(_) => "concurrency",
            Self::Tally(_) => "tally",
        }
    }

    /// The largest possible remaining quota; `None` if there is none.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        match self.kernel() {
            Kernel::Open | Kernel::WarmUp(_) => None,
            Kernel::Closed => Some(0),
            Kernel::Gcra(gcra) => Some(gcra.capacity),
            Kernel::Periodic(periodic) => Some(periodic.capacity.get()),
            Kernel::Counter(counter) => Some(counter.rate().count()),
            Kernel::Log(log) => Some(log.capacity()),
            Kernel::Slots(slots) => Some(slots.max()),
            Kernel::Tally(tally) => Some(tally.limit()),
        }
    }

    #[inline(always)]
    pub(crate) fn kernel(&self) -> Kernel<'_> {
        match self {
            Self::Unlimited => Kernel::Open,
            Self::Closed => Kernel::Closed,
            Self::TokenBucket(bucket) => bucket.kernel(),
            Self::LeakyBucket(bucket) => Kernel::Gcra(&bucket.kernel),
            Self::FixedWindow(window) => Kernel::Periodic(&window.kernel),
            Self::SlidingLog(log) => Kernel::Log(log),
            Self::SlidingWindow(window) => Kernel::Counter(window),
            Self::SlidingSlices(window) => Kernel::Log(&window.kernel),
            Self::SmoothBursty(smooth) => Kernel::Gcra(&smooth.kernel),
            Self::WarmUp(warm_up) => Kernel::WarmUp(warm_up),
            Self::Cycle(cycle) => Kernel::Periodic(&cycle.kernel),
            Self::Concurrency(slots) => Kernel::Slots(slots),
            Self::Tally(tally) => Kernel::Tally(tally),
        }
    }
}

/// A decision [`open`](Limit::open)s the state, evaluates the limits, charges if all admit, and
/// [`close`](Limit::close)s the state. A denied decision leaves the opened state, which gives the
/// same answers as before.
impl Limit {
    /// Makes the state one of this limit, advanced to `now`.
    pub fn open(&self, state: &mut State, now: Timestamp) {
        let now = now.min(NOW_MAX);
        // A state of another limit, or an expired one, becomes a fresh one.
        if self.advance(state, now) {
            return;
        }
        *state = match self.kernel() {
            Kernel::Open | Kernel::Closed => State::New,
            Kernel::Gcra(kernel) => State::Gcra(kernel.fresh(now)),
            Kernel::Periodic(kernel) => State::Periodic(kernel.fresh(now)),
            Kernel::Counter(kernel) => State::Counter(kernel.fresh(now)),
            Kernel::Log(kernel) => State::Log(Box::new(kernel.fresh(now))),
            Kernel::WarmUp(kernel) => State::WarmUp(kernel.fresh(now)),
            Kernel::Slots(kernel) => State::Slots(Box::new(kernel.fresh(now))),
            Kernel::Tally(kernel) => State::Tally(kernel.fresh(now)),
        };
    }

    /// Advances a state of this limit to `now`; false if it is another limit's or has expired.
    pub(crate) fn advance(&self, state: &mut State, now: Timestamp) -> bool {
        with_kernel!(
            self,
            &mut *state,
            |kernel, inner| {
                kernel.advance(inner, now);
                kernel.expires_at(inner) > now
            },
            matches!((self.kernel(), &*state), (Kernel::Closed, State::Spent(_)))
        )
    }

    /// Drops an expired state.
    pub fn close(&self, state: &mut State, now: Timestamp) {
        if self.expires_at(state) <= now.min(NOW_MAX) {
            *state = State::New;
        }
    }

    /// When the state expires.
    #[must_use]
    pub fn expires_at(&self, state: &State) -> Timestamp {
        let never_stored = match state {
            State::Spent(_) if matches!(self, Self::Closed) => Timestamp::MAX,
            _ => Timestamp::EPOCH,
        };
        with_kernel!(self, state, |kernel, inner| kernel.expires_at(inner), never_stored)
    }

    /// When `cost` would get its turn if booked now.
    #[must_use]
    pub fn slot(&self, state: &State, cost: u64, now: Timestamp) -> Slot {
        with_kernel!(self, state, |kernel, inner| kernel.slot(inner, cost, now), self.constant(now))
    }

    /// From when on a caller that waits at most `max_wait` is admitted.
    #[must_use]
    pub fn ready(&self, state: &State, cost: u64, max_wait: Span, now: Timestamp) -> Slot {
        with_kernel!(
            self,
            state,
            |kernel, inner| kernel.ready(inner, cost, max_wait, now),
            self.constant(now)
        )
    }

    /// Whether readiness for this cost can lapse: only for a cost above the permits of a cycle,
    /// whose slot moves away once the cycle is full.
    pub(crate) fn can_lapse(&self, cost: u64) -> bool {
        matches!(self, Self::Cycle(cycle) if cost > cycle.permits())
    }

    /// Whether this limit counts a hit before it compares: it is charged whatever it and the other
    /// limits of the plan decide, and evaluates a cost of 0 too.
    ///
    /// ```
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::time::Span;
    ///
    /// let tally = Limit::Tally(Tally::new(10, Span::from_secs(60)).unwrap());
    /// assert!(tally.counts_first());
    /// assert!(!Limit::Closed.counts_first());
    /// ```
    #[inline]
    #[must_use]
    pub const fn counts_first(&self) -> bool {
        matches!(self, Self::Tally(_))
    }

    /// How far a limit that counts first is beyond its limit; 0 for others.
    ///
    /// ```
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::limit::{Limit, State};
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let tally = Limit::Tally(Tally::new(10, Span::from_secs(60)).unwrap());
    /// let (mut state, now) = (State::New, Timestamp::EPOCH);
    /// tally.open(&mut state, now);
    /// tally.spend(&mut state, 13, now, now);
    /// assert_eq!(tally.beyond(&state), 3);
    /// ```
    #[must_use]
    pub const fn beyond(&self, state: &State) -> u64 {
        match (self, state) {
            (Self::Tally(tally), State::Tally(state)) => state.count.saturating_sub(tally.limit()),
            _ => 0,
        }
    }

    /// The maximum wait of a plain hit: unlimited if the limit shapes (its queue is bounded), else
    /// none.
    #[must_use]
    pub fn hit_max_wait(&self) -> Span {
        match self.kernel() {
            Kernel::Gcra(gcra) => gcra.hit_max_wait(),
            _ => Span::ZERO,
        }
    }

    /// Charges `cost` for use at `at`. May go into debt.
    pub fn spend(&self, state: &mut State, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        let nowhere = Ticket { charged: cost, slot: at, trace: Trace::Untracked };
        with_kernel!(self, state, |kernel, inner| kernel.spend(inner, cost, at, now), nowhere)
    }

    /// Takes `slots` of a concurrency limit for `holder`, or renews its lease: for `ttl`, at most
    /// the lease time.
    pub fn hold(&self, state: &mut State, holder: Holder, slots: u64, ttl: Span, now: Timestamp) {
        if let (Self::Concurrency(limit), State::Slots(inner)) = (self, state) {
            limit.hold(inner, holder, slots, ttl, now);
        }
    }

    /// Frees the slots of `holder` in a concurrency limit.
    pub fn free(&self, state: &mut State, holder: Holder) -> u64 {
        match state {
            State::Slots(inner) => inner.free(holder),
            _ => 0,
        }
    }

    /// Refunds `amount`, at most until full.
    pub fn refund(&self, state: &mut State, amount: u64, now: Timestamp) {
        if let (Self::Closed, State::Spent(used)) = (self, &mut *state) {
            *used = used.saturating_sub(amount);
            return;
        }
        with_kernel!(self, state, |kernel, inner| kernel.refund(inner, amount, now), ());
    }

    /// Adds `amount`, beyond the capacity too.
    pub fn add_beyond_capacity(&self, state: &mut State, amount: u64, now: Timestamp) {
        with_kernel!(
            self,
            state,
            |kernel, inner| kernel.add_beyond_capacity(inner, amount, now),
            ()
        );
    }

    /// Cancels a booking whose slot has not come, less what was booked after it.
    pub fn cancel_booking(&self, state: &mut State, ticket: &Ticket, now: Timestamp) -> u64 {
        with_kernel!(self, state, |kernel, inner| kernel.cancel_booking(inner, ticket, now), 0)
    }

    /// Refunds `amount` of a reservation where it was charged, if that is still open.
    pub fn release(&self, state: &mut State, ticket: &Ticket, amount: u64, now: Timestamp) -> u64 {
        let constant = if matches!(self, Self::Unlimited) { amount } else { 0 };
        with_kernel!(
            self,
            state,
            |kernel, inner| kernel.release(inner, ticket, amount, now),
            constant
        )
    }

    /// Adjusts a ticket after an earlier charge was refunded, which turned `before` into `after`.
    pub(crate) fn follow(&self, ticket: &mut Ticket, before: &State, after: &State) {
        match (self.kernel(), before, after, &mut ticket.trace) {
            (Kernel::Gcra(kernel), State::Gcra(before), State::Gcra(after), Trace::Tat(tat)) => {
                *tat = kernel.rate.earlier(*tat, kernel.rate.earlier(before.tat, after.tat))
            }
            (_, State::Periodic(before), State::Periodic(after), Trace::Level { level, .. }) => {
                let given = after.level.saturating_sub(before.level).max(0);
                *level = crate::arithmetic::clamp_signed(level.saturating_add(given));
            }
            (
                Kernel::WarmUp(kernel),
                State::WarmUp(before),
                State::WarmUp(after),
                Trace::Price { free, .. },
            ) => {
                let rate = kernel.rate();
                *free = rate.earlier(*free, rate.earlier(before.free, after.free));
            }
            // Counts and entries are found by time.
            _ => {}
        }
    }

    /// Logs a denied attempt in a log that counts them.
    pub fn log_denied(&self, state: &mut State, cost: u64, now: Timestamp) {
        if let (Self::SlidingLog(log), State::Log(inner)) = (self, state) {
            log.log_denied(inner, cost, now);
        }
    }

    /// Whole units left, rounded down; negative in debt; `None` if unlimited.
    #[must_use]
    pub fn remaining(&self, state: &State, now: Timestamp) -> Option<i64> {
        let constant = if matches!(self, Self::Unlimited) { None } else { Some(0) };
        with_kernel!(self, state, |kernel, inner| Some(kernel.remaining(inner, now)), constant)
    }

    /// The largest amount, up to `max`, that a hit could take now.
    #[must_use]
    pub fn available(&self, state: &State, max: u64, now: Timestamp) -> u64 {
        let constant = if matches!(self, Self::Unlimited) { max } else { 0 };
        with_kernel!(self, state, |kernel, inner| kernel.available(inner, max, now), constant)
    }

    /// The amount that a drain takes; `None` if unlimited.
    #[must_use]
    pub fn left(&self, state: &State, now: Timestamp) -> Option<u64> {
        let constant = if matches!(self, Self::Unlimited) { None } else { Some(0) };
        with_kernel!(self, state, |kernel, inner| Some(kernel.left(inner, now)), constant)
    }

    /// How long until a debt is paid; nothing without one.
    #[must_use]
    pub fn debt_paid_after(&self, state: &State, now: Timestamp) -> Span {
        with_kernel!(self, state, |kernel, inner| kernel.debt_paid_at(inner, now), now).since(now)
    }

    /// How long until the limit is full.
    #[must_use]
    pub fn full_after(&self, state: &State, now: Timestamp) -> Span {
        with_kernel!(self, state, |kernel, inner| kernel.full_at(inner, now), now).since(now)
    }

    /// The slot of a limit without a state.
    fn constant(&self, now: Timestamp) -> Slot {
        if matches!(self, Self::Unlimited) { Slot::At(now) } else { Slot::Never { max_cost: 0 } }
    }
}
