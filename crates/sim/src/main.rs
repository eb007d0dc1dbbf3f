//! Lives through worlds, and says which of them went wrong.

use clap::Parser;
use sluicegate_sim::{Outcome, live};

/// Nodes and their store on virtual time, under faults: is every limit kept, and is what there is used?
///
/// Everything follows from a seed. A world that went wrong is named with the command that shows it again, and the exit status is 1.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    /// How many worlds.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The seed of the first.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One world only.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Ends with the first that went wrong.
    #[arg(long)]
    stop: bool,
    /// How far eventual nodes go above a limit, for some fleets and intervals.
    #[arg(long, conflicts_with_all = ["seeds", "from", "seed"])]
    table: bool,
    /// Shows everything that happens in it.
    #[arg(long, requires = "seed")]
    trace: bool,
}

const EXAMPLES: &str = "Examples:
  sluicegate-sim                        200 worlds
  sluicegate-sim --seeds 5000 --from 1000 --stop
  sluicegate-sim --seed 42 --trace      one of them, line by line
  sluicegate-sim --table                figures of the level `eventual`";

fn main() -> anyhow::Result<std::process::ExitCode> {
    let Args { seeds, from, seed, stop, table, trace } = Args::parse();
    if table {
        return show_table();
    }
    let worlds = match seed {
        Some(seed) => seed..=seed,
        None => from..=from.saturating_add(seeds - 1),
    };
    let (mut lived, mut wrong, mut hits, mut calls) = (0u64, 0u64, 0usize, 0);
    for seed in worlds {
        let Outcome { scenario, history, violations } = live(seed, trace)?;
        (lived, hits, calls) = (lived + 1, hits + history.hits.len(), calls + history.calls);
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
    println!("{lived} worlds, {wrong} of them wrong; {hits} hits, {calls} calls");
    Ok(if wrong == 0 { 0 } else { 1 }.into())
}

fn show_table() -> anyhow::Result<std::process::ExitCode> {
    println!("nodes  sync_interval  above the limit of 400/s  promised  calls for 1,000 hits");
    let mut is_kept = true;
    for row in sluicegate_sim::table::measure()? {
        let sync = format!("{}ms", row.sync_ms);
        println!("{:5}  {sync:>13}  {:24}  {:8}  {:20}", row.nodes, row.over, row.bound, row.calls);
        is_kept &= row.over <= row.bound;
    }
    Ok(if is_kept { 0 } else { 1 }.into())
}
