//! What each level of consistency costs and gives: several services, one Redis, one hot key, and twice as many requests as its limit allows.
//!
//! ```text
//!   args -> rounds: for each case a fresh Redis and fresh services (fleet), asked by an open loop (reading)
//!                +-> report (table, json)
//! ```

mod args;
mod case;
mod fleet;
mod reading;
mod report;

#[path = "../service/built.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod built;
#[path = "../../report/grid.rs"]
mod grid;
#[path = "../service/process.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod process;
#[path = "../../stats.rs"]
#[allow(dead_code, reason = "shared with the other bench, which needs all of it")]
mod stats;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

use args::Args;
use report::Row;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("levels: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let sluicegate = match &args.sluicegate {
        Some(path) => path.clone(),
        None => built::built()?,
    };
    let mut rows: Vec<Row> = Vec::new();
    for round in 1..=args.rounds {
        for case in case::all(&args.nodes) {
            eprintln!("round {round} of {}: {case}", args.rounds);
            let reading = reading::read(case, args, &sluicegate);
            let reading = reading.with_context(|| case.to_string())?;
            match rows.iter_mut().find(|row| row.case == case) {
                Some(row) => row.readings.push(reading),
                None => rows.push(Row { case, readings: vec![reading] }),
            }
        }
    }
    if args.json {
        println!("{}", report::json(args, &rows)?);
    } else {
        print!("{}", report::markdown(args, &rows));
    }
    Ok(())
}
