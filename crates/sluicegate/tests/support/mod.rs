//! What the tests of the limiter have in common: time that is moved by hand, and futures polled by hand.

#![allow(dead_code)] // Each test uses some of it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Cycle, FixedWindow, IntoLimit, LeakyBucket, SlidingLog, SlidingWindow, SmoothBursty,
    TokenBucket, WarmUp,
};
use sluicegate::{Limiter, Memory};
use sluicegate_rules::limit::LimitConfig;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MICRO: Duration = Duration::from_micros(1);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A limiter of one limit on this clock.
pub(crate) fn limiter(limit: impl IntoLimit, clock: &ManualClock) -> Limiter {
    Limiter::builder().limit(limit).clock(clock.clone()).build().unwrap()
}

/// The same in this store.
pub(crate) fn limiter_in(memory: &Memory, limit: impl IntoLimit, clock: &ManualClock) -> Limiter {
    Limiter::builder().limit(limit).clock(clock.clone()).memory(memory).build().unwrap()
}

/// One limit of each algorithm that turns can be booked of.
pub(crate) fn every_turn() -> Vec<LimitConfig> {
    use sluicegate::limit::Refill;
    let all = [
        TokenBucket::per_second(2).burst(3).into_limit(),
        TokenBucket::per_second(2).burst(3).refill(Refill::Interval).into_limit(),
        TokenBucket::per_second(2).burst(3).refill(Refill::Aligned).into_limit(),
        LeakyBucket::per_second(3).queue(20).into_limit(),
        FixedWindow::per_second(3).into_limit(),
        FixedWindow::per_second(3).from_first_hit().into_limit(),
        SlidingLog::per_second(3).into_limit(),
        SlidingWindow::per_second(3).into_limit(),
        SmoothBursty::per_second(3).into_limit(),
        WarmUp::per_second(3).over(2 * SECOND).into_limit(),
        Cycle::of(3).every(SECOND).into_limit(),
    ];
    all.into_iter().map(Result::unwrap).collect()
}

/// Numbers that look random, and are the same every time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Until so many wait for the clock. It does not take long: they have nothing else to do.
pub(crate) fn until_they_sleep(clock: &ManualClock, count: usize) {
    while clock.sleepers() < count {
        std::thread::yield_now();
    }
}

// === polling by hand ===

/// A future that is polled by hand, and knows how often it was woken.
pub(crate) struct Polled<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
    seen: usize,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<F: Future> Polled<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Box::pin(future), wakes: Arc::default(), seen: 0 }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.seen = self.wakes();
        let waker = Waker::from(self.wakes.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls it, and it has to wait.
    pub(crate) fn waits(&mut self) -> bool {
        self.poll().is_pending()
    }

    /// Polls it, and it has no more to wait for.
    #[track_caller]
    pub(crate) fn done(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it waits"),
        }
    }

    /// Whether somebody has asked for it to be polled since it was.
    pub(crate) fn is_woken(&self) -> bool {
        self.wakes() > self.seen
    }

    /// How often it was woken in all.
    pub(crate) fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }
}
