//! Runs scenarios and reports those with violations.

use clap::Parser;
use sluicegate_sim::{Outcome, simulate};

/// Deterministic simulation of nodes and their store under faults: limits are enforced, and quota
/// is used.
///
/// A scenario follows from its seed. A violation is printed with the command that reproduces it;
/// the exit status is 1.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    /// Number of scenarios.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// A single seed.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Stop at the first violation.
    #[arg(long)]
    stop: bool,
    /// Measure the excess of eventual rules, by fleet size and sync interval.
    #[arg(long, conflicts_with_all = ["seeds", "from", "seed"])]
    table: bool,
    /// Measure how accurate all levels are on 2, 4 and 8 nodes.
    #[arg(long, conflicts_with_all = ["seeds", "seed", "table"])]
    accuracy: bool,
    /// Print the event log.
    #[arg(long, requires = "seed")]
    trace: bool,
}

const EXAMPLES: &str = "Examples:
  sluicegate-sim                        200 scenarios
  sluicegate-sim --seeds 5000 --from 1000 --stop
  sluicegate-sim --seed 42 --trace      one of them, with its event log
  sluicegate-sim --table                figures of the level `eventual`
  sluicegate-sim --accuracy             rates and wrong decisions of all levels";

fn main() -> anyhow::Result<std::process::ExitCode> {
    let Args { seeds, from, seed, stop, table, accuracy, trace } = Args::parse();
    if table {
        return show_table();
    }
    if accuracy {
        return show_accuracy(from);
    }
    let range = match seed {
        Some(seed) => seed..=seed,
        None => from..=from.saturating_add(seeds - 1),
    };
    let (mut count, mut wrong, mut hits, mut calls) = (0u64, 0u64, 0usize, 0);
    for seed in range {
        let Outcome { scenario, history, violations } = simulate(seed, trace)?;
        (count, hits, calls) = (count + 1, hits + history.hits.len(), calls + history.calls);
        wrong += u64::from(!violations.is_empty());
        if trace {
            println!("{scenario:#?}");
        }
        for violation in &violations {
            println!("seed {seed}: {violation}");
        }
        if !violations.is_empty() {
            println!("  cargo run -p sluicegate-sim -- --seed {seed} --trace");
        }
        if trace {
            println!("trace {:016x}, {} lines", history.hash, history.lines);
        }
        if stop && !violations.is_empty() {
            break;
        }
    }
    println!("{count} scenarios, {wrong} with violations; {hits} hits, {calls} calls");
    Ok(if wrong == 0 { 0 } else { 1 }.into())
}

fn show_table() -> anyhow::Result<std::process::ExitCode> {
    println!("nodes  sync_interval  above the limit of 400/s  bound     calls for 1,000 hits");
    let mut is_within = true;
    for row in sluicegate_sim::table::measure()? {
        let sync = format!("{}ms", row.sync_ms);
        println!("{:5}  {sync:>13}  {:24}  {:8}  {:20}", row.nodes, row.over, row.bound, row.calls);
        is_within &= row.over <= row.bound;
    }
    Ok(if is_within { 0 } else { 1 }.into())
}

fn show_accuracy(seed: u64) -> anyhow::Result<std::process::ExitCode> {
    use sluicegate_sim::accuracy::{LIMIT, OFFERED, measure};
    println!("# limit {LIMIT}/s, {OFFERED}/s offered, seed {seed}");
    println!(
        "# algorithm\tlevel\tnodes\trequests\tmean rate against the limit\tmost in a window\t\
         most in a rolling window\twrongly admitted\twrongly denied\tcalls for 1,000 requests"
    );
    for fleet in measure(seed)? {
        let deviation = fleet.deviation as f64 / 10.0;
        println!(
            "{}\t{}\t{}\t{}\t{deviation:+.1}%\t{}\t{}\t{}\t{}\t{}",
            fleet.algorithm,
            fleet.level,
            fleet.nodes,
            fleet.requests,
            fleet.window_peak,
            fleet.rolling_peak,
            fleet.wrongly_admitted,
            fleet.wrongly_denied,
            fleet.calls,
        );
    }
    Ok(std::process::ExitCode::SUCCESS)
}
