//! The middle and the ends of a few readings.

/// Median, least and most. With so few readings of so noisy a machine nothing finer would be true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The most.
    pub(crate) max: f64,
}

// === impl Spread ===

impl Spread {
    /// Of at least one reading.
    pub(crate) fn of(mut readings: Vec<f64>) -> Option<Self> {
        readings.sort_by(f64::total_cmp);
        let (&min, &max) = (readings.first()?, readings.last()?);
        // The same one twice if their number is odd.
        let (below, above) = ((readings.len() - 1) / 2, readings.len() / 2);
        Some(Self { median: f64::midpoint(readings[below], readings[above]), min, max })
    }

    /// The same seen through a function that never decreases, or never increases.
    pub(crate) fn map(self, by: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (by(self.min), by(self.max));
        Self { median: by(self.median), min: one.min(other), max: one.max(other) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even() {
        assert_eq!(Spread::of(vec![]), None);
        let odd = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(vec![1.0, 4.0]).unwrap().median, 2.5);
    }

    #[test]
    fn a_falling_function_swaps_the_ends() {
        let spread = Spread::of(vec![1.0, 2.0, 4.0]).unwrap().map(|x| 1.0 / x);
        assert_eq!((spread.min, spread.max), (0.25, 1.0));
    }
}
