//! Retries: exponential backoff with full jitter, and a budget.
//!
//! The delay is random up to a bound that doubles, so that clients do not return together. The
//! budget bounds the retries of all calls of a client to a share of its calls.

use std::time::Duration;

/// Bounds of the delay before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// Budget of retries.
#[derive(Debug)]
pub(crate) struct Budget {
    /// A call adds `percent`, a retry takes 100.
    credit: u32,
    percent: u32,
}

/// Retries saved at most.
const TRIES_SAVED_MAX: u32 = 10;

impl Backoff {
    /// Delay after this many attempts; `None` if the service requires more than the longest delay.
    pub(crate) fn before(
        self,
        tries: u32,
        hints: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        let doubled = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        let bound = self.first.saturating_mul(doubled).min(self.longest);
        match hints {
            Some(hints) if hints > self.longest => None,
            // Never before `Retry-After`.
            Some(hints) => Some(hints.saturating_add(jitter(bound, random))),
            None => Some(jitter(bound, random)),
        }
    }
}

impl Budget {
    pub(crate) const fn of(percent: u32) -> Self {
        Self { credit: if percent == 0 { 0 } else { TRIES_SAVED_MAX * 100 }, percent }
    }

    /// A call was made.
    pub(crate) fn add_call(&mut self) {
        self.credit = self.credit.saturating_add(self.percent).min(TRIES_SAVED_MAX * 100);
    }

    /// Takes a retry from the budget, if available.
    pub(crate) fn take(&mut self) -> bool {
        let left = self.credit.checked_sub(100);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }
}

/// A part of the span, from none to nearly all of it, by a random number.
pub(crate) fn jitter(span: Duration, random: u64) -> Duration {
    let nanos = span.as_nanos().min(u128::from(u64::MAX));
    let part = (nanos * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_earlier_than_told_and_never_much_later(
            tries in 0_u32..100, hints in proptest::option::of(0_u64..2_000), random: u64,
        ) {
            let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
            let hints = hints.map(Duration::from_millis);
            match backoff.before(tries, hints, random) {
                Some(wait) => {
                    prop_assert!(wait >= hints.unwrap_or_default());
                    prop_assert!(wait <= hints.unwrap_or_default() + backoff.longest);
                }
                None => prop_assert!(hints.is_some_and(|hints| hints > backoff.longest)),
            }
        }

        #[test]
        fn no_more_is_asked_again_than_a_share(percent in 0_u32..=100, asks in 0_u32..2_000) {
            let mut budget = Budget::of(percent);
            let mut again = 0;
            for _ in 0..asks {
                budget.add_call();
                again += u32::from(budget.take());
            }
            prop_assert!(again <= TRIES_SAVED_MAX + asks * percent / 100);
            prop_assert!(again >= asks * percent / 100 || asks == 0);
        }
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let day = Duration::from_secs(86_400);
        assert_eq!(jitter(day, 0), Duration::ZERO);
        assert_eq!(jitter(day, u64::MAX / 2 + 1), day / 2);
        assert!(jitter(day, u64::MAX) < day);
        assert!(jitter(Duration::MAX, u64::MAX) < Duration::MAX);
    }
}
