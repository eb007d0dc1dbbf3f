//! Bootstrap over clients: how much a result depends on which clients were recorded.
//!
//! A resample counts each client a random number of times, with the Poisson distribution of mean 1:
//! the limit of drawing clients with replacement. Requests of one client are not independent, so
//! clients are resampled and not requests. The random numbers are a hash of the resample and the
//! client: the same input gives the same result.

use sluicegate_core::time::Span;

use super::trade_off::{TOP_MAX, TradeOffPoint, strictest};

/// Number of resamples.
pub(super) const RESAMPLES: u64 = 400;
/// Fewer clients are too few for an interval by resampling.
pub const CLIENTS_MIN: usize = 30;

/// How the recommended pair varies between resamples: the central 90 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stability {
    /// The pair with the lowest and the highest rate.
    pub rates: [(super::shape::LimitShape, u64); 2],
    /// The most that the recommended pair admits in the horizon.
    pub admitted: [u64; 2],
}

/// Repeats the choice of the pair with other clients.
pub(super) fn stability(
    curve: &[TradeOffPoint],
    exceeded: usize,
    horizon: Span,
) -> Option<Stability> {
    if curve.is_empty() || 2 * exceeded >= TOP_MAX {
        return None;
    }
    let mut pairs = Vec::new();
    for resample in 0..RESAMPLES {
        let resampled: Vec<TradeOffPoint> = curve
            .iter()
            .map(|point| TradeOffPoint {
                size: size_of(resample, &point.top, exceeded),
                top: Vec::new(),
                ..point.clone()
            })
            .collect();
        pairs.extend(strictest(&resampled, horizon).map(|point| (point.shape, point.size)));
    }
    let admitted = |pair: &(super::shape::LimitShape, u64)| pair.0.admitted_max(pair.1, horizon);
    let refill =
        |pair: &(super::shape::LimitShape, u64)| pair.0.admitted_max(0, Span::from_secs(86_400));
    let (low, high) = (pairs.len() / 20, pairs.len() - 1 - pairs.len() / 20);
    pairs.sort_by_key(refill);
    let rates = [*pairs.get(low)?, *pairs.get(high)?];
    let mut most: Vec<u64> = pairs.iter().map(admitted).collect();
    most.sort_unstable();
    Some(Stability { rates, admitted: [*most.get(low)?, *most.get(high)?] })
}

/// The smallest size that at most so many resampled clients exceed.
fn size_of(resample: u64, top: &[(u64, u32)], exceeded: usize) -> u64 {
    let mut above = 0;
    for (size, client) in top {
        above += times(resample, *client);
        if above > exceeded as u64 {
            return *size;
        }
    }
    top.last().map_or(1, |(size, _)| *size)
}

/// Ratios of sums over clients, such as the share of denied requests.
#[derive(Debug, Clone)]
pub(super) struct RatioBootstrap {
    /// The sum of all requests in each resample.
    totals: Vec<u64>,
}

impl RatioBootstrap {
    /// For clients with these numbers of requests.
    pub(super) fn new(requests: &[u64]) -> Self {
        let total = |resample| {
            let counted = (0_u32..).zip(requests);
            counted.map(|(client, requests)| times(resample, client) * requests).sum()
        };
        Self { totals: (0..RESAMPLES).map(total).collect() }
    }

    /// The quantile of the share, for these numbers of denied requests of clients.
    pub(super) fn quantile(&self, denied: &[(u32, u64)], quantile: f64) -> f64 {
        let share = |(resample, total): (u64, &u64)| {
            let sum: u64 =
                denied.iter().map(|(client, denied)| times(resample, *client) * denied).sum();
            sum as f64 / (*total).max(1) as f64
        };
        let mut shares: Vec<f64> = (0..).zip(&self.totals).map(share).collect();
        shares.sort_by(f64::total_cmp);
        let rank = (quantile * shares.len() as f64).ceil() as usize;
        shares.get(rank.saturating_sub(1)).or(shares.last()).copied().unwrap_or(0.0)
    }
}

/// How often a resample counts a client: Poisson with mean 1.
fn times(resample: u64, client: u32) -> u64 {
    /// P(X <= k), in 2^-64.
    const BELOW: [f64; 9] = [
        0.367_879_441,
        0.735_758_882,
        0.919_698_603,
        0.981_011_843,
        0.996_340_153,
        0.999_405_815,
        0.999_916_759,
        0.999_989_751,
        0.999_998_875,
    ];
    // SplitMix64 of both numbers.
    let mut hash = (resample << 32 | u64::from(client)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    let uniform = ((hash ^ hash >> 31) >> 11) as f64 / (1_u64 << 53) as f64;
    BELOW.iter().filter(|below| uniform >= **below).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_once_on_average_with_variance_one() {
        let counts: Vec<f64> =
            (0..200).flat_map(|r| (0..500).map(move |c| times(r, c) as f64)).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean - 1.0).abs() < 0.015 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn the_interval_of_a_ratio_is_that_of_its_standard_error() {
        // A tenth of 1,000 clients with 10 requests each has 5 of them denied.
        let requests = vec![10; 1_000];
        let denied: Vec<(u32, u64)> = (0..100).map(|client| (client, 5)).collect();
        let bootstrap = RatioBootstrap::new(&requests);
        let (low, high) = (bootstrap.quantile(&denied, 0.05), bootstrap.quantile(&denied, 0.95));
        // Delta method: sqrt(sum of squared residuals) / total = 0.0047.
        let error = (100.0 * 4.5_f64.powi(2) + 900.0 * 0.5_f64.powi(2)).sqrt() / 10_000.0;
        for (bound, expected) in [(low, 0.05 - 1.645 * error), (high, 0.05 + 1.645 * error)] {
            assert!((bound - expected).abs() < 0.3 * error, "{bound} {expected}");
        }
    }
}
