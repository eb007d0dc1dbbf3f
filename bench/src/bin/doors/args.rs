//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::contestant::{Contestant, Door};

/// Every door of the service beside those of its peers: CPU per request, requests per second, memory.
#[derive(Debug, Parser)]
#[command(name = "doors", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// One second a reading, one round: a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only this door, as `rls`, `redis` or `resp 16`, or what has this in its name; may be given again. Only if named here: `redis-faults` and `redis-memory`
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// How often each is measured [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: Option<u32>,
    /// How long a reading takes [default: 3, with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: Option<u32>,
    /// Live keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) keys: u64,
    /// The `sluicegate` to measure [default: built from the workspace that this one is in]
    #[arg(long, value_name = "PATH")]
    pub(crate) sluicegate: Option<PathBuf>,
    /// Install the peers that registries have beside the bench's own builds; needs Go, and protoc or its path in `PROTOC`
    #[arg(long)]
    pub(crate) install_peers: bool,
    /// Print one JSON document, every single reading included, instead of the tables
    #[arg(long)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) hidden: Option<Hidden>,
}

/// What the bench asks of itself, in a fresh process.
#[derive(Debug, Subcommand)]
pub(crate) enum Hidden {
    /// Load on a server.
    #[command(hide = true)]
    Load { job: String },
    /// Load on a server that something happens to meanwhile.
    #[command(hide = true)]
    Faults { job: String },
}

impl Args {
    /// How often each is measured.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// How long a reading takes.
    pub(crate) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// Whether somebody is to be measured.
    pub(crate) fn asks_for(&self, one: &Contestant) -> bool {
        let is_meant = |text: &String| match Door::ALL.iter().find(|door| door.name() == text) {
            Some(door) => one.door == *door,
            None => one.id().contains(&**text),
        };
        self.only.is_empty() || self.only.iter().any(is_meant)
    }

    /// Whether just this is asked for, which is no door.
    pub(crate) fn names(&self, what: &str) -> bool {
        self.only.iter().any(|text| text == what)
    }
}

const AFTER_HELP: &str = "\
Examples:
  cargo run --release --bin doors                              three rounds: about seven minutes
  cargo run --release --bin doors -- --quick --only resp       a first look at RESP
  cargo run --release --bin doors -- --install-peers           whom registries have, too
  cargo run --release --bin doors -- --only redis              counters in Redis
  cargo run --release --bin doors -- --only levels             a hundred hot keys: strict, leased, eventual
  cargo run --release --bin doors -- --only redis-faults       how long answers take while Redis is away
  cargo run --release --bin doors -- --only redis-memory       what an identity takes in Redis

Exit codes: 0 measured, 1 something failed or gave a wrong answer, 2 broken.";
