//! Consistency levels: several services on one Redis, one hot key, and twice as many requests as
//! its limit.
//!
//! ```text
//!   load      |-- first quarter: half of the limit --|-- the rest: the other half, and the limit again ----|
//!   measured    latency, below the limit                admitted requests; before it a service is killed
//! ```
//!
//! Latency is measured below the limit: denials are decided locally at every level.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use serde_json::json;
use sluicegate_load::{Amount, Arrivals, KeyOrder, KeySpace, Pace, Plan, Rate};
use sluicegate_testkit::redis::Single;

use crate::Common;
use crate::frame::{self, Reading, Report, Row, Schedule};
use crate::network::programs::{Programs, write_rules};
use crate::network::servers::{self, Running};
use crate::network::{load, requests};
use crate::table;

/// Options of `levels`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of services; may be repeated
    #[arg(long, value_name = "N", default_values_t = NODES, value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: Vec<u32>,
    /// Requests per second of all services together
    #[arg(long, value_name = "N", default_value_t = RATE, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    rate: u32,
}

const NODES: [u32; 2] = [2, 4];
const RATE: u32 = 4_000;
const ROUNDS: u32 = 3;
const SECONDS: u32 = 4;

impl Default for Args {
    fn default() -> Self {
        Self { nodes: NODES.to_vec(), rate: RATE }
    }
}

/// The consistency of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Strict,
    Leased,
    /// One of the services is killed while it holds a lease.
    LeasedKilled,
    /// With this sync interval, in milliseconds.
    Eventual(u32),
}

#[derive(Debug, Clone, Serialize)]
struct Admitted {
    requests: u64,
    admitted: u64,
    /// In percent of the limit.
    over: f64,
    under: f64,
    /// Below the limit: mean of the services, and maximum.
    p50_us: f64,
    p99_us: f64,
    /// Redis calls per decision, below the limit and from then on.
    calls_below: f64,
    calls_above: f64,
    /// Requests that the load sent late.
    late: u64,
}

impl Reading for Admitted {}

/// Sums over the services in one part of a reading.
#[derive(Debug, Default)]
struct Part {
    answered: u64,
    allowed: u64,
    late: u64,
    p50_us: f64,
    p99_us: f64,
}

pub(crate) fn run(common: &Common, args: &Args) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let seconds = common.seconds.unwrap_or(if common.quick { 2 } else { SECONDS });
    let limit = u64::from(args.rate) * u64::from(seconds) / 2;
    let nodes = if common.quick { &args.nodes[..1] } else { &args.nodes };
    let all = nodes.iter().flat_map(|&nodes| Level::ALL.map(|level| (level, nodes)));
    let name = |(level, nodes): &(Level, u32)| format!("{}, {nodes} nodes", level.name());
    let cases: Vec<(Level, u32)> = all.filter(|case| common.selects(&name(case))).collect();
    let rows = cases.iter().map(|case| Row::new("levels", name(case)));
    let rounds = common.rounds.unwrap_or(if common.quick { 1 } else { ROUNDS });
    let results = frame::run(rows.collect(), Schedule { rounds, attempts: 1 }, |row| {
        read(cases[row], &programs, args.rate, Duration::from_secs(seconds.into()), limit)
    });
    let columns: [(&str, fn(&Admitted) -> f64); 9] = [
        ("admitted", |one| one.admitted as f64),
        ("over %", |one| one.over),
        ("under %", |one| one.under),
        ("p50 µs", |one| one.p50_us),
        ("p99 µs", |one| one.p99_us),
        ("calls below", |one| one.calls_below),
        ("calls above", |one| one.calls_above),
        ("sent late", |one| one.late as f64),
        ("requests", |one| one.requests as f64),
    ];
    let settings = format!("; {} requests/s on one key for {seconds} s, limit {limit}", args.rate);
    let table = table::of_columns("level", &columns, &results.rows, 2);
    let text = format!("{}\n{table}", results.heading(&settings));
    let settings = json!({ "per_second": args.rate, "seconds": seconds, "limit": limit });
    Ok(results.report(text, settings, &[]))
}

