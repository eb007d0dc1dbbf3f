//! Numbers that look random and come again with the same seed.

/// SplitMix64: one addition and a good stirring for each number, any seed will do.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of a seed. Others that share the seed, as the other threads do, have another `stream`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut start = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        // Seeds that are near each other must not begin near each other.
        Self(start.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0, which may come, to `end`, which does not.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The high word of the product is uniform below the end, without a division.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From 0, which may come, to 1, which does not.
    pub(crate) fn unit(&mut self) -> f64 {
        // As many bits as a double has.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
