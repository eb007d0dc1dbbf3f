//! One reading: a fresh Redis, fresh services, and twice as many requests as may pass.
//!
//! ```text
//!   asked      |-- first: half of the limit --|-- second: the other half, and as many again as the limit ------------------|
//!   measured     how long answers take          how much passes in all; before it a service is killed, where that is meant
//! ```
//!
//! How long an answer takes is measured below the limit: denials are known without asking anybody, at every level.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use serde::Serialize;
use sluicegate_testkit::redis::Single;
use sluicegate_load::{
    Amount, Arrivals, Ask, KeyOrder, KeySpace, Pace, Plan, Rate, Report, Server, run,
};

use crate::args::Args;
use crate::case::{Case, Level};
use crate::fleet::{Fleet, Service};

/// What was seen.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Reading {
    pub(crate) limit: u64,
    pub(crate) asked: u64,
    pub(crate) passed: u64,
    /// In percent of the limit.
    pub(crate) over: f64,
    pub(crate) under: f64,
    /// Below the limit: the mean of the services, and the slowest of them.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Calls of Redis for each decision, below the limit and from then on.
    pub(crate) calls_below: f64,
    pub(crate) calls_above: f64,
    /// Requests that the load itself sent too late.
    pub(crate) late: u64,
}

/// What the services said in one part of it.
#[derive(Debug, Default)]
struct Said {
    answered: u64,
    allowed: u64,
    late: u64,
    p50_us: Vec<f64>,
    p99_us: f64,
}

pub(crate) fn read(case: Case, args: &Args, sluicegate: &Path) -> anyhow::Result<Reading> {
    let limit = args.limit();
    let store = Single::start();
    let mut fleet = Fleet::start(sluicegate, case.nodes, store.url(), &case.rules(limit))?;
    let quarter = Duration::from_secs(args.seconds.into()) / 4;
    let before = calls(&store)?;
    let first = drive(&fleet.services, args.rate, quarter)?;
    let between = calls(&store)?;
    if case.level == Level::LeasedKilled {
        fleet.kill_one();
    }
    let second = drive(&fleet.services, args.rate, quarter * 3)?;
    let after = calls(&store)?;

    let passed = first.allowed + second.allowed;
    let percent = |part: u64| 100.0 * part as f64 / limit as f64;
    Ok(Reading {
        limit,
        asked: first.answered + second.answered,
        passed,
        over: percent(passed.saturating_sub(limit)),
        under: percent(limit.saturating_sub(passed)),
        p50_us: first.p50_us.iter().sum::<f64>() / first.p50_us.len() as f64,
        p99_us: first.p99_us,
        calls_below: (between - before) as f64 / first.answered.max(1) as f64,
        calls_above: (after - between) as f64 / second.answered.max(1) as f64,
        late: first.late + second.late,
    })
}

/// Everybody is asked for the same key, at times that no answer can move.
fn drive(services: &[Service], rate: u32, time: Duration) -> anyhow::Result<Said> {
    let each = f64::from(rate) / services.len() as f64;
    let each = Rate::per_second(each).context("the rate")?;
    let mut said = Said::default();
    thread::scope(|scope| {
        let ask = |(seed, service)| {
            let plan = plan(service, each, time, seed);
            scope.spawn(move || run(&plan, |_| {}))
        };
        let runs: Vec<_> = (1..).zip(services).map(ask).collect();
        for run in runs {
            said.add(&run.join().map_err(|_| anyhow!("the load panicked"))??)?;
        }
        Ok(said)
    })
}

fn plan(service: &Service, rate: Rate, time: Duration, seed: u64) -> Plan {
    let descriptors = vec![vec![("hot".to_owned(), "key".to_owned())]];
    Plan {
        address: service.grpc,
        ask: Ask::Rls { domain: "bench".to_owned(), descriptors },
        keys: KeySpace { count: 1, order: KeyOrder::Sequential, seed },
        pace: Pace::Open(rate, Arrivals::Poisson),
        amount: Amount::Time(time),
        warm_up: Duration::ZERO,
        fill: false,
        connections: 4,
        at_once: 16,
        threads: 1,
        patience: Duration::from_secs(30),
        denied: vec![429],
        password: None,
        server: Server::Processes(Vec::new()),
    }
}

/// Scripts that Redis has run, by its own word.
fn calls(store: &Single) -> anyhow::Result<u64> {
    let told = store.ask(&["INFO", "commandstats"]).to_string();
    Ok(scripts(&told))
}

fn scripts(told: &str) -> u64 {
    let calls = |line: &str| -> Option<u64> {
        let line =
            line.strip_prefix("cmdstat_eval").or_else(|| line.strip_prefix("cmdstat_fcall"))?;
        line.split_once("calls=")?.1.split(',').next()?.parse().ok()
    };
    told.lines().filter_map(calls).sum()
}

// === impl Said ===

impl Said {
    fn add(&mut self, report: &Report) -> anyhow::Result<()> {
        ensure!(report.is_clean(), "asking failed: {:?}", report.errors_by_text);
        self.answered += report.answered;
        self.allowed += report.allowed;
        self.late += report.late_starts;
        self.p50_us.push(report.latency_us.p50);
        self.p99_us = self.p99_us.max(report.latency_us.p99);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_and_nothing_else() {
        let told = "# Commandstats\r\ncmdstat_eval:calls=1,usec=9,usec_per_call=9.00\r\n\
            cmdstat_evalsha:calls=40,usec=9\r\ncmdstat_get:calls=40,usec=3\r\n";
        assert_eq!(scripts(told), 41);
    }
}
