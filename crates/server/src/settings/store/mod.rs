//! The store: the memory of this process, or a Redis shared by many nodes.
//!
//! `SLUICEGATE_STORE` selects it; without it the variables of envoyproxy/ratelimit do
//! (`envoy_vars`).

mod envoy_vars;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::go_values;
use super::vars::Reader;
use url::Url;

/// The store of counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Store {
    /// The memory of this process.
    #[default]
    Memory,
    /// Redis or Valkey, shared by many nodes.
    Redis(Box<RedisSettings>),
}

/// Settings of a shared store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// The server.
    pub server: RedisServer,
    /// Another server for limits per second; only with `compat`.
    pub per_second: Option<RedisServer>,
    /// Timeout of an operation.
    pub timeout: Duration,
    /// Replicas that must acknowledge a write; 0 to wait for none.
    pub wait_replicas: u32,
    /// Prefix of our keys.
    pub namespace: String,
    /// Whether the service is unhealthy without a connection, and not only before the first.
    pub health_needs_connection: bool,
    /// Keys of envoyproxy/ratelimit for limits in Envoy's form.
    pub compat: Option<EnvoyKeys>,
}

/// A server, a Cluster or Sentinels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// URL without credentials, such as `redis://127.0.0.1:6379/0`.
    pub address: String,
    /// The flag or variable that set it.
    pub source: String,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// File with the password, which may change.
    pub password_file: Option<PathBuf>,
    /// User name for Sentinels.
    pub sentinel_username: Option<String>,
    /// Password for Sentinels.
    pub sentinel_password: Option<Secret>,
    /// TLS settings, if the URL has TLS.
    pub tls: Option<RedisTls>,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Connections to each server.
    pub connections: usize,
}

/// TLS settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Trusted CA certificates in PEM; by default those of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate and key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the server's certificate may have another name.
    pub skip_hostname_verification: bool,
}

/// Options of envoyproxy/ratelimit for its counters on the same Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyKeys {
    /// Prefix of its keys.
    pub prefix: String,
    /// Seconds that keys live longer than their window at most.
    pub jitter_max_s: u64,
    /// Whether a denied request charges only the limits that deny it.
    pub stop_increment_when_over: bool,
    /// Bytes of the cache of keys over their limit; 0 for no cache.
    pub local_cache_bytes: usize,
}

/// A string that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

const CONNECTIONS: u64 = 2;
const CONNECTIONS_MAX: u64 = 1_024;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_millis(100);
const NAMESPACE: &str = "sg";
const NAMESPACE_MAX: usize = 64;
const PREFIX_MAX: usize = 256;
const JITTER_S: u64 = 300;
const YEAR_S: u64 = 365 * 24 * 60 * 60;

// === impl Store ===

impl Store {
    /// Reads all variables whatever the store is, to report all errors at once.
    pub(super) fn read(read: &mut Reader<'_>) -> Self {
        let tls = RedisTls::read(read);
        let server = RedisServer::read(read, &tls);
        let compat = EnvoyKeys::read(read);
        // Otherwise its variables have no effect, which is a warning.
        let per_second = compat.as_ref().and_then(|_| envoy_vars::per_second(read, &tls));
        let expected = format!("at most {NAMESPACE_MAX} letters, digits and `-`, `_`, `.`, `:`");
        let namespace = read.read("SLUICEGATE_STORE_NAMESPACE", &expected, namespace);
        let timeout = timeout(read, "SLUICEGATE_STORE_TIMEOUT").unwrap_or(TIMEOUT);
        let wait_replicas = read.number("SLUICEGATE_STORE_WAIT_REPLICAS", 0, 16).unwrap_or(0);
        let health_needs_connection = read.is_true("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION");
        let Some(server) = server else { return Self::Memory };
        Self::Redis(Box::new(RedisSettings {
            server,
            per_second,
            timeout,
            // At most 16.
            wait_replicas: wait_replicas as u32,
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            health_needs_connection,
            compat,
        }))
    }
}

fn namespace(text: &str) -> Option<String> {
    // Braces would be a hash tag on a Cluster.
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    (text.len() <= NAMESPACE_MAX && text.chars().all(fits)).then(|| text.to_owned())
}

/// A timeout from 1 ms to 60 s.
fn timeout(read: &mut Reader<'_>, name: &str) -> Option<Duration> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(60);
    let fits = |text: &str| go_values::parse_duration(text).filter(|time| bounds.contains(time));
    read.read(name, "a time from `1ms` to `60s`", fits)
}

// === impl RedisServer ===

