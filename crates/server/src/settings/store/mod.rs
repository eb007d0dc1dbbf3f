//! The store: the memory of this process, or a Redis shared by many nodes.
//!
//! `SLUICEGATE_STORE` selects it; without it the variables of envoyproxy/ratelimit do
//! (`envoy_vars`).

mod envoy_vars;

use std::time::Duration;

use sluicegate_redis::{Address, EnvoyKeys, LinkOptions, Secret, TlsOptions};

use super::go_values;
use super::vars::Reader;

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
    /// Its address.
    pub address: Address,
    /// The flag or variable that set it.
    pub source: &'static str,
    /// Options of the connection.
    pub options: LinkOptions,
}

const CONNECTIONS_MAX: u64 = 1_024;
const NAMESPACE: &str = "sg";
const NAMESPACE_MAX: usize = 64;
const PREFIX_MAX: usize = 256;
const JITTER_S: u64 = 300;
const YEAR_S: u64 = 365 * 24 * 60 * 60;

impl Store {
    /// Reads all variables whatever the store is, to report all errors at once.
    pub(super) fn read(read: &mut Reader<'_>) -> Self {
        let common = common_options(read);
        let server = RedisServer::read(read, &common);
        let compat = envoy_keys(read);
        // Otherwise its variables have no effect, which is a warning.
        let per_second = compat.as_ref().and_then(|_| envoy_vars::per_second(read, &common));
        let expected = format!("at most {NAMESPACE_MAX} letters, digits and `-`, `_`, `.`, `:`");
        let namespace = read.read("SLUICEGATE_STORE_NAMESPACE", &expected, namespace);
        let health_needs_connection = read.is_true("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION");
        let Some(server) = server else { return Self::Memory };
        Self::Redis(Box::new(RedisSettings {
            server,
            per_second,
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            health_needs_connection,
            compat,
        }))
    }
}

/// Options that both servers share.
fn common_options(read: &mut Reader<'_>) -> LinkOptions {
    let tls = tls_options(read);
    let defaults = LinkOptions::default();
    let timeout = timeout(read, "SLUICEGATE_STORE_TIMEOUT").unwrap_or(defaults.timeout);
    let replicas = read.number("SLUICEGATE_STORE_WAIT_REPLICAS", 0, 16).unwrap_or(0);
    // The wait blocks other calls of its connection: if it were longer, a missing replica would
    // make all of them time out.
    let wait_replicas = (replicas > 0).then_some((replicas as u32, timeout / 4));
    LinkOptions { timeout, wait_replicas, tls, ..defaults }
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

fn tls_options(read: &mut Reader<'_>) -> TlsOptions {
    let either = |own: &str, envoy: &str| read.path(own).or_else(|| read.path(envoy));
    let ca = either("SLUICEGATE_STORE_CA", "REDIS_TLS_CACERT");
    let client_cert = either("SLUICEGATE_STORE_CERT", "REDIS_TLS_CLIENT_CERT");
    let client_key = either("SLUICEGATE_STORE_KEY", "REDIS_TLS_CLIENT_KEY");
    if client_cert.is_some() != client_key.is_some() {
        read.errors.push(
            "a client certificate for the store needs its key, and a key its certificate: set both \
             SLUICEGATE_STORE_CERT and SLUICEGATE_STORE_KEY (or REDIS_TLS_CLIENT_CERT and \
             REDIS_TLS_CLIENT_KEY)"
                .to_owned(),
        );
    }
    let skip_hostname_verification = read.is_true("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION");
    TlsOptions { ca, client_cert, client_key, skip_hostname_verification, switch: None }
}

fn envoy_keys(read: &mut Reader<'_>) -> Option<EnvoyKeys> {
    let compat = read.choice("SLUICEGATE_COMPAT", &[("none", false), ("envoy", true)]);
    // Not trimmed: blanks are part of the prefix.
    let prefix = read.text("CACHE_KEY_PREFIX").unwrap_or_default();
    if prefix.len() > PREFIX_MAX {
        let got = prefix.len();
        read.errors.push(format!(
            "CACHE_KEY_PREFIX: must be at most {PREFIX_MAX} bytes, since every key begins with it, got {got}"
        ));
    }
    let jitter_max_s = read.number("EXPIRATION_JITTER_MAX_SECONDS", 0, YEAR_S);
    let local_cache_bytes = read.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, 1 << 34);
    let keys = EnvoyKeys {
        prefix: prefix.into(),
        jitter_max_s: jitter_max_s.unwrap_or(JITTER_S),
        stop_increment_when_over: read.is_true("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
        local_cache_bytes: local_cache_bytes.unwrap_or(0) as usize,
    };
    compat.unwrap_or(false).then_some(keys)
}

impl RedisServer {
    /// The shared store, if one is configured.
    fn read(read: &mut Reader<'_>, common: &LinkOptions) -> Option<Self> {
        let connect_timeout = timeout(read, "REDIS_TIMEOUT").unwrap_or(common.connect_timeout);
        let of_envoy = read.number("REDIS_POOL_SIZE", 1, CONNECTIONS_MAX);
        let own = read.number("SLUICEGATE_STORE_CONNECTIONS", 1, CONNECTIONS_MAX);
        let connections = own.or(of_envoy).map_or(common.connections, |number| number as usize);
        let (sentinel_username, sentinel_password) =
            envoy_vars::credentials(read, "REDIS_SENTINEL_AUTH");
        let own_password = read.text("SLUICEGATE_STORE_PASSWORD").map(Secret::new);
        let password_file = read.path("SLUICEGATE_STORE_PASSWORD_FILE");
        if own_password.is_some() && password_file.is_some() {
            read.errors.push(
                "SLUICEGATE_STORE_PASSWORD and SLUICEGATE_STORE_PASSWORD_FILE are both set: set only one"
                    .to_owned(),
            );
        }
        let server = Self::locate(read)?;
        let Self { address, source, options } = server;
        let LinkOptions { username, password, tls, .. } = options;
        let options = LinkOptions {
            connect_timeout,
            connections,
            username,
            // The file has precedence, since its password may change.
            password: own_password.or(password.filter(|_| password_file.is_none())),
            password_file,
            sentinel_username,
            sentinel_password,
            tls: TlsOptions { switch: tls.switch, ..common.tls.clone() },
            ..common.clone()
        };
        Some(Self { address, source, options })
    }

    /// The address of the store, with its credentials and the switch of TLS as the only options.
    fn locate(read: &mut Reader<'_>) -> Option<Self> {
        const OWN: &str = "SLUICEGATE_STORE";
        let Some(text) = read.text(OWN).map(str::trim) else { return envoy_vars::main(read) };
        if text.eq_ignore_ascii_case("memory") {
            return None;
        }
        let source = read.source(OWN);
        let address = Address::parse(text).map_err(|error| {
            let or = if text.contains("://") { "" } else { "; or write `memory`" };
            read.errors.push(format!("{source}: {error}{or}"));
        });
        let address = address.ok()?;
        let (username, password) = match (address.username(), address.password()) {
            (None, None) => envoy_vars::credentials(read, "REDIS_AUTH"),
            (username, password) => (username.map(Box::from), password.cloned()),
        };
        let options = LinkOptions { username, password, ..LinkOptions::default() };
        Some(Self { address, source, options })
    }
}
