//! HyperLogLog: the number of distinct identities in a fixed size.
//!
//! Each of 1,024 registers has the longest run of leading zeros among the hashes that fall on it.
//! The standard error is 1.04 / √1024 = 3.3 %; few identities are counted by the empty registers
//! (linear counting), which is nearly exact up to some hundreds. The hash is keyed by a secret, so
//! that no client can choose identities that fall on one register.

use std::sync::atomic::{AtomicU8, Ordering};

/// Registers, a power of two.
const REGISTERS: usize = 1_024;
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();

/// Standard error of an estimate, as a share of it.
pub const DISTINCT_STANDARD_ERROR: f64 = 0.0325;

/// The estimate from which empty registers say less than the others do.
const LINEAR_COUNTING_MAX: f64 = 2.5 * REGISTERS as f64;

/// Distinct hashes. Threads add at the same time, without locks.
#[derive(Debug)]
pub(super) struct Distinct {
    registers: Box<[AtomicU8]>,
}

/// The union of several, to be estimated.
#[derive(Debug, Clone)]
pub(super) struct DistinctUnion([u8; REGISTERS]);

impl Distinct {
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let register = &self.registers[hash as usize & (REGISTERS - 1)];
        // The bits of the index are set, so that the rank is at most 55.
        let rank = ((hash | (REGISTERS as u64 - 1)).leading_zeros() + 1) as u8;
        if rank > register.load(Ordering::Relaxed) {
            register.fetch_max(rank, Ordering::Relaxed);
        }
    }

    pub(super) fn clear(&self) {
        self.registers.iter().for_each(|register| register.store(0, Ordering::Relaxed));
    }
}

impl Default for Distinct {
    fn default() -> Self {
        Self { registers: (0..REGISTERS).map(|_| AtomicU8::new(0)).collect() }
    }
}

impl DistinctUnion {
    pub(super) fn of<'a>(all: impl IntoIterator<Item = &'a Distinct>) -> Self {
        let mut union = Self([0; REGISTERS]);
        for one in all {
            for (sum, register) in union.0.iter_mut().zip(&one.registers) {
                *sum = (*sum).max(register.load(Ordering::Relaxed));
            }
        }
        union
    }

    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let empty = self.0.iter().filter(|rank| **rank == 0).count();
        let sum: f64 = self.0.iter().map(|rank| 2f64.powi(-i32::from(*rank))).sum();
        let alpha = 0.7213 / (1.0 + 1.079 / registers);
        let raw = alpha * registers * registers / sum;
        let estimate = match empty {
            1.. if raw <= LINEAR_COUNTING_MAX => registers * (registers / empty as f64).ln(),
            _ => raw,
        };
        estimate.round() as u64
    }
}

const _: () = assert!(INDEX_BITS == 10);

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(numbers: impl Iterator<Item = u64>) -> u64 {
        let distinct = Distinct::default();
        // A fixed hash of good quality: splitmix64.
        for number in numbers {
            let mut hash = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            distinct.add(hash ^ (hash >> 31));
        }
        DistinctUnion::of([&distinct]).estimate()
    }

    #[test]
    fn few_are_exact_and_many_are_within_three_standard_errors() {
        for count in [0, 1, 2, 3, 10, 20] {
            assert_eq!(estimate(0..count), count);
        }
        for count in [100, 1_000, 2_600, 5_000, 14_000, 100_000, 1_000_000] {
            let error = (estimate(0..count) as f64 - count as f64).abs() / count as f64;
            assert!(error < 3.0 * DISTINCT_STANDARD_ERROR, "{count}: {error}");
        }
    }

    #[test]
    fn repetitions_add_nothing() {
        assert_eq!(estimate((0..100_000).map(|number| number % 7)), 7);
    }

    #[test]
    fn unions_and_cleared_ones() {
        let (one, other) = (Distinct::default(), Distinct::default());
        one.add(1 << 40);
        one.add(1 << 41 | 1);
        other.add(1 << 40);
        assert_eq!(DistinctUnion::of([&one, &other]).estimate(), 2);
        one.clear();
        assert_eq!(DistinctUnion::of([&one, &other]).estimate(), 1);
    }
}
