//! Shared test helpers of the store.

use proptest::test_runner::{Config, RngSeed};

/// At least `at_least` cases with a fixed seed; `PROPTEST_CASES` sets a higher number and a random
/// seed.
pub(crate) fn cases(at_least: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    Config {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..Config::default()
    }
}
