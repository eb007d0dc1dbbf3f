//! The effect of leases on one limit.

use super::NodeLeases;
use crate::algorithm::Algorithm;
use crate::algorithm::gcra::{self, Gcra, GcraState};
use crate::algorithm::periodic::PeriodicVariant;
use crate::arithmetic::{EXACT_MAX, signed};
use crate::limit::{Kernel, Limit, State};
use crate::mode::EnforcedLimit;
use crate::quota::ExactTime;
use crate::time::Timestamp;

impl EnforcedLimit {
    /// Whether this step can be leased: a hard limit of a leasable kind.
    #[must_use]
    pub fn is_leasable(&self) -> bool {
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        hard && self.limit.is_leasable()
    }
}

impl Limit {
    /// Whether quota of this limit can be leased without admitting more: greedy token buckets,
    /// fixed and sliding windows.
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
            Kernel::Gcra(gcra) => gcra.variant == gcra::Variant::Bucket,
            Kernel::Periodic(periodic) => periodic.variant == PeriodicVariant::Window,
            Kernel::Counter(_) => true,
            _ => false,
        }
    }

    /// Keeps at least the leased quota in use, and what expired leases may have used.
    pub(crate) fn enforce_leases(&self, state: &mut State, leases: &NodeLeases, now: Timestamp) {
        match (self.kernel(), state) {
            (Kernel::Gcra(gcra), State::Gcra(state)) if gcra.variant == gcra::Variant::Bucket => {
                let leased = gcra.leased_tat(leases, now);
                if leased > state.tat {
                    state.tat = leased;
                    gcra.stamp(state, now);
                }
            }
            // Forced additions beyond the window stay.
            (Kernel::Periodic(periodic), State::Periodic(state))
                if periodic.variant == PeriodicVariant::Window
                    && state.level <= periodic.capacity_signed() =>
            {
                let max =
                    periodic.capacity_signed().saturating_sub(signed(leases.outstanding(now)));
                state.level = state.level.min(max);
            }
            // Nothing passes before a booked window.
            (Kernel::Counter(_), State::Counter(state)) if state.start <= now => {
                state.current = state.current.max(leases.outstanding(now));
            }
            _ => {}
        }
    }

    /// When leases have no effect any more, if all are used as late as possible.
    pub(crate) fn leased_until(&self, leases: &NodeLeases) -> Timestamp {
        match self.kernel() {
            Kernel::Gcra(gcra) => gcra.leased_tat(leases, Timestamp::MAX).ceil(),
            _ => leases.nodes().last().map(|lease| lease.until).unwrap_or_default(),
        }
    }

    /// The leasable quota of an open state. Extra units of a bucket are not leased.
    pub(crate) fn leasable(&self, state: &State, now: Timestamp) -> u64 {
        match (self.kernel(), state) {
            (Kernel::Gcra(gcra), State::Gcra(state)) => {
                gcra.available(&GcraState { extra: 0, ..*state }, EXACT_MAX, now)
            }
            _ => self.available(state, EXACT_MAX, now),
        }
    }

    /// Charges leased quota.
    pub(crate) fn charge_lease(&self, state: &mut State, amount: u64, now: Timestamp) {
        if let (Kernel::Gcra(gcra), State::Gcra(state)) = (self.kernel(), &mut *state) {
            let (extra, seen) = (state.extra, state.seen);
            state.extra = 0;
            gcra.spend(state, amount, now, now);
            if extra > 0 {
                (state.extra, state.seen) = (extra, seen);
                gcra.stamp(state, now);
            }
            return;
        }
        self.spend(state, amount, now, now);
    }

    /// When quota leased now expires, if the limit determines it.
    pub(crate) fn lease_ends(&self, state: &State) -> Option<Timestamp> {
        match (self.kernel(), state) {
            (Kernel::Periodic(periodic), State::Periodic(state)) => {
                Some(periodic.period.nth_after(state.anchor, 1))
            }
            (Kernel::Counter(window), State::Counter(state)) => {
                Some(state.start.after(window.window_span()))
            }
            _ => None,
        }
    }
}

impl Gcra {
    /// The TAT due to leases: at each expiry so far, and now, as much is in use as was held until
    /// then.
    fn leased_tat(&self, leases: &NodeLeases, now: Timestamp) -> ExactTime {
        let marks = leases.ends().filter(|(_, held)| *held > 0).map(|(until, held)| {
            self.rate.later(ExactTime::at(until.min(now)), self.rate.time_of(held))
        });
        marks.max().unwrap_or_default()
    }
}
