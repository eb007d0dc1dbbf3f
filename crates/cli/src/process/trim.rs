//! Returns freed memory to the system.
//!
//! mimalloc collects the pages of a thread when that thread allocates. A worker that becomes idle
//! after a burst retains all freed memory indefinitely. So when the endpoints have released much,
//! every worker collects before it parks.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sluicegate_server::memory::MemoryBudget;
use tokio::time::sleep;

/// Time between two decisions.
const INTERVAL: Duration = Duration::from_secs(5);
/// Bytes released since the last collection that are worth the next one.
const RELEASED_BYTES_MIN: u64 = 4 << 20;
/// Attempts to wake every worker.
const ATTEMPTS_MAX: usize = 16;

/// Number of the latest collection.
static ROUND: AtomicUsize = AtomicUsize::new(0);
/// Workers that have taken part in it.
static COLLECTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Called by every worker before it parks.
pub(super) fn on_thread_park() {
    let round = ROUND.load(Relaxed);
    if LAST.replace(round) != round {
        collect();
        COLLECTED.fetch_add(1, Relaxed);
    }
}

/// Collects for ever, whenever enough was released.
pub(super) async fn run(budget: MemoryBudget) {
    let mut released = 0;
    loop {
        sleep(INTERVAL).await;
        if budget.released_bytes().wrapping_sub(released) >= RELEASED_BYTES_MIN {
            released = budget.released_bytes();
            COLLECTED.store(0, Relaxed);
            ROUND.fetch_add(1, Relaxed);
            wake_workers().await;
        }
    }
}

/// Tasks that end at once: the workers that are woken for them park again.
async fn wake_workers() {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    for _ in 0..ATTEMPTS_MAX {
        if COLLECTED.load(Relaxed) >= workers {
            return;
        }
        for _ in 0..workers {
            tokio::spawn(async {});
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn collect() {
    #[allow(unsafe_code)] // The one call that the allocator's crate has no safe function for.
    {
        unsafe extern "C" {
            fn mi_collect(force: bool);
        }
        // SAFETY: it may be called by any thread at any time, and touches only free memory.
        unsafe { mi_collect(true) }
    }
}
