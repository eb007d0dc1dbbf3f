//! Limits of the connections of each client address, shared by all workers.
//!
//! An IPv6 client is its /64: a host has the whole network to choose addresses from.

use std::net::IpAddr;
use std::time::Duration;

use sluicegate::limit::{Concurrency, TokenBucket};
use sluicegate::{LimitError, Limiter, Memory, Permit};
use sluicegate_config::gateway::ConnectionLimits;
use sluicegate_server::telemetry::Event;

/// Client addresses with a state; further ones are not limited.
const ADDRESSES_MAX: usize = 1_000_000;
/// A connection releases its slot itself, however long it lasts.
const LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A slot among the open connections of an address, until dropped.
pub(crate) type Slot = Permit;

/// Limits of the connections of each client address.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    config: ConnectionLimits,
    open: Option<Limiter>,
    rate: Option<Limiter>,
    tls_rate: Option<Limiter>,
}

impl ConnectionLimiter {
    pub(crate) fn new(config: &ConnectionLimits) -> Result<Self, LimitError> {
        let memory = Memory::with_entries(ADDRESSES_MAX);
        let rate = |rate: Option<sluicegate_core::quota::Rate>, name: &str| {
            let limiter = |rate: sluicegate_core::quota::Rate| {
                let period = Duration::from_micros(rate.period().as_micros());
                let limit = TokenBucket::per(rate.count(), period);
                Limiter::builder().name(name).limit(limit).memory(&memory).build()
            };
            rate.map(limiter).transpose()
        };
        let open = |max: u32| {
            let limit = Concurrency::at_most(max.into()).lease(LEASE);
            Limiter::builder().name("open").limit(limit).memory(&memory).build()
        };
        Ok(Self {
            config: *config,
            open: config.open.map(open).transpose()?,
            rate: rate(config.rate, "rate")?,
            tls_rate: rate(config.tls_rate, "tls_rate")?,
        })
    }

    /// Whether it has these limits.
    pub(crate) fn is_of(&self, config: &ConnectionLimits) -> bool {
        self.config == *config
    }

    /// Admits a new connection of an address, or names the limit that it exceeds.
    pub(crate) fn admit(&self, address: IpAddr, is_tls: bool) -> Result<Option<Slot>, Event> {
        if self.open.is_none() && self.rate.is_none() && self.tls_rate.is_none() {
            return Ok(None);
        }
        let key = key_of(address);
        let slot = match &self.open {
            Some(open) => Some(open.of(&key).permit().map_err(|_| Event::ClientOverOpen)?),
            None => None,
        };
        if self.rate.as_ref().is_some_and(|rate| !rate.hit(key).is_allowed()) {
            return Err(Event::ClientOverRate);
        }
        if is_tls && self.tls_rate.as_ref().is_some_and(|rate| !rate.hit(key).is_allowed()) {
            return Err(Event::ClientOverTlsRate);
        }
        Ok(slot)
    }
}

/// The address, or the first 64 bits of an IPv6 address. An IPv4 address has a prefix of its own.
const fn key_of(address: IpAddr) -> [u8; 9] {
    let mut key = [0; 9];
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [key[0], key[1], key[2], key[3], key[4]] = [4, a, b, c, d];
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, h, ..] = address.octets();
            key = [6, a, b, c, d, e, f, g, h];
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use sluicegate_core::quota::Rate;
    use sluicegate_core::time::Span;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn limiter(config: ConnectionLimits) -> ConnectionLimiter {
        ConnectionLimiter::new(&config).unwrap()
    }

    fn per_hour(count: u64) -> Option<Rate> {
        Some(Rate::new(count, Span::from_secs(3_600)).unwrap())
    }

    #[test]
    fn nothing_is_limited_without_limits() {
        let limits = limiter(ConnectionLimits::default());
        assert!((0..1_000).all(|_| limits.admit(address("192.0.2.7"), true).is_ok()));
    }

    #[test]
    fn open_connections_release_their_slots() {
        let limits = limiter(ConnectionLimits { open: Some(2), ..ConnectionLimits::default() });
        let client = address("192.0.2.7");
        let first = limits.admit(client, false).unwrap();
        let _second = limits.admit(client, false).unwrap();
        assert_eq!(limits.admit(client, false).unwrap_err(), Event::ClientOverOpen);
        assert!(limits.admit(address("192.0.2.8"), false).is_ok(), "another address");
        assert!(limits.admit(address("::ffff:192.0.2.7"), false).is_err(), "the same one");
        drop(first);
        assert!(limits.admit(client, false).is_ok());
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let limits = limiter(ConnectionLimits { rate: per_hour(2), ..ConnectionLimits::default() });
        assert!(limits.admit(address("2001:db8::1"), false).is_ok());
        assert!(limits.admit(address("2001:db8::2"), false).is_ok());
        let third = limits.admit(address("2001:db8::3"), false);
        assert_eq!(third.unwrap_err(), Event::ClientOverRate);
        assert!(limits.admit(address("2001:db8:0:1::1"), false).is_ok());
    }

    #[test]
    fn a_connection_over_a_rate_holds_no_slot() {
        let limits = limiter(ConnectionLimits { open: Some(2), rate: per_hour(1), tls_rate: None });
        let client = address("192.0.2.7");
        let _open = limits.admit(client, false).unwrap();
        for _ in 0..5 {
            assert_eq!(limits.admit(client, false).unwrap_err(), Event::ClientOverRate);
        }
    }

    #[test]
    fn handshakes_are_limited_on_listeners_with_tls_only() {
        let limits =
            limiter(ConnectionLimits { tls_rate: per_hour(1), ..ConnectionLimits::default() });
        let client = address("192.0.2.7");
        assert!(limits.admit(client, true).is_ok());
        assert_eq!(limits.admit(client, true).unwrap_err(), Event::ClientOverTlsRate);
        assert!(limits.admit(client, false).is_ok());
    }
}
