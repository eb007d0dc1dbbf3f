//! What threads of the store meet on: the standard library's, or [loom]'s when every way is tried in which they can
//! meet (`loom_tests.rs`).
//!
//! [loom]: https://docs.rs/loom

#[cfg(not(loom))]
pub(super) use std::hint::spin_loop;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(super) use std::thread::yield_now;

#[cfg(loom)]
pub(super) use loom::hint::spin_loop;
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
pub(super) use loom::thread::yield_now;

/// Lets some time go by.
///
/// Not by [`std::thread::park_timeout`]: who unparks this thread meanwhile means somebody else in it, who would wait for that for ever.
#[cfg(not(loom))]
pub(super) fn nap(time: std::time::Duration) {
    #[allow(clippy::disallowed_methods, reason = "a lock that nobody is woken from")]
    std::thread::sleep(time);
}

#[cfg(loom)]
pub(super) fn nap(_: std::time::Duration) {
    yield_now();
}

/// One that can be a constant, which loom's cannot: it is made when it is first used.
#[cfg(loom)]
#[derive(Debug)]
pub(super) struct AtomicBool {
    first: bool,
    made: std::sync::OnceLock<loom::sync::atomic::AtomicBool>,
}

#[cfg(loom)]
impl AtomicBool {
    pub(super) const fn new(first: bool) -> Self {
        Self { first, made: std::sync::OnceLock::new() }
    }

    pub(super) fn load(&self, order: Ordering) -> bool {
        self.made().load(order)
    }

    pub(super) fn store(&self, value: bool, order: Ordering) {
        self.made().store(value, order);
    }

    /// Writes only what is another value.
    ///
    /// A swap writes right after what it read, so one that finds the lock taken cannot undo a letting go that came meanwhile. Loom does
    /// not know that: it would have the two writes in either order.
    pub(super) fn swap(&self, value: bool, order: Ordering) -> bool {
        let swapped = self.made().compare_exchange(!value, value, order, Ordering::Relaxed);
        swapped.unwrap_or_else(|same| same)
    }

    fn made(&self) -> &loom::sync::atomic::AtomicBool {
        self.made.get_or_init(|| loom::sync::atomic::AtomicBool::new(self.first))
    }
}
