//! The lock of a shard: held for the time of one decision, some tens of nanoseconds.
//!
//! Who finds it taken looks again a few times, then lets others run, then naps. Nobody is ever woken, so letting
//! go is a plain store. That is why it is here: a lock that has to know whether somebody sleeps lets go with an atomic
//! read-modify-write, which also waits for the memory that the decision is still fetching. The figures are
//! in `docs/DESIGN.md`.
//!
//! The price: when the thread that holds it is suspended by the operating system, those who wait may notice its return
//! up to [`NAP`] late.

use std::time::Duration;

use parking_lot::lock_api;

use super::sync::{AtomicBool, Ordering, nap, spin_loop, yield_now};

/// A mutex with this lock.
pub(super) type Mutex<T> = lock_api::Mutex<Lock, T>;
/// It is locked as long as this lives.
pub(super) type MutexGuard<'a, T> = lock_api::MutexGuard<'a, Lock, T>;

/// The lock.
#[derive(Debug)]
pub(super) struct Lock {
    taken: AtomicBool,
}

const LOOKS: u32 = if cfg!(loom) { 1 } else { 7 };
const YIELDS: u32 = 10;
const NAP: Duration = Duration::from_micros(50);

// The one thing promised here: between `lock` and `unlock` nobody else gets through `lock`.
#[allow(unsafe_code, reason = "measured: see `docs/DESIGN.md`, the memory store")]
// SAFETY: `lock` and `try_lock` succeed only by turning `taken` from false to true in one atomic step, and only
// `unlock`, which the holder alone may call, turns it back. Acquire and release order what happens in between.
unsafe impl lock_api::RawMutex for Lock {
    // A constant to begin with, as the trait wants it; it is never used as one place.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { taken: AtomicBool::new(false) };
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl Lock {
    #[cold]
    fn wait(&self) {
        use lock_api::RawMutex;

        for round in 0u32.. {
            // Each look takes the line from whoever is about to let go: ever fewer of them.
            for look in 0..LOOKS {
                for _ in 0..1 << look {
                    spin_loop();
                }
                if !self.taken.load(Ordering::Relaxed) && self.try_lock() {
                    return;
                }
            }
            if round < YIELDS {
                yield_now();
            } else {
                nap(NAP);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
