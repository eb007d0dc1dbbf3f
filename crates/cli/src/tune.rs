//! `sluicegate tune`: limits from recorded traffic.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args, ValueEnum};
use serde_json::{Value, json};
use sluicegate::Span;
use sluicegate_config::units::span;
use sluicegate_lab::log_input::counts::LineCounts;
use sluicegate_lab::tune::goal::TuneGoal;
use sluicegate_lab::tune::rules_file::RuleNames;
use sluicegate_lab::tune::{TuneOptions, TuneResult, TunedAlgorithm, tune};
use sluicegate_rules::mapping::Part;

use crate::logs::{ClientArgs, LogArgs, ReadingLine};
use crate::replay::{command_line, write_file};
use crate::written;

mod propose;

/// Arguments of `tune`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("goal").required(true).args(["deny_at_most", "protect", "good_clients"])))]
#[command(after_help = "Examples:\n  \
    sluicegate tune access.log --deny-at-most '1% of users'         rate and burst for each client address\n  \
    sluicegate tune access.log* --client 'header X-User' --keep 'p99.9 of good clients' --out rules.yaml\n  \
    sluicegate tune access.log --protect 500/s --report report.html\n  \
    sluicegate tune access.log --deny-at-most '1% of users' --algorithm fixed_window --window 1h\n  \
    sluicegate tune access.log --deny-at-most '1% of users' --domain shop --propose http://127.0.0.1:6070\n\n\
    The limit is chosen from the first part of the log and checked on the rest (--hold-out). A share of users is\n\
    promised with a confidence, which needs clients: 3,000 for 0.1%, 300 for 1%. See docs/guide/tune.md.\n\
    SLUICEGATE_ADMIN_TOKEN has the token of the admin endpoint, if --propose needs one.\n\
    Exit codes: 0 a limit is recommended; 1 too few clients for the goal, or the proposal is refused; 2 failed.")]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    client: ClientArgs,
    /// Goal: the strictest limit that denies at most this share, such as '0.1% of users' or '1% of
    /// requests'
    #[arg(long, value_name = "SHARE")]
    deny_at_most: Option<String>,
    /// Goal: all clients together stay within a capacity, such as 500/s
    #[arg(long, value_name = "N/s")]
    protect: Option<String>,
    /// Goal: the strictest limit that never denies clients up to this quantile, such as 'p99.9 of
    /// good clients'
    #[arg(long = "keep", value_name = "QUANTILE")]
    good_clients: Option<String>,
    /// Algorithm of the limit
    #[arg(long, value_enum, default_value_t = AlgorithmChoice::TokenBucket)]
    algorithm: AlgorithmChoice,
    /// Window, for the algorithms that have one
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1m")]
    window: Span,
    /// Of the pairs of rate and burst that meet the goal, recommend the one that admits least of a
    /// client in any span of this length
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1m")]
    horizon: Span,
    /// Probability with which a promise holds
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "95%")]
    confidence: f64,
    /// Part of the log, at its end, that the limit is not chosen from but checked on
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "30%")]
    hold_out: f64,
    /// Domain of the rules
    #[arg(long, value_name = "DOMAIN", default_value = "tuned")]
    domain: String,
    /// Key of the descriptor that has the client [default: remote_address for client_ip, else
    /// client]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write the limit as a rules file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a report with plots (HTML)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Send the limit to the admin endpoint of a node, as a candidate that runs beside the enforced
    /// rules
    #[arg(long, value_name = "URL")]
    propose: Option<String>,
}

/// Algorithm of the recommended limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum AlgorithmChoice {
    /// Rate and burst
    TokenBucket,
    /// A number in any window, exactly
    SlidingLog,
    /// A number in any window, by two counts
    SlidingWindow,
    /// A number per window of the clock
    FixedWindow,
}

fn time(text: &str) -> Result<Span, String> {
    span(text).map_err(|error| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').map(str::trim_end);
    let number = number.and_then(|number| number.parse::<f64>().ok());
    let valid = number.filter(|number| (0.0..=100.0).contains(number));
    valid
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "must be a percentage, like `95%`".to_owned())
}

