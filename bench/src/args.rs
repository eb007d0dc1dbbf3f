//! The command line.

use clap::{Parser, Subcommand};

/// Sluicegate's memory store beside its peers: ns per check, throughput of two threads, bytes per id.
#[derive(Debug, Parser)]
#[command(name = "sluicegate-bench", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// A fifth of the checks, 3 rounds, little of limitador, no logs: below a minute
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Also 10 million ids: 2 GB, and a quarter of an hour more
    #[arg(long)]
    pub(crate) full: bool,
    /// Only what has this in its name, as `100k/1 ours` or `memory-1M governor`; may be given again.
    /// governor always runs along, since the ratios are to it
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// How often every contestant runs every cell [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Print one JSON document, every single reading included, instead of the tables
    #[arg(long)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) hidden: Option<Hidden>,
}

/// What the bench asks of itself, in a fresh process; `callgrind.sh` asks it too.
#[derive(Debug, Subcommand)]
pub(crate) enum Hidden {
    /// One contestant, one cell, so many checks per thread.
    #[command(hide = true)]
    OneCell { contestant: String, cell: String, checks: usize },
    /// One contestant, so many ids inserted, resident memory before and after.
    #[command(hide = true)]
    OneFill { contestant: String, ids: usize },
}

const AFTER_HELP: &str = "\
Examples:
  cargo run --release                                 everything but 10 million ids
  cargo run --release -- --quick                      a first look
  cargo run --release -- --only '100k/1 '             one cell, every contestant
  cargo run --release -- --only memory                memory only
  cargo run --release -- --full --json > bench.json

Exit codes: 0 measured (bars reached or not), 1 some cell failed or gave a wrong answer, 2 broken.";
