//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::profile::Stage;

/// The service beside its peers: CPU per request, requests per second, and the wait for an answer.
#[derive(Debug, Parser)]
#[command(name = "service", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// One second a reading, 3 rounds: a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only what has this in its name, as `rls` or `http sluicegate`; may be given again
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// How often each contestant is measured [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// How long a reading takes [default: 3, with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: Option<u32>,
    /// Live keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..9_000_000))]
    pub(crate) keys: u64,
    /// Requests per second when all have the same load
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: u32,
    /// The `sluicegate` to measure [default: built from the workspace that this one is in]
    #[arg(long, value_name = "PATH")]
    pub(crate) sluicegate: Option<PathBuf>,
    /// Another build of it, measured beside it, as with another allocator
    #[arg(long, value_name = "PATH")]
    pub(crate) other: Option<PathBuf>,
    /// Install throttlecrab-server beside the bench's own builds; needs protoc, or its path in `PROTOC`
    #[arg(long)]
    pub(crate) install_peers: bool,
    /// Watch the memory of the service for so many seconds, under load with ever new keys
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(10..), conflicts_with = "profile")]
    pub(crate) soak: Option<u32>,
    /// What of a call is ours, and what of that is what
    #[arg(long)]
    pub(crate) profile: bool,
    /// Print one JSON document, every single reading included, instead of the tables
    #[arg(long, conflicts_with_all = ["soak", "profile"])]
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
    /// A server to compare with.
    #[command(hide = true)]
    Server { name: String },
    /// A stage of a call, so many times, without a server.
    #[command(hide = true)]
    Calls { stage: Stage, calls: u64 },
}

impl Args {
    /// How often each contestant is measured.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 3 } else { 5 })
    }

    /// How long a reading takes.
    pub(crate) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// Whether something of this name is to be measured.
    pub(crate) fn asks_for(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(&**text))
    }
}

const AFTER_HELP: &str = "\
Examples:
  cargo run --release --bin service                             five rounds, about five minutes
  cargo run --release --bin service -- --quick --only rls       a first look at gRPC
  cargo run --release --bin service -- --install-peers          throttlecrab-server too
  cargo run --release --bin service -- --soak 600               is its memory flat?
  cargo run --release --bin service -- --profile                what of a call is ours?

Exit codes: 0 measured (bars reached or not), 1 something failed or gave a wrong answer, 2 broken.";
