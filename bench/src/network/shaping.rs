//! `shaping`: the outflow of a limit whose requests wait for their turn, and the shares of three
//! clients with demands of 1 : 1 : 100, each above its equal share; on one gateway, and on two with
//! one Redis.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;

use super::classes::{ClassLoad, ClassSeconds, ClassesJob};
use super::programs::Programs;
use super::servers::{self, Folder, Running};
use super::{proxies, seconds};
use crate::Common;
use crate::bars::{self, Bar, Goal};
use crate::frame::{self, Reading, Report, Results, Row, Schedule, Statistic};
use crate::table;

/// What happened in the measured seconds.
#[derive(Debug, Clone, Serialize)]
struct Shaped {
    /// Forwarded requests per second.
    outflow: f64,
    /// Distance to the limit, as a share of it.
    outflow_error: f64,
    /// The largest distance of a second's outflow to the limit, in requests.
    worst_second: f64,
    /// Shares of the outflow by client.
    shares: [f64; 3],
    /// The largest distance to a third, as a share of that.
    share_error: f64,
    denied: u64,
    failed: u64,
    disturbed: bool,
}

impl Reading for Shaped {
    fn is_disturbed(&self) -> bool {
        self.disturbed
    }
}

const NAME: &str = "shaping";
const NODES: [(&str, usize); 2] = [("one gateway", 1), ("two gateways, one Redis", 2)];
/// Requests per second: of the limit, and of the clients.
const LIMIT: f64 = 100.0;
const DEMAND: [f64; 3] = [40.0, 40.0, 4_000.0];
const CONNECTIONS: [usize; 3] = [100, 100, 300];
const SECONDS: u32 = 60;
/// Seconds before those that are measured, in which the queue fills, and one after them, in which
/// requests are answered that were waiting at the end.
const BEFORE: u64 = 3;
const AFTER: u64 = 2;

const BARS: [Bar<Results<Shaped>>; 4] = [
    Bar::new("outflow of one gateway, distance to the limit", Goal::AtMost(1.0), " %", |all| {
        of(all, NODES[0].0, |one| 100.0 * one.outflow_error)
    }),
    Bar::new("outflow of two gateways, the same", Goal::AtMost(1.0), " %", |all| {
        of(all, NODES[1].0, |one| 100.0 * one.outflow_error)
    }),
    Bar::new("shares at one gateway, distance to a third", Goal::AtMost(1.0), " %", |all| {
        of(all, NODES[0].0, |one| 100.0 * one.share_error)
    }),
    Bar::new("shares at two gateways, the same", Goal::AtMost(1.0), " %", |all| {
        of(all, NODES[1].0, |one| 100.0 * one.share_error)
    }),
];

fn of(all: &Results<Shaped>, name: &str, number: fn(&Shaped) -> f64) -> Option<Statistic> {
    all.row(NAME, name)?.statistic(number)
}

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let seconds = match common.seconds.is_some() || common.quick {
        true => seconds(common).max(5),
        false => SECONDS,
    };
    let rows: Vec<_> = NODES.into_iter().filter(|(name, _)| common.selects(name)).collect();
    let missing = |nodes| match nodes {
        1 if programs.nginx.is_none() => Some("no nginx, the upstream".to_owned()),
        2 if programs.redis.is_none() => Some("no redis-server".to_owned()),
        _ => None,
    };
    let present = rows.iter().map(|(name, nodes)| Row::new(NAME, *name).absent(missing(*nodes)));
    let schedule = Schedule { rounds: common.rounds.unwrap_or(1), attempts: 1 };
    let results = frame::run(present.collect(), schedule, |row| {
        read(&programs, rows[row].1, u64::from(seconds))
    });
    let outcomes = bars::outcomes(&BARS, &results);
    let columns: [(&str, fn(&Shaped) -> f64); 8] = [
        ("outflow/s", |one| one.outflow),
        ("error %", |one| 100.0 * one.outflow_error),
        ("worst second", |one| one.worst_second),
        ("share 1 %", |one| 100.0 * one.shares[0]),
        ("share 2 %", |one| 100.0 * one.shares[1]),
        ("share 3 %", |one| 100.0 * one.shares[2]),
        ("denied", |one| one.denied as f64),
        ("failed", |one| one.failed as f64),
    ];
    let text = format!(
        "{}\nA limit of {LIMIT}/s; clients with {DEMAND:?} requests/s:\n\n{}\n{}",
        results.heading(&format!(" of {seconds} s")),
        table::of_columns("gateways", &columns, &results.rows, 2),
        bars::list(&outcomes)
    );
    Ok(results.report(text, json!({ "seconds": seconds }), &outcomes))
}

