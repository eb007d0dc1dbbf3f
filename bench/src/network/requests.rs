//! What is asked: the same keys of everybody, each in its own words.
//!
//! The limits are far above what comes, and what is counted is remembered for longer than a reading takes. A probe is asked of a key that
//! has three a year.

use sluicegate_load::{Answer, Ask, Method};

/// The rules of those that have rules: ours and envoyproxy/ratelimit's.
pub(crate) const RULES: &str = "\
domain: bench
descriptors:
  - key: user_id
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
  - key: user_id
    value: probe
    rate_limit: { unit: year, requests_per_unit: 3 }
";

/// How many of the [`PROBES`] may go.
pub(crate) const PROBED: u64 = 3;
pub(crate) const PROBES: u64 = 10;

const DOMAIN: &str = "bench";
const USER: &str = "user_{key}";
const PROBE: &str = "probe";

pub(crate) fn rls() -> Ask {
    rls_of("user_id", USER)
}

pub(crate) fn rls_probe() -> Ask {
    rls_of("user_id", PROBE)
}

/// Of one descriptor with one entry.
pub(crate) fn rls_of(key: &str, value: &str) -> Ask {
    let descriptors = vec![vec![(key.to_owned(), value.to_owned())]];
    Ask::Rls { domain: DOMAIN.to_owned(), descriptors }
}

pub(crate) fn check() -> Ask {
    Ask::Check { domain: DOMAIN.to_owned(), descriptors: descriptors(USER) }
}

pub(crate) fn check_probe() -> Ask {
    Ask::Check { domain: DOMAIN.to_owned(), descriptors: descriptors(PROBE) }
}

pub(crate) fn nginx() -> Ask {
    Ask::Get { path: format!("/?k={USER}") }
}

pub(crate) fn nginx_probe() -> Ask {
    Ask::Get { path: "/probe".to_owned() }
}

pub(crate) fn cl_throttle() -> Ask {
    command(&["CL.THROTTLE", USER, "1000000", "1", "60"])
}

/// The burst is what may go beyond the first.
pub(crate) fn cl_throttle_probe() -> Ask {
    command(&["CL.THROTTLE", PROBE, "2", "3", "31536000"])
}

pub(crate) fn sg_check() -> Ask {
    command(&["SG.CHECK", DOMAIN, &format!("user_id={USER}")])
}

pub(crate) fn sg_check_probe() -> Ask {
    command(&["SG.CHECK", DOMAIN, &format!("user_id={PROBE}")])
}

pub(crate) fn incr() -> Ask {
    command(&["INCR", USER])
}

pub(crate) fn crab_resp() -> Ask {
    command(&["THROTTLE", USER, "1000000", "1", "60"])
}

pub(crate) fn crab_resp_probe() -> Ask {
    command(&["THROTTLE", PROBE, "3", "3", "31536000"])
}

pub(crate) fn crab_http() -> Ask {
    crab_posted(USER, 1_000_000, 1, 60)
}

pub(crate) fn crab_http_probe() -> Ask {
    crab_posted(PROBE, 3, 3, 31_536_000)
}

pub(crate) fn crab_grpc() -> Ask {
    let message = |key: &str| crab_message(&format!("user_{key}"), 1_000_000, 1, 60);
    Ask::Grpc(Method { path: CRAB_METHOD, message, judge: crab_said })
}

pub(crate) fn crab_grpc_probe() -> Ask {
    let message = |_: &str| crab_message(PROBE, 3, 3, 31_536_000);
    Ask::Grpc(Method { path: CRAB_METHOD, message, judge: crab_said })
}

const CRAB_METHOD: &str = "/throttlecrab.RateLimiter/Throttle";

/// `ThrottleRequest { key = 1, max_burst = 2, count_per_period = 3, period = 4, quantity = 5 }`.
fn crab_message(key: &str, burst: u64, count: u64, period: u64) -> Vec<u8> {
    // All keys are shorter than 128 bytes, and then the length is one byte.
    let key = [&[1 << 3 | 2, key.len() as u8], key.as_bytes()].concat();
    let numbers = [number(2, burst), number(3, count), number(4, period), number(5, 1)];
    [key, numbers.concat()].concat()
}

/// The first field of its answer is `allowed`, which is left out if it is not.
fn crab_said(message: &[u8]) -> Result<Answer, String> {
    match message {
        [0x08, 1, ..] => Ok(Answer::Allowed),
        _ => Ok(Answer::Denied),
    }
}

fn number(field: u8, mut number: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn crab_posted(key: &str, burst: u64, count: u64, period: u64) -> Ask {
    let body = format!(
        r#"{{"key":"{key}","max_burst":{burst},"count_per_period":{count},"period":{period},"quantity":1}}"#
    );
    Ask::Post { path: "/throttle".to_owned(), body }
}

fn descriptors(user: &str) -> Vec<Vec<(String, String)>> {
    vec![vec![("user_id".to_owned(), user.to_owned())]]
}

fn command(words: &[&str]) -> Ask {
    Ask::Command { words: words.iter().map(|word| (*word).to_owned()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid_and_have_the_probe() {
        assert!(sluicegate::rules_of(RULES).is_ok());
        assert!(RULES.contains(&format!("value: {PROBE}")));
    }
}
