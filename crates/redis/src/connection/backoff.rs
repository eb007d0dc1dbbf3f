//! How long until the next try: longer each time, and never the same for everybody.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::options::BreakerOptions;

/// After this many failed tries: between half and all of a span that doubles up to its bound.
pub(super) fn pause(options: &BreakerOptions, tries: u32) -> Duration {
    let doubled = 1_u32.checked_shl(tries).unwrap_or(u32::MAX);
    spread(options.pause.saturating_mul(doubled).min(options.pause_longest))
}

/// Between half and all of the span, as chance has it, so that nodes that lost a server together do not come back together.
pub(super) fn spread(span: Duration) -> Duration {
    // Every state has keys of its own.
    let chance = RandomState::new().hash_one(()) % 512;
    let part = u32::try_from(chance + 512).unwrap_or(1024);
    span.saturating_mul(part) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_its_bound_and_is_spread() {
        let options = BreakerOptions::default();
        for (tries, millis) in [(0, 100), (1, 200), (4, 1600), (5, 2000), (99, 2000)] {
            let bound = Duration::from_millis(millis);
            let pauses: Vec<_> = (0..64).map(|_| pause(&options, tries)).collect();
            assert!(pauses.iter().all(|pause| (bound / 2..=bound).contains(pause)), "{pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }
}
