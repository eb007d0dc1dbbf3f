//! SpaceSaving: the identities with the most hits in a fixed size.
//!
//! ```text
//!   known            count += weight
//!   room             a new entry
//!   full             replaces the entry with the least count:
//!                    count = least + weight, over_estimate = least
//! ```
//!
//! So `count - over_estimate <= true count <= count`, the over-estimate is at most the sum of all
//! weights divided by [`TRACKED_IDENTITIES`], and an identity with more than that share is always
//! among the entries: a flood of others cannot push it out.

/// Entries of a sketch.
pub const TRACKED_IDENTITIES: usize = 64;

/// Bytes of an identity that are stored; of a longer one the beginning.
pub(super) const IDENTITY_BYTES_MAX: usize = 256;

/// The heaviest identities of one stream of hits.
#[derive(Debug, Default)]
pub struct HeavyHitters {
    hashes: Vec<u64>,
    counts: Vec<u64>,
    entries: Vec<TrackedIdentity>,
    /// Sum of all weights.
    total: u64,
}

#[derive(Debug, Default)]
struct TrackedIdentity {
    over_estimate: u64,
    identity: Vec<u8>,
}

/// An identity with many hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hitter {
    pub(super) hash: u64,
    pub(super) count: u64,
    pub(super) over_estimate: u64,
    pub(super) identity: Vec<u8>,
}

impl HeavyHitters {
    /// Adds hits of an identity, whose hash identifies it.
    pub fn add(&mut self, hash: u64, identity: &[u8], weight: u64) {
        self.total = self.total.saturating_add(weight);
        if let Some(index) = self.hashes.iter().position(|known| *known == hash) {
            self.counts[index] = self.counts[index].saturating_add(weight);
            return;
        }
        let stored = &identity[..identity.len().min(IDENTITY_BYTES_MAX)];
        if self.hashes.len() < TRACKED_IDENTITIES {
            self.hashes.push(hash);
            self.counts.push(weight);
            self.entries.push(TrackedIdentity { over_estimate: 0, identity: stored.to_vec() });
            return;
        }
        let Some(least) = self.counts.iter().copied().min() else { return };
        let Some(index) = self.counts.iter().position(|count| *count == least) else { return };
        self.hashes[index] = hash;
        self.counts[index] = least.saturating_add(weight);
        let entry = &mut self.entries[index];
        entry.over_estimate = least;
        entry.identity.clear();
        entry.identity.extend_from_slice(stored);
    }

    /// The count that an identity without an entry has at most.
    fn absent_max(&self) -> u64 {
        match self.counts.len() {
            TRACKED_IDENTITIES => self.counts.iter().copied().min().unwrap_or(0),
            _ => 0,
        }
    }

    /// Sum of all weights.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The entries of two streams together, the heaviest first. An identity that only one has may
    /// have been in the other, below its least count: its over-estimate includes that.
    pub(super) fn merge(&self, other: &Self) -> Vec<Hitter> {
        let mut merged: Vec<Hitter> = self.hitters().collect();
        for hitter in &mut merged {
            let found = other.hashes.iter().position(|hash| *hash == hitter.hash);
            let (count, over) = match found {
                Some(index) => (other.counts[index], other.entries[index].over_estimate),
                None => (other.absent_max(), other.absent_max()),
            };
            hitter.count = hitter.count.saturating_add(count);
            hitter.over_estimate = hitter.over_estimate.saturating_add(over);
        }
        let absent = self.absent_max();
        let only_other = other.hitters().filter(|hitter| !self.hashes.contains(&hitter.hash));
        merged.extend(only_other.map(|hitter| Hitter {
            count: hitter.count.saturating_add(absent),
            over_estimate: hitter.over_estimate.saturating_add(absent),
            ..hitter
        }));
        merged.sort_by_key(|hitter| {
            std::cmp::Reverse((hitter.count - hitter.over_estimate, hitter.count))
        });
        merged
    }

    fn hitters(&self) -> impl Iterator<Item = Hitter> {
        let all = self.hashes.iter().zip(&self.counts).zip(&self.entries);
        all.map(|((hash, count), entry)| Hitter {
            hash: *hash,
            count: *count,
            over_estimate: entry.over_estimate,
            identity: entry.identity.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn add(sketch: &mut HeavyHitters, exact: &mut HashMap<u64, u64>, number: u64, weight: u64) {
        sketch.add(number, &number.to_le_bytes(), weight);
        *exact.entry(number).or_default() += weight;
    }

    fn within_the_error(sketch: &HeavyHitters, exact: &HashMap<u64, u64>) {
        let total: u64 = exact.values().sum();
        let error_max = total / TRACKED_IDENTITIES as u64;
        assert_eq!(sketch.total(), total);
        let hitters = sketch.merge(&HeavyHitters::default());
        for hitter in &hitters {
            let due = exact[&hitter.hash];
            assert!(
                hitter.count - hitter.over_estimate <= due && due <= hitter.count,
                "{hitter:?}"
            );
            assert!(hitter.over_estimate <= error_max, "{hitter:?}");
        }
        for (number, _) in exact.iter().filter(|(_, count)| **count > error_max) {
            assert!(hitters.iter().any(|hitter| hitter.hash == *number), "{number}");
        }
    }

    #[test]
    fn a_zipf_stream_is_within_the_error() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut sketch, mut exact) = (HeavyHitters::default(), HashMap::new());
        for _ in 0..100_000 {
            // Zipf with exponent 1 over 10,000 identities, by inversion.
            let number = (10_000f64.powf(rng.f64())) as u64;
            add(&mut sketch, &mut exact, number, 1 + rng.u64(..3));
        }
        within_the_error(&sketch, &exact);
        let hitters = sketch.merge(&HeavyHitters::default());
        assert_eq!([hitters[0].hash, hitters[1].hash, hitters[2].hash], [1, 2, 3]);
    }

    #[test]
    fn a_flood_of_distinct_identities_does_not_push_out_the_heavy_ones() {
        let mut rng = fastrand::Rng::with_seed(2);
        let (mut sketch, mut exact) = (HeavyHitters::default(), HashMap::new());
        for turn in 0..200_000u64 {
            add(&mut sketch, &mut exact, 1_000_000 + turn, 1);
            if rng.u8(..) < 12 {
                // One of two abusers with 2.3 % each, above 1 / 64.
                add(&mut sketch, &mut exact, turn % 2, 1);
            }
        }
        within_the_error(&sketch, &exact);
    }

    #[test]
    fn long_identities_take_no_more_memory() {
        let mut sketch = HeavyHitters::default();
        for number in 0..1_000u64 {
            sketch.add(number, &[7; 100_000], 1);
        }
        let bytes: usize = sketch.entries.iter().map(|entry| entry.identity.capacity()).sum();
        assert!(bytes <= TRACKED_IDENTITIES * IDENTITY_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn merged_streams_keep_the_bounds() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut exact = HashMap::new();
        let (mut one, mut other) = (HeavyHitters::default(), HeavyHitters::default());
        for _ in 0..20_000 {
            let number = (1_000f64.powf(rng.f64())) as u64;
            let sketch = if rng.bool() { &mut one } else { &mut other };
            add(sketch, &mut exact, number, 1);
        }
        for hitter in one.merge(&other) {
            let due = exact[&hitter.hash];
            assert!(
                hitter.count - hitter.over_estimate <= due && due <= hitter.count,
                "{hitter:?}"
            );
        }
    }
}
