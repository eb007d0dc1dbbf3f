//! Our rows: the public `Limiter` in several uses.
//!
//! The headline row, `ours`, is `Limiter::hit` with the clock and the remainder read and a counting
//! listener.

use std::cell::Cell;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluicegate::limit::{FixedWindow, TokenBucket};
use sluicegate::{Event, Limiter, Listener, Timestamp, Verdict};

use super::algorithms;
use super::cell::{DENIAL, HOT_1, K100_1, K100_2, K100_TURN, M1_1, M1_TURN, M10_1, Quota};
use super::contestant::{Contestant, Done, Entry};
use super::measure::Picks;
use super::report::{BATCH_16, GIVEN_NOW, OURS};

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
pub(super) fn token_bucket(quota: Quota) -> TokenBucket {
    TokenBucket::per(1, quota.period).burst(u64::from(quota.burst))
}

/// Reads the verdict as a caller that sends headers does.
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
    fn new(quota: Quota, _ids: usize) -> Self {
        let count = Arc::new(Count::default());
        let builder = Limiter::builder().limit(token_bucket(quota)).listener(count.clone());
        Self { limiter: builder.build().expect("a valid limit"), count }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit(id))
    }

    fn audit(&self, done: &Done) -> Result<(), String> {
        let counted = self.count.total();
        if counted == done.checks as u64 {
            return Ok(());
        }
        Err(format!("the listener counted {counted} checks of {}", done.checks))
    }
}

// === less ===

/// `hit` and nothing else.
struct Bare {
    limiter: Limiter,
}

impl Contestant for Bare {
    fn new(quota: Quota, _ids: usize) -> Self {
        Self { limiter: Limiter::new(token_bucket(quota)).expect("a valid limit") }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        self.limiter.hit(id).is_allowed()
    }
}

/// `hit_at`: the caller passes the time, which never goes back within a thread.
pub(super) struct GivenNow<A> {
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

    fn new(quota: Quota, _ids: usize) -> Self {
        let limiter = A::limiter(quota).expect("a valid limit");
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
    fn new(quota: Quota, _ids: usize) -> Self {
        Self { limiter: Limiter::new(token_bucket(quota)).expect("a valid limit") }
    }

    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit(id))
    }

    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        let mut admitted = 0;
        let mut remaining = checks;
        while remaining > 0 {
            let size = remaining.min(16);
            let batch: [&str; 16] = std::array::from_fn(|_| picks.next().as_str());
            self.limiter.hit_batch(&batch[..size], |_, verdict| {
                admitted += usize::from(read(&verdict));
            });
            remaining -= size;
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
    fn new(quota: Quota, _ids: usize) -> Self {
        let window = FixedWindow::per_day(u64::from(quota.burst));
        let builder = Limiter::builder().limit(token_bucket(quota)).limit(window);
        Self { limiter: builder.build().expect("valid limits") }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        read(&self.limiter.hit(id))
    }
}

// === the listener ===

/// Counters by thread: a single one would be contended.
const STRIPES: usize = 16;

/// A listener that counts, as an exporter of metrics would.
#[derive(Debug, Default)]
pub(crate) struct Count {
    stripes: [Stripe; STRIPES],
}

/// Two cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

thread_local! {
    static STRIPE: Cell<usize> = Cell::new(next_stripe());
}

fn next_stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES
}

impl Count {
    /// Over all threads.
    pub(crate) fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

impl Listener for Count {
    #[inline]
    fn decided(&self, _event: &Event<'_>) {
        self.stripes[STRIPE.get()].0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::cell::{CELLS, Cell, MANY, Order, SCARCE};
    use crate::library::measure::build_ids;

    #[test]
    fn every_row_answers_as_its_cells_mean() {
        for entry in entries() {
            for cell in CELLS.iter().filter(|cell| entry.runs_in(cell)) {
                // The warm-up picks fewer than a thousand times each.
                let small = Cell { ids: cell.ids.min(1_000), ..*cell };
                if let Err(wrong) = (entry.speed)(&small, 1_000) {
                    panic!("{} {}: {wrong}", cell.name, entry.name);
                }
            }
        }
    }

    #[test]
    fn admits_the_burst_of_each_id_and_no_more() {
        fn answers<C: Contestant>() -> Vec<bool> {
            let contestant = C::new(SCARCE, 1);
            (0..4).map(|_| contestant.check(&build_ids(1)[0])).collect()
        }
        let meant = [true, true, false, false];
        assert_eq!(answers::<Headline>(), meant);
        assert_eq!(answers::<Batch16>(), meant);
        assert_eq!(answers::<TwoLimits>(), meant);
    }

    #[test]
    fn a_batch_that_is_not_full_asks_no_more_than_it_was_told() {
        let ids = build_ids(3);
        let contestant = Batch16::new(MANY, ids.len());
        assert_eq!(contestant.run(&mut Picks::new(&ids, 1, Order::Random), 37), 37);
    }
}
