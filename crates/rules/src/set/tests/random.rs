//! Random trees and requests: the compiled set agrees with the naive matcher.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::agree::check;

/// A deterministic number of cases; `PROPTEST_CASES` runs more, with a new seed each time.
fn cases(at_least: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    Config {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn it_agrees_with_a_naive_matcher(bytes in prop::collection::vec(any::<u8>(), 0..1_600)) {
        check(&bytes);
    }
}
