//! The methods that are compared, as limits of the production core.

use sluicegate_core::algorithm::Slot;
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::sliding_log::SlidingLog;
use sluicegate_core::algorithm::sliding_slices::SlidingSlices;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::Timestamp;

use super::Counting;

/// A way to count in a window.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Its name in tables.
    pub name: &'static str,
    limit: Limit,
}

/// The state of one client.
pub(super) type MethodState = State;

/// All methods with this rate.
///
/// A log stands for itself: a study that finds errors of it is wrong. It holds at most 10,000 hits,
/// so it is left out for larger rates, and where every request counts.
#[must_use]
pub fn methods(rate: Rate, counting: Counting) -> Vec<Method> {
    let two = |rounding| Limit::SlidingWindow(SlidingWindow::new(rate, rounding));
    // A fixed window that counts denied requests too.
    let fixed = match counting {
        Counting::All => Tally::new(rate.count(), rate.period()).ok().map(Limit::Tally),
        Counting::Admitted => Some(Limit::FixedWindow(FixedWindow::new(rate, Align::Clock))),
    };
    let slices = |slices| SlidingSlices::new(rate, slices).ok().map(Limit::SlidingSlices);
    let log = match counting {
        Counting::All => None,
        Counting::Admitted => SlidingLog::new(&[rate]).ok().map(Limit::SlidingLog),
    };
    let all = [
        ("fixed_window", fixed),
        ("sliding_window", Some(two(Rounding::Floor))),
        ("sliding_window, rounding: up", Some(two(Rounding::Up))),
        ("sliding_window, slices: 2", slices(2)),
        ("sliding_window, slices: 6", slices(6)),
        ("sliding_window, slices: 10", slices(10)),
        ("sliding_window, slices: 60", slices(60)),
        ("sliding_log", log),
    ];
    all.into_iter().filter_map(|(name, limit)| Some(Method { name, limit: limit? })).collect()
}

impl Method {
    /// The count in the window of `now`, as this method knows it.
    pub(super) fn used(&self, state: &mut State, now: Timestamp) -> u64 {
        self.limit.open(state, now);
        let capacity = i64::try_from(self.limit.capacity().unwrap_or(0)).unwrap_or(i64::MAX);
        let left = self.limit.remaining(state, now).unwrap_or(0);
        let used = u64::try_from(capacity.saturating_sub(left)).unwrap_or(0);
        used.saturating_add(self.limit.beyond(state))
    }

    /// Whether it admits a request; the state is opened.
    pub(super) fn admits(&self, state: &State, now: Timestamp) -> bool {
        matches!(self.limit.slot(state, 1, now), Slot::At(at) if at <= now)
    }

    /// Counts a request; the state is opened.
    pub(super) fn charge(&self, state: &mut State, now: Timestamp) {
        self.limit.spend(state, 1, now, now);
    }
}
