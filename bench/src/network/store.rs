//! Ours with counters in Redis: rules, requests, and the service's metrics of its store.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_load::RequestSpec;

use super::requests;

/// A burst of a thousand is never used up in a reading, so every decision writes; one a year is
/// used up by the fill.
pub(crate) const RULES: &str = "\
domain: bench
descriptors:
  - key: one
    limits: { algorithm: token_bucket, rate: 10/m, burst: 1000 }
  - key: one
    value: probe
    limits: { algorithm: fixed_window, rate: 3/year }
  - key: three
    limits:
      - { name: minute, algorithm: token_bucket, rate: 10/m, burst: 1000 }
      - { name: hour, algorithm: token_bucket, rate: 500/h, burst: 2000 }
      - { name: day, algorithm: token_bucket, rate: 5000/day, burst: 5000 }
  - key: mixed
    limits:
      - { name: burst, algorithm: token_bucket, rate: 10/m, burst: 1000 }
      - { name: hour, algorithm: sliding_window, rate: 100000/h }
      - { name: day, algorithm: fixed_window, rate: 1000000/day }
  - key: denied
    limits: { algorithm: fixed_window, rate: 1/year }
  - key: hot
    limits: { algorithm: sliding_window, rate: 100000000/m }
  - key: hot_promoted
    consistency: { strict: { hot_keys: leased } }
    limits: { algorithm: sliding_window, rate: 100000000/m }
  - key: hot_leased
    consistency: leased
    limits: { algorithm: sliding_window, rate: 100000000/m }
  - key: hot_leased_two
    consistency: leased
    limits:
      - { name: minute, algorithm: sliding_window, rate: 100000000/m }
      - { name: burst, algorithm: token_bucket, rate: 1000000/s, burst: 1000000 }
  - key: hot_eventual
    consistency: eventual
    limits: { algorithm: sliding_window, rate: 100000000/m }
";

/// The service's metrics of its store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoreMetrics {
    /// Requests sent to the store.
    pub(crate) requests: u64,
    /// Denials decided locally.
    pub(crate) known_denials: u64,
    /// Calls of up to 16 requests.
    pub(crate) calls: u64,
    /// Requests answered, with or without the store.
    pub(crate) decisions: u64,
    /// Requests without an answer of the store.
    pub(crate) fallbacks: u64,
    pub(crate) is_up: bool,
}

pub(crate) fn one() -> RequestSpec {
    requests::rls_of("one", "user_{key}")
}

pub(crate) fn probe() -> RequestSpec {
    requests::rls_of("one", "probe")
}

pub(crate) fn three() -> RequestSpec {
    requests::rls_of("three", "user_{key}")
}

pub(crate) fn mixed() -> RequestSpec {
    requests::rls_of("mixed", "user_{key}")
}

pub(crate) fn denied() -> RequestSpec {
    requests::rls_of("denied", "user_{key}")
}

pub(crate) fn hot_strict() -> RequestSpec {
    requests::rls_of("hot", "user_{key}")
}

pub(crate) fn hot_promoted() -> RequestSpec {
    requests::rls_of("hot_promoted", "user_{key}")
}

pub(crate) fn hot_leased() -> RequestSpec {
    requests::rls_of("hot_leased", "user_{key}")
}

pub(crate) fn hot_leased_two() -> RequestSpec {
    requests::rls_of("hot_leased_two", "user_{key}")
}

pub(crate) fn hot_eventual() -> RequestSpec {
    requests::rls_of("hot_eventual", "user_{key}")
}

// === impl StoreMetrics ===

impl StoreMetrics {
    /// Reads the metrics of a service.
    pub(crate) fn read(admin: SocketAddr) -> anyhow::Result<Self> {
        Self::parse(&get(admin, "/metrics")?)
    }

    fn parse(page: &str) -> anyhow::Result<Self> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, number)) = line.rsplit_once(' ') else { continue };
            let name = name.split('{').next().unwrap_or(name);
            // Metrics with fractions are not needed.
            *sums.entry(name).or_default() += number.parse().unwrap_or(0);
        }
        let metric = |name: &str| {
            let name = format!("sluicegate_{name}");
            let found = sums.get(&*name).copied();
            found.with_context(|| format!("the service has no metric `{name}`"))
        };
        Ok(Self {
            requests: metric("redis_asked_total")?,
            known_denials: metric("redis_known_denials_total")?,
            calls: metric("redis_calls_total")?,
            decisions: metric("calls_total")?,
            fallbacks: metric("redis_fallbacks_total")?,
            is_up: metric("redis_up")? == 1,
        })
    }
}

/// `GET` on the admin endpoint.
pub(super) fn get(admin: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(admin).context("cannot connect to the admin endpoint")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response).with_context(|| format!("cannot read {path}"))?;
    let status = response.lines().next().unwrap_or_default();
    ensure!(response.starts_with("HTTP/1.1 200"), "{path}: {status}");
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() {
        assert!(sluicegate::rules_of(RULES).is_ok());
    }

    #[test]
    fn a_family_is_summed_up() {
        let page = "# HELP x y\nsluicegate_redis_asked_total 7\nsluicegate_redis_known_denials_total 1\n\
            sluicegate_redis_calls_total 2\nsluicegate_calls_total 9\nsluicegate_redis_fallbacks_total{policy=\"local\"} 3\n\
            sluicegate_redis_fallbacks_total{policy=\"deny\"} 4\nsluicegate_redis_up 1\n";
        let metrics = StoreMetrics::parse(page).unwrap();
        assert_eq!((metrics.requests, metrics.fallbacks, metrics.is_up), (7, 7, true));
        assert!(StoreMetrics::parse("sluicegate_redis_up 1\n").is_err());
    }
}
