//! Exact arithmetic of amounts and times.
//!
//! Every decision is exact: no float, and every rounding is named. A Lua script implements the
//! decisions a second time, and Lua's numbers are doubles, which hold every integer up to 2^53. So
//! each value that a decision stores or compares is at most [`EXACT_MAX`], and the only operation
//! whose intermediate result may exceed it is [`muldiv`]: factors, divisor and quotient are within
//! the bound, the product has full width.
//!
//! Why this suffices for both languages: `a * b / d` has exactly one floor and one remainder. Rust
//! takes the product in 128 bits; with doubles it is done digit by digit, each step exact
//! (`tests/double_twin.rs` compares the two).

// Each bare operator below is within the bound stated beside it; the lint is denied elsewhere.
#![allow(clippy::arithmetic_side_effects)]

use std::num::NonZeroU64;

/// The largest integer `n` such that all of `0..=n` are exact in a double: 2^53 − 1.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// A quotient and a remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// `floor(a * b / divisor)`, at most [`EXACT_MAX`].
    pub quotient: u64,
    /// The remainder, below the divisor; 0 if the quotient saturated at [`EXACT_MAX`].
    pub remainder: u64,
}

/// `a * b / divisor` with its remainder, exact.
///
/// A quotient above [`EXACT_MAX`] saturates: it means longer, or more, than any value.
///
/// ```
/// use std::num::NonZeroU64;
/// use sluicegate_core::arithmetic::muldiv;
///
/// let day = 86_400_000_000;
/// let per_day = NonZeroU64::new(1_234_567).unwrap();
/// let million = muldiv(1_000_000, day, per_day);
/// assert_eq!((million.quotient, million.remainder), (69_984_051_088, 441_104));
/// ```
#[inline]
#[must_use]
pub fn muldiv(a: u64, b: u64, divisor: NonZeroU64) -> Division {
    // Most products are small and divide in one machine instruction.
    if let Some(product) = a.checked_mul(b) {
        return cut(product / divisor, product % divisor);
    }
    let product = u128::from(a) * u128::from(b);
    let wide = u128::from(divisor.get());
    let quotient = u64::try_from(product / wide).unwrap_or(u64::MAX);
    // The remainder is below the divisor, so it fits.
    cut(quotient, (product % wide) as u64)
}

/// `a * b / divisor`, rounded up.
#[inline]
#[must_use]
pub fn muldiv_ceil(a: u64, b: u64, divisor: NonZeroU64) -> u64 {
    let Division { quotient, remainder } = muldiv(a, b, divisor);
    if remainder == 0 { quotient } else { (quotient + 1).min(EXACT_MAX) }
}

/// The greatest common divisor; that of 0 and `n` is `n`.
#[must_use]
pub const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `a` divided by `b` and rounded up.
#[inline]
#[must_use]
pub const fn div_ceil(a: u64, b: NonZeroU64) -> u64 {
    a.div_ceil(b.get())
}

/// The bound as a signed number.
pub(crate) const EXACT_MAX_SIGNED: i64 = EXACT_MAX as i64;

/// An amount as a signed number, saturating at the bound.
#[inline]
pub(crate) const fn signed(amount: u64) -> i64 {
    if amount > EXACT_MAX { EXACT_MAX_SIGNED } else { amount as i64 }
}

/// Clamps a signed amount to the bound on both sides.
#[inline]
pub(crate) fn clamp_signed(amount: i64) -> i64 {
    amount.clamp(-EXACT_MAX_SIGNED, EXACT_MAX_SIGNED)
}

/// Clamps an amount to the bound.
#[inline]
pub(crate) const fn clamp_amount(amount: u64) -> u64 {
    if amount > EXACT_MAX { EXACT_MAX } else { amount }
}

const fn cut(quotient: u64, remainder: u64) -> Division {
    if quotient > EXACT_MAX {
        Division { quotient: EXACT_MAX, remainder: 0 }
    } else {
        Division { quotient, remainder }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nz(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    #[test]
    fn the_widest_factors_divide_exactly() {
        let all = muldiv(EXACT_MAX, EXACT_MAX, nz(EXACT_MAX));
        assert_eq!(all, Division { quotient: EXACT_MAX, remainder: 0 });
        let less_one = muldiv(EXACT_MAX, EXACT_MAX - 1, nz(EXACT_MAX));
        assert_eq!(less_one, Division { quotient: EXACT_MAX - 1, remainder: 0 });
    }

    #[test]
    fn a_quotient_beyond_the_bound_saturates() {
        let cut = muldiv(EXACT_MAX, 2, nz(1));
        assert_eq!(cut, Division { quotient: EXACT_MAX, remainder: 0 });
        assert_eq!(muldiv_ceil(EXACT_MAX, EXACT_MAX, nz(3)), EXACT_MAX);
        assert_eq!(muldiv(u64::MAX, u64::MAX, nz(1)).quotient, EXACT_MAX);
    }

    #[test]
    fn rounding_up_adds_one_only_to_a_remainder() {
        assert_eq!(muldiv_ceil(6, 2, nz(4)), 3);
        assert_eq!(muldiv_ceil(7, 2, nz(4)), 4);
        assert_eq!(muldiv_ceil(0, 9, nz(4)), 0);
    }

    #[test]
    fn gcd_of_a_year_and_a_budget() {
        assert_eq!(gcd(1_000_000_000_000, 31_536_000_000_000), 8_000_000_000);
        assert_eq!(gcd(0, 5), 5);
        assert_eq!(gcd(5, 0), 5);
    }
}