/// Fresh gateways before a fresh upstream.
fn read(programs: &Programs, nodes: usize, seconds: u64) -> anyhow::Result<Shaped> {
    let upstream = proxies::upstream(programs)?;
    let store = (nodes > 1).then(|| servers::redis(programs, None)).transpose()?;
    let folder = Folder::new(servers::free_address()?)?;
    let config = write_config(&folder.0, upstream.address)?;
    let start = |_| {
        let mut command = proxies::gateway(programs);
        command.arg("--config").arg(&config);
        match &store {
            None => proxies::announced(&mut command),
            Some(store) => {
                command.args(["--store", &format!("redis://{}", store.address)]);
                servers::ready_at(command.env("SLUICEGATE_STORE_TIMEOUT", "1s"), "listen")
            }
        }
    };
    let gateways = (0..nodes).map(start).collect::<anyhow::Result<Vec<Running>>>()?;
    let classes = gateways.iter().flat_map(|gateway| {
        (0..DEMAND.len()).map(|client| ClassLoad {
            address: gateway.address,
            header: ("x-user".to_owned(), format!("client-{client}")),
            steps: vec![(BEFORE + seconds + AFTER, DEMAND[client] / nodes as f64)],
            connections: CONNECTIONS[client] / nodes,
        })
    });
    let job =
        ClassesJob { classes: classes.collect(), request_timeout_ms: 5_000, denied: vec![429] };
    Ok(Shaped::new(&job.run()?, seconds))
}

/// A request waits for a second at most.
fn write_config(home: &Path, upstream: SocketAddr) -> anyhow::Result<std::path::PathBuf> {
    fs::write(home.join("rules.yaml"), RULES)?;
    let config = format!(
        "rules: rules.yaml\nupstreams: {{ page: \"http://{upstream}\" }}\n\
         routes:\n  - path: /*\n    upstream: page\n    \
         limit: {{ domain: bench, descriptors: [{{ all: method }}] }}\n    \
         shape: {{ queue: 100, max_wait: 1s, fair_by: header X-User }}\n"
    );
    let path = home.join("gateway.yaml");
    fs::write(&path, config).context("cannot write the configuration")?;
    Ok(path)
}

const RULES: &str = "\
domain: bench
descriptors:
  - { key: all, on_limit: shape, limits: { algorithm: token_bucket, rate: 100/s, burst: 1 } }
";

impl Shaped {
    /// Of the clients, once for each gateway.
    fn new(classes: &[ClassSeconds], seconds: u64) -> Self {
        let measured = |class: &ClassSeconds| {
            let (begins, count) = (BEFORE as usize, seconds as usize);
            class.seconds.iter().skip(begins).take(count).copied().collect::<Vec<_>>()
        };
        let measured: Vec<_> = classes.iter().map(measured).collect();
        let sum = |of: fn(&super::classes::ClassSecond) -> u64| {
            measured.iter().flatten().map(of).sum::<u64>()
        };
        let total = sum(|second| second.allowed) as f64;
        let mut shares = [0.0; 3];
        for (class, seconds) in measured.iter().enumerate() {
            let allowed: u64 = seconds.iter().map(|second| second.allowed).sum();
            shares[class % 3] += allowed as f64 / total.max(1.0);
        }
        let of_second = |at: usize| -> f64 {
            let second = measured.iter().filter_map(|class| class.get(at));
            (second.map(|second| second.allowed).sum::<u64>() as f64 - LIMIT).abs()
        };
        let outflow = total / seconds as f64;
        Self {
            outflow,
            outflow_error: (outflow / LIMIT - 1.0).abs(),
            worst_second: (0..seconds as usize).map(of_second).fold(0.0, f64::max),
            shares,
            share_error: shares
                .map(|share| (share * 3.0 - 1.0).abs())
                .into_iter()
                .fold(0.0, f64::max),
            denied: sum(|second| second.denied),
            failed: sum(|second| second.failed),
            disturbed: classes.iter().any(ClassSeconds::is_disturbed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::classes::ClassSecond;

    #[test]
    fn the_rules_are_valid() {
        assert!(sluicegate::rules_of(RULES).is_ok());
    }

    #[test]
    fn shares_are_of_the_measured_seconds_of_all_gateways() {
        let class = |allowed: u64| {
            let second = |at| ClassSecond {
                allowed: if (3..13).contains(&at) { allowed } else { 999 },
                ..ClassSecond::default()
            };
            let seconds = (0..15).map(second).collect();
            ClassSeconds { seconds, latest_start_ms: 1.0, unsent: 0, stolen: 0.0 }
        };
        let two = [20, 10, 20, 20, 10, 19].map(class);
        let shaped = Shaped::new(&two, 10);
        assert_eq!((shaped.outflow, shaped.worst_second), (99.0, 1.0));
        assert!((shaped.share_error - 0.394).abs() < 0.001, "{shaped:?}");
    }
}
