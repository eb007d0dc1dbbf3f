//! Sluicegate's memory store beside its peers: time per check, throughput of two threads, bytes per id.
//!
//! The parent process only schedules and reports. Every measurement is a fresh child process
//! ([`child`]) that builds a fresh store, fills it, and runs one *cell* with one *contestant*:
//! nobody inherits somebody else's heap, warm caches or clock calibration.
//!
//! ```text
//!   args -> rounds -> child -> [ one_cell | one_fill ] -> contestant
//!              |
//!              +-> results -> report (table, bars, json)
//! ```

mod args;
mod cell;
mod child;
mod contestant;
mod contestants;
mod ids;
mod machine;
mod one_cell;
mod one_fill;
#[cfg(feature = "ours")]
mod ours;
mod plan;
mod progress;
mod report;
mod resident;
mod results;
mod roster;
mod rounds;
mod stats;
mod thread_time;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Hidden};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.hidden {
        Some(Hidden::OneCell { contestant, cell, checks }) => {
            child::serve_cell(contestant, cell, *checks)
        }
        Some(Hidden::OneFill { contestant, ids }) => child::serve_fill(contestant, *ids),
        None => run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluicegate-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Measures everything that was asked for and prints it.
fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let before = machine::Reading::take();
    if let Some(warning) = before.warning() {
        eprintln!("{warning}");
    }
    let results = rounds::run(&plan::Plan::from_args(args)?);
    let machine = before.until(&machine::Reading::take());
    if args.json {
        println!("{}", report::json::render(&results, &machine)?);
    } else {
        print!("{}", report::markdown(&results, &machine));
    }
    for failure in &results.failures {
        eprintln!("failed: {failure}");
    }
    Ok(if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
