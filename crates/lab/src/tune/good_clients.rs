//! Good clients: those whose usage does not stand out, even among clients with a heavy tail.
//!
//! Usage is a client's peak: the most requests in any horizon. The tail of the peaks is taken to
//! continue as it runs between the 75th and the 95th percentile, as a Pareto distribution:
//!
//! ```text
//!   ln peak
//!      |                             x   abuser
//!      |- - - - - - - - - - - - - - - -  bound: exceeded by the largest of n in 1 of 100 logs
//!      |                      . x
//!      |               . x x    slope: ln(p95 / p75) / ln 5
//!      |        x x x
//!      +--------p75----p95----------- ln(1 / share of clients above)
//! ```
//!
//! A client above the bound is an abuser. So the largest of many clients is not one because it is
//! the largest, and abusers do not move the bound, as long as fewer than 5 % of clients are
//! abusers. The bound is at least twice the 95th percentile, for clients that are all alike.

/// Fewer clients have no 95th percentile.
pub const GOOD_CLIENTS_MIN: usize = 20;
/// How seldom the largest of the good clients exceeds the bound.
const RARITY: f64 = 0.01;

/// The division of clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoodClients {
    /// The 75th percentile of the peaks.
    pub p75: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The largest peak of a good client.
    pub peak_max: u64,
    /// Clients below.
    pub good: usize,
    /// Clients above.
    pub abusers: usize,
}

impl GoodClients {
    /// Divides clients by their peaks; `None` if there are too few.
    ///
    /// ```
    /// use sluicegate_lab::tune::good_clients::GoodClients;
    ///
    /// // Peaks 1 to 10, and one of 5,000.
    /// let peaks: Vec<u64> = (0..100).map(|client| client % 10 + 1).chain([5_000]).collect();
    /// let clients = GoodClients::new(&peaks).unwrap();
    /// assert_eq!((clients.good, clients.abusers), (100, 1));
    /// ```
    #[must_use]
    pub fn new(peaks: &[u64]) -> Option<Self> {
        if peaks.len() < GOOD_CLIENTS_MIN {
            return None;
        }
        let mut sorted = peaks.to_vec();
        sorted.sort_unstable();
        let quantile = |part: f64| {
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(1).max(1)
        };
        let (p75, p95) = (quantile(0.75), quantile(0.95));
        let slope = (p95 as f64 / p75 as f64).ln() / 5_f64.ln();
        let gumbel = -(-(1.0 - RARITY).ln()).ln();
        let steps = (0.05 * sorted.len() as f64).ln() + gumbel;
        let bound = p95 as f64 * (slope * steps).exp();
        let peak_max = (bound.min(1e15) as u64).max(p95.saturating_mul(2));
        let good = sorted.partition_point(|peak| *peak <= peak_max);
        Some(Self { p75, p95, peak_max, good, abusers: sorted.len() - good })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pareto(rng: &mut fastrand::Rng, alpha: f64) -> u64 {
        (3.0 * rng.f64().powf(-1.0 / alpha)) as u64
    }

    #[test]
    fn a_heavy_tail_alone_seldom_has_abusers() {
        for (alpha, n) in [(0.8, 3_000), (1.2, 500), (2.5, 20_000)] {
            let mut rng = fastrand::Rng::with_seed(n);
            let logs = 100;
            let with_abusers = (0..logs).filter(|_| {
                let peaks: Vec<u64> = (0..n).map(|_| pareto(&mut rng, alpha)).collect();
                GoodClients::new(&peaks).unwrap().abusers > 0
            });
            // 1 of 100, and some for the estimated slope.
            let with_abusers = with_abusers.count();
            assert!(with_abusers <= 8, "{with_abusers} of {logs} logs, alpha {alpha}, {n} clients");
        }
    }

    #[test]
    fn abusers_are_found_and_do_not_hide_each_other() {
        let mut rng = fastrand::Rng::with_seed(1);
        let good: Vec<u64> = (0..2_000).map(|_| pareto(&mut rng, 2.0)).collect();
        for abusers in [1, 10, 60] {
            let mut peaks = good.clone();
            peaks.extend((0..abusers).map(|_| 50_000));
            let clients = GoodClients::new(&peaks).unwrap();
            assert_eq!(clients.abusers, abusers as usize, "{clients:?}");
        }
        let equal = GoodClients::new(&[7; 50]).unwrap();
        assert_eq!((equal.peak_max, equal.abusers), (14, 0));
        assert_eq!(GoodClients::new(&[1; 19]), None);
    }
}
