//! On real servers.

mod anchor;
mod counters;
mod over_limit;
mod trouble;

use std::time::Duration;

use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::unit::Unit;
use sluicegate_testkit::redis::Single;

use super::{EnvoyCheck, EnvoyCounters, EnvoyKeys, EnvoyOp};
use crate::connection::{Address, Link, LinkOptions};

/// Far more than a call needs, however busy the machine.
const AMPLE: Duration = Duration::from_secs(5);

/// A Sunday, in the afternoon.
const NOW_S: u64 = 1_794_770_800;

fn link(url: &str) -> Link {
    let options = LinkOptions { timeout: AMPLE, connect_timeout: AMPLE, ..LinkOptions::default() };
    Link::open(Address::parse(url).unwrap(), options).unwrap()
}

fn plain() -> EnvoyKeys {
    EnvoyKeys {
        prefix: "".into(),
        jitter_max_s: 300,
        stop_increment_when_over: false,
        local_cache_bytes: 0,
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// `requests_per_unit` a day.
fn daily(text: &'static str, requests_per_unit: u32, cost: u64) -> EnvoyCheck<'static> {
    EnvoyCheck { text: text.as_bytes(), unit: Unit::Day, requests_per_unit, shadow: false, cost }
}

/// Applies an operation to one counter now.
async fn ask(counters: &EnvoyCounters, op: EnvoyOp, one: EnvoyCheck<'_>) -> Verdict {
    counters.apply(op, &[one], at(NOW_S)).await.unwrap()[0]
}

/// The keys of a server with their counts and TTLs in seconds.
fn kept(server: &Single) -> Vec<(String, u64, u64)> {
    let keys = server.command(&["KEYS", "*"]);
    let mut kept: Vec<_> = keys.items().iter().map(|key| key.to_string()).collect();
    kept.sort();
    let number = |command: &[&str]| server.cli(command).parse().unwrap();
    let all = kept.into_iter();
    all.map(|key| {
        let (count, ttl) = (number(&["GET", &key]), number(&["TTL", &key]));
        (key, count, ttl)
    })
    .collect()
}
