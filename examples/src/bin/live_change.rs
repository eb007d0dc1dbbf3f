//! Changes limits at run time.
//!
//! Alice has used 8 of her 10 requests per day when the limit changes. `CarryOver` selects what is
//! preserved: the used quota, the remaining quota, the used share, or nothing. An invalid limit
//! changes nothing.
//!
//! Uses a manual clock, so that the output is deterministic.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin live_change
//! ```

use sluicegate::clock::ManualClock;
use sluicegate::limit::FixedWindow;
use sluicegate::{CarryOver, LimitError, Limiter};

fn main() -> Result<(), LimitError> {
    for carry_over in
        [CarryOver::Used, CarryOver::Remaining, CarryOver::Proportion, CarryOver::Nothing]
    {
        let limiter = ten_a_day_of_which_eight_are_used()?;
        limiter.set_limits([FixedWindow::per_day(20)], carry_over)?;
        println!("10 become 20, keep {carry_over:?}: {} left", left(&limiter));
    }

    let limiter = ten_a_day_of_which_eight_are_used()?;
    limiter.set_limits([FixedWindow::per_day(5)], CarryOver::Used)?;
    println!("10 become 5, keep Used: {} left", left(&limiter));
    println!("alice may go: {}", limiter.hit("alice").is_allowed());
    println!("bob may go: {}", limiter.hit("bob").is_allowed());

    if let Err(error) = limiter.set_limits([FixedWindow::per_day(0)], CarryOver::Used) {
        println!("0 a day: {error}");
    }
    println!("still: {} left", left(&limiter));
    Ok(())
}

fn ten_a_day_of_which_eight_are_used() -> Result<Limiter, LimitError> {
    let limiter =
        Limiter::builder().limit(FixedWindow::per_day(10)).clock(ManualClock::new()).build()?;
    limiter.of("alice").cost(8).hit();
    Ok(limiter)
}

fn left(limiter: &Limiter) -> i64 {
    limiter.of("alice").peek().remaining.unwrap_or_default()
}
