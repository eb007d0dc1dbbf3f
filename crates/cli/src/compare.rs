//! `sluicegate compare`: the same traffic through every algorithm.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use sluicegate_config::traffic::traffic;
use sluicegate_config::units::{WrittenRate, rate};
use sluicegate_lab::arrival::Client;
use sluicegate_lab::compare::{
    AlgorithmComparison, MeasuredTraffic, NominalRule, findings, measure, plot_admitted, report,
    table,
};
use sluicegate_lab::log_input::ReadProgress;
use sluicegate_lab::log_input::counts::LineCounts;
use sluicegate_lab::traffic::{START, Traffic};

use crate::logs::{ClientArgs, LogArgs, ReadingLine};
use crate::replay::command_line;
use crate::written;

/// Arrivals of built-in traffic between two reports of progress.
const PROGRESS_EVERY: u64 = 8_192;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate compare /var/log/nginx/access.log* --rate 100/m --report report.html\n  \
    sluicegate compare --traffic flash_sale --rate 100/m\n  \
    sluicegate compare --traffic 'zipf: { clients: 10k, rate: 2000/s }' --rate 50/10s --json\n\n\
    Built-in traffic: steady, poisson, diurnal, edge_bursts, flash_sale, abuser, herd, zipf, tenants.\n\
    What the columns mean is in docs/guide/compare.md, and at the end of a report.")]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    client: ClientArgs,
    /// Built-in traffic in place of logs, in YAML: a name, or a name with its numbers
    #[arg(long, value_name = "YAML", conflicts_with_all = ["logs", "format", "reorder", "client", "hits"])]
    traffic: Option<String>,
    /// Seed of built-in traffic
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The limit of each client, such as 100/m: at most 100 in a minute
    #[arg(long, value_name = "N/TIME", value_parser = rate)]
    rate: WrittenRate,
    /// Burst of the algorithms that know one [default: the number of the rate]
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
    /// Write a report with findings, plots and figures (HTML)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Plot the admitted requests of each algorithm over time (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The figures, and the traffic in words.
struct Compared {
    found: AlgorithmComparison,
    subject: String,
    /// Lines that are no requests of a client.
    skipped: Option<String>,
}

/// Logs are required only without built-in traffic.
pub(crate) fn with_optional_logs(command: clap::Command) -> clap::Command {
    command.mut_arg("logs", |logs| logs.required(false).required_unless_present("traffic"))
}

/// Runs `compare`.
pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let rule = match NominalRule::new(args.rate, args.burst) {
        Ok(rule) => rule,
        Err(problem) => return Ok(invalid(&problem)),
    };
    let compared = match &args.traffic {
        None => args.of_logs(rule)?,
        Some(text) => match traffic("--traffic", text) {
            Ok(config) => args.of_traffic(rule, Traffic::new(config, args.seed), text)?,
            Err(problems) => return Ok(invalid(&problems.to_string())),
        },
    };
    args.write_files(&compared)?;
    if let Some(skipped) = &compared.skipped {
        eprintln!("{skipped}");
    }
    let found = &compared.found;
    let out = if args.json { format!("{}\n", found.to_json()) } else { text(found) };
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

fn invalid(problem: &str) -> ExitCode {
    eprintln!("{problem}");
    ExitCode::FAILURE
}

/// Findings, then figures.
fn text(found: &AlgorithmComparison) -> String {
    let findings: String = findings(found).iter().map(|finding| format!("- {finding}\n")).collect();
    format!("{findings}\n{}", table(found))
}

impl CompareArgs {
    fn of_traffic(
        &self,
        rule: NominalRule,
        traffic: Traffic,
        text: &str,
    ) -> anyhow::Result<Compared> {
        let mut line = ReadingLine::begin_of("requests");
        let length = traffic.end().since(START).as_micros();
        let measured = measure(rule, |each| {
            for (number, arrival) in (1..).zip(traffic.arrivals()) {
                each(arrival);
                if number % PROGRESS_EVERY == 0 {
                    let done = arrival.at.since(START).as_micros();
                    line.show(ReadProgress {
                        lines: number,
                        bytes: done,
                        bytes_total: Some(length),
                    });
                }
            }
        });
        drop(line);
        let (measured, ()) = measured.map_err(anyhow::Error::msg)?;
        let found = figures(measured, &|number| traffic.client(number))?;
        let subject = format!("Built-in traffic `{text}`, seed {}.", self.seed);
        Ok(Compared { found, subject, skipped: None })
    }

    fn of_logs(&self, rule: NominalRule) -> anyhow::Result<Compared> {
        let (input, parts) = (self.logs.input()?, self.client.parts());
        let mut line = ReadingLine::begin();
        let measured = measure(rule, |each| {
            input.each_arrival(
                &parts,
                |progress| line.show(progress),
                |arrival| {
                    each(arrival);
                    Ok(())
                },
            )
        });
        drop(line);
        let (measured, read) = measured.map_err(anyhow::Error::msg)?;
        let (clients, lines) = read?;
        let client = |number: u32| {
            let unknown = || Client { name: format!("client {number}"), is_abuser: None };
            clients.get(number as usize).cloned().unwrap_or_else(unknown)
        };
        let found = figures(measured, &client)?;
        let names: Vec<String> =
            self.logs.logs.iter().map(|path| format!("`{}`", path.display())).collect();
        let subject = format!("{}: {} lines.", names.join(", "), lines.read);
        Ok(Compared { found, subject, skipped: skipped(&lines) })
    }

    fn write_files(&self, compared: &Compared) -> anyhow::Result<()> {
        let write = |path: &PathBuf, text: String| {
            fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
        };
        if let Some(path) = &self.svg {
            let svg = plot_admitted(&compared.found).map_err(anyhow::Error::msg);
            write(path, svg.context("--svg")?)?;
        }
        if let Some(path) = &self.report {
            let mut subject = compared.subject.clone();
            if let Some(skipped) = &compared.skipped {
                subject.push_str(&format!(" {skipped}."));
            }
            let report = report(&compared.found, &subject, &command_line());
            write(path, report.map_err(anyhow::Error::msg).context("--report")?.html())?;
        }
        Ok(())
    }
}

/// Lines that are not compared; `None` if all are.
fn skipped(lines: &LineCounts) -> Option<String> {
    let kinds = [
        (lines.malformed.count, "malformed"),
        (lines.invalid.count, "invalid"),
        (lines.missing_part, "without a client"),
        (lines.late, "late, and compared at the time that was reached: raise `--reorder`"),
    ];
    let found = kinds.iter().filter(|(count, _)| *count > 0);
    let found: Vec<String> = found.map(|(count, kind)| format!("{count} {kind}")).collect();
    (!found.is_empty()).then(|| format!("of {} lines: {}", lines.read, found.join(", ")))
}

fn figures(
    measured: MeasuredTraffic,
    client: &dyn Fn(u32) -> Client,
) -> anyhow::Result<AlgorithmComparison> {
    measured.comparison(client).map_err(anyhow::Error::msg)
}
