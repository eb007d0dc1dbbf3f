//! Chance that follows from a seed.

/// A source of numbers: SplitMix64, whose every state is one number.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// What follows from a seed; `about` tells sources of one seed apart.
    #[must_use]
    pub fn new(seed: u64, about: &str) -> Self {
        let mix =
            |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let mut chance = Self(about.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix));
        chance.number();
        chance
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of this range, both ends included.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        let count = to.saturating_sub(from).saturating_add(1);
        from + self.number() % count.max(1)
    }

    /// Whether something happens that does so so many times in a thousand.
    pub fn happens(&mut self, permille: u64) -> bool {
        self.within(1, 1_000) <= permille
    }

    /// One of several.
    pub fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.within(0, several.len() as u64 - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let three = |mut chance: Chance| [chance.number(), chance.number(), chance.number()];
        assert_eq!(three(Chance::new(1, "net")), three(Chance::new(1, "net")));
        assert_ne!(three(Chance::new(1, "net")), three(Chance::new(2, "net")));
        assert_ne!(three(Chance::new(1, "net")), three(Chance::new(1, "faults")));
    }

    #[test]
    fn ranges_have_both_ends() {
        let mut chance = Chance::new(7, "");
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| chance.within(3, 5)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
        assert!(!chance.happens(0) && chance.happens(1_000));
    }
}
