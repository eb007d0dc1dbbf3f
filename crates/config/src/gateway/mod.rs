//! The configuration of a gateway: listeners, routes, upstreams, identities.
//!
//! ```yaml
//! listen: 0.0.0.0:8000
//! rules: rules.yaml
//! upstreams:
//!   api: { servers: [http://127.0.0.1:3000] }
//! routes:
//!   - path: /v1/*
//!     upstream: api
//!     limit: { domain: api, descriptors: [{ remote_address: client_ip }] }
//! ```

pub mod api_keys;
pub mod deferred;
pub(crate) mod deferred_keys;
pub(crate) mod keys;
mod limit_names;
pub mod listener;
pub mod placeholder;
mod reader;
pub mod route;
pub(crate) mod route_keys;
mod rules_of_limit;
pub mod settle;
mod source;
pub mod tokens;
pub mod upstream;
pub(crate) mod upstream_keys;

pub use self::source::{Findings, LoadedGateway, is_gateway, load, load_checked, load_with_files};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluicegate_core::quota::Rate;
use sluicegate_rules::mapping::{Mapping, Part, Source};
use sluicegate_rules::network::Network;

use self::deferred::DeferredConfig;
use self::listener::ListenerConfig;
use self::route::{LimitConfig, RouteConfig};
use self::upstream::{ServerConfig, UpstreamConfig};

/// The configuration of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// `listen`: addresses, with TLS or without.
    pub listeners: Vec<ListenerConfig>,
    /// `admin`: address of the admin endpoint.
    pub admin: Option<SocketAddr>,
    /// `webhook`: URL that events are sent to.
    pub webhook: Option<String>,
    /// `handover`: UNIX socket over which the next process takes the listening sockets.
    pub handover: Option<PathBuf>,
    /// `rules`: files of rules.
    pub rules: Vec<PathBuf>,
    /// `trusted_proxies`: peers whose forwarding headers are believed.
    pub trusted_proxies: Vec<Network>,
    /// `access`: clients that are denied or exempt, before any limit.
    pub access: AccessConfig,
    /// `connections`: limits of each client address.
    pub connections: ConnectionLimits,
    /// `timeouts` of clients.
    pub timeouts: ClientTimeouts,
    /// `max_header_bytes` of a request.
    pub header_bytes_max: usize,
    /// `max_body_bytes` of a request; `None` for no limit.
    pub body_bytes_max: Option<u64>,
    /// `identity`: how clients are identified.
    pub identity: IdentityConfig,
    /// `access_log`.
    pub access_log: Option<AccessLogConfig>,
    /// `limit_headers`: whether admitted responses have rate limit headers.
    pub limit_headers: bool,
    /// `request_id`: header that gets an id if it has none.
    pub request_id: Option<String>,
    /// `deferred`: where requests are stored that are processed later.
    pub deferred: Option<DeferredConfig>,
    /// `upstreams`, by name.
    pub upstreams: Vec<UpstreamConfig>,
    /// `routes`.
    pub routes: Vec<RouteConfig>,
}

/// Clients that are denied or exempt, before any limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessConfig {
    /// `allow`: exempt from limits of connections and requests.
    pub allow: NetworkList,
    /// `deny`: their connections are closed.
    pub deny: NetworkList,
}

/// Networks, listed here and in files that are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkList {
    /// Listed here.
    pub networks: Vec<Network>,
    /// `{ file: PATH }`: one network on each line, `#` begins a comment.
    pub files: Vec<PathBuf>,
}

/// Limits of the connections of each client address, decided before anything is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionLimits {
    /// `open`: open connections.
    pub open: Option<u32>,
    /// `rate`: new connections.
    pub rate: Option<Rate>,
    /// `tls_rate`: TLS handshakes.
    pub tls_rate: Option<Rate>,
}

/// Timeouts of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// `header`: time for a head.
    pub header: Duration,
    /// `body`: time between two pieces of a body.
    pub body: Duration,
    /// `idle`: time between two requests, and for a tunnel without data.
    pub idle: Duration,
    /// `tls_handshake`.
    pub tls_handshake: Duration,
}

