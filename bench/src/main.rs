//! Sluicegate beside its peers: the library, rule matching, the service and its endpoints, the
//! gateway, overload, shaping, consistency levels, and access logs.
//!
//! ```text
//!   main ─> library ─> child (a fresh process per reading)
//!        ├> rules                                              ┐
//!        ├> network: service, doors, gateway, overload, shaping├─> frame (rounds, ratios) ─> table, bars, JSON
//!        │       ─> servers (one core), load (another core)    │
//!        ├> logs                                               │
//!        └> levels ─> several services on one Redis            ┘
//! ```
//!
//! The parent process schedules and reports. A measurement that must not inherit a heap, warm
//! caches or a core runs in a child: this program again, with a hidden subcommand.

mod bars;
mod child;
mod frame;
mod levels;
mod library;
mod logs;
mod machine;
mod network;
mod rules;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::Value;

use frame::Report;

/// Sluicegate beside its peers. Without a subcommand all benchmarks run.
#[derive(Debug, Parser)]
#[command(name = "sluicegate-bench", version, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Options of all benchmarks.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// Shorter readings and fewer rounds
    #[arg(long, global = true)]
    quick: bool,
    /// Only rows with this text in their name, as `100k/1 governor`, `rls` or `resp 16`; may be
    /// repeated
    #[arg(long, value_name = "TEXT", global = true)]
    only: Vec<String>,
    /// Number of rounds
    #[arg(long, value_name = "N", global = true, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Duration of a reading of `service`, `doors`, `gateway` and `levels`
    #[arg(long, value_name = "S", global = true, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// Live keys of `service` and `doors`
    #[arg(long, value_name = "N", global = true, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    keys: u64,
    /// The `sluicegate` to measure [default: built from the enclosing workspace]
    #[arg(long, value_name = "PATH", global = true)]
    sluicegate: Option<PathBuf>,
    /// Install the peers' servers below the target directory; needs Go and protoc (or its path in
    /// PROTOC)
    #[arg(long, global = true)]
    install_peers: bool,
    /// Print one JSON document with every reading
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The memory store beside governor, throttlecrab and limitador
    Library(library::Args),
    /// Matching a descriptor among many rules, and loading them
    Rules,
    /// The service beside a stub, tonic, throttlecrab-server and axum
    Service(network::service::Args),
    /// Every endpoint beside the peers that have one like it
    Doors,
    /// The gateway beside nginx, HAProxy and Envoy
    Gateway,
    /// Goodput and refusals by priority at twice the capacity of an upstream
    Overload(network::overload::Args),
    /// Outflow and shares of requests that wait for their limit
    Shaping,
    /// Strict, leased and eventual consistency on one Redis
    Levels(levels::Args),
    /// Reading access logs: time per line of each format
    Logs,
    #[command(flatten)]
    Child(Child),
}

/// Child processes of the benchmarks; `callgrind.sh` uses `one-cell`.
#[derive(Debug, Subcommand)]
enum Child {
    #[command(hide = true)]
    OneCell { contestant: String, cell: String, checks: usize },
    #[command(hide = true)]
    OneFill { contestant: String, ids: usize },
    #[command(hide = true)]
    LoadRules { count: usize },
    #[command(hide = true)]
    Load { job: String },
    #[command(hide = true)]
    Server { name: String },
    #[command(hide = true)]
    Classes { job: String },
    #[command(hide = true)]
    Slots { slots: usize, millis: u64, knee: Option<usize> },
    #[command(hide = true)]
    Calls { stage: network::profile::Stage, calls: u64 },
}

const AFTER_HELP: &str = "\
Examples:
  cargo run --release                                      everything: about half an hour
  cargo run --release -- --quick                           everything, shorter: some minutes
  cargo run --release -- library --only '100k/1 '          one cell, every contestant
  cargo run --release -- rules --only exact                matching of exact rules
  cargo run --release -- service --profile                 cost of the parts of a call
  cargo run --release -- doors --only redis                counters in Redis
  cargo run --release -- gateway --only memory             memory per connection
  cargo run --release -- overload --plot overload.svg      with an adaptive limit and without
  cargo run --release -- levels --nodes 2 --rounds 1

Exit codes: 0 measured (bars reached or not), 1 a reading failed or gave a wrong answer, 2 the run failed.";

fn main() -> ExitCode {
    let Cli { common, command } = Cli::parse();
    match run(&common, command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluicegate-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(common: &Common, command: Option<Command>) -> anyhow::Result<ExitCode> {
    match command {
        None => all(common),
        Some(Command::Library(args)) => print(common, library::run(common, &args)?),
        Some(Command::Rules) => print(common, rules::run(common)?),
        Some(Command::Service(args)) => network::service::command(common, &args),
        Some(Command::Doors) => network::doors::command(common),
        Some(Command::Gateway) => network::gateway::command(common),
        Some(Command::Overload(args)) => network::overload::command(common, &args),
        Some(Command::Shaping) => print(common, network::shaping::run(common)?),
        Some(Command::Levels(args)) => print(common, levels::run(common, &args)?),
        Some(Command::Logs) => print(common, logs::run(common)?),
        Some(Command::Child(child)) => {
            match child {
                Child::OneCell { contestant, cell, checks } => {
                    library::measure_cell(&contestant, &cell, checks)?;
                }
                Child::OneFill { contestant, ids } => library::measure_fill(&contestant, ids)?,
                Child::LoadRules { count } => rules::loading::measure(count)?,
                Child::Load { job } => network::load::child(&job)?,
                Child::Server { name } => network::baselines::serve(&name)?,
                Child::Classes { job } => network::classes::child(&job)?,
                Child::Slots { slots, millis, knee } => {
                    network::overload::upstream::SlotServer { slots, millis, knee }.serve()?;
                }
                Child::Calls { stage, calls } => network::profile::child(stage, calls)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Every benchmark with its defaults.
fn all(common: &Common) -> anyhow::Result<ExitCode> {
    type Run<'a> = &'a dyn Fn() -> anyhow::Result<Report>;
    let service = network::service::Args::default();
    let runs: [(&str, Run<'_>); 9] = [
        ("library", &|| library::run(common, &library::Args::default())),
        ("rules", &|| rules::run(common)),
        ("service", &|| network::service::run(common, &service)),
        ("doors", &|| network::doors::run(common)),
        ("gateway", &|| network::gateway::run(common)),
        ("overload", &|| network::overload::run(common, &Default::default())),
        ("shaping", &|| network::shaping::run(common)),
        ("levels", &|| levels::run(common, &levels::Args::default())),
        ("logs", &|| logs::run(common)),
    ];
    let mut whole = Report {
        text: String::new(),
        json: Value::Object(Default::default()),
        failures: Vec::new(),
    };
    for (name, run) in runs {
        eprintln!("{name}");
        let report = run()?;
        whole.text.push_str(&format!("## {name}\n\n{}\n", report.text));
        whole.json[name] = report.json;
        whole.failures.extend(report.failures);
    }
    print(common, whole)
}

fn print(common: &Common, report: Report) -> anyhow::Result<ExitCode> {
    match common.json {
        true => println!("{}", serde_json::to_string_pretty(&report.json)?),
        false => print!("{}", report.text),
    }
    report.failures.iter().for_each(|failure| eprintln!("failed: {failure}"));
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// === impl Common ===

impl Common {
    /// Whether `--only` selects a name.
    fn selects(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }
}
