//! Costs that are known only afterwards: reserve, then commit.
//!
//! A team may use 10,000 tokens of a language model a minute. What a call uses is known when its
//! answer is there, so each reserves the most it may use and commits what it did use: the rest is
//! there for others at once. A call that fails drops its reservation, which gives everything back.
//! One that used more than it had reserved is charged all the same.
//!
//! Time stands still here, so that the numbers are the same whenever it is run.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin llm_budget
//! ```

use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate::limit::TokenBucket;

/// A call: what it may use at most, and what it uses, if it does not fail.
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
