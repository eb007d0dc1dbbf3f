//! Circuit breaker of the service.
//!
//! ```text
//!            a number of failures in a row
//!   closed ---------------------------------> open: only a probe now and then
//!      ^                                        |
//!      +----------- a probe is answered ---+
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// Failures that open the breaker, and the interval of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BreakerConfig {
    pub(crate) failures: u32,
    pub(crate) probe_every: Duration,
}

/// State of the breaker.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures_in_a_row: u32,
    /// `Some` while open.
    next_probe: Option<Instant>,
}

/// Decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Closed: send.
    Pass,
    /// Half-open: send once as a probe.
    Probe,
    /// Open: fail fast.
    Reject,
}

impl Breaker {
    /// Decides about a call.
    pub(crate) fn admit(&mut self, config: BreakerConfig, now: Instant) -> Admission {
        match self.next_probe {
            None => Admission::Pass,
            Some(at) if now < at => Admission::Reject,
            Some(_) => {
                self.next_probe = Some(now + config.probe_every);
                Admission::Probe
            }
        }
    }

    /// The service answered: closes the breaker.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// The service did not answer. Returns whether the breaker is still closed.
    pub(crate) fn failed(&mut self, config: BreakerConfig, now: Instant) -> bool {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if self.failures_in_a_row >= config.failures && self.next_probe.is_none() {
            self.next_probe = Some(now + config.probe_every);
        }
        self.next_probe.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const CONFIG: BreakerConfig = BreakerConfig { failures: 3, probe_every: SECOND };

    #[tokio::test(start_paused = true)]
    async fn opens_after_failures_in_a_row_and_closes_by_a_probe() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..5 {
            assert!(breaker.failed(CONFIG, now) && breaker.failed(CONFIG, now));
            breaker.answered();
        }
        breaker.failed(CONFIG, now);
        breaker.failed(CONFIG, now);
        assert_eq!(breaker.admit(CONFIG, now), Admission::Pass);
        assert!(!breaker.failed(CONFIG, now));
        let ways = |breaker: &mut Breaker, at| [0; 3].map(|_| breaker.admit(CONFIG, at));
        assert_eq!(ways(&mut breaker, now + SECOND / 2), [Admission::Reject; 3]);
        assert_eq!(
            ways(&mut breaker, now + SECOND),
            [Admission::Probe, Admission::Reject, Admission::Reject]
        );
        // A late failure does not postpone the next probe.
        breaker.failed(CONFIG, now + SECOND * 3 / 2);
        assert_eq!(
            ways(&mut breaker, now + 2 * SECOND),
            [Admission::Probe, Admission::Reject, Admission::Reject]
        );
        breaker.answered();
        assert_eq!(ways(&mut breaker, now + 2 * SECOND), [Admission::Pass; 3]);
    }
}
