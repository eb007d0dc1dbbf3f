//! `muldiv` in doubles alone, the way a Lua script has to write it, against the core's.
//!
//! Lua has no integers here: only doubles, `math.floor` and `math.fmod` (which is exact; Lua 5.1's own `%`
//! is not, since it multiplies a rounded quotient). A double holds every integer up to 2^53 and every
//! even one up to 2^54. [`Double`] allows just the operations that stay within that, and checks each
//! result against the true integer, so that a single rounded bit anywhere fails the test.
//!
//! Why not two limbs of 27 bits: (2^27 − 1)² is odd and above 2^53, so it has no double. Instead one factor
//! is fed in digit by digit, highest first (Horner), with the remainder kept below the divisor all along:
//! the digits are as wide as the divisor leaves room for, 26 bits for one below 2^26, and single bits for
//! one above 2^51.

mod support;

use std::num::NonZeroU64;

use proptest::prelude::*;
use sluicegate_core::arithmetic::muldiv;
use support::{DAY, EXACT_MAX, HOUR, MINUTE, SECOND, cases};

/// 2^53: below it a sum or product that a double shows is the true one.
const LIMIT: f64 = 9_007_199_254_740_992.0;

/// A double that is a whole number, and proves it after every step.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Double(f64);

impl Double {
    fn of(n: u64) -> Self {
        Self::proven(n as f64, n.into())
    }

    fn proven(shown: f64, truly: u128) -> Self {
        let holds = truly <= 1 << 53 || (truly <= 1 << 54 && truly.is_multiple_of(2));
        assert!(holds, "{truly} has no double of its own");
        assert_eq!(shown as u128, truly, "a rounded bit");
        assert_eq!(shown.fract(), 0.0);
        Self(shown)
    }

    fn whole(self) -> u128 {
        self.0 as u128
    }

    fn plus(self, other: Self) -> Self {
        Self::proven(self.0 + other.0, self.whole() + other.whole())
    }

    fn minus(self, other: Self) -> Self {
        Self::proven(self.0 - other.0, self.whole() - other.whole())
    }

    fn times(self, other: Self) -> Self {
        Self::proven(self.0 * other.0, self.whole() * other.whole())
    }

    /// Whether the product is held exactly. The rounded product itself answers: rounding keeps order,
    /// and 2^53 has a double, so what is shown below it is truly below it.
    fn times_fits(self, other: Self) -> bool {
        self.0 * other.0 < LIMIT
    }

    /// Quotient and remainder, as `local r = math.fmod(a, d); local q = (a - r) / d`.
    fn divided(self, divisor: Self) -> (Self, Self) {
        let rest = Self::proven(self.0 % divisor.0, self.whole() % divisor.whole());
        let multiple = self.minus(rest);
        // An exact multiple divides without rounding.
        let quotient = Self::proven(multiple.0 / divisor.0, self.whole() / divisor.whole());
        (quotient, rest)
    }
}

/// `floor(a * b / divisor)` and its remainder; cut at 2^53 − 1 with remainder 0.
fn muldiv_in_doubles(a: Double, b: Double, divisor: Double) -> (Double, Double) {
    let zero = Double::of(0);
    let max = Double::of(EXACT_MAX);
    if a.times_fits(b) {
        return a.times(b).divided(divisor);
    }
    // a = wholes × divisor + part, so a × b / divisor = wholes × b + part × b / divisor.
    let (wholes, part) = a.divided(divisor);
    if !wholes.times_fits(b) {
        return (max, zero);
    }
    let first = wholes.times(b);
    let (second, rest) = part_times(part, b, divisor);
    if second > max.minus(first) {
        return (max, zero);
    }
    (first.plus(second), rest)
}

