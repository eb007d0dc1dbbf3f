//! Counts over time in a bounded number of bins, and how evenly counts are distributed.

use std::collections::BTreeMap;

/// Maximum number of bins of a series.
pub const BINS_MAX: usize = 240;

/// Counts in bins of equal length. The bins double when time goes beyond the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSeries {
    origin_us: u64,
    width_us: u64,
    bins: Vec<u64>,
}

impl TimeSeries {
    /// An empty series from this time, with bins of this length or more.
    #[must_use]
    pub fn new(origin_us: u64, width_us: u64) -> Self {
        Self { origin_us, width_us: width_us.max(1), bins: Vec::new() }
    }

    /// Counts `amount` at a time, which is not before the origin.
    ///
    /// ```
    /// use sluicegate_lab::compare::{BINS_MAX, TimeSeries};
    ///
    /// let mut series = TimeSeries::new(0, 10);
    /// series.add(15, 2);
    /// assert_eq!((series.width_us(), series.bins()), (10, &[0, 2][..]));
    /// series.add(10 * BINS_MAX as u64, 1);
    /// assert_eq!((series.width_us(), series.bins()[0]), (20, 2));
    /// ```
    pub fn add(&mut self, at_us: u64, amount: u64) {
        let after = at_us.saturating_sub(self.origin_us);
        while after / self.width_us >= BINS_MAX as u64 {
            self.widen();
        }
        let bin = (after / self.width_us) as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        if let Some(count) = self.bins.get_mut(bin) {
            *count = count.saturating_add(amount);
        }
    }

    /// Makes its bins at least as long as those of another series that began as it did.
    pub(super) fn widen_to(&mut self, width_us: u64) {
        while self.width_us < width_us {
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.width_us = self.width_us.saturating_mul(2);
        self.bins = self.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// The first moment.
    #[must_use]
    pub const fn origin_us(&self) -> u64 {
        self.origin_us
    }

    /// Length of a bin.
    #[must_use]
    pub const fn width_us(&self) -> u64 {
        self.width_us
    }

    /// The counts.
    #[must_use]
    pub fn bins(&self) -> &[u64] {
        &self.bins
    }
}

/// Sums over the counts of all bins of a fixed length, of which only those that can still grow are
/// in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct DispersionSums {
    open: BTreeMap<u64, u64>,
    sum: f64,
    squares: f64,
}

impl DispersionSums {
    /// Counts in a bin. Bins before `closed` will not grow.
    pub(super) fn add(&mut self, bin: u64, amount: u64, closed: u64) {
        *self.open.entry(bin).or_default() += amount;
        while let Some(first) = self.open.first_entry() {
            if *first.key() >= closed {
                break;
            }
            let count = first.remove() as f64;
            self.sum += count;
            self.squares += count * count;
        }
    }

    /// Variance by mean of the counts of so many bins, those without a request included; `None`
    /// without requests.
    pub(super) fn index(mut self, bins: u64) -> Option<f64> {
        for count in std::mem::take(&mut self.open).into_values() {
            self.sum += count as f64;
            self.squares += (count as f64).powi(2);
        }
        let bins = bins as f64;
        let mean = self.sum / bins;
        (mean > 0.0).then(|| (self.squares / bins - mean * mean).max(0.0) / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_and_lose_nothing() {
        let mut series = TimeSeries::new(1_000, 3);
        for step in 0..10_000 {
            series.add(1_000 + step * 7, 1);
        }
        assert_eq!(series.bins().iter().sum::<u64>(), 10_000);
        assert!(series.bins().len() > BINS_MAX / 2 && series.bins().len() <= BINS_MAX);
        let mut far = TimeSeries::new(0, 1);
        far.add(u64::MAX, 1);
        assert!(far.bins().len() <= BINS_MAX);
    }

    #[test]
    fn dispersion_is_variance_by_mean() {
        let of = |counts: &[u64]| {
            let mut sums = DispersionSums::default();
            for (bin, count) in (0..).zip(counts) {
                sums.add(bin, *count, bin);
            }
            sums.index(counts.len() as u64)
        };
        assert_eq!(of(&[3, 3, 3]), Some(0.0));
        assert_eq!(of(&[0, 4]), Some(2.0));
        assert_eq!(of(&[0, 0]), None);
    }
}
