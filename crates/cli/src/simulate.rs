//! `sluicegate simulate`: a fleet, its store and its clients on virtual time.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate_lab::report::Report;
use sluicegate_sim::Scenario;
use sluicegate_sim::figures::Figures;
use sluicegate_sim::report::{
    EXAMPLES, ScenarioExample, run_json, run_report, run_text, runs_json, seeds_report, seeds_text,
    sweep_plot, sweep_report, sweep_text, timeline_plot, worst,
};
use sluicegate_sim::spread::{self, Sweep};

use crate::simulate_plan::{self, PlanArgs};
use crate::written;

/// Arguments of `simulate`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    sluicegate simulate --example store-outage > outage.yaml\n  \
    sluicegate simulate outage.yaml\n  \
    sluicegate simulate outage.yaml --report outage.html\n  \
    sluicegate simulate outage.yaml --seeds 50      the spread, and the worst seed\n  \
    sluicegate simulate fleet.yaml --sweep nodes=1,2,4,8 --svg nodes.svg\n  \
    sluicegate simulate plan --nodes 20 --rate 50000 --keys 2000\n\n\
    Examples of scenarios: store-outage, leased, eventual-skew, failover, cluster, rollout.\n\
    Exit code: 0 if no bound was violated, 1 if one was or the scenario is invalid.")]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    command: Option<SimulateCommand>,
    /// The scenario (YAML); `-` is standard input
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    /// Print a ready scenario
    #[arg(long, value_name = "NAME", conflicts_with = "scenario")]
    example: Option<String>,
    /// Seed of all random numbers; overrides that of the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// Run with this many seeds and print the spread
    #[arg(long, value_name = "N", conflicts_with = "sweep",
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Run with each value of a variable: `nodes`, `skew`, `loss`, `delay`, `sync_interval`,
    /// `timeout`
    #[arg(long, value_name = "VARIABLE=VALUES")]
    sweep: Option<Sweep>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a report (HTML)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the plot (SVG)
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    svg: Option<PathBuf>,
    /// Print every call and decision
    #[arg(long, conflicts_with_all = ["seeds", "sweep", "json"])]
    trace: bool,
}

#[derive(Debug, clap::Subcommand)]
enum SimulateCommand {
    /// Estimate the load on the store and the accuracy of a fleet, of any size
    Plan(PlanArgs),
}

/// The longest scenario.
const SCENARIO_BYTES_MAX: u64 = 16 << 20;

/// Runs `simulate`.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if let Some(SimulateCommand::Plan(args)) = &args.command {
        return simulate_plan::run(args);
    }
    if let Some(name) = &args.example {
        return print_example(name);
    }
    let Some(path) = &args.scenario else {
        bail!(
            "no scenario given: name a file, or print one with `--example store-outage`; \
             `--help` has examples"
        );
    };
    let text = read(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = if path == Path::new("-") { "standard input" } else { &path.to_string_lossy() };
    let scenario = match sluicegate_sim::read(name, &text, folder, 1) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let seed = args.seed.unwrap_or(scenario.seed);
    let scenario = Scenario { seed, ..scenario };
    match (args.seeds, &args.sweep) {
        (Some(count), _) => run_seeds(args, &scenario, &text, count),
        (None, Some(sweep)) => run_sweep(args, &scenario, &text, sweep),
        (None, None) => run_once(args, scenario, &text),
    }
}

fn run_once(args: &SimulateArgs, scenario: Scenario, text: &str) -> anyhow::Result<ExitCode> {
    let outcome = sluicegate_sim::run(scenario, args.trace)?;
    let figures = Figures::of(&outcome);
    if let Some(path) = &args.svg {
        write(path, &timeline_plot(&outcome, &figures).map_err(anyhow::Error::msg)?)?;
    }
    write_report(args, || run_report(&outcome, &figures, text, &command()))?;
    print(&match args.json {
        true => format!("{}\n", run_json(&outcome, &figures)),
        false => run_text(&outcome, &figures),
    })?;
    Ok(code(!outcome.violations.is_empty()))
}

fn run_seeds(
    args: &SimulateArgs,
    scenario: &Scenario,
    text: &str,
    count: u64,
) -> anyhow::Result<ExitCode> {
    let runs = spread::seeds(scenario, scenario.seed, count, |done| progress(done, count))?;
    let path = args.scenario.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let repeat = |seed: u64| format!("sluicegate simulate {path} --seed {seed}");
    let seed = worst(&runs).map_or(scenario.seed, |run| run.seed);
    write_report(args, || seeds_report((&scenario.name, text), &runs, &command(), &repeat(seed)))?;
    print(&match args.json {
        true => format!("{}\n", runs_json(&scenario.name, None, &runs)),
        false => seeds_text(&scenario.name, &runs, repeat),
    })?;
    Ok(code(runs.iter().any(|run| !run.violations.is_empty())))
}

fn run_sweep(
    args: &SimulateArgs,
    scenario: &Scenario,
    text: &str,
    sweep: &Sweep,
) -> anyhow::Result<ExitCode> {
    let count = sweep.values.len() as u64;
    let runs = spread::sweep(scenario, sweep, |done| progress(done, count))?;
    if let Some(path) = &args.svg {
        write(path, &sweep_plot(&scenario.name, sweep, &runs).map_err(anyhow::Error::msg)?)?;
    }
    write_report(args, || sweep_report((&scenario.name, text), sweep, &runs, &command()))?;
    print(&match args.json {
        true => format!("{}\n", runs_json(&scenario.name, Some(sweep), &runs)),
        false => sweep_text(&scenario.name, sweep, &runs),
    })?;
    Ok(code(runs.iter().any(|run| !run.violations.is_empty())))
}

fn print_example(name: &str) -> anyhow::Result<ExitCode> {
    if let Some(example) = ScenarioExample::of(name) {
        print(example.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut known = String::new();
    for example in EXAMPLES {
        let _ = write!(known, "\n  {:16} {}", example.name, example.title());
    }
    eprintln!("no example `{name}`; choose one of{known}");
    Ok(ExitCode::FAILURE)
}

fn write_report(
    args: &SimulateArgs,
    report: impl FnOnce() -> Result<Report, String>,
) -> anyhow::Result<()> {
    match &args.report {
        Some(path) => write(path, &report().map_err(anyhow::Error::msg)?.html()),
        None => Ok(()),
    }
}

/// The command as it was given, for reports.
fn command() -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    format!("sluicegate {}", args.join(" "))
}

fn progress(done: u64, count: u64) {
    if io::stderr().is_terminal() {
        let end = if done == count { "\r\x1b[K" } else { "" };
        eprint!("\r{done} of {count} runs{end}");
    }
}

const fn code(is_violated: bool) -> ExitCode {
    if is_violated { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    written(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let cannot = || format!("cannot read `{}`", path.display());
    if path == Path::new("-") {
        io::stdin()
            .lock()
            .take(SCENARIO_BYTES_MAX)
            .read_to_string(&mut text)
            .with_context(cannot)?;
    } else {
        let file = std::fs::File::open(path).with_context(cannot)?;
        file.take(SCENARIO_BYTES_MAX).read_to_string(&mut text).with_context(cannot)?;
    }
    Ok(text)
}
