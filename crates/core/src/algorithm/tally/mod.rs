//! The tally: a window that counts first and compares afterwards, as envoyproxy/ratelimit does.
//!
//! ```text
//!   5 a minute    :00                          :60
//!   hits of 2      2    4    6    8             2
//!                  yes  yes  no   no            yes
//!                            `----`- counted all the same
//! ```
//!
//! Windows are aligned to the epoch. A hit is added to the count and passes if the count is then
//! within the limit. So a denied hit counts too, and a client that keeps sending stays denied until
//! the window ends, even for smaller costs. A cost of 0 passes while the count is at most the
//! limit. A count beyond the limit is no debt: nothing remains, and the next window starts from 0.
//!
//! A tally counts whatever the other limits of its plan decide. It departs from its model in four
//! points: time is counted in microseconds, not in seconds; the count saturates instead of
//! wrapping; a clock that steps back does not reopen the previous window; a cost above the limit is
//! reported as one that can never pass.

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack};
use crate::arithmetic::{EXACT_MAX, clamp_amount, clamp_signed, signed};
use crate::change::CarryOver;
use crate::quota::{QuotaError, length, proportion};
use crate::time::{Span, Timestamp};

/// A window that counts denied hits too.
///
/// ```
/// use sluicegate_core::account::{Account, Moment};
/// use sluicegate_core::algorithm::tally::Tally;
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::{Mode, EnforcedLimit};
/// use sluicegate_core::op::Op;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let ten_a_minute = Limit::Tally(Tally::new(10, Span::from_secs(60)).unwrap());
/// let plan = [EnforcedLimit::new(ten_a_minute, Mode::Hard).unwrap()];
/// let mut account = Account::default();
/// let mut allowed = |cost| {
///     let hit = Op::Hit { cost, holder: None };
///     account.apply(&plan, hit, Moment::at(Timestamp::EPOCH)).unwrap().verdict.is_allowed()
/// };
/// assert!(allowed(8));
/// assert!(!allowed(5), "13 are more than 10");
/// assert!(!allowed(1), "and 14 too: what was denied counts");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    limit: u64,
    period: NonZeroU64,
}

/// The count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TallyState {
    /// Start of the window.
    pub start: Timestamp,
    /// Hits in the window, including denied ones.
    pub count: u64,
}

impl Tally {
    /// At most `limit`, which may be 0, per window of `period`.
    ///
    /// ```
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::time::Span;
    ///
    /// let tally = Tally::new(10, Span::from_secs(60)).unwrap();
    /// assert_eq!((tally.limit(), tally.period()), (10, Span::from_secs(60)));
    /// assert!(Tally::new(0, Span::from_secs(1)).is_ok());
    /// assert!(Tally::new(u64::MAX, Span::from_secs(1)).is_err());
    /// assert!(Tally::new(1, Span::ZERO).is_err());
    /// ```
    ///
    /// # Errors
    /// When `limit` is above [`EXACT_MAX`], or `period` is empty or above
    /// [`SPAN_MAX`](crate::time::SPAN_MAX).
    pub fn new(limit: u64, period: Span) -> Result<Self, QuotaError> {
        if limit > EXACT_MAX {
            let what = "the tally's limit";
            return Err(QuotaError::TooMuch { what, amount: limit, max: EXACT_MAX });
        }
        Ok(Self { limit, period: length("the tally's period", period)? })
    }

    /// The limit per window.
    #[inline]
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a window.
    #[inline]
    #[must_use]
    pub const fn period(&self) -> Span {
        Span::from_micros(self.period.get())
    }

    /// When the window of a state ends.
    fn end(&self, state: &TallyState) -> Timestamp {
        state.start.after(self.period())
    }

    /// Whether `cost` passes on top of `count`. The sum is compared before it saturates, so that
    /// the highest limit does not admit for ever.
    #[inline]
    pub(crate) const fn admits(&self, count: u64, cost: u64) -> bool {
        count.saturating_add(cost) <= self.limit
    }
}

impl Algorithm for Tally {
    type State = TallyState;

    fn fresh(&self, now: Timestamp) -> TallyState {
        TallyState { start: now.aligned(self.period()), count: 0 }
    }

    fn advance(&self, state: &mut TallyState, now: Timestamp) {
        if state.start > now.after(clock_slack(self.period())) {
            state.start = now.aligned(self.period());
        } else if now >= self.end(state) {
            *state = self.fresh(now);
        }
    }

    fn expires_at(&self, state: &TallyState) -> Timestamp {
        if state.count == 0 { Timestamp::EPOCH } else { self.end(state) }
    }

    /// A cost of 0 passes unless the count is beyond the limit.
    fn slot(&self, state: &TallyState, cost: u64, now: Timestamp) -> Slot {
        if cost > self.limit {
            return Slot::Never { max_cost: self.limit };
        }
        Slot::At(if self.admits(state.count, cost) { now } else { self.end(state).max(now) })
    }

    fn spend(&self, state: &mut TallyState, cost: u64, at: Timestamp, _now: Timestamp) -> Ticket {
        state.count = clamp_amount(state.count.saturating_add(cost));
        Ticket { charged: cost, slot: at, trace: Trace::Untracked }
    }

    fn refund(&self, state: &mut TallyState, amount: u64, _now: Timestamp) {
        state.count = state.count.saturating_sub(amount);
    }

    /// Bookings are refused.
    fn cancel_booking(&self, _state: &mut TallyState, _ticket: &Ticket, _now: Timestamp) -> u64 {
        0
    }

    /// Reservations are refused.
    fn release(&self, _: &mut TallyState, _ticket: &Ticket, _amount: u64, _now: Timestamp) -> u64 {
        0
    }

    fn remaining(&self, state: &TallyState, _now: Timestamp) -> i64 {
        signed(self.limit.saturating_sub(state.count))
    }

    fn debt_paid_at(&self, _state: &TallyState, now: Timestamp) -> Timestamp {
        now
    }

    fn full_at(&self, state: &TallyState, now: Timestamp) -> Timestamp {
        if state.count == 0 { now } else { self.end(state).max(now) }
    }

    fn carry(
        &self,
        old: &Self,
        state: &TallyState,
        carry: CarryOver,
        now: Timestamp,
    ) -> TallyState {
        let count = match carry {
            CarryOver::Nothing => return self.fresh(now),
            CarryOver::Used => state.count,
            // A count beyond the limit stays as far beyond it.
            CarryOver::Remaining => {
                let left = signed(old.limit).saturating_sub(signed(state.count));
                u64::try_from(clamp_signed(signed(self.limit).saturating_sub(left))).unwrap_or(0)
            }
            // Any use of a limit of 0 is all of it.
            CarryOver::Proportion if old.limit == 0 => state.count.max(self.limit),
            CarryOver::Proportion => proportion(state.count, old.limit, self.limit),
        };
        let same = self.period == old.period;
        let start = if same { state.start } else { now.aligned(self.period()) };
        TallyState { start, count }
    }
}

#[cfg(test)]
mod tests;
