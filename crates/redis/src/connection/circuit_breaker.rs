//! Circuit breaker: whether calls are sent to a server at all.
//!
//! ```text
//!            consecutive failures, or a silent server
//!   closed ------------------------------------------> open: calls fail at once
//!      ^                                                 |
//!      +------------ probe, or a late reply -------------+   each failed probe doubles the backoff
//! ```
//! The probe is a `PING` of its own, not the call of a client: no client pays for it, and the
//! recovery of an idle server is noticed too. Only a successful call resets the backoff: a server
//! that answers `PING` and nothing else is probed less and less often.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::options::BreakerOptions;

#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    consecutive_failures: AtomicU32,
    open: AtomicBool,
    probing: AtomicBool,
    /// Probes since the last successful call.
    probes: AtomicU32,
}

/// State of a server's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls are sent.
    Closed,
    /// Calls fail at once.
    Open,
    /// Calls fail at once, and a probe is in flight.
    HalfOpen,
}

impl CircuitBreaker {
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    pub(super) fn state(&self) -> BreakerState {
        match (self.is_open(), self.probing.load(Relaxed)) {
            (false, _) => BreakerState::Closed,
            (true, false) => BreakerState::Open,
            (true, true) => BreakerState::HalfOpen,
        }
    }

    /// A call succeeded. Returns whether that closed the breaker.
    pub(super) fn succeeded(&self) -> bool {
        // Stores only on a change, so that the cache line stays shared.
        if self.probes.load(Relaxed) != 0 {
            self.probes.store(0, Relaxed);
        }
        self.close()
    }

    /// A call failed. Returns whether that opened the breaker.
    pub(super) fn failed(&self, options: &BreakerOptions) -> bool {
        let before = self.consecutive_failures.fetch_add(1, Relaxed);
        before.saturating_add(1) >= options.failures && self.trip()
    }

    /// Opens the breaker. Returns whether it was closed.
    pub(super) fn trip(&self) -> bool {
        !self.open.swap(true, Relaxed)
    }

    /// Backoff before the next probe.
    pub(super) fn next_backoff(&self, options: &BreakerOptions) -> Duration {
        let probes = self.probes.load(Relaxed);
        self.probes.store(probes.saturating_add(1).min(31), Relaxed);
        backoff(options, probes)
    }

    pub(super) fn probe_started(&self) {
        self.probing.store(true, Relaxed);
    }

    /// Returns whether that closed the breaker.
    pub(super) fn probe_succeeded(&self) -> bool {
        self.probing.store(false, Relaxed);
        self.close()
    }

    pub(super) fn probe_failed(&self) {
        self.probing.store(false, Relaxed);
    }

    fn close(&self) -> bool {
        if self.consecutive_failures.load(Relaxed) != 0 {
            self.consecutive_failures.store(0, Relaxed);
        }
        self.open.load(Relaxed) && self.open.swap(false, Relaxed)
    }
}

/// Exponential backoff with jitter.
pub(super) fn backoff(options: &BreakerOptions, attempts: u32) -> Duration {
    let factor = 1_u32.checked_shl(attempts).unwrap_or(u32::MAX);
    jitter(options.backoff.saturating_mul(factor).min(options.backoff_max))
}

/// A random span between half and all of `span`, so that nodes do not retry in step.
pub(super) fn jitter(span: Duration) -> Duration {
    span.saturating_mul(fastrand::u32(512..=1024)) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: BreakerOptions = BreakerOptions {
        failures: 3,
        backoff: Duration::from_millis(100),
        backoff_max: Duration::from_secs(2),
    };

    #[test]
    fn opens_after_consecutive_failures_and_closes_by_a_probe() {
        let breaker = CircuitBreaker::default();
        for _ in 0..4 {
            assert!(!breaker.failed(&OPTIONS) && !breaker.failed(&OPTIONS));
            assert!(!breaker.succeeded());
        }
        assert!(!breaker.failed(&OPTIONS) && !breaker.failed(&OPTIONS));
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(breaker.failed(&OPTIONS));
        assert!(!breaker.failed(&OPTIONS), "it opens once");
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.probe_started();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        breaker.probe_failed();
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.probe_started();
        assert!(breaker.probe_succeeded());
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(!breaker.failed(&OPTIONS), "failures count from zero again");
    }

    #[test]
    fn the_backoff_grows_until_a_call_succeeds() {
        let breaker = CircuitBreaker::default();
        let bound = |millis| Duration::from_millis(millis / 2)..=Duration::from_millis(millis);
        for millis in [100, 200, 400, 800, 1600, 2000, 2000] {
            breaker.trip();
            let backoff = breaker.next_backoff(&OPTIONS);
            assert!(bound(millis).contains(&backoff), "{backoff:?} of {millis}");
            // A successful probe does not reset it.
            breaker.probe_succeeded();
        }
        assert!(!breaker.succeeded());
        assert!(bound(100).contains(&breaker.next_backoff(&OPTIONS)));
        breaker.trip();
        assert!(breaker.succeeded(), "a late reply closes it");
    }

    #[test]
    fn backoff_doubles_up_to_its_bound_with_jitter() {
        let options = BreakerOptions::default();
        for (attempts, millis) in [(0, 100), (1, 200), (4, 1600), (5, 2000), (99, 2000)] {
            let bound = Duration::from_millis(millis);
            let spans: Vec<_> = (0..64).map(|_| backoff(&options, attempts)).collect();
            assert!(spans.iter().all(|span| (bound / 2..=bound).contains(span)), "{spans:?}");
            assert!(spans.iter().any(|span| *span != spans[0]));
        }
    }
}