/// Runs `tune`.
pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    let goal = args.goal()?;
    let mut line = ReadingLine::begin();
    let parts = args.client.parts();
    let traffic = args.logs.input()?.traffic(&parts, |progress| line.show(progress))?;
    drop(line);
    let tuning = tune(traffic.arrivals, goal, args.options())?;
    let names = args.names(&parts.client);
    let command = command_line();
    let rules = tuning.rules_file(&names, &command).map_err(|error| anyhow!(error))?;
    if let (Some(path), Some(rules)) = (&args.out, &rules) {
        write_file(path, rules)?;
    }
    if let Some(path) = &args.report {
        let report = tuning.report(&traffic.clients, rules.as_deref(), &command);
        write_file(path, &report.map_err(anyhow::Error::msg).context("--report")?.html())?;
    }
    let proposed = match (&args.propose, tuning.limits(&names), tuning.note()) {
        (Some(url), Some(limits), Some(note)) => {
            Some(propose::propose(url, &names.domain, &limits, &note)?)
        }
        _ => None,
    };
    let text = if args.json {
        let mut json = tuning.to_json(&traffic.clients);
        json["lines"] = lines(&traffic.lines);
        json["rules"] = rules.into();
        if let Some(proposed) = &proposed {
            json["proposed"] = proposed.to_json();
        }
        format!("{json}\n")
    } else {
        let proposed = proposed.as_ref().map(|proposed| format!("\n{proposed}\n"));
        let unused = unused_lines(&traffic.lines);
        tuning.to_text(&traffic.clients) + &unused + &proposed.unwrap_or_default()
    };
    written(io::stdout().lock().write_all(text.as_bytes()))?;
    let is_shortage = matches!(tuning.result, TuneResult::Shortage(_));
    let is_refused = proposed.is_some_and(|proposed| proposed.is_refused());
    Ok(if is_shortage || is_refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl TuneArgs {
    fn goal(&self) -> anyhow::Result<TuneGoal> {
        if let Some(text) = &self.deny_at_most {
            return TuneGoal::deny_at_most(text).context("--deny-at-most");
        }
        if let Some(text) = &self.good_clients {
            return TuneGoal::serve_good(text).context("--keep");
        }
        TuneGoal::protect(self.protect.as_deref().unwrap_or_default()).context("--protect")
    }

    fn options(&self) -> TuneOptions {
        let algorithm = match self.algorithm {
            AlgorithmChoice::TokenBucket => TunedAlgorithm::TokenBucket,
            AlgorithmChoice::SlidingLog => TunedAlgorithm::SlidingLog,
            AlgorithmChoice::SlidingWindow => TunedAlgorithm::SlidingWindow,
            AlgorithmChoice::FixedWindow => TunedAlgorithm::FixedWindow,
        };
        TuneOptions {
            algorithm,
            window: self.window,
            horizon: self.horizon,
            confidence: self.confidence,
            hold_out: self.hold_out,
        }
    }

    fn names(&self, client: &Part) -> RuleNames {
        let client = client.to_string();
        let default = if client == "client_ip" { "remote_address" } else { "client" };
        let key = self.key.clone().unwrap_or_else(|| default.to_owned());
        RuleNames { domain: self.domain.clone(), key, client }
    }
}

/// Lines without a request of a client.
fn unused_lines(lines: &LineCounts) -> String {
    let mut text = String::new();
    let kinds = [
        ("is malformed", "are malformed", lines.malformed.count),
        ("has an invalid client", "have an invalid client", lines.invalid.count),
        ("has no client", "have no client", lines.missing_part),
    ];
    for (one, several, count) in kinds.into_iter().filter(|(.., count)| *count > 0) {
        let is = if count == 1 { one } else { several };
        text += &format!("- {count} of {} lines {is} and left out.\n", lines.read);
    }
    if let Some(example) = lines.malformed.examples.first() {
        text += &format!("  Line {}: {}\n", example.line, example.reason);
    }
    text
}

fn lines(lines: &LineCounts) -> Value {
    json!({
        "read": lines.read, "requests": lines.requests, "malformed": lines.malformed.count,
        "invalid": lines.invalid.count, "without_client": lines.missing_part, "late": lines.late,
    })
}
