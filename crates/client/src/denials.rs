//! Cache of denials: the same domain and descriptors are denied at that cost, or a higher one,
//! until the time that the service returned. The table is bounded; a miss only costs a request.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::{Decision, DecisionSource};

#[derive(Debug)]
pub(crate) struct Denials {
    bounds: CacheBounds,
    all: HashMap<String, Denial>,
    sweep_at: Option<Instant>,
}

/// Bounds of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheBounds {
    pub(crate) keys_max: usize,
    pub(crate) time_max: Duration,
}

#[derive(Debug)]
struct Denial {
    /// The cost that was denied.
    cost: u64,
    /// End of the entry.
    until: Instant,
    /// The time returned by the service; may be later than `until`.
    passes_at: Instant,
    decision: Decision,
}

/// Interval of sweeps of a full table.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Longer times are cut.
const WAIT_MAX: Duration = Duration::from_secs(366 * 86_400);

impl Denials {
    pub(crate) fn new(bounds: CacheBounds) -> Self {
        Self { bounds, all: HashMap::new(), sweep_at: None }
    }

    /// A valid cached denial.
    pub(crate) fn known(&mut self, identity: &str, cost: u64, now: Instant) -> Option<Decision> {
        let denial = self.all.get(identity)?;
        if denial.until <= now {
            self.all.remove(identity);
            return None;
        }
        let retry_after = Some(denial.passes_at - now);
        let known =
            Decision { retry_after, source: DecisionSource::Remembered, ..denial.decision.clone() };
        (cost >= denial.cost).then_some(known)
    }

    /// Updates the cache with a decision.
    pub(crate) fn remember(
        &mut self,
        identity: String,
        cost: u64,
        decision: &Decision,
        now: Instant,
    ) {
        let before = self.all.get(&identity);
        // Without a time only a change of the rules can allow it.
        let Some(wait) = decision.retry_after.filter(|_| !decision.allowed) else {
            if before.is_some_and(|before| before.cost <= cost) {
                self.all.remove(&identity);
            }
            return;
        };
        let until = now + wait.min(self.bounds.time_max).min(WAIT_MAX);
        let passes_at = now + wait.min(WAIT_MAX);
        let fits = match before {
            // The known entry may cover more: a smaller cost, a longer time.
            Some(before) => before.cost > cost || before.until < until,
            None => self.has_room(now),
        };
        if !fits {
            return;
        }
        self.all.insert(identity, Denial { cost, until, passes_at, decision: decision.clone() });
    }

    /// Drops an entry.
    pub(crate) fn forget(&mut self, identity: &str) {
        self.all.remove(identity);
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if self.all.len() >= self.bounds.keys_max && self.sweep_at.is_none_or(|at| at <= now) {
            self.all.retain(|_, denial| denial.until > now);
            self.sweep_at = Some(now + SWEEP_EVERY);
        }
        self.all.len() < self.bounds.keys_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn denied(wait: Duration) -> Decision {
        Decision { retry_after: Some(wait), ..Decision::of(false, Vec::new()) }
    }

    fn table() -> Denials {
        Denials::new(CacheBounds { keys_max: 2, time_max: 30 * SECOND })
    }

    #[tokio::test(start_paused = true)]
    async fn denied_until_the_time_comes_and_not_for_a_smaller_cost() {
        let (mut table, now) = (table(), Instant::now());
        table.remember("me".to_owned(), 5, &denied(10 * SECOND), now);
        let known = table.known("me", 5, now + 4 * SECOND).unwrap();
        assert_eq!(
            (known.source, known.retry_after),
            (DecisionSource::Remembered, Some(6 * SECOND))
        );
        assert!(table.known("me", 6, now).is_some());
        assert!(table.known("me", 4, now).is_none());
        assert!(table.known("you", 5, now).is_none());
        assert!(table.known("me", 5, now + 10 * SECOND).is_none());
        table.remember("me".to_owned(), 5, &denied(Duration::MAX), now);
        assert!(table.known("me", 5, now + 29 * SECOND).is_some());
        assert!(table.known("me", 5, now + 30 * SECOND).is_none(), "asked again now and then");
    }

    #[tokio::test(start_paused = true)]
    async fn bounded_and_swept() {
        let (mut table, now) = (table(), Instant::now());
        for identity in ["a", "b", "c"] {
            table.remember(identity.to_owned(), 1, &denied(SECOND), now);
        }
        assert!(table.known("b", 1, now).is_some() && table.known("c", 1, now).is_none());
        table.remember("a".to_owned(), 1, &denied(2 * SECOND), now);
        table.remember("c".to_owned(), 1, &denied(9 * SECOND), now + SECOND);
        assert!(
            table.known("a", 1, now + SECOND).is_some()
                && table.known("c", 1, now + SECOND).is_some()
        );
        table.forget("a");
        assert!(table.known("a", 1, now + SECOND).is_none());
        table.remember("c".to_owned(), 1, &Decision::of(true, Vec::new()), now);
        assert!(table.known("c", 1, now).is_none());
    }
}
