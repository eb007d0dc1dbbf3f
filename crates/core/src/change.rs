//! Changing a limit while it is in use.

use crate::algorithm::gcra::{Gcra, GcraState};
use crate::algorithm::periodic::{Periodic, PeriodicState};
use crate::algorithm::{Algorithm, token_bucket};
use crate::arithmetic::clamp_amount;
use crate::limit::{Kernel, Limit, State};
use crate::quota::{ExactTime, proportion};
use crate::time::{NOW_MAX, Timestamp};

/// What an identity carries over when its limit changes.
///
/// Amounts convert in units, not in time, and round against the client by less than one unit. An
/// expired identity starts anew under the new limit, and so does every identity when the algorithm
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CarryOver {
    /// Usage stays: 8 of 10 becomes 8 of 20.
    #[default]
    Used,
    /// The remaining quota stays: 2 left of 10 becomes 2 left of 20.
    Remaining,
    /// The proportion stays: 8 of 10 becomes 16 of 20.
    Proportion,
    /// Every identity starts anew.
    Nothing,
}

impl Limit {
    /// Whether usage under `old` counts under this limit; otherwise every identity starts anew.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    ///
    /// assert!(Limit::Closed.keeps_usage_of(&Limit::Closed));
    /// assert!(!Limit::Closed.keeps_usage_of(&Limit::Unlimited));
    /// ```
    #[must_use]
    pub fn keeps_usage_of(&self, old: &Self) -> bool {
        // Usage is stored while a limit is closed; slots cannot be taken again without their ids.
        let has_usage = |limit: &Self| limit.capacity().is_some();
        let is_closed = |limit: &Self| matches!(limit.kernel(), Kernel::Closed);
        self.algorithm() == old.algorithm()
            || is_closed(self) && has_usage(old)
            || is_closed(old) && has_usage(self) && !matches!(self, Self::Concurrency(_))
    }

    /// The state under this limit of an identity that had `state` under `old`.
    ///
    /// ```
    /// use sluicegate_core::change::CarryOver;
    /// use sluicegate_core::limit::{Limit, State};
    /// use sluicegate_core::time::Timestamp;
    ///
    /// let now = Timestamp::EPOCH;
    /// let carried = Limit::Closed.carry(&Limit::Unlimited, State::New, CarryOver::Used, now);
    /// assert_eq!(carried, State::New);
    /// ```
    #[must_use]
    pub fn carry(&self, old: &Self, state: State, carry: CarryOver, now: Timestamp) -> State {
        if self == old && carry != CarryOver::Nothing {
            return state;
        }
        let (mut state, now) = (state, now.min(NOW_MAX));
        // An expired state is new, even where a new one does not start full.
        if !old.advance(&mut state, now) || carry == CarryOver::Nothing {
            return State::New;
        }
        let mut carried = match (self.kernel(), old.kernel(), &state) {
            // Usage is stored while the limit is closed, and nothing is refilled meanwhile.
            (Kernel::Closed, Kernel::Closed, _) => return state,
            (Kernel::Closed, _, _) => State::Spent(clamp_amount(old.used(&state, now))),
            (_, Kernel::Closed, State::Spent(used)) => self.with_used(*used, carry, now),
            _ if !self.keeps_usage_of(old) => State::New,
            (Kernel::Gcra(new), Kernel::Gcra(old), State::Gcra(s)) => {
                State::Gcra(new.carry(old, s, carry, now))
            }
            (Kernel::Periodic(new), Kernel::Periodic(old), State::Periodic(s)) => {
                State::Periodic(new.carry(old, s, carry, now))
            }
            (Kernel::Counter(new), Kernel::Counter(old), State::Counter(s)) => {
                State::Counter(new.carry(old, s, carry, now))
            }
            (Kernel::Log(new), Kernel::Log(old), State::Log(s)) => {
                State::Log(Box::new(new.carry(old, s, carry, now)))
            }
            (Kernel::WarmUp(new), Kernel::WarmUp(old), State::WarmUp(s)) => {
                State::WarmUp(new.carry(old, s, carry, now))
            }
            (Kernel::Slots(new), Kernel::Slots(old), State::Slots(s)) => {
                State::Slots(Box::new(new.carry(old, s, carry, now)))
            }
            (Kernel::Tally(new), Kernel::Tally(old), State::Tally(s)) => {
                State::Tally(new.carry(old, s, carry, now))
            }
            // A sliding window with slices instead of two counts, or the other way round.
            (Kernel::Log(_), Kernel::Counter(_), s) | (Kernel::Counter(_), Kernel::Log(_), s) => {
                let used = old.used(s, now);
                let used = match (carry, self.capacity(), old.capacity()) {
                    (CarryOver::Proportion, Some(to), Some(from)) => proportion(used, from, to),
                    (CarryOver::Remaining, Some(to), Some(from)) => {
                        to.saturating_add(used).saturating_sub(from)
                    }
                    _ => used,
                };
                self.with_used(clamp_amount(used), carry, now)
            }
            // A token bucket with another refill.
            (Kernel::Gcra(new), Kernel::Periodic(old), State::Periodic(s)) => {
                State::Gcra(gcra_from_periodic(new, old, s, carry, now))
            }
            (Kernel::Periodic(new), Kernel::Gcra(old), State::Gcra(s)) => {
                State::Periodic(periodic_from_gcra(new, old, s, carry, now))
            }
            _ => State::New,
        };
        self.close(&mut carried, now);
        carried
    }

