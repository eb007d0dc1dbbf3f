//! Times between arrivals, scaled to a mean of 1, so that a rate is applied by dividing.
//!
//! The coefficient of variation (the standard deviation in units of the mean) says how bursty they
//! are: 0 is even, 1 are independent arrivals (a Poisson process), above 1 are bursts with pauses.
//! Gamma and Weibull intervals of the same coefficient differ in their tails: those of Weibull are
//! heavier.
//!
//! Gamma numbers are drawn by rejection (G. Marsaglia and W. W. Tsang, 2000).

use fastrand::Rng;

/// A distribution of times between arrivals with a mean of 1.
///
/// ```
/// use sluicegate_random::IntervalDistribution;
///
/// assert_eq!(IntervalDistribution::Exponential.coefficient_of_variation(), 1.0);
/// let bursty = IntervalDistribution::gamma(0.25);
/// assert_eq!(bursty.coefficient_of_variation(), 2.0);
/// assert!(bursty.draw(&mut fastrand::Rng::with_seed(1)) >= 0.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IntervalDistribution {
    /// Always 1.
    Constant,
    /// Independent arrivals.
    Exponential,
    /// Gamma-distributed: [`IntervalDistribution::gamma`].
    Gamma {
        /// Below 1: bursts with pauses; 1: independent arrivals; above: more even.
        shape: f64,
    },
    /// Weibull-distributed: [`IntervalDistribution::weibull`].
    Weibull {
        /// As that of the Gamma distribution.
        shape: f64,
        /// Makes the mean 1.
        scale: f64,
    },
}

impl IntervalDistribution {
    /// Gamma-distributed with this shape, above 0.
    #[must_use]
    pub const fn gamma(shape: f64) -> Self {
        Self::Gamma { shape }
    }

    /// Weibull-distributed with this shape, above 0.05: the mean of a lower one exceeds what a
    /// sample of any size shows.
    #[must_use]
    pub fn weibull(shape: f64) -> Self {
        Self::Weibull { shape, scale: (-ln_gamma(1.0 + 1.0 / shape)).exp() }
    }

    /// Draws an interval.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Exponential => exponential(rng),
            Self::Gamma { shape } => gamma(*shape, rng) / shape,
            Self::Weibull { shape, scale } => scale * exponential(rng).powf(1.0 / shape),
        }
    }

    /// Standard deviation in units of the mean.
    #[must_use]
    pub fn coefficient_of_variation(&self) -> f64 {
        match self {
            Self::Constant => 0.0,
            Self::Exponential => 1.0,
            Self::Gamma { shape } => shape.sqrt().recip(),
            Self::Weibull { shape, .. } => {
                let (first, second) = (ln_gamma(1.0 + 1.0 / shape), ln_gamma(1.0 + 2.0 / shape));
                (second - 2.0 * first).exp_m1().max(0.0).sqrt()
            }
        }
    }
}

/// Draws from the normal distribution with a mean of 0 and a variance of 1.
///
/// ```
/// let mut rng = fastrand::Rng::with_seed(1);
/// let positive = (0..1_000).filter(|_| sluicegate_random::standard_normal(&mut rng) > 0.0).count();
/// assert!((450..550).contains(&positive));
/// ```
pub fn standard_normal(rng: &mut Rng) -> f64 {
    // Box-Muller; the second number of each pair is not worth a state.
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Gamma-distributed with a scale of 1.
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        let power = (-exponential(rng) / shape).exp();
        return gamma(shape + 1.0, rng) * power;
    }
    let d = shape - 1.0 / 3.0;
    let c = (9.0 * d).sqrt().recip();
    loop {
        let normal = standard_normal(rng);
        let root = 1.0 + c * normal;
        if root <= 0.0 {
            continue;
        }
        let cube = root * root * root;
        if -exponential(rng) < 0.5 * normal * normal + d - d * cube + d * cube.ln() {
            return d * cube;
        }
    }
}

