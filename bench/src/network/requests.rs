//! Requests: the same keys for every contestant, in its own protocol.
//!
//! The limits are far above the load and outlast a reading. The probe is a key with a limit of
//! three a year.

use sluicegate_load::{Answer, RequestSpec, UnaryMethod};

/// Rules of ours and of envoyproxy/ratelimit.
pub(crate) const RULES: &str = "\
domain: bench
descriptors:
  - key: user_id
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
  - key: user_id
    value: probe
    rate_limit: { unit: year, requests_per_unit: 3 }
";

/// Of the [`PROBES`] so many pass.
pub(crate) const PROBE_LIMIT: u64 = 3;
pub(crate) const PROBES: u64 = 10;

const DOMAIN: &str = "bench";
const USER: &str = "user_{key}";
const PROBE: &str = "probe";

pub(crate) fn rls() -> RequestSpec {
    rls_of("user_id", USER)
}

pub(crate) fn rls_probe() -> RequestSpec {
    rls_of("user_id", PROBE)
}

/// A request with one descriptor of one entry.
pub(crate) fn rls_of(key: &str, value: &str) -> RequestSpec {
    let descriptors = vec![vec![(key.to_owned(), value.to_owned())]];
    RequestSpec::Rls { domain: DOMAIN.to_owned(), descriptors }
}

pub(crate) fn check() -> RequestSpec {
    RequestSpec::Check { domain: DOMAIN.to_owned(), descriptors: descriptors(USER) }
}

pub(crate) fn check_probe() -> RequestSpec {
    RequestSpec::Check { domain: DOMAIN.to_owned(), descriptors: descriptors(PROBE) }
}

pub(crate) fn hello() -> RequestSpec {
    RequestSpec::get("/")
}

/// A page behind a proxy.
pub(crate) fn page() -> RequestSpec {
    RequestSpec::get("/page")
}

pub(crate) fn nginx() -> RequestSpec {
    RequestSpec::get(&format!("/?k={USER}"))
}

pub(crate) fn nginx_probe() -> RequestSpec {
    RequestSpec::get("/probe")
}

pub(crate) fn cl_throttle() -> RequestSpec {
    command(&["CL.THROTTLE", USER, "1000000", "1", "60"])
}

/// The burst comes on top of the first request.
pub(crate) fn cl_throttle_probe() -> RequestSpec {
    command(&["CL.THROTTLE", PROBE, "2", "3", "31536000"])
}

pub(crate) fn sg_check() -> RequestSpec {
    command(&["SG.CHECK", DOMAIN, &format!("user_id={USER}")])
}

pub(crate) fn sg_check_probe() -> RequestSpec {
    command(&["SG.CHECK", DOMAIN, &format!("user_id={PROBE}")])
}

pub(crate) fn incr() -> RequestSpec {
    command(&["INCR", USER])
}

pub(crate) fn crab_resp() -> RequestSpec {
    command(&["THROTTLE", USER, "1000000", "1", "60"])
}

pub(crate) fn crab_resp_probe() -> RequestSpec {
    command(&["THROTTLE", PROBE, "3", "3", "31536000"])
}

pub(crate) fn crab_http() -> RequestSpec {
    crab_post(USER, 1_000_000, 1, 60)
}

pub(crate) fn crab_http_probe() -> RequestSpec {
    crab_post(PROBE, 3, 3, 31_536_000)
}

pub(crate) fn crab_grpc() -> RequestSpec {
    let message = |key: &str| crab_message(&format!("user_{key}"), 1_000_000, 1, 60);
    RequestSpec::Grpc(UnaryMethod { path: CRAB_METHOD, message, decode: crab_decode })
}

pub(crate) fn crab_grpc_probe() -> RequestSpec {
    let message = |_: &str| crab_message(PROBE, 3, 3, 31_536_000);
    RequestSpec::Grpc(UnaryMethod { path: CRAB_METHOD, message, decode: crab_decode })
}

const CRAB_METHOD: &str = "/throttlecrab.RateLimiter/Throttle";

/// `ThrottleRequest { key = 1, max_burst = 2, count_per_period = 3, period = 4, quantity = 5 }`.
fn crab_message(key: &str, burst: u64, count: u64, period: u64) -> Vec<u8> {
    // Keys are shorter than 128 bytes, so the length is one byte.
    let key = [&[1 << 3 | 2, key.len() as u8], key.as_bytes()].concat();
    let numbers = [number(2, burst), number(3, count), number(4, period), number(5, 1)];
    [key, numbers.concat()].concat()
}

/// Field 1 of the response is `allowed`, omitted if false.
fn crab_decode(message: &[u8]) -> Result<Answer, String> {
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

fn crab_post(key: &str, burst: u64, count: u64, period: u64) -> RequestSpec {
    let body = format!(
        r#"{{"key":"{key}","max_burst":{burst},"count_per_period":{count},"period":{period},"quantity":1}}"#
    );
    RequestSpec::Post { path: "/throttle".to_owned(), body }
}

fn descriptors(user: &str) -> Vec<Vec<(String, String)>> {
    vec![vec![("user_id".to_owned(), user.to_owned())]]
}

fn command(words: &[&str]) -> RequestSpec {
    RequestSpec::Command { words: words.iter().map(|word| (*word).to_owned()).collect() }
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
