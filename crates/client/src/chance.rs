//! A little chance, so that clients that were told the same do not come back together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Any number.
pub(crate) fn chance() -> u64 {
    // Every state has keys of its own.
    RandomState::new().hash_one(())
}

/// A part of the span, from none of it to nearly all, as chance has it.
pub(crate) fn part_of(span: Duration, chance: u64) -> Duration {
    let nanos = span.as_nanos().min(u128::from(u64::MAX));
    let part = (nanos * u128::from(chance)) >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let day = Duration::from_secs(86_400);
        assert_eq!(part_of(day, 0), Duration::ZERO);
        assert_eq!(part_of(day, u64::MAX / 2 + 1), day / 2);
        assert!(part_of(day, u64::MAX) < day);
        assert!(part_of(Duration::MAX, u64::MAX) < Duration::MAX);
        assert_ne!(chance(), chance());
    }
}
