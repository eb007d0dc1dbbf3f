//! Distribution-free statements about shares of clients.
//!
//! Clients are taken as a sample of a larger population. If a limit is the smallest that denies `d`
//! of `n` of them, the share that it denies of the population has the distribution
//! Beta(d + 1, n − d), whatever the population is (S. S. Wilks, 1941). So
//! P(share ≤ p) = P(Binomial(n, p) > d), which needs no assumption about tails. Without a denied
//! client, this is the rule of three: 3/n at 95 %.

/// The probability that at most `d` of `n` independent events of probability `p` occur.
///
/// ```
/// use sluicegate_lab::tune::statistics::binomial_cdf;
///
/// assert!((binomial_cdf(1, 2, 0.5) - 0.75).abs() < 1e-12);
/// assert!((binomial_cdf(0, 2_995, 0.001) - 0.05).abs() < 1e-4);
/// ```
#[must_use]
pub fn binomial_cdf(d: usize, n: usize, p: f64) -> f64 {
    if d >= n || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    // Each term from the one before, as logarithms: the first may be below the smallest number.
    let odds = p.ln() - (-p).ln_1p();
    let mut term = n as f64 * (-p).ln_1p();
    let mut sum = LogSum::default();
    sum.add(term);
    for k in 0..d {
        term += ((n - k) as f64).ln() - ((k + 1) as f64).ln() + odds;
        sum.add(term);
    }
    sum.value().min(1.0)
}

/// A sum of numbers whose logarithms are given.
#[derive(Debug, Clone, Copy)]
struct LogSum {
    max: f64,
    scaled: f64,
}

impl Default for LogSum {
    fn default() -> Self {
        Self { max: f64::NEG_INFINITY, scaled: 0.0 }
    }
}

impl LogSum {
    fn add(&mut self, log: f64) {
        if log <= self.max {
            self.scaled += (log - self.max).exp();
        } else {
            self.scaled = self.scaled * (self.max - log).exp() + 1.0;
            self.max = log;
        }
    }

    fn value(self) -> f64 {
        self.max.exp() * self.scaled
    }
}

/// The largest `d` for which a limit that denies `d` of `n` clients denies at most `share` of all
/// with this confidence; `None` if `n` is too small even if none is denied.
///
/// ```
/// use sluicegate_lab::tune::statistics::tolerated;
///
/// assert_eq!(tolerated(2_994, 0.001, 0.95), None);
/// assert_eq!(tolerated(2_995, 0.001, 0.95), Some(0));
/// assert_eq!(tolerated(10_000, 0.001, 0.95), Some(4));
/// ```
#[must_use]
pub fn tolerated(n: usize, share: f64, confidence: f64) -> Option<usize> {
    largest(n, |d| binomial_cdf(d, n, share) <= 1.0 - confidence)
}

/// The number of clients above the lower end of the interval of a quantile: the smallest `d` such
/// that, with this confidence, the share above the value that `d` of `n` exceed is at least
/// `share`.
#[must_use]
pub fn exceeded_by(n: usize, share: f64, confidence: f64) -> usize {
    largest(n, |d| binomial_cdf(d, n, share) < confidence).map_or(0, |d| d + 1).min(n)
}

/// The largest number below `n` for which this holds, if it holds for smaller ones too.
fn largest(n: usize, holds: impl Fn(usize) -> bool) -> Option<usize> {
    if n == 0 || !holds(0) {
        return None;
    }
    let (mut low, mut step) = (0, 1);
    while low + step < n && holds(low + step) {
        low += step;
        step *= 2;
    }
    while step > 0 {
        if low + step < n && holds(low + step) {
            low += step;
        }
        step /= 2;
    }
    Some(low)
}

/// How many clients are needed for a promise about `share` of them.
///
/// ```
/// use sluicegate_lab::tune::statistics::{attainable_share, clients_needed};
///
/// assert_eq!(clients_needed(0.001, 0.95), 2_995);
/// assert!((attainable_share(2_995, 0.95) - 0.001).abs() < 1e-6);
/// ```
#[must_use]
pub fn clients_needed(share: f64, confidence: f64) -> u64 {
    // Rounding errors must not turn 59.000…1 into 60 or less than needed.
    let needed = ((1.0 - confidence).ln() / (-share).ln_1p()).floor().max(1.0) as u64;
    let suffices = |n: u64| (n as f64 * (-share).ln_1p()).exp() <= 1.0 - confidence;
    (needed..=needed + 1).find(|n| suffices(*n)).unwrap_or(needed + 2)
}

/// The smallest share that `n` clients can promise, if none of them is denied.
#[must_use]
pub fn attainable_share(n: usize, confidence: f64) -> f64 {
    match n {
        0 => 1.0,
        n => -((1.0 - confidence).ln() / n as f64).exp_m1(),
    }
}

