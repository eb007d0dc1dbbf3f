//! What it costs to find the rule that a descriptor is under, however many rules there are; and what loading them costs.
//!
//! ```text
//!   cargo run --release --bin rules                  all of it: about two minutes
//!   cargo run --release --bin rules -- exact         the shapes with this in their name
//!   cargo run --release --bin rules -- load          loading alone
//! ```
//!
//! A row is a number of rules of a *shape* ([`shapes`]); each is asked for descriptors of three entries that lead to one of its
//! rules, any of them, picked at random. They are written into the same few bytes every time, since in a server they
//! lie in the receive buffer; what that costs is measured alone and taken off. Time is CPU time of the thread. Within
//! a round all rows are measured one after the other, and ratios are worked out within rounds: a slow minute is slow for all.

mod loading;
mod nested;
mod shapes;
mod timing;

#[path = "../../resident.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod resident;
#[path = "../../stats.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod stats;
#[path = "../../thread_time.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod thread_time;

use std::process::ExitCode;

use shapes::SHAPES;
use timing::Row;

const ROUNDS: usize = 9;

fn main() -> ExitCode {
    let only: Vec<String> = std::env::args().skip(1).collect();
    if let [one, count] = only.as_slice()
        && one == "load-once"
    {
        return loading::once(count);
    }
    let asked = |name: &str| only.is_empty() || only.iter().any(|text| name.contains(&**text));
    let mut rows: Vec<Row> = Vec::new();
    for shape in SHAPES {
        for count in shape.counts {
            if asked(&format!("{} {count}", shape.name)) {
                rows.push(Row::new(&shape, *count));
            }
        }
    }
    for round in 0..ROUNDS {
        let first = round % rows.len().max(1);
        let (head, tail) = rows.split_at_mut(first);
        tail.iter_mut().chain(head).for_each(Row::measure);
    }
    if !rows.is_empty() {
        print!("{}", timing::table(&rows));
    }
    if asked("load") { loading::report() } else { ExitCode::SUCCESS }
}
