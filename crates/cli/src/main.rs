//! The binary `sluicegate`: a module per command, without logic of its own.

mod admin_client;
mod bench;
mod check;
mod compare;
mod deferred;
mod diff;
mod explain;
mod gateway;
mod hash_token;
mod limit_override;
mod logs;
mod process;
mod replay;
mod rule_store;
mod rules;
mod serve;
mod simulate;
mod simulate_plan;
mod top;
mod try_limit;
mod tune;

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use sluicegate_server::logs::Format;

/// With a remote store every request allocates; glibc's allocator takes a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A distributed rate limiter
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, propagate_version = true)]
#[command(after_help = "Exit codes: 0 success, 1 invalid or denied, 2 failed.\n\
    Start here:  sluicegate serve")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Generate load and measure throughput, latency and the server's CPU time
    Bench(Box<bench::BenchArgs>),
    /// Validate rules and show what they enforce
    Check(check::CheckArgs),
    /// Run the same traffic through every algorithm: which one for this traffic?
    Compare(compare::CompareArgs),
    /// List, inspect, redrive and delete the deferred requests of a gateway
    Deferred(deferred::DeferredArgs),
    /// Compare two sets of rules: what changes, and which counters continue
    Diff(diff::DiffArgs),
    /// Show which rule matches a request, and why; nothing is counted
    Explain(explain::ExplainArgs),
    /// Run the gateway: a reverse proxy that enforces the rules by itself
    Gateway(Box<gateway::GatewayArgs>),
    /// Hash a token of an operator, for the file of `serve --admin-tokens`
    HashToken(hash_token::HashTokenArgs),
    /// Show what rules would have done to the traffic of access logs
    Replay(Box<replay::ReplayArgs>),
    /// Revisions of the rules of a node: history, import, export, rollback, approval
    Rules(rule_store::RulesArgs),
    /// Run the service: Envoy's rate limit service, HTTP, RESP and metrics
    Serve(Box<serve::ServeArgs>),
    /// Simulate a fleet, its store and its clients under faults
    Simulate(Box<simulate::SimulateArgs>),
    /// Show the traffic of a running node in the terminal
    Top(top::TopArgs),
    /// Run operations against a limit on virtual time
    Try(try_limit::TryArgs),
    /// Recommend limits from access logs, for a goal such as denying at most 0.1% of users
    Tune(Box<tune::TuneArgs>),
}

fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        // Programs read the log of the service, usage errors included.
        Err(error) if error.use_stderr() && process::logs_json(std::env::args()) => {
            eprint!("{}", process::fatal_lines(&error.to_string(), Format::Json));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Deferred(args) => deferred::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::HashToken(args) => hash_token::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Rules(args) => rule_store::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Try(args) => try_limit::run(&args),
        Command::Tune(args) => tune::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprint!("{}", error_lines(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

/// An error for people: each of its lines names the program.
fn error_lines(message: &str) -> String {
    message.lines().map(|line| format!("sluicegate: {line}\n")).collect()
}

/// The commands; the help of `try` has generated examples, and `compare` needs no logs.
fn command() -> clap::Command {
    Cli::command()
        .mut_subcommand("try", |command| command.after_long_help(try_limit::long_help()))
        .mut_subcommand("compare", compare::with_optional_logs)
}

/// False if the reader has closed the pipe, which is not an error.
fn written(result: io::Result<()>) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
