//! Whether the service is worth asking.
//!
//! ```text
//!            a number of failures in a row
//!   closed ---------------------------------> open: nobody asks, but for one every so often
//!      ^                                        |
//!      +----------- one of those is answered ---+
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// When to stop asking, and how often to look whether the service is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    pub(crate) failures: u32,
    pub(crate) probe_every: Duration,
}

/// What is known of the service.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures_in_a_row: u32,
    /// While it is open.
    next_probe: Option<Instant>,
}

/// What a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Ask.
    Open,
    /// Ask once, to see whether the service is back.
    Probe,
    /// Do not ask.
    Barred,
}

impl Breaker {
    /// What a call may do that comes now.
    pub(crate) fn way(&mut self, patience: Patience, now: Instant) -> Way {
        match self.next_probe {
            None => Way::Open,
            Some(at) if now < at => Way::Barred,
            Some(_) => {
                self.next_probe = Some(now + patience.probe_every);
                Way::Probe
            }
        }
    }

    /// The service answered, whatever it said.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// It did not. Whether it is still worth asking again.
    pub(crate) fn failed(&mut self, patience: Patience, now: Instant) -> bool {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if self.failures_in_a_row >= patience.failures && self.next_probe.is_none() {
            self.next_probe = Some(now + patience.probe_every);
        }
        self.next_probe.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PATIENCE: Patience = Patience { failures: 3, probe_every: SECOND };

    #[tokio::test(start_paused = true)]
    async fn opens_after_failures_in_a_row_and_closes_by_a_probe() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..5 {
            assert!(breaker.failed(PATIENCE, now) && breaker.failed(PATIENCE, now));
            breaker.answered();
        }
        breaker.failed(PATIENCE, now);
        breaker.failed(PATIENCE, now);
        assert_eq!(breaker.way(PATIENCE, now), Way::Open);
        assert!(!breaker.failed(PATIENCE, now));
        let ways = |breaker: &mut Breaker, at| [0; 3].map(|_| breaker.way(PATIENCE, at));
        assert_eq!(ways(&mut breaker, now + SECOND / 2), [Way::Barred; 3]);
        assert_eq!(ways(&mut breaker, now + SECOND), [Way::Probe, Way::Barred, Way::Barred]);
        // A failure that comes late does not put the next probe off.
        breaker.failed(PATIENCE, now + SECOND * 3 / 2);
        assert_eq!(ways(&mut breaker, now + 2 * SECOND), [Way::Probe, Way::Barred, Way::Barred]);
        breaker.answered();
        assert_eq!(ways(&mut breaker, now + 2 * SECOND), [Way::Open; 3]);
    }
}
