//! Who was denied, and until when it need not ask.
//!
//! What is kept is what the service said: nobody of the same domain and descriptors passes at that cost, or at a higher one, before that time. The table is bounded: what
//! does not fit is not kept, and the service is asked, which is never wrong.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::{Asked, Decision};

#[derive(Debug)]
pub(crate) struct Denials {
    bounds: Bounds,
    all: HashMap<String, Denial>,
    sweep_at: Option<Instant>,
}

/// How many are kept, and for how long at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) keys_max: usize,
    pub(crate) time_max: Duration,
}

#[derive(Debug)]
struct Denial {
    /// The cost that was denied.
    cost: u64,
    /// It need not ask before.
    until: Instant,
    /// When it passes, by what was said; later than `until` if that is longer than one believes.
    passes_at: Instant,
    decision: Decision,
}

/// A full table is searched for what has run out this often, so that a flood of keys costs little.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What is told beyond is cut: no clock can count it.
const TOLD_MAX: Duration = Duration::from_secs(366 * 86_400);

impl Denials {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, all: HashMap::new(), sweep_at: None }
    }

    /// What the service would say again, if it is known.
    pub(crate) fn known(&mut self, who: &str, cost: u64, now: Instant) -> Option<Decision> {
        let denial = self.all.get(who)?;
        if denial.until <= now {
            self.all.remove(who);
            return None;
        }
        let retry_after = Some(denial.passes_at - now);
        let known = Decision { retry_after, source: Asked::Remembered, ..denial.decision.clone() };
        (cost >= denial.cost).then_some(known)
    }

    /// The service has just said this.
    pub(crate) fn heard(&mut self, who: String, cost: u64, decision: &Decision, now: Instant) {
        let before = self.all.get(&who);
        // Without a time it is of no use to know it: only other rules can let it pass.
        let Some(wait) = decision.retry_after.filter(|_| !decision.allowed) else {
            if before.is_some_and(|before| before.cost <= cost) {
                self.all.remove(&who);
            }
            return;
        };
        let until = now + wait.min(self.bounds.time_max).min(TOLD_MAX);
        let passes_at = now + wait.min(TOLD_MAX);
        let fits = match before {
            // What is known may say more: that less is denied, and for longer.
            Some(before) => before.cost > cost || before.until < until,
            None => self.has_room(now),
        };
        if !fits {
            return;
        }
        self.all.insert(who, Denial { cost, until, passes_at, decision: decision.clone() });
    }

    /// Something was given back.
    pub(crate) fn forget(&mut self, who: &str) {
        self.all.remove(who);
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
        Denials::new(Bounds { keys_max: 2, time_max: 30 * SECOND })
    }

    #[tokio::test(start_paused = true)]
    async fn denied_until_the_time_comes_and_not_for_a_smaller_cost() {
        let (mut table, now) = (table(), Instant::now());
        table.heard("me".to_owned(), 5, &denied(10 * SECOND), now);
        let known = table.known("me", 5, now + 4 * SECOND).unwrap();
        assert_eq!((known.source, known.retry_after), (Asked::Remembered, Some(6 * SECOND)));
        assert!(table.known("me", 6, now).is_some());
        assert!(table.known("me", 4, now).is_none());
        assert!(table.known("you", 5, now).is_none());
        assert!(table.known("me", 5, now + 10 * SECOND).is_none());
        table.heard("me".to_owned(), 5, &denied(Duration::MAX), now);
        assert!(table.known("me", 5, now + 29 * SECOND).is_some());
        assert!(table.known("me", 5, now + 30 * SECOND).is_none(), "asked again now and then");
    }

    #[tokio::test(start_paused = true)]
    async fn bounded_and_swept() {
        let (mut table, now) = (table(), Instant::now());
        for who in ["a", "b", "c"] {
            table.heard(who.to_owned(), 1, &denied(SECOND), now);
        }
        assert!(table.known("b", 1, now).is_some() && table.known("c", 1, now).is_none());
        table.heard("a".to_owned(), 1, &denied(2 * SECOND), now);
        table.heard("c".to_owned(), 1, &denied(9 * SECOND), now + SECOND);
        assert!(
            table.known("a", 1, now + SECOND).is_some()
                && table.known("c", 1, now + SECOND).is_some()
        );
        table.forget("a");
        assert!(table.known("a", 1, now + SECOND).is_none());
        table.heard("c".to_owned(), 1, &Decision::of(true, Vec::new()), now);
        assert!(table.known("c", 1, now).is_none());
    }
}
