//! Where counters are kept: in the memory of this process, or in a Redis that many nodes share.
//!
//! `SLUICEGATE_STORE` says so in one text; without it the variables of envoyproxy/ratelimit do (`anchor`).

mod anchor;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::go_values;
use super::vars::Reader;
use url::Url;

/// Where counters are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Store {
    /// In the memory of this process.
    #[default]
    Memory,
    /// In Redis or Valkey, shared by all that are told the same place.
    Redis(Box<RedisSettings>),
}

/// A store that many nodes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Where it is.
    pub server: RedisServer,
    /// Where limits per second are counted, if elsewhere; only with `compat`.
    pub per_second: Option<RedisServer>,
    /// How long an operation may take.
    pub timeout: Duration,
    /// How many replicas must have a write before it counts; 0 to wait for none.
    pub wait_replicas: u32,
    /// What our keys begin with.
    pub namespace: String,
    /// Whether a service without a connection is unhealthy, not only one that has never had any.
    pub health_needs_connection: bool,
    /// Whether limits of Envoy's form are counted on envoyproxy/ratelimit's own keys.
    pub compat: Option<EnvoyKeys>,
}

/// A server, a Cluster, or Sentinels who know one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// Such as `redis://127.0.0.1:6379/0`: no user and no password are in it.
    pub address: String,
    /// The flag or the variable that it was told by.
    pub told_by: String,
    /// Who we are there.
    pub username: Option<String>,
    /// What we show.
    pub password: Option<Secret>,
    /// A file that it is in, which may change.
    pub password_file: Option<PathBuf>,
    /// Who we are to Sentinels.
    pub sentinel_username: Option<String>,
    /// What we show them.
    pub sentinel_password: Option<Secret>,
    /// What TLS needs, if the address asks for it.
    pub tls: Option<RedisTls>,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// Connections to each server.
    pub connections: usize,
}

/// What TLS needs beyond the roots of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Who must have signed the server's certificate, in PEM.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the server's certificate may be for another name.
    pub skip_hostname_verification: bool,
}

/// How envoyproxy/ratelimit would keep counters on the same Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyKeys {
    /// What its keys begin with.
    pub prefix: String,
    /// Keys live up to so many seconds longer than their window.
    pub jitter_max_s: u64,
    /// Whether a request that is denied charges only the limits that deny it.
    pub stop_increment_when_over: bool,
    /// How many bytes the keys that are over their limit may take here; 0 to ask for each again.
    pub local_cache_bytes: usize,
}

