//! Groups of servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluicegate_rules::mapping::Part;

/// A group of servers that answer the same requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Its name.
    pub name: String,
    /// `servers`.
    pub servers: Vec<ServerConfig>,
    /// `balance`.
    pub balance: Balance,
    /// `health`: active checks.
    pub health: Option<HealthCheck>,
    /// `eject`: passive checks.
    pub eject: Ejection,
    /// `concurrency`: requests in flight at all its servers; `None` for no limit.
    pub concurrency: Option<ConcurrencyConfig>,
    /// `timeouts`.
    pub timeouts: UpstreamTimeouts,
    /// `max_idle` connections of each worker to each server.
    pub idle_max: usize,
    /// `tls` options of `https` servers.
    pub tls: UpstreamTls,
    /// `resolvers`: DNS servers that are asked for names, in place of the system's.
    pub resolvers: Vec<SocketAddr>,
}

/// A server: `http://host:port`, `https://…`, or `h2c://…` for HTTP/2 without TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// The protocol.
    pub protocol: UpstreamProtocol,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// `http`: HTTP/1.1.
    Http1,
    /// `h2c`: HTTP/2 without TLS.
    H2c,
    /// `https`: HTTP/2 or HTTP/1.1, as the server chooses.
    Https,
}

/// Which server gets a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Balance {
    /// `round_robin`.
    #[default]
    RoundRobin,
    /// `least_connections`: the server with the fewest requests in flight.
    LeastConnections,
    /// `{ hash: PART }`: the same server for the same value, by consistent hashing.
    Hash(Part),
}

/// Active health checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// `path` that is requested with GET.
    pub path: String,
    /// `every`: interval.
    pub every: Duration,
    /// `timeout` of a check.
    pub timeout: Duration,
    /// `healthy_after`: successes in a row.
    pub healthy_after: u32,
    /// `unhealthy_after`: failures in a row.
    pub unhealthy_after: u32,
    /// `status`: expected range.
    pub status: (u16, u16),
}

/// Passive health checks: a server that fails real requests is not used for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    /// `failures` in a row; 0 never ejects.
    pub failures: u32,
    /// `duration` of an ejection.
    pub duration: Duration,
}

/// Limit of the requests in flight at an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConcurrencyConfig {
    /// `max`: the limit, or the highest one of an adaptive limit.
    pub max: usize,
    /// `adaptive`: what the limit follows; `None` if it is fixed.
    pub adaptive: Option<AdaptiveConfig>,
    /// `max_wait`: the longest time that a request waits for another one to end.
    pub max_wait: Duration,
}

/// A limit that follows the capacity of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdaptiveConfig {
    /// `latency`, or `failures` alone.
    pub signal: CapacitySignal,
    /// `min`: the lowest limit.
    pub min: usize,
    /// `start`: the limit before anything is known.
    pub start: usize,
}

/// What an adaptive limit follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacitySignal {
    /// `latency`, and failures.
    Latency,
    /// `failures` alone.
    Failures,
}

/// Default of `max` of adaptive limits.
pub const ADAPTIVE_MAX: usize = 1_000;
/// Default of `min`.
pub const ADAPTIVE_MIN: usize = 4;
/// Default of `start`.
pub const ADAPTIVE_START: usize = 20;
/// Default of `max_wait`.
pub const CONCURRENCY_WAIT: Duration = Duration::from_secs(1);

/// Timeouts of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// `connect`.
    pub connect: Duration,
    /// `first_byte`: from the request to the head of its response.
    pub first_byte: Duration,
    /// `total`: from the request to the end of its response; `None` for no limit.
    pub total: Option<Duration>,
    /// `idle`: how long an unused connection is kept. Shorter than that of common servers (Node:
    /// 5 s), so that they rarely close a connection while a request is on its way.
    pub idle: Duration,
}

/// TLS towards servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// `ca`: authorities in place of the system's.
    pub ca: Option<PathBuf>,
    /// `cert` of the gateway, for servers that require one.
    pub cert: Option<PathBuf>,
    /// `key` of that certificate.
    pub key: Option<PathBuf>,
    /// `server_name` in place of the host.
    pub server_name: Option<String>,
}

/// Why a text names no server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    text: String,
    reason: &'static str,
}

impl UpstreamConfig {
    /// A group with default options.
    #[must_use]
    pub fn new(name: &str, servers: Vec<ServerConfig>) -> Self {
        Self {
            name: name.to_owned(),
            servers,
            balance: Balance::default(),
            health: None,
            eject: Ejection::default(),
            concurrency: None,
            timeouts: UpstreamTimeouts::default(),
            idle_max: 256,
            tls: UpstreamTls::default(),
            resolvers: Vec::new(),
        }
    }
}

impl Default for Ejection {
    fn default() -> Self {
        Self { failures: 5, duration: Duration::from_secs(10) }
    }
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(60),
            total: None,
            idle: Duration::from_secs(4),
        }
    }
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            healthy_after: 2,
            unhealthy_after: 3,
            status: (200, 399),
        }
    }
}

impl std::str::FromStr for ServerConfig {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let refuse = |reason| ServerError { text: text.to_owned(), reason };
        let (scheme, rest) = text.split_once("://").ok_or(refuse("has no scheme"))?;
        let (protocol, default_port) = match scheme {
            "http" => (UpstreamProtocol::Http1, 80),
            "h2c" => (UpstreamProtocol::H2c, 80),
            "https" => (UpstreamProtocol::Https, 443),
            _ => return Err(refuse("has an unknown scheme")),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(refuse("has a path"));
        }
        if authority.contains(['@', ' ']) {
            return Err(refuse("has more than host and port"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (host, port.ok_or(refuse("has a port that is not a number from 1 to 65535"))?)
            }
            _ => (authority, default_port),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(refuse("has no host"));
        }
        Ok(Self { protocol, host: host.to_owned(), port })
    }
}

impl std::fmt::Display for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { protocol, host, port } = self;
        let scheme = match protocol {
            UpstreamProtocol::Http1 => "http",
            UpstreamProtocol::H2c => "h2c",
            UpstreamProtocol::Https => "https",
        };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text, reason } = self;
        write!(f, "server `{text}` {reason}; write it like `http://127.0.0.1:3000`")
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_without_a_path() {
        let server = |text: &str| text.parse::<ServerConfig>().map(|server| server.to_string());
        for (text, expected) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://app", "http://app:80"),
            ("https://app/", "https://app:443"),
            ("h2c://[::1]:50051", "h2c://[::1]:50051"),
            ("http://[::1]", "http://[::1]:80"),
        ] {
            assert_eq!(server(text).as_deref(), Ok(expected), "{text}");
        }
        for text in
            ["app:80", "ftp://app", "http://", "http://app:0", "http://app/x", "http://u@app"]
        {
            let error = server(text).unwrap_err().to_string();
            assert!(error.ends_with("write it like `http://127.0.0.1:3000`"), "{error}");
        }
    }
}