impl RedisServer {
    /// The shared store, if one is configured.
    fn read(read: &mut Reader<'_>, tls: &RedisTls) -> Option<Self> {
        let connect_timeout = timeout(read, "REDIS_TIMEOUT").unwrap_or(CONNECT_TIMEOUT);
        let of_envoy = read.number("REDIS_POOL_SIZE", 1, CONNECTIONS_MAX);
        let own = read.number("SLUICEGATE_STORE_CONNECTIONS", 1, CONNECTIONS_MAX);
        let (sentinel_username, sentinel_password) =
            envoy_vars::credentials(read, "REDIS_SENTINEL_AUTH");
        let password = read.text("SLUICEGATE_STORE_PASSWORD").map(str::to_owned);
        let password_file = read.path("SLUICEGATE_STORE_PASSWORD_FILE");
        if password.is_some() && password_file.is_some() {
            read.errors.push(
                "SLUICEGATE_STORE_PASSWORD and SLUICEGATE_STORE_PASSWORD_FILE are both set: set only one"
                    .to_owned(),
            );
        }
        let (source, url) = store_url(read)?;
        // The file has precedence, since its password may change.
        let password = password.or_else(|| url.password.filter(|_| password_file.is_none()));
        Some(Self {
            address: url.address,
            source: source.to_owned(),
            username: url.user,
            password: password.map(Secret),
            password_file,
            sentinel_username,
            sentinel_password,
            tls: url.is_tls.then(|| tls.clone()),
            connect_timeout,
            connections: own.or(of_envoy).unwrap_or(CONNECTIONS) as usize,
        })
    }
}

/// The flag or variable that selects the store, and its URL.
fn store_url(read: &mut Reader<'_>) -> Option<(&'static str, Url)> {
    const OWN: &str = "SLUICEGATE_STORE";
    let Some(text) = read.text(OWN).map(str::trim) else { return envoy_vars::main_url(read) };
    if text.eq_ignore_ascii_case("memory") {
        return None;
    }
    let source = read.source(OWN);
    match url::parse(text) {
        Ok(mut url) if url.user.is_none() && url.password.is_none() => {
            let (user, password) = envoy_vars::credentials(read, "REDIS_AUTH");
            (url.user, url.password) = (user, password.map(|Secret(text)| text));
            Some((source, url))
        }
        Ok(url) => Some((source, url)),
        Err(error) => {
            read.errors.push(format!("{source}: {error}, got `{}`", url::masked(text)));
            None
        }
    }
}

// === impl RedisTls ===

impl RedisTls {
    fn read(read: &mut Reader<'_>) -> Self {
        let either = |own: &str, envoy: &str| read.path(own).or_else(|| read.path(envoy));
        let ca = either("SLUICEGATE_STORE_CA", "REDIS_TLS_CACERT");
        let cert = either("SLUICEGATE_STORE_CERT", "REDIS_TLS_CLIENT_CERT");
        let key = either("SLUICEGATE_STORE_KEY", "REDIS_TLS_CLIENT_KEY");
        if cert.is_some() != key.is_some() {
            read.errors.push(
                "a client certificate for the store needs its key, and a key its certificate: set both \
                 SLUICEGATE_STORE_CERT and SLUICEGATE_STORE_KEY (or REDIS_TLS_CLIENT_CERT and \
                 REDIS_TLS_CLIENT_KEY)"
                    .to_owned(),
            );
        }
        let skip_hostname_verification = read.is_true("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION");
        Self { ca, identity: cert.zip(key), skip_hostname_verification }
    }
}

// === impl EnvoyKeys ===

impl EnvoyKeys {
    fn read(read: &mut Reader<'_>) -> Option<Self> {
        let compat = read.choice("SLUICEGATE_COMPAT", &[("none", false), ("envoy", true)]);
        // Not trimmed: blanks are part of the prefix.
        let prefix = read.text("CACHE_KEY_PREFIX").unwrap_or_default();
        if prefix.len() > PREFIX_MAX {
            let got = prefix.len();
            read.errors.push(format!(
                "CACHE_KEY_PREFIX: must be at most {PREFIX_MAX} bytes, since every key begins with it, got {got}"
            ));
        }
        let keys = Self {
            prefix: prefix.to_owned(),
            jitter_max_s: read
                .number("EXPIRATION_JITTER_MAX_SECONDS", 0, YEAR_S)
                .unwrap_or(JITTER_S),
            stop_increment_when_over: read.is_true("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
            local_cache_bytes: read.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, 1 << 34).unwrap_or(0)
                as usize,
        };
        compat.unwrap_or(false).then_some(keys)
    }
}

// === impl Secret ===

impl Secret {
    /// The string.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}
