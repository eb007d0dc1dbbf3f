//! A little chance, so that what began together does not end together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The span, give or take a tenth.
pub(super) fn jittered(span: Duration) -> Duration {
    // Every state has keys of its own.
    let chance = RandomState::new().hash_one(()) % 2_001;
    // From 0.9 to 1.1, in ten thousandths.
    let share = 9_000 + u32::try_from(chance).unwrap_or(1_000);
    (span / 10_000).saturating_mul(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_at_most_and_not_always_the_same() {
        let hour = Duration::from_secs(3_600);
        let spans: Vec<_> = (0..100).map(|_| jittered(hour)).collect();
        assert!(spans.iter().all(|span| (hour * 9 / 10..=hour * 11 / 10).contains(span)));
        assert!(spans.iter().any(|span| *span != spans[0]));
    }
}
