//! Threads that share a few slots.
//!
//! Eight workers have 24 reports to write, and the database bears three queries at a time. Each
//! worker waits for a slot, and gives it back when its permit goes out of scope, whether it is done
//! or has failed. Nobody hands anything round: who has a clone of the limiter has the same limiter.
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
            // Without patience it would be `permit()`, which says no at once.
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

/// Takes about as long as a database does.
fn query() {
    std::thread::park_timeout(Duration::from_millis(2));
}
