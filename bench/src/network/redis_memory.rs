//! What an identity takes in Redis, by algorithm: how much its memory grows by a hundred thousand of them, each asked once.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use sluicegate_load::{Amount, KeyOrder, KeySpace, Plan};

use crate::args::Args;
use crate::asks;
use crate::grid;
use crate::load::{self, Job};
use crate::peers::{self, Programs};
use crate::redis::Told;
use crate::servers;

/// How it is asked for.
pub(crate) const NAME: &str = "redis-memory";

/// Nothing runs out before it is counted: one comes back in an hour.
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

/// A log grows with what comes, so it is asked more often, and for fewer.
const LOG: &str = "sliding_log";
const MORE_HITS: [u64; 2] = [10, 100];
const FEWER: u64 = 10;

const QUICK_KEYS: u64 = 10_000;

/// What was counted.
#[derive(Debug, Serialize)]
struct Row {
    limit: &'static str,
    identities: u64,
    hits: u64,
    bytes: f64,
    /// Redis' own, for one identity.
    keys: f64,
}

/// What Redis says of itself.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    keys: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let programs = Programs::find(args)?;
    let keys = if args.quick { args.keys.min(QUICK_KEYS) } else { args.keys };
    let mut cases: Vec<(&str, u64, u64)> =
        LIMITS.iter().map(|(name, _)| (*name, keys, 1)).collect();
    cases.extend(MORE_HITS.map(|hits| (LOG, (keys / FEWER).max(1), hits)));
    let mut rows = Vec::new();
    for (limit, identities, hits) in cases {
        eprintln!("{NAME}: {limit}, {hits}");
        let row = read(&programs, limit, identities, hits);
        rows.push(row.with_context(|| format!("{limit} with {hits}"))?);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print!("{}", table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn rules() -> String {
    let rule = |(name, limit): &(&str, &str)| format!("  - key: {name}\n    limits: {limit}\n");
    format!("domain: bench\ndescriptors:\n{}", LIMITS.iter().map(rule).collect::<String>())
}

/// A fresh Redis and a fresh service.
fn read(
    programs: &Programs,
    limit: &'static str,
    identities: u64,
    hits: u64,
) -> anyhow::Result<Row> {
    let rules = programs.rules.with_file_name("doors-memory-rules.yaml");
    let rules = peers::written(&rules, &self::rules())?;
    let store = servers::redis(programs, None)?;
    let service = servers::asking(programs, &rules, store.address, |command| {
        command.env("SLUICEGATE_STORE_TIMEOUT", "1s");
    })?;
    // Scripts, connections and what is kept once are there before it counts.
    asked(service.address, limit, "first_{key}", 1, 100)?;
    let before = size(store.address)?;
    asked(service.address, limit, "user_{key}", identities, identities * hits)?;
    let after = size(store.address)?;
    let told = Told::by(service.admin.context("no metrics")?)?;
    ensure!(told.fallbacks == 0, "{} requests got no answer of the store", told.fallbacks);
    let grown = |from: u64, to: u64| to.saturating_sub(from) as f64 / identities as f64;
    let row = Row {
        limit,
        identities,
        hits,
        bytes: grown(before.bytes, after.bytes),
        keys: grown(before.keys, after.keys),
    };
    ensure!(row.keys > 0.99, "only {} keys for {identities} identities", after.keys);
    Ok(row)
}

/// Each in turn, all of them equally often.
fn asked(
    address: SocketAddr,
    limit: &str,
    value: &str,
    keys: u64,
    requests: u64,
) -> anyhow::Result<()> {
    let contestant = NAME.to_owned();
    let (processes, alone) = (Vec::new(), Vec::new());
    let job = Job { contestant, address, processes, alone, keys, seconds: 1 };
    let plan = Plan {
        keys: KeySpace { count: keys, order: KeyOrder::Sequential, seed: 1 },
        amount: Amount::Count(requests),
        warm_up: Duration::ZERO,
        fill: false,
        ..load::plan(&job, asks::rls_of(limit, value), (8, 32))
    };
    let report = sluicegate_load::run(&plan, |_| {})?;
    ensure!(report.is_clean(), "asking failed: {:?}", report.errors_by_text);
    ensure!(keys == 1 || report.denied == 0, "{} were denied", report.denied);
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
    let mut info = vec![0; length.context("what Redis says of its memory")?];
    stream.read_exact(&mut info)?;
    let info = String::from_utf8_lossy(&info);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    Ok(Size {
        bytes: used.context("Redis does not say what it uses")?,
        keys: keys.context("Redis does not say how many keys it has")?,
    })
}

fn table(rows: &[Row]) -> String {
    let head = ["limit", "identities", "hits of each", "bytes for each", "keys for each"];
    let row = |row: &Row| {
        let counts = [row.identities, row.hits].map(|count| count.to_string());
        let grown = [format!("{:.0}", row.bytes), format!("{:.1}", row.keys)];
        [vec![row.limit.to_owned()], counts.to_vec(), grown.to_vec()].concat()
    };
    grid::render(&head, 1, &rows.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rules_are_valid() {
        let rules = super::rules();
        assert!(sluicegate::rules_of(&rules).is_ok(), "{rules}");
    }
}
