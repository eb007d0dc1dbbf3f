//! Conditions of the network, and the distribution of the store's latency.

use crate::rng::SimRng;

/// Network conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Minimum one-way delay in milliseconds.
    pub least_ms: u64,
    /// Maximum one-way delay in milliseconds.
    pub delay_ms: u64,
    /// Late calls per thousand, and their maximum delay.
    pub late: (u64, u64),
    /// Lost calls per thousand.
    pub lost: u64,
    /// Lost responses per thousand.
    pub unanswered: u64,
    /// Duplicated calls per thousand.
    pub twice: u64,
}

impl Conditions {
    /// All calls arrive once, with little delay.
    pub const NORMAL: Self =
        Self { least_ms: 0, delay_ms: 2, late: (0, 0), lost: 0, unanswered: 0, twice: 0 };
}

/// A random value of a distribution: linear between its quantiles, in milliseconds.
pub(crate) fn quantile(rng: &mut SimRng, quantiles: &[(u64, u64)]) -> u64 {
    let Some((_, max)) = quantiles.last().copied() else { return 0 };
    let at = rng.within(0, 999);
    let mut below = (0, quantiles[0].1.min(max));
    for (thousandths, ms) in quantiles.iter().copied() {
        if at < thousandths {
            let part = (at - below.0) * (ms - below.1) / (thousandths - below.0).max(1);
            return below.1 + part;
        }
        below = (thousandths, ms);
    }
    max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_between_their_quantiles() {
        let mut rng = SimRng::new(1, "latency");
        let quantiles = [(500, 10), (990, 100)];
        let values: Vec<u64> = (0..4_000).map(|_| quantile(&mut rng, &quantiles)).collect();
        let share = values.iter().filter(|ms| **ms <= 10).count();
        assert!((1_800..2_200).contains(&share), "{share}");
        assert!(values.iter().all(|ms| (10..=100).contains(ms)));
        assert!(values.iter().any(|ms| *ms > 80));
        assert_eq!(quantile(&mut rng, &[]), 0);
    }
}
