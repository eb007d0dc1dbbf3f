//! `doors --only redis-memory`: growth of `used_memory` per identity, by algorithm.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::json;
use sluicegate_load::{Amount, KeyOrder, KeySpace, Plan};

use super::load::{self, unfilled};
use super::programs::{self, Programs};
use super::store::StoreMetrics;
use super::{requests, servers};
use crate::frame::{self, Reading, Report, Row, Schedule};
use crate::{Common, table};

/// The name for `--only`.
pub(crate) const NAME: &str = "redis-memory";

/// Nothing expires before it is counted.
const LIMITS: [(&str, &str); 11] = [
    ("token_bucket", "{ algorithm: token_bucket, rate: 1/h, burst: 1000 }"),
    ("leaky_bucket", "{ algorithm: leaky_bucket, rate: 1/h, queue: 1000 }"),
    ("fixed_window", "{ algorithm: fixed_window, rate: 1000/day }"),
    ("sliding_window", "{ algorithm: sliding_window, rate: 1000/day }"),
    ("sliding_log", "{ algorithm: sliding_log, rate: 1000/day }"),
    ("smooth_bursty", "{ algorithm: smooth_bursty, rate: 1/h }"),
    ("warm_up", "{ algorithm: warm_up, rate: 1/h, warm_up: 1h }"),
    ("cycle", "{ algorithm: cycle, permits: 1000, period: 1h }"),
    ("concurrency", "{ algorithm: concurrency, max: 1000, lease: 1h }"),
    ("tally", "{ algorithm: tally, rate: 1000/day }"),
    (
        "three in one",
        "[{ name: a, algorithm: token_bucket, rate: 1/h, burst: 1000 }, { name: b, algorithm: sliding_window, rate: 1000/day }, \
         { name: c, algorithm: fixed_window, rate: 1000/day }]",
    ),
];

/// A log grows with its hits: more hits for fewer identities.
const LOG: &str = "sliding_log";
const MORE_HITS: [u64; 2] = [10, 100];
const LOG_DIVISOR: u64 = 10;

const QUICK_KEYS: u64 = 10_000;

/// Growth per identity.
#[derive(Debug, Serialize)]
struct Growth {
    identities: u64,
    hits: u64,
    bytes: f64,
    /// Redis keys.
    keys: f64,
}

/// Memory and keys of Redis.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    keys: u64,
}

impl Reading for Growth {}

pub(super) fn run(common: &Common) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let keys = if common.quick { common.keys.min(QUICK_KEYS) } else { common.keys };
    let mut cases: Vec<(&str, u64, u64)> =
        LIMITS.iter().map(|(name, _)| (*name, keys, 1)).collect();
    cases.extend(MORE_HITS.map(|hits| (LOG, (keys / LOG_DIVISOR).max(1), hits)));
    let rows = cases.iter().map(|(limit, _, hits)| Row::new(NAME, format!("{limit}, {hits}")));
    let schedule = Schedule { rounds: common.rounds.unwrap_or(1), attempts: 1 };
    let results = frame::run(rows.collect(), schedule, |row| {
        let (limit, identities, hits) = cases[row];
        read(&programs, limit, identities, hits)
    });
    let columns: [(&str, fn(&Growth) -> f64); 4] = [
        ("identities", |one| one.identities as f64),
        ("hits of each", |one| one.hits as f64),
        ("bytes for each", |one| one.bytes),
        ("keys for each", |one| one.keys),
    ];
    let table = table::of_columns("limit, hits", &columns, &results.rows, 0);
    let text = format!("{}\n{table}", results.heading(""));
    Ok(results.report(text, json!({ "keys": keys }), &[]))
}

fn rules_text() -> String {
    let rule = |(name, limit): &(&str, &str)| format!("  - key: {name}\n    limits: {limit}\n");
    format!("domain: bench\ndescriptors:\n{}", LIMITS.iter().map(rule).collect::<String>())
}

/// A fresh Redis and a fresh service.
fn read(programs: &Programs, limit: &str, identities: u64, hits: u64) -> anyhow::Result<Growth> {
    let path = programs.rules.with_file_name("redis-memory-rules.yaml");
    let rules = programs::write_rules(&path, &rules_text())?;
    let redis = servers::redis(programs, None)?;
    let service = servers::connected(programs, &rules, redis.address, |command| {
        command.env("SLUICEGATE_STORE_TIMEOUT", "1s");
    })?;
    // Scripts and connections exist before the first reading.
    send(service.address, limit, "first_{key}", 1, 100)?;
    let before = size(redis.address)?;
    send(service.address, limit, "user_{key}", identities, identities * hits)?;
    let after = size(redis.address)?;
    let metrics = StoreMetrics::read(service.admin.context("no admin endpoint")?)?;
    ensure!(metrics.fallbacks == 0, "{} requests without an answer of Redis", metrics.fallbacks);
    let growth = |from: u64, to: u64| to.saturating_sub(from) as f64 / identities as f64;
    let (bytes, keys) = (growth(before.bytes, after.bytes), growth(before.keys, after.keys));
    ensure!(keys > 0.99, "only {} keys for {identities} identities", after.keys);
    Ok(Growth { identities, hits, bytes, keys })
}

/// Requests for all keys in turn.
fn send(
    address: SocketAddr,
    limit: &str,
    value: &str,
    keys: u64,
    requests: u64,
) -> anyhow::Result<()> {
    let plan = load::plan(address, requests::rls_of(limit, value), keys, (8, 32));
    let plan = Plan {
        keys: KeySpace { count: keys, order: KeyOrder::Sequential, seed: 1 },
        amount: Amount::Count(requests),
        ..unfilled(plan)
    };
    let report = load::run(&plan)?;
    ensure!(keys == 1 || report.denied == 0, "{} requests were denied", report.denied);
    Ok(())
}

fn size(redis: SocketAddr) -> anyhow::Result<Size> {
    let mut stream = BufReader::new(TcpStream::connect(redis)?);
    stream.get_mut().write_all(b"DBSIZE\r\nINFO memory\r\n")?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let keys = line.trim().strip_prefix(':').and_then(|number| number.parse().ok());
    line.clear();
    stream.read_line(&mut line)?;
    let length = line.trim().strip_prefix('$').and_then(|number| number.parse().ok());
    let mut info = vec![0; length.context("no length of INFO")?];
    stream.read_exact(&mut info)?;
    let info = String::from_utf8_lossy(&info);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    Ok(Size {
        bytes: used.context("INFO has no used_memory")?,
        keys: keys.context("invalid reply to DBSIZE")?,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rules_are_valid() {
        let rules = super::rules_text();
        assert!(sluicegate::rules_of(&rules).is_ok(), "{rules}");
    }
}
