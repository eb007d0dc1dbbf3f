//! How many reservations take memory: those that are not settled, until they are forgotten.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sluicegate::Timestamp;

/// Counts reservations by the second in which they are forgotten.
///
/// ```
/// use sluicegate::{Span, Timestamp};
/// use sluicegate_server::holds::Pending;
///
/// let (pending, now) = (Pending::new(1), Timestamp::EPOCH);
/// let then = now.after(Span::from_secs(60));
/// assert!(pending.add(then, now));
/// assert!(!pending.add(then, now), "one is the most");
/// assert!(pending.add(then.after(Span::from_secs(60)), then), "the first is forgotten by then");
/// ```
#[derive(Debug)]
pub struct Pending {
    most: u64,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_second: BTreeMap<u64, u64>,
    total: u64,
}

impl Pending {
    /// At most so many.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { most, counts: Mutex::default() }
    }

    /// Whether there is room for one more, which is forgotten at that moment.
    pub fn add(&self, forgotten_at: Timestamp, now: Timestamp) -> bool {
        let mut counts = self.counts.lock();
        counts.forget(now.as_micros() / 1_000_000);
        if counts.total >= self.most {
            return false;
        }
        counts.total += 1;
        *counts.by_second.entry(second(forgotten_at)).or_default() += 1;
        true
    }

    /// One of those that would be forgotten at that moment is settled.
    pub fn remove(&self, forgotten_at: Timestamp) {
        let mut counts = self.counts.lock();
        let second = second(forgotten_at);
        // It may be of a time before this process began.
        if let Some(count) = counts.by_second.get_mut(&second) {
            *count -= 1;
            if *count == 0 {
                counts.by_second.remove(&second);
            }
            counts.total -= 1;
        }
    }

    /// How many there were when one was last added or settled.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.lock().total
    }

    /// How many there may be.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }
}

impl Counts {
    fn forget(&mut self, now: u64) {
        while let Some(first) = self.by_second.first_entry().filter(|first| *first.key() <= now) {
            self.total -= first.remove();
        }
    }
}

/// Rounded up: not a moment before the counters forget it.
fn second(at: Timestamp) -> u64 {
    at.as_micros().div_ceil(1_000_000)
}
