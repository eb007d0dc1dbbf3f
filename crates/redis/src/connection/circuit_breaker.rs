//! Whether a server is worth asking.
//!
//! ```text
//!            a number of failures in a row
//!   closed ---------------------------------> open: nobody asks; after a pause we look ourselves
//!      ^                                        |
//!      +------ a look, or a late answer --------+      each failed look doubles the pause
//! ```
//! We look with a `PING` of our own and not with the call of a caller: so nobody pays for it, and a server that nobody asks is known to be back too.
//! The pause is short again only when a real call was answered: a server that answers `PING` and nothing else is left alone for longer and longer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::backoff::pause;
use super::options::BreakerOptions;

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures_in_a_row: AtomicU32,
    open: AtomicBool,
    looking: AtomicBool,
    /// How often it was found open, or still open, since a call was answered.
    strikes: AtomicU32,
}

/// How a server is thought of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// It is asked.
    Closed,
    /// It is not asked.
    Open,
    /// It is not asked, but looked after just now.
    HalfOpen,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    pub(super) fn state(&self) -> BreakerState {
        match (self.is_open(), self.looking.load(Relaxed)) {
            (false, _) => BreakerState::Closed,
            (true, false) => BreakerState::Open,
            (true, true) => BreakerState::HalfOpen,
        }
    }

    /// A call was answered. Whether that closed it.
    pub(super) fn answered(&self) -> bool {
        // Nearly always there is nothing to write, and so no cache line to fight over.
        if self.strikes.load(Relaxed) != 0 {
            self.strikes.store(0, Relaxed);
        }
        self.close()
    }

    /// A call was not answered. Whether that opened it.
    pub(super) fn failed(&self, options: &BreakerOptions) -> bool {
        let before = self.failures_in_a_row.fetch_add(1, Relaxed);
        before.saturating_add(1) >= options.failures && self.trip()
    }

    /// The server said that it can do nothing. Whether that opened it.
    pub(super) fn trip(&self) -> bool {
        !self.open.swap(true, Relaxed)
    }

    /// The pause before the next look.
    pub(super) fn pause(&self, options: &BreakerOptions) -> Duration {
        let strikes = self.strikes.load(Relaxed);
        self.strikes.store(strikes.saturating_add(1).min(31), Relaxed);
        pause(options, strikes)
    }

    /// A look begins.
    pub(super) fn look(&self) {
        self.looking.store(true, Relaxed);
    }

    /// It ended, and the server was there. Whether that closed it.
    pub(super) fn found(&self) -> bool {
        self.looking.store(false, Relaxed);
        self.close()
    }

    /// It ended, and the server was not there.
    pub(super) fn missed(&self) {
        self.looking.store(false, Relaxed);
    }

    fn close(&self) -> bool {
        if self.failures_in_a_row.load(Relaxed) != 0 {
            self.failures_in_a_row.store(0, Relaxed);
        }
        self.open.load(Relaxed) && self.open.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: BreakerOptions = BreakerOptions {
        failures: 3,
        pause: Duration::from_millis(100),
        pause_longest: Duration::from_secs(2),
    };

    #[test]
    fn opens_after_failures_in_a_row_and_closes_by_a_look() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            assert!(!breaker.failed(&OPTIONS) && !breaker.failed(&OPTIONS));
            assert!(!breaker.answered());
        }
        assert!(!breaker.failed(&OPTIONS) && !breaker.failed(&OPTIONS));
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(breaker.failed(&OPTIONS));
        assert!(!breaker.failed(&OPTIONS), "it opens once");
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.look();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        breaker.missed();
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.look();
        assert!(breaker.found());
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(!breaker.failed(&OPTIONS), "failures count from none again");
    }

    #[test]
    fn the_pause_grows_until_a_call_is_answered() {
        let breaker = Breaker::default();
        let bound = |millis| Duration::from_millis(millis / 2)..=Duration::from_millis(millis);
        for millis in [100, 200, 400, 800, 1600, 2000, 2000] {
            breaker.trip();
            let pause = breaker.pause(&OPTIONS);
            assert!(bound(millis).contains(&pause), "{pause:?} of {millis}");
            // That it answers a look is not enough.
            breaker.found();
        }
        assert!(!breaker.answered());
        assert!(bound(100).contains(&breaker.pause(&OPTIONS)));
        breaker.trip();
        assert!(breaker.answered(), "a late answer closes it");
    }
}
