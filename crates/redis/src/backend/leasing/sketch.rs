//! Who is asked for often: a count-min sketch.
//!
//! Each identity adds to one counter in each of four rows, at places that its hash tells; the least of the four is never less than what it came to, and more only
//! where others met it in every row. So a few kilobytes find the heavy hitters among any number of identities, and who is taken for one by mistake is leased without need.
//! All counters are halved now and then: what counts is lately.

use std::sync::atomic::{AtomicU32, Ordering};

const ROWS: usize = 4;
const PLACES: usize = 4_096;

/// Who is asked for often.
#[derive(Debug)]
pub(super) struct Sketch {
    counters: Box<[AtomicU32]>,
}

// === impl Sketch ===

impl Sketch {
    /// Nobody has come.
    pub(super) fn new() -> Self {
        Self { counters: (0..ROWS * PLACES).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Somebody came; how often lately, at the most.
    pub(super) fn count(&self, hash: u64) -> u32 {
        let mut least = u32::MAX;
        for row in 0..ROWS {
            // Sixteen bits of the hash for each row.
            let place = (hash >> (16 * row)) as usize % PLACES;
            let before = self.counters[row * PLACES + place].fetch_add(1, Ordering::Relaxed);
            least = least.min(before.saturating_add(1));
        }
        least
    }

    /// What was counts half.
    pub(super) fn halve(&self) {
        for counter in &self.counters {
            let now = counter.load(Ordering::Relaxed);
            if now > 0 {
                // What came in between is lost: it is one of many.
                counter.store(now / 2, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_comes_often_among_many() {
        let sketch = Sketch::new();
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
