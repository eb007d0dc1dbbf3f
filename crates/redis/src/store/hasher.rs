//! Where a store's randomness comes from: from nowhere, or from a seed, so that a trial can be made again.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// Makes hashes that nobody can guess, unless there is a seed.
#[derive(Debug, Clone)]
pub(super) enum Chance {
    Random(RandomState),
    Seeded(u64),
}

impl Chance {
    pub(super) fn new(seed: Option<u64>) -> Self {
        seed.map_or_else(|| Self::Random(RandomState::new()), Self::Seeded)
    }
}

impl BuildHasher for Chance {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match self {
            Self::Random(state) => state.build_hasher(),
            Self::Seeded(seed) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*seed);
                hasher
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let of = |seed| Chance::new(seed).hash_one("alice");
        assert_eq!(of(Some(7)), of(Some(7)));
        assert_ne!(of(Some(7)), of(Some(8)));
        assert_ne!(of(None), of(None));
    }
}
