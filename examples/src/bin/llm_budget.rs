//! Costs known only afterwards: reserve, then commit.
//!
//! A team may use 10,000 tokens of a language model per minute. The cost of a call is known after
//! its response, so each call reserves its maximum and commits the actual cost; the difference is
//! available to others at once. A failed call drops its reservation, which refunds it in full. A
//! cost above the reservation is charged too.
//!
//! Uses a manual clock, so that the output is deterministic.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin llm_budget
//! ```

use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate::limit::TokenBucket;

/// A call: its maximum cost, and its actual cost unless it fails.
struct Call {
    prompt: &'static str,
    max_tokens: u64,
    used: Option<u64>,
}

const CALLS: [Call; 6] = [
    Call { prompt: "summarise", max_tokens: 4_000, used: Some(1_250) },
    Call { prompt: "translate", max_tokens: 6_000, used: Some(5_600) },
    Call { prompt: "time out", max_tokens: 3_000, used: None },
    Call { prompt: "write a book", max_tokens: 8_000, used: Some(7_000) },
    Call { prompt: "explain", max_tokens: 3_000, used: Some(3_900) },
    Call { prompt: "one word", max_tokens: 10, used: Some(3) },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let budget = Limiter::builder()
        .limit(TokenBucket::per_minute(10_000).named("tokens"))
        .clock(ManualClock::new())
        .build()?;

    for Call { prompt, max_tokens, used } in CALLS {
        let reservation = match budget.of("team").cost(max_tokens).reserve() {
            Ok(reservation) => reservation,
            Err(denied) => {
                println!("{prompt}: {max_tokens} tokens are {denied}");
                continue;
            }
        };
        match used {
            Some(used) => {
                let left = reservation.commit(used)?.remaining.unwrap_or_default();
                println!("{prompt}: reserved {max_tokens}, used {used}, {left} left");
            }
            None => {
                drop(reservation);
                let left = budget.of("team").peek().remaining.unwrap_or_default();
                println!("{prompt}: reserved {max_tokens}, failed, {left} left");
            }
        }
    }
    Ok(())
}