/// How clients are identified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityConfig {
    /// `api_keys`.
    pub api_keys: Option<ApiKeysConfig>,
    /// `jwt`.
    pub jwt: Option<JwtConfig>,
    /// `geo`: databases that the operator brings.
    pub geo: GeoConfig,
    /// `body`: bounds of bodies that are read for `json FIELD` and `form FIELD`.
    pub body: BodyFieldsConfig,
}

/// Bounds of request bodies that are read for their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyFieldsConfig {
    /// `max_bytes`: fields of a longer body are missing.
    pub bytes_max: usize,
    /// `timeout`: time for the whole body, up to `max_bytes`.
    pub timeout: Duration,
}

/// API keys: their hashes are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeysConfig {
    /// `file`: a YAML list of `{ name, sha256, … }`; further fields are attributes.
    pub file: PathBuf,
    /// `header` that carries the key; or…
    pub header: Option<String>,
    /// …the `query` parameter.
    pub query: Option<String>,
    /// `forward`: whether upstreams get the key too.
    pub forward: bool,
}

/// Verification of JSON Web Tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtConfig {
    /// `jwks`: where the keys are.
    pub jwks: JwksSource,
    /// `issuer` that `iss` must name.
    pub issuer: Option<String>,
    /// `audience` that `aud` must name one of; required unless `any`.
    pub audience: Vec<String>,
    /// `algorithms` that are accepted; those of the keys by default. Never `none`.
    pub algorithms: Vec<String>,
    /// `leeway` for clocks.
    pub leeway: Duration,
    /// `cookie` that carries the token in place of `Authorization: Bearer`.
    pub cookie: Option<String>,
}

/// Where the keys of tokens are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// A file, read again when it changes.
    File(PathBuf),
    /// A URL, cached.
    Url(String),
}

/// Databases of addresses in MaxMind's format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GeoConfig {
    /// `asn`: autonomous systems.
    pub asn: Option<PathBuf>,
    /// `country`.
    pub country: Option<PathBuf>,
}

/// The access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// `path`; `None` for standard output.
    pub path: Option<PathBuf>,
    /// `format`.
    pub format: AccessLogFormat,
}

/// Format of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessLogFormat {
    /// `json`: an object on each line.
    #[default]
    Json,
    /// `combined`: as Apache and nginx, with the verdict at the end.
    Combined,
}

impl Default for BodyFieldsConfig {
    fn default() -> Self {
        Self { bytes_max: 64 << 10, timeout: Duration::from_secs(10) }
    }
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            tls_handshake: Duration::from_secs(10),
        }
    }
}

impl Default for GatewayConfig {
    /// No listener, route or upstream yet.
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            admin: None,
            webhook: None,
            handover: None,
            rules: Vec::new(),
            trusted_proxies: Vec::new(),
            access: AccessConfig::default(),
            connections: ConnectionLimits::default(),
            timeouts: ClientTimeouts::default(),
            header_bytes_max: 64 << 10,
            body_bytes_max: None,
            identity: IdentityConfig::default(),
            access_log: None,
            limit_headers: false,
            request_id: None,
            deferred: None,
            upstreams: Vec::new(),
            routes: Vec::new(),
        }
    }
}

impl GatewayConfig {
    /// All requests to one upstream, limited by client address in this domain, if there is one.
    #[must_use]
    pub fn simple(listen: SocketAddr, servers: Vec<ServerConfig>, domain: Option<&str>) -> Self {
        let by_address = vec![("remote_address".into(), Part::from(Source::ClientIp))];
        let mapping = Mapping { descriptors: vec![by_address.into()], hits: None };
        let limit = domain.map(|domain| LimitConfig::new(domain, mapping));
        Self {
            listeners: vec![ListenerConfig::new(listen)],
            upstreams: vec![UpstreamConfig::new("default", servers)],
            routes: vec![RouteConfig { limit, ..RouteConfig::forward("/*", 0) }],
            ..Self::default()
        }
    }
}
