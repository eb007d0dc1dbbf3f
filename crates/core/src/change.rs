//! Changing a limit while it is in use.

use crate::algorithm::gcra::{Gcra, GcraState};
use crate::algorithm::periodic::{Periodic, PeriodicState};
use crate::algorithm::{Algorithm, token_bucket};
use crate::arithmetic::clamp_amount;
use crate::limit::{Kernel, Limit, State};
use crate::quota::ExactTime;
use crate::time::{NOW_MAX, Timestamp};

/// What an identity keeps when its limit changes.
///
/// Amounts convert in units, not in time, and round against the client by less than one unit. An
/// identity that is as good as new starts anew under the new limit, and so does every identity when
/// the algorithm itself changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CarryOver {
    /// What was used stays used: 8 of 10 becomes 8 of 20.
    #[default]
    Used,
    /// What is left stays left: 2 left of 10 stays 2 left of 20.
    Remaining,
    /// What was used stays the same part of the whole: 8 of 10 becomes 16 of 20.
    Proportion,
    /// Everyone starts anew.
    Nothing,
}

impl Limit {
    /// The state under this limit of an identity that had `state` under `old`.
    ///
    /// ```
    /// use sluicegate_core::change::CarryOver;
    /// use sluicegate_core::limit::{Limit, State};
    /// use sluicegate_core::time::Timestamp;
    ///
    /// let now = Timestamp::EPOCH;
    /// assert_eq!(Limit::Closed.carry(&Limit::Unlimited, State::New, CarryOver::Used, now), State::New);
    /// ```
    #[must_use]
    pub fn carry(&self, old: &Self, state: State, carry: CarryOver, now: Timestamp) -> State {
        if self == old && carry != CarryOver::Nothing {
            return state;
        }
        let (mut state, now) = (state, now.min(NOW_MAX));
        // As good as new is new, also where a new one is not a full one.
        if !old.advance(&mut state, now) || carry == CarryOver::Nothing {
            return State::New;
        }
        let mut carried = match (self.kernel(), old.kernel(), &state) {
            // Closed for a while: what was used is remembered, and nothing comes back meanwhile.
            (Kernel::Closed, Kernel::Closed, _) => return state,
            (Kernel::Closed, _, _) => State::Spent(clamp_amount(old.used(&state, now))),
            (_, Kernel::Closed, State::Spent(used)) => self.with_used(*used, carry, now),
            _ if self.algorithm() != old.algorithm() => State::New,
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
            // A token bucket refilled another way.
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

    /// Units in use, each begun one counting as whole.
    fn used(&self, state: &State, now: Timestamp) -> u64 {
        // What lies beyond the limit does not show in what is left of it.
        if let State::Tally(tally) = state {
            return tally.count;
        }
        let Some(capacity) = self.capacity() else {
            return 0;
        };
        let left = self.remaining(state, now).unwrap_or(0);
        u64::try_from(i128::from(capacity).saturating_sub(i128::from(left))).unwrap_or(0)
    }

    /// A state in which so many units were used.
    fn with_used(&self, used: u64, carry: CarryOver, now: Timestamp) -> State {
        let mut state = State::New;
        self.open(&mut state, now);
        // A concurrency limit cannot charge without an id: who was in flight is in flight no more.
        if carry != CarryOver::Nothing && used > 0 && !matches!(self, Self::Concurrency(_)) {
            self.spend(&mut state, used, now, now);
        }
        state
    }
}

/// A stand-in for `old` with another kernel: the same capacity, with the same units in use.
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