/// `part * b / divisor` for a part below the divisor: the quotient is below `b`.
fn part_times(part: Double, b: Double, divisor: Double) -> (Double, Double) {
    // The widest digits for which remainder × base + digit × part stays below 2^53: both the remainder
    // and the part are below the divisor.
    let mut bits = 1;
    while bits < 26 && divisor.0 * f64::from(1u32 << (bits + 2)) <= LIMIT {
        bits += 1;
    }
    let narrow = divisor.0 * 4.0 > LIMIT;
    let base = Double::of(1 << bits);
    let digits = 53u32.div_ceil(bits);
    let (mut quotient, mut rest) = (Double::of(0), Double::of(0));
    let mut left = b;
    for index in (0..digits).rev() {
        // 2^(bits × place) and a division by it are exact: only the exponent changes.
        let weight = Double::of(1 << (bits * index));
        let (digit, lower) = left.divided(weight);
        left = lower;
        let (more, carried) = if narrow {
            one_bit(part, rest, digit, divisor)
        } else {
            rest.times(base).plus(digit.times(part)).divided(divisor)
        };
        quotient = quotient.times(base).plus(more);
        rest = carried;
    }
    (quotient, rest)
}

/// One binary digit where there is no room: 2 × rest is even and below 2^54, and nothing else is formed
/// that is not below the divisor.
fn one_bit(part: Double, rest: Double, digit: Double, divisor: Double) -> (Double, Double) {
    let one = Double::of(1);
    let mut quotient = Double::of(0);
    let mut rest = rest.times(Double::of(2));
    if rest >= divisor {
        rest = rest.minus(divisor);
        quotient = quotient.plus(one);
    }
    if digit == one {
        let room = divisor.minus(part);
        if rest >= room {
            rest = rest.minus(room);
            quotient = quotient.plus(one);
        } else {
            rest = rest.plus(part);
        }
    }
    (quotient, rest)
}

fn compare(a: u64, b: u64, divisor: u64) -> Result<(), TestCaseError> {
    let ours = muldiv(a, b, NonZeroU64::new(divisor).expect("at least 1"));
    let (quotient, rest) = muldiv_in_doubles(Double::of(a), Double::of(b), Double::of(divisor));
    let twin = (quotient.0 as u64, rest.0 as u64);
    prop_assert_eq!((ours.quotient, ours.remainder), twin, "{} × {} / {}", a, b, divisor);
    Ok(())
}

/// Of any length in bits, up to 53.
fn any_length() -> impl Strategy<Value = u64> {
    (0u32..=53, 0..=EXACT_MAX).prop_map(|(bits, n)| n >> (53 - bits))
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn the_twin_agrees_on_numbers_of_any_length(a in any_length(), b in any_length(), d in any_length()) {
        compare(a, b, d.max(1))?;
    }

    #[test]
    fn the_twin_agrees_where_the_quotient_is_near_whole(
        a in any_length(), b in any_length(), d in any_length(), off in -2i64..3,
    ) {
        // a × b / a is b: a quotient without remainder, and its neighbours.
        let near = a.max(1).saturating_add_signed(off).clamp(1, EXACT_MAX);
        compare(near, b, a.max(1))?;
        compare(b, near, a.max(1))?;
        compare(near, d, near)?;
    }

    #[test]
    fn the_twin_agrees_on_what_limits_ask(
        cost in any_length(), count in 1u64..=EXACT_MAX, period in prop_oneof![
            Just(SECOND), Just(MINUTE), Just(HOUR), Just(DAY), Just(365 * DAY), 1u64..(1 << 52),
        ],
    ) {
        compare(cost, period, count)?;
        compare(cost, count, period)?;
    }
}

#[test]
fn the_twin_agrees_at_every_edge() {
    let powers = [1, 2, 25, 26, 27, 28, 49, 50, 51, 52, 53].map(|bits| 1u64 << bits);
    let mut edges = vec![0, 3, 7, 1_000_003, SECOND, DAY, 365 * DAY];
    for power in powers {
        edges.extend([power - 1, power, power + 1]);
    }
    edges.retain(|&edge| edge <= EXACT_MAX);
    for &a in &edges {
        for &b in &edges {
            for &divisor in edges.iter().filter(|&&divisor| divisor > 0) {
                compare(a, b, divisor).unwrap();
            }
        }
    }
}

#[test]
#[should_panic(expected = "has no double of its own")]
fn two_limbs_of_27_bits_would_not_do() {
    let limb = Double::of((1 << 27) - 1);
    let _ = limb.times(limb);
}
