//! Rate limit on failed authentication: the RESP password and the operator token.
//!
//! A token bucket per source address counts wrong secrets. While it is empty, secrets from that
//! address are rejected without a comparison, correct ones included: otherwise a client that closes
//! every connection without an immediate success could guess at the rate of its connections.
//! Authenticated connections are not affected.

use std::net::{IpAddr, Ipv6Addr};

use sluicegate::limit::TokenBucket;
use sluicegate::{Limiter, Memory, Overflow, Timestamp};

use crate::logs::events;
use crate::telemetry::{Event, Telemetry};

/// Burst of wrong secrets per address.
const BURST: u64 = 10;
/// Refill per second and address.
const PER_SECOND: u64 = 1;
/// Tracked addresses; further ones share one bucket.
const ADDRESSES_MAX: usize = 1 << 16;

/// Endpoint that verifies a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthEndpoint {
    /// The RESP password.
    Resp,
    /// The operator token on the HTTP address.
    Http,
    /// The operator token on the admin address.
    Admin,
}

/// Why authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    /// Wrong secret.
    Wrong,
    /// Not compared: too many wrong secrets from this address.
    TooMany,
}

/// Limits wrong secrets by source address.
///
/// ```
/// use sluicegate::Timestamp;
/// use sluicegate_server::auth::{AuthEndpoint, AuthError, AuthGuard};
/// use sluicegate_server::telemetry::Telemetry;
///
/// let (guard, telemetry) = (AuthGuard::default(), Telemetry::default());
/// let (peer, now) = ([192, 0, 2, 1].into(), Timestamp::EPOCH);
/// let guess = |right| guard.check(AuthEndpoint::Resp, Some(peer), now, &telemetry, || right);
/// assert_eq!(guess(true), Ok(()));
/// for _ in 0..10 {
///     assert_eq!(guess(false), Err(AuthError::Wrong));
/// }
/// assert_eq!(guess(true), Err(AuthError::TooMany));
/// ```
#[derive(Debug)]
pub struct AuthGuard {
    /// Always present, since the limit is valid; without it authentication fails closed.
    failures: Option<Limiter>,
}

impl AuthGuard {
    /// Verifies a secret; counts and logs a failure.
    ///
    /// # Errors
    /// When it is wrong, or too many were wrong before.
    pub fn check(
        &self,
        endpoint: AuthEndpoint,
        peer: Option<IpAddr>,
        now: Timestamp,
        telemetry: &Telemetry,
        is_right: impl FnOnce() -> bool,
    ) -> Result<(), AuthError> {
        let source = source_of(peer);
        let failures = self.failures.as_ref().map(|failures| failures.of(&source).at(now));
        let Some(failures) = failures.filter(|failures| failures.peek().is_allowed()) else {
            telemetry.record(endpoint.failed());
            return Err(AuthError::TooMany);
        };
        if is_right() {
            return Ok(());
        }
        let is_last = failures.hit().remaining == Some(0);
        telemetry.record(endpoint.failed());
        events::auth_failed(endpoint.name(), peer, is_last);
        Err(AuthError::Wrong)
    }
}

impl Default for AuthGuard {
    fn default() -> Self {
        let limiter = Limiter::builder()
            .limit(TokenBucket::per_second(PER_SECOND).burst(BURST))
            .memory(&Memory::with_entries(ADDRESSES_MAX))
            .overflow(Overflow::Shared);
        Self { failures: limiter.build().ok() }
    }
}

/// Bucket key: the IPv4 address, or the /64 network of an IPv6 address.
fn source_of(peer: Option<IpAddr>) -> [u8; 16] {
    match peer.map(|peer| peer.to_canonical()) {
        None => [0; 16],
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).octets()
        }
    }
}

impl AuthEndpoint {
    /// All endpoints.
    pub const ALL: [Self; 3] = [Self::Resp, Self::Http, Self::Admin];

    /// The value of the metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Admin => "admin",
        }
    }

    /// Counter of failures.
    #[must_use]
    pub const fn failed(self) -> Event {
        match self {
            Self::Resp => Event::RespAuthFailed,
            Self::Http => Event::HttpAuthFailed,
            Self::Admin => Event::AdminAuthFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::Span;

    use super::*;

    fn guess(guard: &AuthGuard, peer: &str, at_s: u64, right: bool) -> Result<(), AuthError> {
        let now = Timestamp::EPOCH.after(Span::from_secs(1_000 + at_s));
        let peer = peer.parse().ok();
        guard.check(AuthEndpoint::Http, peer, now, &Telemetry::default(), || right)
    }

    #[test]
    fn one_guess_a_second_is_compared_once_the_burst_is_used() {
        let guard = AuthGuard::default();
        let compared = |at_s| {
            (0..100)
                .filter(|_| guess(&guard, "192.0.2.1", at_s, false) == Err(AuthError::Wrong))
                .count()
        };
        assert_eq!((compared(0), compared(0), compared(1), compared(6)), (10, 0, 1, 5));
        let refused = guess(&guard, "192.0.2.1", 6, true);
        assert_eq!(refused, Err(AuthError::TooMany));
        assert_eq!(guess(&guard, "192.0.2.1", 7, true), Ok(()));
    }

    #[test]
    fn addresses_are_bounded_apart_and_networks_of_ipv6_together() {
        let guard = AuthGuard::default();
        for host in 0..10 {
            let _ = guess(&guard, &format!("2001:db8::{host}"), 0, false);
        }
        assert_eq!(guess(&guard, "2001:db8::ffff", 0, true), Err(AuthError::TooMany));
        assert_eq!(guess(&guard, "2001:db8:0:1::1", 0, true), Ok(()));
        assert_eq!(guess(&guard, "192.0.2.1", 0, true), Ok(()));
    }
}
