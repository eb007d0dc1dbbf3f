//! How often, and after which time, something is asked again.
//!
//! A service that fails because it has too much to do must not get more of it. So the time before the next try is anything up to a bound that doubles
//! (clients that failed together do not come back together), and a budget bounds what all calls of a client ask again: a share of what they ask.

use std::time::Duration;

use crate::chance::part_of;

/// The bounds of the time before each further try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// What may be asked again.
#[derive(Debug)]
pub(crate) struct Budget {
    /// A call pays in `percent`, a try again takes 100.
    credit: u32,
    percent: u32,
}

/// A client that has just begun, or asks seldom, can ask again this often.
const TRIES_SAVED_MAX: u32 = 10;

impl Backoff {
    /// Before the try after this many; `None` if the service wants more time than a caller has.
    pub(crate) fn before(
        self,
        tries: u32,
        told: Option<Duration>,
        chance: u64,
    ) -> Option<Duration> {
        let doubled = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        let bound = self.first.saturating_mul(doubled).min(self.longest);
        match told {
            Some(told) if told > self.longest => None,
            // Never earlier than told.
            Some(told) => Some(told.saturating_add(part_of(bound, chance))),
            None => Some(part_of(bound, chance)),
        }
    }
}

impl Budget {
    pub(crate) const fn of(percent: u32) -> Self {
        Self { credit: if percent == 0 { 0 } else { TRIES_SAVED_MAX * 100 }, percent }
    }

    /// Somebody asks.
    pub(crate) fn asked(&mut self) {
        self.credit = self.credit.saturating_add(self.percent).min(TRIES_SAVED_MAX * 100);
    }

    /// Somebody wants to ask again: may it?
    pub(crate) fn take(&mut self) -> bool {
        let left = self.credit.checked_sub(100);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_earlier_than_told_and_never_much_later(
            tries in 0_u32..100, told in proptest::option::of(0_u64..2_000), chance: u64,
        ) {
            let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
            let told = told.map(Duration::from_millis);
            match backoff.before(tries, told, chance) {
                Some(wait) => {
                    prop_assert!(wait >= told.unwrap_or_default());
                    prop_assert!(wait <= told.unwrap_or_default() + backoff.longest);
                }
                None => prop_assert!(told.is_some_and(|told| told > backoff.longest)),
            }
        }

        #[test]
        fn no_more_is_asked_again_than_a_share(percent in 0_u32..=100, asks in 0_u32..2_000) {
            let mut budget = Budget::of(percent);
            let mut again = 0;
            for _ in 0..asks {
                budget.asked();
                again += u32::from(budget.take());
            }
            prop_assert!(again <= TRIES_SAVED_MAX + asks * percent / 100);
            prop_assert!(again >= asks * percent / 100 || asks == 0);
        }
    }
}