/// Logarithm of the gamma function, for `x` of at least 1: Stirling's series, whose argument is
/// raised until four terms are exact to twelve digits.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 12.0 {
        product *= x;
        x += 1.0;
    }
    let (inverse, square) = (x.recip(), x.powi(-2));
    let series =
        inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 400_000;

    fn sample(distribution: IntervalDistribution) -> Vec<f64> {
        let mut rng = Rng::with_seed(11);
        std::iter::repeat_with(|| distribution.draw(&mut rng)).take(DRAWN).collect()
    }

    fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
        numbers.sum::<f64>() / DRAWN as f64
    }

    #[test]
    fn the_gamma_function_is_that_of_tables() {
        let factorials = [(1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (11.0, 3_628_800.0)];
        let halves = [(1.5, 0.886_226_925_452_758), (3.5, 3.323_350_970_447_843)];
        for (x, expected) in factorials.into_iter().chain(halves) {
            let value = ln_gamma(x).exp();
            assert!((value / expected - 1.0).abs() < 1e-11, "{x}: {value}, not {expected}");
        }
    }

    #[test]
    fn means_are_1_and_variations_those_of_the_formula() {
        let all = [
            (IntervalDistribution::Constant, 0.0),
            (IntervalDistribution::Exponential, 1.0),
            (IntervalDistribution::gamma(4.0), 0.5),
            (IntervalDistribution::gamma(0.81), 1.0 / 0.9),
            (IntervalDistribution::gamma(0.09), 1.0 / 0.3),
            (IntervalDistribution::weibull(1.0), 1.0),
            (IntervalDistribution::weibull(0.5), 5f64.sqrt()),
        ];
        for (distribution, expected) in all {
            let formula = distribution.coefficient_of_variation();
            assert!((formula - expected).abs() < 1e-9, "{distribution:?}: {formula}");
            let drawn = sample(distribution);
            let average = mean(drawn.iter().copied());
            // Five standard errors.
            let error = 5.0 * formula / (DRAWN as f64).sqrt();
            assert!((average - 1.0).abs() <= error, "{distribution:?}: mean {average}");
            let variation = mean(drawn.iter().map(|x| (x - average).powi(2))).sqrt() / average;
            assert!(
                (variation - expected).abs() <= 0.03 * expected,
                "{distribution:?}: {variation}"
            );
        }
    }

    /// Shares below a point, from the distribution functions: 1 - e^-x, 1 - e^-(x/scale)^shape, and
    /// the error function for a Gamma shape of 1/2.
    #[test]
    fn tails_are_those_of_the_distribution() {
        let weibull = IntervalDistribution::weibull(0.5);
        let table = [
            (IntervalDistribution::Exponential, 1.0, 0.632_120_6),
            (IntervalDistribution::Exponential, 3.0, 0.950_212_9),
            // The scale is 1/2: e^-sqrt(2).
            (weibull, 1.0, 0.756_883_3),
            (weibull, 8.0, 0.981_684_4),
            // P(x < 1) of a squared normal number.
            (IntervalDistribution::gamma(0.5), 1.0, 0.682_689_5),
            (IntervalDistribution::gamma(0.5), 4.0, 0.954_499_7),
            // Erlang: 1 - e^-2 (1 + 2).
            (IntervalDistribution::gamma(2.0), 1.0, 0.593_994_2),
        ];
        for (distribution, x, expected) in table {
            let below = sample(distribution).iter().filter(|drawn| **drawn < x).count();
            let share = below as f64 / DRAWN as f64;
            let error = 5.0 * (expected * (1.0 - expected) / DRAWN as f64).sqrt();
            assert!((share - expected).abs() < error, "{distribution:?} below {x}: {share}");
        }
    }

    #[test]
    fn normal_numbers_are_normal() {
        let mut rng = Rng::with_seed(3);
        let drawn: Vec<f64> = (0..DRAWN).map(|_| standard_normal(&mut rng)).collect();
        let (average, square) = (mean(drawn.iter().copied()), mean(drawn.iter().map(|x| x * x)));
        assert!(average.abs() < 0.008 && (square - 1.0).abs() < 0.012, "{average}, {square}");
        let within = mean(drawn.iter().map(|x| f64::from(x.abs() < 1.0)));
        assert!((within - 0.682_689_5).abs() < 0.004, "{within}");
    }
}
