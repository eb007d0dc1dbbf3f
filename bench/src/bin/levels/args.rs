//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Strict, leased and eventual beside each other: what passes too much or too little, and how long an answer takes.
#[derive(Debug, Parser)]
#[command(name = "levels", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// How many services there are; may be given again
    #[arg(long, value_name = "N", default_values_t = [2, 4], value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) nodes: Vec<u32>,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// How long a reading takes; the limit is reached at half of it
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: u32,
    /// Requests per second, of all services together
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(crate) rate: u32,
    /// The `sluicegate` to measure [default: built from the workspace that this one is in]
    #[arg(long, value_name = "PATH")]
    pub(crate) sluicegate: Option<PathBuf>,
    /// Print one JSON document, every single reading included, instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// What may pass: half of what is asked for.
    pub(crate) fn limit(&self) -> u64 {
        u64::from(self.rate) * u64::from(self.seconds) / 2
    }
}

const AFTER_HELP: &str = "\
Examples:
  cargo run --release --bin levels                             2 and 4 services, three rounds: about four minutes
  cargo run --release --bin levels -- --rounds 1 --nodes 2     a first look
  cargo run --release --bin levels -- --json                   every single reading

Exit codes: 0 measured, 2 broken.";