/// A fresh Redis and fresh services.
fn read(
    (level, nodes): (Level, u32),
    programs: &Programs,
    rate: u32,
    time: Duration,
    limit: u64,
) -> anyhow::Result<Admitted> {
    let redis = Single::start();
    let rules = programs.rules.with_file_name("levels-rules.yaml");
    let rules = write_rules(&rules, &level.rules(limit))?;
    let start = |_| {
        let mut command = servers::serve(Command::new(&programs.sluicegate), &rules, "error");
        command.args(["--store", redis.url()]);
        // A call after the timeout is charged without an answer.
        servers::ready(command.env("SLUICEGATE_STORE_TIMEOUT", "10s"))
    };
    let mut services = (0..nodes).map(start).collect::<anyhow::Result<Vec<Running>>>()?;
    let before = script_calls(&redis);
    let first = drive(&services, rate, time / 4)?;
    let between = script_calls(&redis);
    if level == Level::LeasedKilled {
        services.pop().into_iter().for_each(Running::kill);
    }
    let second = drive(&services, rate, time / 4 * 3)?;
    let after = script_calls(&redis);

    let admitted = first.allowed + second.allowed;
    let percent = |part: u64| 100.0 * part as f64 / limit as f64;
    Ok(Admitted {
        requests: first.answered + second.answered,
        admitted,
        over: percent(admitted.saturating_sub(limit)),
        under: percent(limit.saturating_sub(admitted)),
        p50_us: first.p50_us / f64::from(nodes),
        p99_us: first.p99_us,
        calls_below: (between - before) as f64 / first.answered.max(1) as f64,
        calls_above: (after - between) as f64 / second.answered.max(1) as f64,
        late: first.late + second.late,
    })
}

/// An open loop on every service, all for the same key.
fn drive(services: &[Running], rate: u32, time: Duration) -> anyhow::Result<Part> {
    let each = Rate::per_second(f64::from(rate) / services.len() as f64).context("invalid rate")?;
    let mut part = Part::default();
    thread::scope(|scope| {
        let run = |(seed, service): (u64, &Running)| {
            let request = requests::rls_of("hot", "key");
            let plan = Plan {
                keys: KeySpace { count: 1, order: KeyOrder::Sequential, seed },
                pace: Pace::Open(each, Arrivals::Poisson),
                amount: Amount::Time(time),
                ..load::unfilled(load::plan(service.address, request, 1, (4, 16)))
            };
            scope.spawn(move || load::run(&plan))
        };
        let runs: Vec<_> = (1..).zip(services).map(run).collect();
        for run in runs {
            let report = run.join().map_err(|_| anyhow!("the load panicked"))??;
            part.answered += report.answered;
            part.allowed += report.allowed;
            part.late += report.late_starts;
            part.p50_us += report.latency_us.p50;
            part.p99_us = part.p99_us.max(report.latency_us.p99);
        }
        Ok(part)
    })
}

/// Scripts that Redis has run.
fn script_calls(redis: &Single) -> u64 {
    count_scripts(&redis.command(&["INFO", "commandstats"]).to_string())
}

fn count_scripts(commandstats: &str) -> u64 {
    let calls = |line: &str| -> Option<u64> {
        let line =
            line.strip_prefix("cmdstat_eval").or_else(|| line.strip_prefix("cmdstat_fcall"))?;
        line.split_once("calls=")?.1.split(',').next()?.parse().ok()
    };
    commandstats.lines().filter_map(calls).sum()
}

// === impl Level ===

impl Level {
    const ALL: [Self; 6] = [
        Self::Strict,
        Self::Leased,
        Self::LeasedKilled,
        Self::Eventual(20),
        Self::Eventual(100),
        Self::Eventual(500),
    ];

    fn name(self) -> String {
        match self {
            Self::Strict => "strict".to_owned(),
            Self::Leased => "leased".to_owned(),
            Self::LeasedKilled => "leased, one killed".to_owned(),
            Self::Eventual(ms) => format!("eventual {ms} ms"),
        }
    }

    /// One limit in a window that outlasts every reading.
    fn rules(self, limit: u64) -> String {
        let consistency = match self {
            Self::Strict => "strict".to_owned(),
            Self::Leased | Self::LeasedKilled => "leased".to_owned(),
            Self::Eventual(ms) => format!("{{ eventual: {{ sync_interval: {ms}ms }} }}"),
        };
        format!(
            "domain: bench\ndescriptors:\n  - key: hot\n    consistency: {consistency}\n    \
             on_store_failure: error\n    \
             limits: {{ algorithm: fixed_window, rate: {limit}/year }}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() {
        for level in Level::ALL {
            assert!(sluicegate::rules_of(&level.rules(1_000)).is_ok(), "{level:?}");
        }
    }

    #[test]
    fn only_scripts_are_counted() {
        let stats = "# Commandstats\r\ncmdstat_eval:calls=1,usec=9,usec_per_call=9.00\r\n\
            cmdstat_evalsha:calls=40,usec=9\r\ncmdstat_get:calls=40,usec=3\r\n";
        assert_eq!(count_scripts(stats), 41);
    }
}
