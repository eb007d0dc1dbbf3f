//! Seeded random numbers.

/// A stream of random numbers: SplitMix64.
#[derive(Debug, Clone)]
pub struct SimRng(u64);

impl SimRng {
    /// The stream of a seed; `label` separates streams of one seed.
    #[must_use]
    pub fn new(seed: u64, label: &str) -> Self {
        // FNV-1a.
        let mix =
            |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let mut rng = Self(label.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix));
        rng.number();
        rng
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of this range, inclusive.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        let count = to.saturating_sub(from).saturating_add(1);
        from + self.number() % count.max(1)
    }

    /// True with a probability in thousandths.
    pub fn permille(&mut self, permille: u64) -> bool {
        self.within(1, 1_000) <= permille
    }

    /// One of several values.
    pub fn choose<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.within(0, values.len() as u64 - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_follow_from_seed_and_label() {
        let three = |mut rng: SimRng| [rng.number(), rng.number(), rng.number()];
        assert_eq!(three(SimRng::new(1, "net")), three(SimRng::new(1, "net")));
        assert_ne!(three(SimRng::new(1, "net")), three(SimRng::new(2, "net")));
        assert_ne!(three(SimRng::new(1, "net")), three(SimRng::new(1, "faults")));
    }

    #[test]
    fn ranges_have_both_ends() {
        let mut rng = SimRng::new(7, "");
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.within(3, 5)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
        assert!(!rng.permille(0) && rng.permille(1_000));
    }
}
