//! The service beside its peers: what a call costs the server, how many it answers, and how long one waits for an answer.
//!
//! The parent only schedules and reports. For each reading it starts a fresh server on one core and a fresh [`load`] on
//! another; the load fills the server with live keys, times it, and reads the server's books.
//!
//! ```text
//!   args -> rounds -> server (one core)   sluicegate serve, or this program as one of the `servers`, or a peer
//!              |   -> load (another)      closed loop: as fast as it answers · paced: at equal load
//!              |
//!              +-> report (table, bars, json)
//!   args -> soak      memory over minutes
//!   args -> profile   what of a call is ours
//! ```

mod args;
mod bars;
mod built;
mod contestant;
mod load;
mod process;
mod profile;
mod programs;
mod reading;
mod report;
mod rounds;
mod running;
mod servers;
mod soak;

#[path = "../../report/grid.rs"]
mod grid;
#[path = "../../progress.rs"]
mod progress;
#[path = "../../stats.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod stats;
#[path = "../../thread_time.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod thread_time;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Hidden};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.hidden {
        Some(Hidden::Load { job }) => load::child(job),
        Some(Hidden::Server { name }) => servers::child(name),
        Some(Hidden::Calls { stage, calls }) => profile::child(*stage, *calls),
        None => run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("service: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.profile {
        return profile::run(args);
    }
    if let Some(seconds) = args.soak {
        return soak::run(args, seconds);
    }
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
