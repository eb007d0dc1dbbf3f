//! Overshoot of eventual rules: the hits above a limit, as a bound and as observed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::LevelCounters;

/// Hits above the limit of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Overshoot {
    /// Admissions of peers that were unknown to this node when it admitted a hit.
    pub(super) bound: u64,
    /// Excess of a window's total over its limit.
    pub(super) observed: u64,
}

/// A peak is reported for one to two of these periods.
pub(super) const PEAK_PERIOD: Duration = Duration::from_secs(60);

/// Largest overshoot per rule in the current and the previous period.
#[derive(Debug, Default)]
pub(super) struct OvershootPeaks {
    /// By the address of the counters.
    rules: HashMap<usize, Peak>,
}

#[derive(Debug)]
struct Peak {
    counters: Arc<LevelCounters>,
    current: Overshoot,
    previous: Overshoot,
}

impl OvershootPeaks {
    /// Records the overshoot that a reply revealed.
    pub(super) fn record(&mut self, counters: &Arc<LevelCounters>, overshoot: Overshoot) {
        if overshoot == Overshoot::default() {
            return;
        }
        let new = || Peak {
            counters: counters.clone(),
            current: Overshoot::default(),
            previous: Overshoot::default(),
        };
        let peak = self.rules.entry(Arc::as_ptr(counters) as usize).or_insert_with(new);
        peak.current = peak.current.max(overshoot);
        peak.publish();
    }

    /// Starts a new period.
    pub(super) fn rotate(&mut self) {
        self.rules.retain(|_, peak| {
            peak.previous = std::mem::take(&mut peak.current);
            peak.publish();
            peak.previous != Overshoot::default()
        });
    }
}

impl Peak {
    fn publish(&self) {
        let Overshoot { bound, observed } = self.current.max(self.previous);
        self.counters.over_bound.store(bound, Ordering::Relaxed);
        self.counters.over_observed.store(observed, Ordering::Relaxed);
    }
}

impl Overshoot {
    /// The maximum of both.
    fn max(self, other: Self) -> Self {
        Self { bound: self.bound.max(other.bound), observed: self.observed.max(other.observed) }
    }
}
