//! Zipf distribution: rank `k` of `n` has a probability proportional to `k^-s`.
//!
//! Ranks are drawn by rejection-inversion (W. Hörmann and G. Derflinger, 1996): constant time and
//! no memory for any number of keys, where a cumulative table takes eight bytes per key.

use fastrand::Rng;

/// Draws ranks from 0 (the most frequent) to below a number.
///
/// ```
/// use sluicegate_random::Zipf;
///
/// let (zipf, mut rng) = (Zipf::new(1_000, 1.1), fastrand::Rng::with_seed(1));
/// let first = (0..1_000).filter(|_| zipf.draw(&mut rng) == 0).count();
/// assert!(first > 100, "one rank of a thousand has a seventh of the draws");
/// ```
#[derive(Debug, Clone)]
pub struct Zipf {
    exponent: f64,
    count: f64,
    /// Area left of rank 1, and up to the last rank.
    first: f64,
    last: f64,
    /// A point nearer to its rank than this is always accepted.
    near: f64,
}

impl Zipf {
    /// `count` is at least 1, and the exponent above 0.
    #[must_use]
    pub fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self { exponent, count: count as f64, first: 0.0, last: 0.0, near: 0.0 };
        zipf.first = zipf.area(1.5) - 1.0;
        zipf.last = zipf.area(zipf.count + 0.5);
        zipf.near = 2.0 - zipf.point(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// Draws a rank.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.last + rng.f64() * (self.first - self.last);
            let point = self.point(area);
            let rank = point.round().clamp(1.0, self.count);
            let accepted =
                rank - point <= self.near || area >= self.area(rank + 0.5) - self.height(rank);
            if accepted {
                return rank as u64 - 1;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Area from 1 to `x`: `(x^(1-s) - 1) / (1-s)`, written to stay exact for exponents at or near
    /// 1.
    fn area(&self, x: f64) -> f64 {
        let (log, power) = (x.ln(), 1.0 - self.exponent);
        if power == 0.0 { log } else { (power * log).exp_m1() / power }
    }

    /// The `x` of an area.
    fn point(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { area.exp() } else { ((power * area).ln_1p() / power).exp() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Rng, Zipf};

    const DRAWN: u64 = 200_000;

    fn frequencies(count: u64, exponent: f64, seed: u64) -> Vec<u64> {
        let (zipf, mut rng) = (Zipf::new(count, exponent), Rng::with_seed(seed));
        let mut seen = vec![0; count as usize];
        (0..DRAWN).for_each(|_| seen[zipf.draw(&mut rng) as usize] += 1);
        seen
    }

    #[test]
    fn ranks_come_as_often_as_the_formula_says() {
        for (count, exponent) in
            [(1, 1.0), (2, 0.5), (10, 1.0), (100, 1.1), (1_000, 0.99), (50, 3.0)]
        {
            let weights: Vec<f64> = (1..=count).map(|k| (k as f64).powf(-exponent)).collect();
            let whole: f64 = weights.iter().sum();
            for (rank, seen) in frequencies(count, exponent, 7).into_iter().enumerate() {
                let meant = DRAWN as f64 * weights[rank] / whole;
                // Five standard deviations, plus one for rare ranks.
                let most = 5.0 * meant.sqrt() + 1.0;
                let off = (seen as f64 - meant).abs();
                assert!(off <= most, "rank {rank} of {count}, s = {exponent}: {seen}, not {meant}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_shape_stays_within_its_ranks(count in 1u64..u64::MAX >> 12, exponent in 0.01f64..10.0, seed: u64) {
            let (zipf, mut rng) = (Zipf::new(count, exponent), Rng::with_seed(seed));
            for _ in 0..100 {
                prop_assert!(zipf.draw(&mut rng) < count);
            }
        }
    }
}
