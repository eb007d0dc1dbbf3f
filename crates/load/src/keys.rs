//! Key spaces and the order of keys.

use fastrand::Rng;
use sluicegate_random::Zipf;

/// Number and order of keys; deterministic by seed.
///
/// ```
/// use sluicegate_load::{KeyOrder, KeySpace};
///
/// let keys = KeySpace { count: 100_000, order: KeyOrder::Zipf(1.1), seed: 1 };
/// assert_eq!(keys.digits(), 5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeySpace {
    /// Keys are numbers below this, from 1 to [`KeySpace::COUNT_MAX`].
    pub count: u64,
    /// Order of the keys.
    pub order: KeyOrder,
    /// Seed of random orders.
    pub seed: u64,
}

/// Order of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyOrder {
    /// Uniformly distributed.
    Uniform,
    /// Zipf-distributed with this exponent, above 0 and up to 10; key 0 is the most frequent.
    Zipf(f64),
    /// Sequential, wrapping around.
    Sequential,
}

/// The keys of one thread.
#[derive(Debug, Clone)]
pub(crate) enum Keys {
    Uniform {
        rng: Rng,
        count: u64,
    },
    Zipf {
        rng: Rng,
        zipf: Box<Zipf>,
    },
    Sequential {
        next: u64,
        step: u64,
        count: u64,
    },
    /// Each key once.
    Each {
        next: u64,
        step: u64,
        count: u64,
    },
}

impl KeySpace {
    /// Upper bound of `count`.
    pub const COUNT_MAX: u64 = 1_000_000_000_000;

    /// Digits of every key: all requests have one length.
    #[must_use]
    pub const fn digits(&self) -> usize {
        match self.count.saturating_sub(1).checked_ilog10() {
            Some(log) => log as usize + 1,
            None => 1,
        }
    }

    /// The keys of one thread.
    pub(crate) fn of_thread(&self, thread: u64, threads: u64) -> Keys {
        let (count, rng) = (self.count, rng(self.seed, thread));
        match self.order {
            KeyOrder::Uniform => Keys::Uniform { rng, count },
            KeyOrder::Zipf(exponent) => {
                Keys::Zipf { rng, zipf: Box::new(Zipf::new(count, exponent)) }
            }
            KeyOrder::Sequential => Keys::Sequential { next: thread % count, step: threads, count },
        }
    }

    /// Each key once, divided among the threads.
    pub(crate) const fn each(&self, thread: u64, threads: u64) -> Keys {
        Keys::Each { next: thread, step: threads, count: self.count }
    }
}

/// The generator of one thread; threads share the seed.
pub(crate) fn rng(seed: u64, thread: u64) -> Rng {
    Rng::with_seed(seed ^ thread.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

impl Iterator for Keys {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Self::Uniform { rng, count } => Some(rng.u64(..*count)),
            Self::Zipf { rng, zipf } => Some(zipf.draw(rng)),
            Self::Sequential { next, step, count } => {
                let key = *next;
                *next = (key + *step) % *count;
                Some(key)
            }
            Self::Each { next, step, count } => {
                let key = *next;
                *next = key.saturating_add(*step);
                (key < *count).then_some(key)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn space(count: u64, order: KeyOrder) -> KeySpace {
        KeySpace { count, order, seed: 3 }
    }

    #[test]
    fn digits_are_enough_for_the_last_key() {
        for (count, digits) in [(1, 1), (2, 1), (10, 1), (11, 2), (100_000, 5), (100_001, 6)] {
            assert_eq!(space(count, KeyOrder::Uniform).digits(), digits, "{count}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn threads_share_each_key_once(count in 1u64..500, threads in 1u64..9) {
            let space = space(count, KeyOrder::Sequential);
            let mut all: Vec<u64> = (0..threads).flat_map(|thread| space.each(thread, threads)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn a_seed_repeats_itself_and_threads_differ(seed: u64, zipf: bool) {
            let order = if zipf { KeyOrder::Zipf(0.8) } else { KeyOrder::Uniform };
            let space = KeySpace { count: 1_000_000, order, seed };
            let of = |thread| space.of_thread(thread, 2).take(50).collect::<Vec<_>>();
            prop_assert_eq!(of(0), of(0));
            prop_assert_ne!(of(0), of(1));
            prop_assert!(of(0).into_iter().all(|key| key < 1_000_000));
        }

        #[test]
        fn in_turn_means_in_turn(count in 1u64..50) {
            let keys = space(count, KeyOrder::Sequential).of_thread(0, 1);
            let two_turns: Vec<u64> = keys.take(2 * count as usize).collect();
            prop_assert_eq!(two_turns, (0..count).chain(0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn uniform_keys_are_uniform() {
        let mut seen = [0u32; 10];
        let keys = space(10, KeyOrder::Uniform).of_thread(0, 1);
        keys.take(100_000).for_each(|key| seen[key as usize] += 1);
        // Five standard deviations of 10,000.
        assert!(seen.iter().all(|count| count.abs_diff(10_000) < 475), "{seen:?}");
    }
}
