//! Addresses of servers that are named: resolved again when their records expire.
//!
//! The system's resolver does not report lifetimes, so DNS is asked directly, with the system's
//! servers, search domains and hosts file. Several addresses of a name are several servers. A name
//! that cannot be resolved keeps its last addresses; until the first success, the system resolves
//! it for each connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::time::Instant;

/// Bounds of the lifetime of addresses.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(300);
/// Time between attempts while a name cannot be resolved.
pub(super) const RETRY: Duration = Duration::from_secs(5);
/// Addresses of a name; bounds the servers and their metrics.
const ADDRESSES_MAX: usize = 64;

/// Asks DNS.
#[derive(Debug, Clone)]
pub(super) struct Resolver(TokioResolver);

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// In ascending order, without duplicates.
    pub(super) addresses: Vec<IpAddr>,
    /// Until when they are valid.
    pub(super) until: Instant,
}

impl Resolver {
    /// Asks these servers; if there are none, those of the system.
    pub(super) fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        let mut builder = if servers.is_empty() {
            TokioResolver::builder_tokio().map_err(|error| error.to_string())?
        } else {
            let server = |address: &SocketAddr| {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                server
            };
            let config =
                ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        // Answers are kept here, until they expire.
        options.cache_size = 0;
        Ok(Self(builder.build().map_err(|error| error.to_string())?))
    }

    pub(super) async fn resolve(&self, host: &str) -> Result<Resolved, String> {
        let found = self.0.lookup_ip(host).await.map_err(|error| error.to_string())?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() {
            return Err("the name has no address".to_owned());
        }
        let now = Instant::now();
        let ttl = Instant::from_std(found.valid_until()).saturating_duration_since(now);
        Ok(Resolved { addresses, until: now + ttl.clamp(TTL_MIN, TTL_MAX) })
    }
}
