//! Rules from a control plane over xDS, as Envoy Gateway and others send them to
//! envoyproxy/ratelimit: an aggregated, state-of-the-world stream of `RateLimitConfig` resources.
//!
//! ```text
//!   control plane --DiscoveryResponse--> client -> resource -> received rules --poll--> Follower
//!                 <--ACK: version, nonce--'                        '-- taken or refused --'
//!                 <--NACK: last version, nonce, errors
//! ```
//!
//! A set is acknowledged after it is enforced, and refused with the messages of `sluicegate check`.
//! The last valid set stays in force while a set is refused and while the control plane is away.
//! Nothing is ready before the first valid set.

mod client;
mod proto;
mod received;
mod resource;
mod status;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

pub(crate) use self::client::XdsClient;
use self::received::ReceivedRules;
pub(crate) use self::received::XdsRules;
pub(crate) use self::status::XdsStatus;

/// The type of the resources.
const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A control plane, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdsOptions {
    /// Host and port.
    pub server: String,
    /// The id by which the control plane selects the rules of this node.
    pub node_id: String,
    /// Metadata of the node.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of the stream.
    pub headers: HeaderMap,
    /// TLS, if the control plane has it.
    pub tls: Option<XdsTls>,
    /// Pauses between attempts to connect.
    pub retry: RetryOptions,
    /// Maximum size of a message.
    pub message_bytes_max: usize,
}

/// Certificates; the files are read again for each connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XdsTls {
    /// Authorities of the control plane's certificate; by default those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate and key of this node.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the control plane's certificate, if it is not its host.
    pub server_name: Option<String>,
}

/// Exponential backoff with jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryOptions {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// A pause is longer or shorter by up to this share.
    pub jitter: f64,
}

impl Eq for RetryOptions {}

impl RetryOptions {
    /// The pause after so many failures in a row; `random` is from 0 to 1.
    fn pause(&self, failures: u32, random: f64) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = self.first.saturating_mul(doubled).min(self.longest);
        pause.mul_f64(1.0 + self.jitter * (2.0 * random - 1.0))
    }
}

/// The source of the rules, the client that fills it, and its metrics.
pub(crate) fn start(options: XdsOptions) -> (XdsRules, XdsClient, Arc<XdsStatus>) {
    let (received, status) = (Arc::<ReceivedRules>::default(), Arc::<XdsStatus>::default());
    let rules = XdsRules::new(options.to_string(), received.clone());
    let client = XdsClient::new(options, received, status.clone());
    (rules, client, status)
}

impl fmt::Display for XdsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xds:{}", self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_with_jitter() {
        let seconds = Duration::from_secs_f64;
        let retry = RetryOptions { first: seconds(2.0), longest: seconds(60.0), jitter: 0.5 };
        let pauses = [1, 2, 5, 6, 99].map(|failures| retry.pause(failures, 0.5));
        assert_eq!(pauses, [2.0, 4.0, 32.0, 60.0, 60.0].map(seconds));
        assert_eq!([retry.pause(1, 0.0), retry.pause(1, 1.0)], [1.0, 3.0].map(seconds));
        let exact = RetryOptions { jitter: 0.0, ..retry };
        assert_eq!([exact.pause(1, 0.0), exact.pause(1, 1.0)], [2.0, 2.0].map(seconds));
    }
}
