//! Counters for many writing threads and few readers.
//!
//! Each thread adds to one of several copies on separate cache lines; a reader sums them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Copies of a set of counters.
#[derive(Debug)]
pub struct Striped<T> {
    /// A power of two of them.
    stripes: Box<[Stripe<T>]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Stripe<T>(T);

/// Threads beyond this share stripes, which costs less than storing and reading more of them.
const STRIPES_MAX: usize = 8;

static STRIPES: LazyLock<usize> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(STRIPES_MAX, usize::from);
    cores.min(STRIPES_MAX).next_power_of_two()
});

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

impl<T> Striped<T> {
    /// One copy per stripe.
    #[must_use]
    pub fn new(copy: impl Fn() -> T) -> Self {
        Self { stripes: (0..*STRIPES).map(|_| Stripe(copy())).collect() }
    }

    /// The copy of the calling thread.
    #[inline]
    #[must_use]
    pub fn mine(&self) -> &T {
        let index = THREAD.with(|thread| *thread) & (self.stripes.len() - 1);
        &self.stripes[index].0
    }

    /// The sum of a counter over all copies.
    pub fn sum(&self, counter: impl Fn(&T) -> &AtomicU64) -> u64 {
        let values = self.stripes.iter().map(|Stripe(copy)| counter(copy).load(Ordering::Relaxed));
        values.fold(0, u64::wrapping_add)
    }
}
