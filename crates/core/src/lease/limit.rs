//! What is leased of one limit.

use super::Leases;
use crate::algorithm::Algorithm;
use crate::algorithm::gcra::{self, Meter, MeterState};
use crate::algorithm::periodic;
use crate::arithmetic::{EXACT_MAX, signed};
use crate::limit::{Kernel, Limit, State};
use crate::mode::EnforcedLimit;
use crate::quota::Mark;
use crate::time::Timestamp;

impl EnforcedLimit {
    /// Whether this step can be leased: a hard limit of a kind that can be.
    #[must_use]
    pub fn is_leasable(&self) -> bool {
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        hard && self.limit.is_leasable()
    }
}

impl Limit {
    /// Whether tokens of this limit can be bought ahead without admitting more: greedy token buckets, fixed and sliding windows.
    ///
    /// ```
    /// use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::quota::Rate;
    /// use sluicegate_core::time::Span;
    ///
    /// let bucket = TokenBucket::new(Rate::new(5, Span::from_secs(1)).unwrap(), 9).unwrap();
    /// assert!(Limit::TokenBucket(bucket).is_leasable());
    /// assert!(!Limit::TokenBucket(bucket.with_refill(Refill::Interval).unwrap()).is_leasable());
    /// ```
    #[must_use]
    pub fn is_leasable(&self) -> bool {
        match self.kernel() {
            Kernel::Meter(meter) => meter.face == gcra::Face::Bucket,
            Kernel::Steps(steps) => steps.face == periodic::Face::Window,
            Kernel::Counter(_) => true,
            _ => false,
        }
    }

    /// No less is used of an open state than nodes may hold, or may have used until their leases ran out.
    pub(crate) fn keep_leased(&self, state: &mut State, leases: &Leases, now: Timestamp) {
        match (self.kernel(), state) {
            (Kernel::Meter(meter), State::Meter(state)) if meter.face == gcra::Face::Bucket => {
                let leased = meter.leased_mark(leases, now);
                if leased > state.mark {
                    state.mark = leased;
                    meter.stamp(state, now);
                }
            }
            // What was added by force beyond the window is not taken away.
            (Kernel::Steps(steps), State::Steps(state))
                if steps.face == periodic::Face::Window
                    && state.level <= steps.capacity_signed() =>
            {
                let most = steps.capacity_signed().saturating_sub(signed(leases.outstanding(now)));
                state.level = state.level.min(most);
            }
            // Before a window that is booked nobody passes anyway.
            (Kernel::Counter(_), State::Counter(state)) if state.start <= now => {
                state.current = state.current.max(leases.outstanding(now));
            }
            _ => {}
        }
    }

    /// From when on nothing that is leased makes a difference, if all of it is used as late as it may.
    pub(crate) fn leased_until(&self, leases: &Leases) -> Timestamp {
        match self.kernel() {
            Kernel::Meter(meter) => meter.leased_mark(leases, Timestamp::MAX).ceil(),
            _ => leases.cells().last().map(|cell| cell.until).unwrap_or_default(),
        }
    }

    /// How much of an open state can be leased. What was added beyond a bucket is for those who come and ask.
    pub(crate) fn room_to_lease(&self, state: &State, now: Timestamp) -> u64 {
        match (self.kernel(), state) {
            (Kernel::Meter(meter), State::Meter(state)) => {
                meter.available(&MeterState { extra: 0, ..*state }, EXACT_MAX, now)
            }
            _ => self.available(state, EXACT_MAX, now),
        }
    }

    /// Charges what is leased.
    pub(crate) fn lend(&self, state: &mut State, amount: u64, now: Timestamp) {
        if let (Kernel::Meter(meter), State::Meter(state)) = (self.kernel(), &mut *state) {
            let (extra, seen) = (state.extra, state.seen);
            state.extra = 0;
            meter.spend(state, amount, now, now);
            if extra > 0 {
                (state.extra, state.seen) = (extra, seen);
                meter.stamp(state, now);
            }
            return;
        }
        self.spend(state, amount, now, now);
    }

    /// When what is leased now has to be used, if that is not left to the node.
    pub(crate) fn lease_ends(&self, state: &State) -> Option<Timestamp> {
        match (self.kernel(), state) {
            (Kernel::Steps(steps), State::Steps(state)) => {
                Some(steps.period.nth_after(state.anchor, 1))
            }
            (Kernel::Counter(window), State::Counter(state)) => {
                Some(state.start.after(window.window_span()))
            }
            _ => None,
        }
    }
}

impl Meter {
    /// The mark that this leaves which is leased: at each end that has come, and now, as much is in use as was held by then.
    fn leased_mark(&self, leases: &Leases, now: Timestamp) -> Mark {
        let marks = leases.ends().filter(|(_, held)| *held > 0).map(|(until, held)| {
            self.rate.later(Mark::at(until.min(now)), self.rate.time_of(held))
        });
        marks.max().unwrap_or_default()
    }
}
