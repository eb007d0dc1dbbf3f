//! Every door of the service beside those of its peers: what an answer costs the server, how many there are, and what it keeps.
//!
//! The parent only schedules and reports. For each reading it starts a fresh server on one core and a fresh load on another: this program
//! again, with the load generator of `sluicegate bench` in it.
//!
//! ```text
//!   args -> peers (found, installed, or why not) -> rounds -> servers (one core)
//!                                                     |    -> load (another)
//!                                                     +-> report (tables, json)
//! ```

mod args;
mod asks;
mod contestant;
mod faults;
mod load;
mod memory;
mod peers;
mod redis;
mod report;
mod rounds;
mod servers;

#[path = "../service/built.rs"]
mod built;
#[path = "../../report/grid.rs"]
mod grid;
#[path = "../service/process.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod process;
#[path = "../../progress.rs"]
mod progress;
#[path = "../../stats.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod stats;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Hidden};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.hidden {
        Some(Hidden::Load { job }) => load::child(job),
        Some(Hidden::Faults { job }) => faults::child(job),
        None if args.names(faults::NAME) => faults::run(&args),
        None if args.names(memory::NAME) => memory::run(&args),
        None => run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("doors: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let results = rounds::run(args)?;
    if args.json {
        println!("{}", report::json(&results)?);
    } else {
        print!("{}", report::markdown(&results));
    }
    for failure in &results.failures {
        eprintln!("failed: {failure}");
    }
    Ok(if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
