//! Threads that share a concurrency limit.
//!
//! Eight workers write 24 reports, and the database accepts three concurrent queries. Each worker
//! waits for a slot and releases it when its permit goes out of scope, on success and failure
//! alike. Clones of the limiter share its state.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin worker_pool
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate::Limiter;
use sluicegate::limit::Concurrency;

const WORKERS: usize = 8;
const REPORTS_EACH: usize = 3;
const QUERIES_AT_A_TIME: u64 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Limiter::new(Concurrency::at_most(QUERIES_AT_A_TIME))?;
    let (running, peak, written) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));

    let work = || {
        for _ in 0..REPORTS_EACH {
            // Without a timeout: `permit()`, which denies at once.
            let Ok(_permit) = database.of("reports").permit_blocking() else { return };
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            peak.fetch_max(now, Ordering::SeqCst);
            query();
            running.fetch_sub(1, Ordering::SeqCst);
            written.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });

    println!("{WORKERS} workers wrote {} reports", written.load(Ordering::SeqCst));
    println!("at most {QUERIES_AT_A_TIME} queries at a time were allowed");
    println!("at most {} were seen", peak.load(Ordering::SeqCst));
    let free = database.of("reports").peek().remaining.unwrap_or_default();
    println!("{free} slots are free again");
    Ok(())
}

/// Simulates a database query.
fn query() {
    std::thread::park_timeout(Duration::from_millis(2));
}
