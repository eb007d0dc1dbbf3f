//! What is asked: the same key of everybody, each in its own words.
//!
//! All requests of a wire have one length, and differ in the digits of the key: they are copied, and the digits written over.

use serde::{Deserialize, Serialize};

/// How it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wire {
    /// Envoy's `ShouldRateLimit`.
    Rls,
    /// throttlecrab's `Throttle`.
    Throttle,
    /// `POST /v1/check`.
    Check,
    /// throttlecrab's `POST /throttle`.
    HttpThrottle,
    /// `GET /`, of a server that limits nothing.
    Hello,
}

/// Who is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// One of the many, who may always go.
    Key(u64),
    /// One who has [`PROBED`] a year.
    Probe,
}

/// How many of the [`PROBES`] may go.
pub(crate) const PROBED: u64 = 3;
pub(crate) const PROBES: u64 = 10;
/// The key that is probed. The rules have it too.
const PROBE: u64 = 9_999_999;
const DIGITS: usize = 7;

/// A request that is used again and again: whose it is can be written over.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    key: Vec<u8>,
    probe: Vec<u8>,
    digits_at: usize,
}

// === impl Template ===

impl Template {
    pub(crate) fn of(wire: Wire) -> Self {
        let zero = vec![b'0'; DIGITS];
        let key = request(wire, Who::Key(0));
        let found = key.windows(DIGITS).position(|window| window == zero);
        // Who says hello has no key.
        Self { digits_at: found.unwrap_or(key.len()), key, probe: request(wire, Who::Probe) }
    }

    /// The bytes to send.
    pub(crate) fn filled(&mut self, who: Who) -> &[u8] {
        let Who::Key(mut key) = who else { return &self.probe };
        let end = (self.digits_at + DIGITS).min(self.key.len());
        for digit in self.key[self.digits_at..end].iter_mut().rev() {
            *digit = b'0' + (key % 10) as u8;
            key /= 10;
        }
        &self.key
    }
}

impl Wire {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Rls => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::Throttle => "/throttlecrab.RateLimiter/Throttle",
            Self::Check => "/v1/check",
            Self::HttpThrottle => "/throttle",
            Self::Hello => "/",
        }
    }
}

/// A whole request: a message with its head for gRPC, with all headers for HTTP.
pub(crate) fn request(wire: Wire, who: Who) -> Vec<u8> {
    let number = match who {
        Who::Key(key) => key,
        Who::Probe => PROBE,
    };
    let user = format!("user_{number:07}");
    match wire {
        Wire::Rls => framed(&rls(&user)),
        Wire::Throttle => framed(&throttle(&user, who)),
        Wire::Check => {
            posted(wire, &format!(r#"{{"domain":"bench","descriptors":[{{"user_id":"{user}"}}]}}"#))
        }
        Wire::HttpThrottle => {
            let (burst, count, period) = limit(who);
            let body = format!(
                r#"{{"key":"{user}","max_burst":{burst},"count_per_period":{count},"period":{period},"quantity":1}}"#
            );
            posted(wire, &body)
        }
        Wire::Hello => b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n".to_vec(),
    }
}

/// What throttlecrab is told with every request. A hit counts for a minute, longer than all keys need to come round.
const fn limit(who: Who) -> (u64, u64, u64) {
    match who {
        Who::Key(_) => (1_000_000, 1, 60),
        Who::Probe => (PROBED, PROBED, 31_536_000),
    }
}

/// `RateLimitRequest { domain = 1, descriptors = 2 { entries = 1 { key = 1, value = 2 } }, hits_addend = 3 }`.
fn rls(user: &str) -> Vec<u8> {
    let entry = [field(1, b"user_id"), field(2, user.as_bytes())].concat();
    let descriptor = field(1, &entry);
    [field(1, b"bench"), field(2, &descriptor), number(3, 1)].concat()
}

/// `ThrottleRequest { key = 1, max_burst = 2, count_per_period = 3, period = 4, quantity = 5 }`.
fn throttle(user: &str, who: Who) -> Vec<u8> {
    let (burst, count, period) = limit(who);
    let numbers = [number(2, burst), number(3, count), number(4, period), number(5, 1)];
    [field(1, user.as_bytes()), numbers.concat()].concat()
}

fn field(field: u8, bytes: &[u8]) -> Vec<u8> {
    // All are shorter than 128 bytes, and then the length is one byte.
    [&[field << 3 | 2, bytes.len() as u8], bytes].concat()
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

/// As gRPC sends a message: not compressed, and so long.
fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn posted(wire: Wire, body: &str) -> Vec<u8> {
    format!(
        "POST {} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        wire.path(),
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use sluicegate_server::rls::ask::{Ask, Most};

    use super::*;
    use crate::rounds::RULES;

    #[test]
    fn what_is_asked_is_what_the_rules_are_for() {
        for (who, value) in [(Who::Key(42), "user_0000042"), (Who::Probe, "user_9999999")] {
            let bytes = request(Wire::Rls, who);
            let ask = Ask::read(&bytes[5..], Most::default()).unwrap();
            let entries = ask.entries(&ask.descriptors[0]);
            assert_eq!((ask.domain, entries[0].key, entries[0].value), ("bench", "user_id", value));
        }
        assert!(RULES.contains("user_9999999"));
        assert!(sluicegate::rules_of(RULES).is_ok());
    }

    #[test]
    fn digits_are_written_over() {
        for wire in [Wire::Rls, Wire::Throttle, Wire::Check, Wire::HttpThrottle, Wire::Hello] {
            let mut template = Template::of(wire);
            for who in [Who::Key(0), Who::Key(1_234_567), Who::Probe, Who::Key(89)] {
                assert_eq!(template.filled(who), request(wire, who), "{wire:?} {who:?}");
            }
        }
    }
}
