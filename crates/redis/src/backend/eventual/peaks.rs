//! The most that was seen lately, rule by rule.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::book::Seen;
use crate::backend::LevelCounters;

/// What was seen is told for one to two of these.
pub(super) const TOLD_FOR: Duration = Duration::from_secs(60);

/// What was seen of each rule since the last turn, and in the one before.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    /// By where the counters lie.
    rules: HashMap<usize, Peak>,
}

#[derive(Debug)]
struct Peak {
    counters: Arc<LevelCounters>,
    now: Seen,
    before: Seen,
}

// === impl Peaks ===

impl Peaks {
    /// An answer showed this.
    pub(super) fn note(&mut self, counters: &Arc<LevelCounters>, seen: Seen) {
        if seen == Seen::default() {
            return;
        }
        let new =
            || Peak { counters: counters.clone(), now: Seen::default(), before: Seen::default() };
        let peak = self.rules.entry(Arc::as_ptr(counters) as usize).or_insert_with(new);
        peak.now = peak.now.or(seen);
        peak.tell();
    }

    /// What was seen before the last turn is over.
    pub(super) fn turn(&mut self) {
        self.rules.retain(|_, peak| {
            peak.before = std::mem::take(&mut peak.now);
            peak.tell();
            peak.before != Seen::default()
        });
    }
}

impl Peak {
    fn tell(&self) {
        let Seen { bound, over } = self.now.or(self.before);
        self.counters.over_bound.store(bound, Ordering::Relaxed);
        self.counters.over_observed.store(over, Ordering::Relaxed);
    }
}

// === impl Seen ===

impl Seen {
    /// The greater of both.
    fn or(self, other: Self) -> Self {
        Self { bound: self.bound.max(other.bound), over: self.over.max(other.over) }
    }
}
