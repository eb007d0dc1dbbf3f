//! The admitted requests of a client in the last window, and the most in any rolling window.
//!
//! ```text
//!   entries   …│ · ·· ·   ·  ··· · │        a request passes at `at`
//!              at - window         at       the window is (at - window, at]
//!                 └──────── sum ────┘
//!                           └─ sum ─┘       so for each shorter window
//! ```
//!
//! The most in any window of a length is found in one that ends with a request, so only those are
//! looked at. Entries leave when no window that ends now or later holds them.

use std::collections::VecDeque;

/// Lengths of the windows, in microseconds: that of the rule, a tenth and a hundredth of it.
pub(super) const WINDOWS: usize = 3;

/// The lengths for a rule's window.
pub(super) fn window_lengths(window_us: u64) -> [u64; WINDOWS] {
    [window_us, (window_us / 10).max(1), (window_us / 100).max(1)]
}

/// Requests of a client that passed, or will pass, after the beginning of the current window.
#[derive(Debug, Clone, Default)]
pub(super) struct RollingLog {
    /// When each passes, and its cost; in the order of time.
    entries: VecDeque<(u64, u64)>,
    held: u64,
    /// For each window, the first entry that it holds, and the cost of all it holds.
    windows: [(usize, u64); WINDOWS],
}

impl RollingLog {
    /// The cost of all that a window of this length which ends at `now` or later holds.
    pub(super) fn held_at(&mut self, now: u64, window: u64) -> u64 {
        while let Some((at, cost)) = self.entries.front().copied() {
            if at.saturating_add(window) > now {
                break;
            }
            self.entries.pop_front();
            self.held -= cost;
            for (first, sum) in &mut self.windows {
                match first.checked_sub(1) {
                    Some(before) => *first = before,
                    None => *sum -= cost,
                }
            }
        }
        self.held
    }

    /// Adds a request that passes at `at`, not before those that were added; the cost that each
    /// window which ends with it holds, its own included.
    pub(super) fn add(&mut self, at: u64, cost: u64, lengths: [u64; WINDOWS]) -> [u64; WINDOWS] {
        self.entries.push_back((at, cost));
        self.held += cost;
        for ((first, sum), length) in self.windows.iter_mut().zip(lengths) {
            *sum += cost;
            while let Some((entered, left)) = self.entries.get(*first).copied() {
                if entered.saturating_add(length) > at {
                    break;
                }
                *sum -= left;
                *first += 1;
            }
        }
        self.windows.map(|(_, sum)| sum)
    }

    /// Whether nothing of it can be held at `now` or later.
    pub(super) fn is_empty_at(&self, now: u64, window: u64) -> bool {
        self.entries.back().is_none_or(|(at, _)| at.saturating_add(window) <= now)
    }

    /// When the last request passes.
    pub(super) fn last(&self) -> Option<u64> {
        self.entries.back().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_those_of_a_search_through_all(
            requests in prop::collection::vec((0u64..40, 0u64..30, 1u64..4), 1..120),
            window in 1u64..200,
        ) {
            let lengths = window_lengths(window);
            let (mut log, mut all) = (RollingLog::default(), Vec::<(u64, u64)>::new());
            let (mut now, mut last) = (0, 0);
            for (pause, wait, cost) in requests {
                now += pause;
                let held: u64 =
                    all.iter().filter(|(at, _)| at + window > now).map(|(_, cost)| cost).sum();
                prop_assert_eq!(log.held_at(now, window), held);
                prop_assert_eq!(log.is_empty_at(now, window), held == 0);
                last = last.max(now + wait);
                all.push((last, cost));
                let sums = log.add(last, cost, lengths);
                for (sum, length) in sums.into_iter().zip(lengths) {
                    let within = all.iter().filter(|(at, _)| at + length > last);
                    prop_assert_eq!(sum, within.map(|(_, cost)| cost).sum::<u64>());
                }
            }
        }
    }
}
