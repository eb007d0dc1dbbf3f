//! Count-min sketch that finds frequently requested identities (heavy hitters).
//!
//! Each identity increments one counter in each of four rows, at columns taken from its hash. The
//! minimum of the four never underestimates, and overestimates only if other identities collide in
//! every row; a false positive is leased without need. Periodic halving makes the counts recent.

use std::sync::atomic::{AtomicU32, Ordering};

const ROWS: usize = 4;
const COLUMNS: usize = 4_096;

/// Count-min sketch of recent requests per identity.
#[derive(Debug)]
pub(super) struct CountMinSketch {
    counters: Box<[AtomicU32]>,
}

impl CountMinSketch {
    /// An empty sketch.
    pub(super) fn new() -> Self {
        Self { counters: (0..ROWS * COLUMNS).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Counts a request. Returns the upper estimate of the recent requests.
    pub(super) fn count(&self, hash: u64) -> u32 {
        let mut min = u32::MAX;
        for row in 0..ROWS {
            // Sixteen bits of the hash select the column of a row.
            let column = (hash >> (16 * row)) as usize % COLUMNS;
            let before = self.counters[row * COLUMNS + column].fetch_add(1, Ordering::Relaxed);
            min = min.min(before.saturating_add(1));
        }
        min
    }

    /// Halves all counters.
    pub(super) fn halve(&self) {
        for counter in &self.counters {
            let now = counter.load(Ordering::Relaxed);
            if now > 0 {
                // Concurrent increments may be lost, which is within the error of the estimate.
                counter.store(now / 2, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_heavy_hitters_among_many() {
        let sketch = CountMinSketch::new();
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        for number in 1..=2_000 {
            assert!(sketch.count(spread(number)) < 20, "{number} came once");
        }
        for _ in 0..99 {
            sketch.count(spread(7_000_001));
        }
        let often = sketch.count(spread(7_000_001));
        assert!((100..130).contains(&often), "{often}");
        sketch.halve();
        sketch.halve();
        assert!(sketch.count(spread(7_000_001)) < 40, "lately, not ever");
    }
}
