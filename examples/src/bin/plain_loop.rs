//! A limit in a plain loop: no async, no server, three lines.
//!
//! A mailbox accepts three letters per minute from each sender. Alice sends five: three pass, and
//! the other two are denied with a retry time. Bob has his own quota.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin plain_loop
//! ```

use sluicegate::limit::TokenBucket;
use sluicegate::{LimitError, Limiter, Outcome};

fn main() -> Result<(), LimitError> {
    let mailbox = Limiter::new(TokenBucket::per_minute(3))?;

    for sender in ["alice", "alice", "alice", "alice", "alice", "bob"] {
        let verdict = mailbox.hit(sender);
        let left = verdict.remaining.unwrap_or_default();
        match verdict.outcome {
            Outcome::Allow { .. } => println!("{sender}: taken, {left} left"),
            Outcome::Deny { retry_after } => {
                let seconds = retry_after.as_micros().div_ceil(1_000_000);
                println!("{sender}: come back in {seconds} s");
            }
            Outcome::Never { max_cost } => println!("{sender}: at most {max_cost} at a time"),
        }
    }
    Ok(())
}
