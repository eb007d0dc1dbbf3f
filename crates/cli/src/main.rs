//! The binary `sluicegate`. Each command is a module; none holds logic that a test could want.

mod bench;
mod check;
mod descriptor;
mod explain;
mod output;
mod rules;
mod serve;
mod try_limit;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A service that waits for a store makes and drops something for every request; with glibc's allocator that is a quarter of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A distributed rate limiter: may this request go through now, and if not, when?
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, propagate_version = true)]
#[command(after_help = "Exit codes: 0 fine, 1 invalid or denied, 2 broken.\n\
    Start here:  sluicegate serve")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bench a limiter: load it, and tell what an answer costs and how long one waits for it.
    Bench(Box<bench::BenchArgs>),
    /// Check rules: everything that is wrong with them, or what they would enforce.
    Check(check::CheckArgs),
    /// Explain which rule a request is under, and why. Nothing is counted.
    Explain(explain::ExplainArgs),
    /// Serve: Envoy's rate limit service, checks over HTTP, and metrics.
    Serve(Box<serve::ServeArgs>),
    /// Try a limit on virtual time: operations in, answers out.
    Try(try_limit::TryArgs),
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Try(args) => try_limit::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluicegate: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The commands, with the help of `try` completed by examples that it works out itself.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("try", |command| command.after_long_help(try_limit::long_help()))
}