/// The upper confidence bound of a share of which `x` of `n` were observed (Clopper–Pearson).
///
/// ```
/// use sluicegate_lab::tune::statistics::share_at_most;
///
/// assert!((share_at_most(0, 59, 0.95) - 0.0495).abs() < 1e-3);
/// assert_eq!(share_at_most(5, 5, 0.95), 1.0);
/// ```
#[must_use]
pub fn share_at_most(x: usize, n: usize, confidence: f64) -> f64 {
    if x >= n {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if binomial_cdf(x, n, middle) > 1.0 - confidence { low = middle } else { high = middle }
    }
    high
}

/// The number of `m` further clients that a limit denies at most with this confidence, if it is the
/// smallest that denies `d` of `n`: a quantile of the beta-binomial distribution.
///
/// ```
/// use sluicegate_lab::tune::statistics::predicted_at_most;
///
/// // Of one more client than none of 19 exceeded: it exceeds them with probability 1/20.
/// assert_eq!(predicted_at_most(1, 0, 19, 0.95), 0);
/// assert_eq!(predicted_at_most(1, 0, 18, 0.95), 1);
/// ```
#[must_use]
pub fn predicted_at_most(m: usize, d: usize, n: usize, confidence: f64) -> usize {
    if d >= n {
        return m;
    }
    let (a, b) = ((d + 1) as f64, (n - d) as f64);
    let mut term: f64 = (0..m).map(|i| -(a / (b + i as f64)).ln_1p()).sum();
    let mut sum = LogSum::default();
    sum.add(term);
    for j in 0..m {
        if sum.value() >= confidence - 1e-12 {
            return j;
        }
        let (rest, j) = ((m - j) as f64, j as f64);
        term += rest.ln() - (j + 1.0).ln() + (a + j).ln() - (b + rest - 1.0).ln();
        sum.add(term);
    }
    m
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums the terms as products.
    fn naive_cdf(d: usize, n: usize, p: f64) -> f64 {
        let choose = |k: usize| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
        (0..=d.min(n)).map(|k| choose(k) * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32)).sum()
    }

    #[test]
    fn the_binomial_distribution_is_that_of_its_definition() {
        for n in [1, 2, 7, 40] {
            for d in 0..=n {
                for p in [0.001, 0.1, 0.5, 0.93] {
                    let (fast, naive) = (binomial_cdf(d, n, p), naive_cdf(d, n, p));
                    assert!((fast - naive).abs() < 1e-9, "{d} of {n} at {p}: {fast} {naive}");
                }
            }
        }
        // The first term is below the smallest double.
        assert!((binomial_cdf(50_000, 1_000_000, 0.05) - 0.5).abs() < 0.01);
        assert_eq!([binomial_cdf(3, 3, 0.2), binomial_cdf(0, 3, 1.0)], [1.0, 0.0]);
    }

    #[test]
    fn tolerated_numbers_are_the_largest_that_hold() {
        for (n, share) in [(100, 0.05), (1_000, 0.01), (5_000, 0.001), (777, 0.1), (3, 0.9)] {
            let naive = (0..n).rev().find(|d| binomial_cdf(*d, n, share) <= 0.05);
            assert_eq!(tolerated(n, share, 0.95), naive, "{n} {share}");
            let lower = (0..n).find(|d| binomial_cdf(*d, n, share) >= 0.95);
            assert_eq!(exceeded_by(n, share, 0.95), lower.unwrap_or(n), "{n} {share}");
        }
        for share in [0.1, 0.01, 0.001, 0.05, 1e-6] {
            let needed = clients_needed(share, 0.95) as usize;
            assert_eq!(tolerated(needed, share, 0.95), Some(0), "{share}");
            assert_eq!(tolerated(needed - 1, share, 0.95), None, "{share}");
        }
    }

    /// The threshold that `d` of `n` uniform numbers exceed, and how many of `m` more exceed it.
    #[test]
    fn predictions_hold_as_often_as_they_promise() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (n, d, m, runs) = (200, 3, 120, 4_000);
        let bound = predicted_at_most(m, d, n, 0.9);
        let (mut held, mut next) = (0, 0);
        for _ in 0..runs {
            let mut sample: Vec<f64> = (0..n).map(|_| rng.f64()).collect();
            sample.sort_by(f64::total_cmp);
            let threshold = sample[n - d - 1];
            let more = (0..m).filter(|_| rng.f64() > threshold).count();
            held += usize::from(more <= bound);
            next += usize::from(more < bound);
        }
        let (held, next) = (held as f64 / runs as f64, next as f64 / runs as f64);
        assert!(held >= 0.9 - 0.015 && next < 0.9 + 0.015, "{held} {next}");
    }
}
