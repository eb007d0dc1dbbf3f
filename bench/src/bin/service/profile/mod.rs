//! What of a call is ours, and what of that is what.
//!
//! Two looks at it: the service's own part alone, [`calls`] without a network, in nanoseconds and (where valgrind is) in
//! instructions; and [`samples`] of the real server under load (where perf is), by whose code was running.

mod calls;
mod samples;

pub(crate) use calls::{Stage, child};

use std::process::ExitCode;

use crate::args::Args;

/// Prints both.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    print!("{}", calls::table(args)?);
    match samples::table(args)? {
        Some(table) => print!("\n{table}"),
        None => println!("\nperf is not there: no samples of the server"),
    }
    Ok(ExitCode::SUCCESS)
}