    /// Units in use, rounded up.
    fn used(&self, state: &State, now: Timestamp) -> u64 {
        // The remaining quota does not show the count beyond the limit.
        if let State::Tally(tally) = state {
            return tally.count;
        }
        let Some(capacity) = self.capacity() else {
            return 0;
        };
        let left = self.remaining(state, now).unwrap_or(0);
        u64::try_from(i128::from(capacity).saturating_sub(i128::from(left))).unwrap_or(0)
    }

    /// A state with `used` units in use.
    fn with_used(&self, used: u64, carry: CarryOver, now: Timestamp) -> State {
        let mut state = State::New;
        self.open(&mut state, now);
        // A concurrency limit cannot charge without an id: requests in flight are dropped.
        if carry != CarryOver::Nothing && used > 0 && !matches!(self, Self::Concurrency(_)) {
            self.spend(&mut state, used, now, now);
        }
        state
    }
}

/// Carries over through an equivalent of `old` with the new kernel: same capacity, same usage.
fn gcra_from_periodic(
    new: &Gcra,
    old: &Periodic,
    state: &PeriodicState,
    carry: CarryOver,
    now: Timestamp,
) -> GcraState {
    let alike =
        Gcra { capacity: old.capacity.get(), full: new.rate.time_of(old.capacity.get()), ..*new };
    let short = i128::from(alike.capacity).saturating_sub(i128::from(state.level));
    let used = u64::try_from(short).unwrap_or(0);
    let tat = new.rate.later(ExactTime::at(now), new.rate.time_of(used));
    let extra = u64::try_from(short.saturating_neg()).unwrap_or(0);
    new.carry(
        &alike,
        &GcraState { tat, extra, seen: state.seen, hole_until: state.hole_until },
        carry,
        now,
    )
}

fn periodic_from_gcra(
    new: &Periodic,
    old: &Gcra,
    state: &GcraState,
    carry: CarryOver,
    now: Timestamp,
) -> PeriodicState {
    let capacity = std::num::NonZeroU64::new(old.capacity).unwrap_or(new.capacity);
    let alike = Periodic { capacity, ..*new };
    let level = old.remaining(state, now);
    let anchor = alike.fresh(now).anchor;
    new.carry(
        &alike,
        &PeriodicState { level, anchor, seen: state.seen, hole_until: state.hole_until },
        carry,
        now,
    )
}

impl token_bucket::TokenBucket {
    #[inline(always)]
    pub(crate) fn kernel(&self) -> Kernel<'_> {
        match &self.kernel {
            token_bucket::BucketKernel::Gcra(gcra) => Kernel::Gcra(gcra),
            token_bucket::BucketKernel::Periodic(steps) => Kernel::Periodic(steps),
        }
    }
}
