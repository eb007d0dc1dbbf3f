//! Ours: the public `Limiter`, and what it costs in other uses.
//!
//! The headline row, `ours`, is what a user has who does nothing special: `Limiter::hit`, which reads the
//! clock, with the remainder read and a listener that counts. The others leave something out or
//! put something in, and say so in their names.

mod algorithms;
mod listener;
#[cfg(test)]
mod tests;

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::limit::{FixedWindow, TokenBucket};
use sluicegate::{Limiter, Timestamp, Verdict};

use crate::cell::{DENIAL, HOT_1, K100_1, K100_2, K100_TURN, M1_1, M1_TURN, M10_1, Rule};
use crate::contestant::{Contestant, Done};
use crate::ids::Picks;
use crate::report::bars::{BATCH_16, GIVEN_NOW, OURS};
use crate::roster::Entry;
use listener::Count;

/// Our rows.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = vec![
        Entry::new::<Headline>(OURS),
        Entry { cells: &[HOT_1, K100_1, M1_1], ..Entry::new::<Bare>("ours-bare") },
        Entry {
            cells: &[HOT_1, K100_1, K100_TURN, K100_2, DENIAL, M1_1, M1_TURN, M10_1],
            ..Entry::new::<GivenNow<algorithms::Token>>(GIVEN_NOW)
        },
        Entry {
            cells: &[K100_1, K100_TURN, M1_1, M1_TURN, M10_1],
            ..Entry::new::<Batch16>(BATCH_16)
        },
        Entry { cells: &[K100_1, M1_1], ..Entry::new::<TwoLimits>("ours-two-limits") },
    ];
    entries.extend(algorithms::entries());
    entries
}

/// A bucket of the rule's size.
fn token_bucket(rule: Rule) -> TokenBucket {
    TokenBucket::per(1, rule.period).burst(u64::from(rule.burst))
}

/// Reads the answer as a caller does who sends headers.
#[inline]
fn read(verdict: &Verdict) -> bool {
    black_box(verdict.remaining);
    verdict.is_allowed()
}

// === the headline ===

/// `hit`, the remainder read, a listener counting.
struct Headline {
    limiter: Limiter,
    count: Arc<Count>,
}

impl Contestant for Headline {
    fn new(rule: Rule, _ids: usize) -> Self {
        let count = Arc::new(Count::default());
        let builder = Limiter::builder().limit(token_bucket(rule)).listener(count.clone());
        Self { limiter: builder.build().expect("a valid limit"), count }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit(id))
    }

    fn audit(&self, done: &Done) -> Result<(), String> {
        let heard = self.count.total();
        if heard == done.checks as u64 {
            return Ok(());
        }
        Err(format!("the listener heard of {heard} checks of {}", done.checks))
    }
}

// === less ===

/// `hit` and nothing else.
struct Bare {
    limiter: Limiter,
}

impl Contestant for Bare {
    fn new(rule: Rule, _ids: usize) -> Self {
        Self { limiter: Limiter::new(token_bucket(rule)).expect("a valid limit") }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        self.limiter.hit(id).is_allowed()
    }
}

/// `hit_at`: the caller knows what time it is. One thread's time never goes back.
struct GivenNow<A> {
    limiter: Limiter,
    start: Timestamp,
    /// Microseconds handed out so far; each run takes a stretch of its own.
    elapsed_us: AtomicU64,
    algorithm: PhantomData<fn() -> A>,
}

impl<A: algorithms::Algorithm> GivenNow<A> {
    fn after(&self, us: u64) -> Timestamp {
        Timestamp::from_micros(self.start.as_micros() + us)
    }
}

impl<A: algorithms::Algorithm> Contestant for GivenNow<A> {
    const HITS_PER_ID: usize = A::HITS_PER_ID;

    fn new(rule: Rule, _ids: usize) -> Self {
        let limiter = A::limiter(rule).expect("a valid limit");
        let start = limiter.now();
        Self { limiter, start, elapsed_us: AtomicU64::new(A::LEAP_US), algorithm: PhantomData }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit_at(id, self.start))
    }

    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        let mut us = self.elapsed_us.fetch_add(checks as u64 * A::STEP_US, Ordering::Relaxed);
        let mut admitted = 0;
        for _ in 0..checks {
            us += A::STEP_US;
            admitted += usize::from(read(&self.limiter.hit_at(picks.next(), self.after(us))));
        }
        admitted
    }

    fn fill(&self, id: &String, hit: usize) -> bool {
        read(&self.limiter.hit_at(id, self.after(A::fill_us(id, hit))))
    }
}

/// `hit_batch`: sixteen ids, one reading of the clock.
struct Batch16 {
    limiter: Limiter,
}

impl Contestant for Batch16 {
    fn new(rule: Rule, _ids: usize) -> Self {
        Self { limiter: Limiter::new(token_bucket(rule)).expect("a valid limit") }
    }

    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit(id))
    }

    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        let mut admitted = 0;
        let mut left = checks;
        while left > 0 {
            let size = left.min(16);
            let batch: [&str; 16] = std::array::from_fn(|_| picks.next().as_str());
            self.limiter.hit_batch(&batch[..size], |_, verdict| {
                admitted += usize::from(read(&verdict));
            });
            left -= size;
        }
        admitted
    }
}

// === more ===

/// `hit` on a rule of two limits: all or nothing.
struct TwoLimits {
    limiter: Limiter,
}

impl Contestant for TwoLimits {
    fn new(rule: Rule, _ids: usize) -> Self {
        let window = FixedWindow::per_day(u64::from(rule.burst));
        let builder = Limiter::builder().limit(token_bucket(rule)).limit(window);
        Self { limiter: builder.build().expect("valid limits") }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit(id))
    }
}
