//! Numbers that many threads add to and few read.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Place;

/// Enough for most machines; beyond, threads share.
const STRIPES: usize = 8;

/// The numbers, once for each stripe.
#[derive(Debug)]
pub(super) struct Stripes {
    stripes: Box<[Stripe; STRIPES]>,
}

/// On cache lines of its own; two, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    numbers: [AtomicU64; Place::ALL],
}

impl Stripes {
    #[inline]
    pub(super) fn add(&self, place: usize, more: u64) {
        self.stripes[my_stripe()].numbers[place].fetch_add(more, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn add_three(&self, all: [(usize, u64); 3]) {
        let numbers = &self.stripes[my_stripe()].numbers;
        for (place, more) in all {
            numbers[place].fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self, place: usize) -> u64 {
        let numbers = self.stripes.iter().map(|stripe| &stripe.numbers[place]);
        numbers.fold(0, |sum, number| sum.wrapping_add(number.load(Ordering::Relaxed)))
    }
}

impl Default for Stripes {
    fn default() -> Self {
        let stripe = |_| Stripe { numbers: std::array::from_fn(|_| AtomicU64::new(0)) };
        Self { stripes: Box::new(std::array::from_fn(stripe)) }
    }
}

/// Threads take turns in choosing one, once.
#[inline]
fn my_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    }
    MINE.with(Cell::get)
}