/// A text that is never printed.
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
    /// All of it is read whatever the store is, so that all that is wrong is told at once.
    pub(super) fn read(read: &mut Reader<'_>) -> Self {
        let tls = RedisTls::read(read);
        let server = RedisServer::read(read, &tls);
        let compat = EnvoyKeys::read(read);
        // Otherwise its variables mean nothing, which is told.
        let per_second = compat.as_ref().and_then(|_| anchor::per_second(read, &tls));
        let should_be = format!("at most {NAMESPACE_MAX} letters, digits and `-`, `_`, `.`, `:`");
        let namespace = read.read("SLUICEGATE_STORE_NAMESPACE", &should_be, namespace);
        let timeout = time(read, "SLUICEGATE_STORE_TIMEOUT").unwrap_or(TIMEOUT);
        let wait_replicas = read.number("SLUICEGATE_STORE_WAIT_REPLICAS", 0, 16).unwrap_or(0);
        let health_needs_connection = read.is("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION");
        let Some(server) = server else { return Self::Memory };
        Self::Redis(Box::new(RedisSettings {
            server,
            per_second,
            timeout,
            // It was held to the bounds.
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

/// A time that something outside may take: more than none, and no more than somebody would wait.
fn time(read: &mut Reader<'_>, name: &str) -> Option<Duration> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(60);
    let fits = |text: &str| go_values::duration(text).filter(|time| bounds.contains(time));
    read.read(name, "a time from `1ms` to `60s`", fits)
}

// === impl RedisServer ===

impl RedisServer {
    /// The store, if somebody says where it is.
    fn read(read: &mut Reader<'_>, tls: &RedisTls) -> Option<Self> {
        let connect_timeout = time(read, "REDIS_TIMEOUT").unwrap_or(CONNECT_TIMEOUT);
        let theirs = read.number("REDIS_POOL_SIZE", 1, CONNECTIONS_MAX);
        let ours = read.number("SLUICEGATE_STORE_CONNECTIONS", 1, CONNECTIONS_MAX);
        let (sentinel_username, sentinel_password) = anchor::who(read, "REDIS_SENTINEL_AUTH");
        let password = read.text("SLUICEGATE_STORE_PASSWORD").map(str::to_owned);
        let password_file = read.path("SLUICEGATE_STORE_PASSWORD_FILE");
        if password.is_some() && password_file.is_some() {
            read.problems.push(
                "SLUICEGATE_STORE_PASSWORD and SLUICEGATE_STORE_PASSWORD_FILE are both set: keep one of them"
                    .to_owned(),
            );
        }
        let (told_by, url) = place(read)?;
        // The file's may change, so no other stands beside it.
        let password = password.or_else(|| url.password.filter(|_| password_file.is_none()));
        Some(Self {
            address: url.address,
            told_by: told_by.to_owned(),
            username: url.user,
            password: password.map(Secret),
            password_file,
            sentinel_username,
            sentinel_password,
            tls: url.is_tls.then(|| tls.clone()),
            connect_timeout,
            connections: ours.or(theirs).unwrap_or(CONNECTIONS) as usize,
        })
    }
}

/// What says where the store is, and what it says.
fn place(read: &mut Reader<'_>) -> Option<(&'static str, Url)> {
    const OWN: &str = "SLUICEGATE_STORE";
    let Some(text) = read.text(OWN).map(str::trim) else { return anchor::place(read) };
    if text.eq_ignore_ascii_case("memory") {
        return None;
    }
    let told_by = read.source(OWN);
    match url::parse(text) {
        Ok(mut url) if url.user.is_none() && url.password.is_none() => {
            let (user, password) = anchor::who(read, "REDIS_AUTH");
            (url.user, url.password) = (user, password.map(|Secret(text)| text));
            Some((told_by, url))
        }
        Ok(url) => Some((told_by, url)),
        Err(wrong) => {
            read.problems.push(format!("{told_by}: {wrong}, got `{}`", url::masked(text)));
            None
        }
    }
}

// === impl RedisTls ===

impl RedisTls {
    fn read(read: &mut Reader<'_>) -> Self {
        let either = |own: &str, theirs: &str| read.path(own).or_else(|| read.path(theirs));
        let ca = either("SLUICEGATE_STORE_CA", "REDIS_TLS_CACERT");
        let cert = either("SLUICEGATE_STORE_CERT", "REDIS_TLS_CLIENT_CERT");
        let key = either("SLUICEGATE_STORE_KEY", "REDIS_TLS_CLIENT_KEY");
        if cert.is_some() != key.is_some() {
            read.problems.push(
                "a certificate to show to the store needs its key, and a key its certificate: set both \
                 SLUICEGATE_STORE_CERT and SLUICEGATE_STORE_KEY (or REDIS_TLS_CLIENT_CERT and \
                 REDIS_TLS_CLIENT_KEY)"
                    .to_owned(),
            );
        }
        let skip_hostname_verification = read.is("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION");
        Self { ca, identity: cert.zip(key), skip_hostname_verification }
    }
}

// === impl EnvoyKeys ===

impl EnvoyKeys {
    fn read(read: &mut Reader<'_>) -> Option<Self> {
        let compat = read.choice("SLUICEGATE_COMPAT", &[("none", false), ("envoy", true)]);
        // Blanks at its ends are a part of it.
        let prefix = read.text("CACHE_KEY_PREFIX").unwrap_or_default();
        if prefix.len() > PREFIX_MAX {
            let got = prefix.len();
            read.problems.push(format!(
                "CACHE_KEY_PREFIX: must be at most {PREFIX_MAX} bytes, since every key begins with it, got {got}"
            ));
        }
        let keys = Self {
            prefix: prefix.to_owned(),
            jitter_max_s: read
                .number("EXPIRATION_JITTER_MAX_SECONDS", 0, YEAR_S)
                .unwrap_or(JITTER_S),
            stop_increment_when_over: read.is("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
            local_cache_bytes: read.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, 1 << 34).unwrap_or(0)
                as usize,
        };
        compat.unwrap_or(false).then_some(keys)
    }
}

// === impl Secret ===

impl Secret {
    /// The text itself.
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
