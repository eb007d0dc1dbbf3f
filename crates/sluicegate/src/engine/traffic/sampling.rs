//! Random sampling of requests: each is taken with the probability 1 / interval.
//!
//! A thread draws how many requests it skips (a geometric distribution), so that a request that is
//! not taken costs one subtraction.

use std::cell::Cell;

thread_local! {
    static SKIPPED: Cell<u32> = const { Cell::new(0) };
}

/// Whether the next request is taken.
#[inline]
pub(super) fn is_sampled(interval: u32) -> bool {
    if interval <= 1 {
        return true;
    }
    SKIPPED.with(|skipped| match skipped.get().checked_sub(1) {
        Some(rest) => {
            skipped.set(rest);
            false
        }
        None => {
            skipped.set(skip(interval, fastrand::f64()));
            true
        }
    })
}

/// The requests to skip, by a random number of [0, 1).
fn skip(interval: u32, random: f64) -> u32 {
    let not_taken = 1.0 - 1.0 / f64::from(interval);
    // Casts saturate.
    ((1.0 - random).ln() / not_taken.ln()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_an_interval_is_taken() {
        let mut rng = fastrand::Rng::with_seed(1);
        for interval in [2, 16, 1_024] {
            let draws = 100_000u32;
            let skipped: u64 = (0..draws).map(|_| u64::from(skip(interval, rng.f64()))).sum();
            let mean = skipped as f64 / f64::from(draws) + 1.0;
            assert!((mean / f64::from(interval) - 1.0).abs() < 0.02, "{interval}: {mean}");
        }
        assert_eq!(skip(2, 0.0), 0);
    }
}
