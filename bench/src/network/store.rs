//! Ours with its counters in Redis: the rules, what is asked, and what the service says of its store.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_load::Ask;

use crate::asks;

/// A thousand at once is more than a key is asked in a reading, so all may go and every decision writes; and one a year, which the first
/// look at a key uses up.
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

/// What the service counts about its store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Requests that went to the store.
    pub(crate) asked: u64,
    /// Denials that were known without it.
    pub(crate) known: u64,
    /// Calls; one holds up to 16 requests.
    pub(crate) calls: u64,
    /// Requests that the service answered, with the store or without.
    pub(crate) answered: u64,
    /// Requests that the store gave no answer to.
    pub(crate) fallbacks: u64,
    pub(crate) is_up: bool,
}

pub(crate) fn one() -> Ask {
    asks::rls_of("one", "user_{key}")
}

pub(crate) fn probe() -> Ask {
    asks::rls_of("one", "probe")
}

pub(crate) fn three() -> Ask {
    asks::rls_of("three", "user_{key}")
}

pub(crate) fn mixed() -> Ask {
    asks::rls_of("mixed", "user_{key}")
}

pub(crate) fn denied() -> Ask {
    asks::rls_of("denied", "user_{key}")
}

pub(crate) fn hot_strict() -> Ask {
    asks::rls_of("hot", "user_{key}")
}

pub(crate) fn hot_promoted() -> Ask {
    asks::rls_of("hot_promoted", "user_{key}")
}

pub(crate) fn hot_leased() -> Ask {
    asks::rls_of("hot_leased", "user_{key}")
}

pub(crate) fn hot_leased_two() -> Ask {
    asks::rls_of("hot_leased_two", "user_{key}")
}

pub(crate) fn hot_eventual() -> Ask {
    asks::rls_of("hot_eventual", "user_{key}")
}

// === impl Told ===

impl Told {
    /// Asks a service that has its counters in Redis.
    pub(crate) fn by(admin: SocketAddr) -> anyhow::Result<Self> {
        Self::of(&page(admin)?)
    }

    fn of(page: &str) -> anyhow::Result<Self> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, number)) = line.rsplit_once(' ') else { continue };
            let name = name.split('{').next().unwrap_or(name);
            // Others have fractions.
            *sums.entry(name).or_default() += number.parse().unwrap_or(0);
        }
        let read = |name: &str| {
            let name = format!("sluicegate_{name}");
            let found = sums.get(&*name).copied();
            found.with_context(|| format!("the service has no metric `{name}`"))
        };
        Ok(Self {
            asked: read("redis_asked_total")?,
            known: read("redis_known_denials_total")?,
            calls: read("redis_calls_total")?,
            answered: read("calls_total")?,
            fallbacks: read("redis_fallbacks_total")?,
            is_up: read("redis_up")? == 1,
        })
    }
}

fn page(admin: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(admin).context("the service's own port")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said).context("the service's metrics")?;
    ensure!(said.starts_with("HTTP/1.1 200"), "no metrics: {}", said.lines().next().unwrap_or(""));
    Ok(said)
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
        let told = Told::of(page).unwrap();
        assert_eq!((told.asked, told.fallbacks, told.is_up), (7, 7, true));
        assert!(Told::of("sluicegate_redis_up 1\n").is_err());
    }
}
