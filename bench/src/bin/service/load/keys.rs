//! Who is asked for next.

/// Keys are numbers below ten million.
#[derive(Debug)]
pub(crate) enum Keys {
    Random { state: u64, count: u64 },
    Each { next: u64, count: u64 },
    Fresh { asked: u64 },
}

/// There are no more digits.
const KEYS_MAX: u64 = 9_000_000;

impl Keys {
    /// Any of so many.
    pub(crate) const fn random(count: u64) -> Self {
        Self::Random { state: 0x9e37_79b9_7f4a_7c15, count }
    }

    /// Each of so many, once.
    pub(crate) const fn each(count: u64) -> Self {
        Self::Each { next: 0, count }
    }

    /// Always new ones; the first is asked for again when all limits have forgotten it.
    pub(crate) const fn fresh() -> Self {
        Self::Fresh { asked: 0 }
    }
}

impl Iterator for Keys {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Self::Random { state, count } => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                // The high word of the product is uniform below the count, without a division.
                Some(((u128::from(*state) * u128::from(*count)) >> 64) as u64)
            }
            Self::Each { next, count } => {
                let key = *next;
                *next += 1;
                (key < *count).then_some(key)
            }
            Self::Fresh { asked } => {
                *asked += 1;
                Some(*asked % KEYS_MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once() {
        assert_eq!(Keys::each(3).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn random_ones_stay_below_the_count_and_reach_all() {
        let mut seen = [false; 10];
        Keys::random(10).take(1_000).for_each(|key| seen[key as usize] = true);
        assert_eq!(seen, [true; 10]);
    }
}
