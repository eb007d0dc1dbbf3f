//! What the tests of the store share.

use proptest::test_runner::{Config, RngSeed};

/// So many cases, the same ones every time; `PROPTEST_CASES` asks for more, and for others each
/// time.
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
