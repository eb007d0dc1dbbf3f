//! Options of a [`Link`](super::Link), and the credentials and TLS configuration derived from them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::address::{Address, AddressError, Host};
use super::tls;

/// How often a password file is checked for changes.
const PASSWORD_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a [`Link`](super::Link). All of them have defaults.
///
/// ```
/// use sluicegate_redis::LinkOptions;
/// use std::time::Duration;
///
/// let options = LinkOptions { timeout: Duration::from_millis(50), ..LinkOptions::default() };
/// assert_eq!(options.connections, 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// Timeout of a call, including queueing and redirects.
    pub timeout: Duration,
    /// Timeout for establishing a connection, including authentication.
    pub connect_timeout: Duration,
    /// Connections to each server.
    pub connections: usize,
    /// Maximum number of calls in flight per connection.
    pub in_flight: usize,
    /// Maximum number of callers that wait for a permit. Further ones fail with
    /// [`CallError::Busy`](super::super::CallError::Busy).
    pub waiting: usize,
    /// User name. Takes precedence over the address.
    pub username: Option<Box<str>>,
    /// Password. Takes precedence over the address.
    pub password: Option<Secret>,
    /// File with the password. It is read on every connect and polled every second; when it
    /// changes, connections are replaced without a gap.
    pub password_file: Option<PathBuf>,
    /// User name at the Sentinels.
    pub sentinel_username: Option<Box<str>>,
    /// Password at the Sentinels.
    pub sentinel_password: Option<Secret>,
    /// TLS, for `rediss` addresses.
    pub tls: TlsOptions,
    /// The circuit breaker of each server.
    pub breaker: BreakerOptions,
    /// Number of replicas to wait for after each write, and for how long (`WAIT`). The wait adds to
    /// `timeout` and blocks the connection. Under-replicated writes are counted, not failed.
    pub wait_replicas: Option<(u32, Duration)>,
}

/// TLS options. Files are in PEM format and read on every connect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// CA certificates that replace those of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate.
    pub client_cert: Option<PathBuf>,
    /// Key of the client certificate.
    pub client_key: Option<PathBuf>,
    /// Accepts a certificate with a valid chain regardless of its host name.
    pub skip_hostname_verification: bool,
    /// The setting that selects TLS, if it is not the scheme of the address: for error messages.
    pub switch: Option<&'static str>,
}

/// When the circuit breaker of a server opens, and how often an open one probes the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Consecutive failures that open it.
    pub failures: u32,
    /// Backoff before the first probe or reconnect.
    pub backoff: Duration,
    /// Upper bound of the backoff, which doubles with every failure.
    pub backoff_max: Duration,
}

/// A password. `Debug` does not print it.
///
/// ```
/// use sluicegate_redis::Secret;
///
/// assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(..)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// Why a [`Link`](super::Link) cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The URL is invalid.
    Address(AddressError),
    /// It was not called within a Tokio runtime.
    NoRuntime,
    /// A file is missing or invalid.
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: Box<str>,
    },
    /// An option is invalid.
    Option {
        /// Its name.
        name: &'static str,
        /// The allowed values.
        why: &'static str,
    },
    /// The server does not accept the credentials.
    AccessDenied(Box<str>),
    /// There is no connection yet.
    Unreachable(Box<str>),
}

/// Validated options with everything a new connection needs.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) options: LinkOptions,
    username: Option<Box<str>>,
    password: Option<Secret>,
    database: u16,
    tls: Option<ArcSwap<ClientConfig>>,
    /// Incremented when the password changes.
    pub(super) password_version: watch::Sender<u64>,
}

/// Endpoint of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Host(Host),
    Unix(PathBuf),
}

/// Credentials and database of a connection.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) username: Option<Box<str>>,
    pub(super) password: Option<Secret>,
    pub(super) database: u16,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(100),
            connect_timeout: Duration::from_millis(500),
            connections: 2,
            in_flight: 64,
            waiting: 1024,
            username: None,
            password: None,
            password_file: None,
            sentinel_username: None,
            sentinel_password: None,
            tls: TlsOptions::default(),
            breaker: BreakerOptions::default(),
            wait_replicas: None,
        }
    }
}

impl LinkOptions {
    fn check(&self) -> Result<(), LinkError> {
        const SPAN_MAX: Duration = Duration::from_secs(3600);
        let fits = |span: Duration| !span.is_zero() && span <= SPAN_MAX;
        let BreakerOptions { failures, backoff, backoff_max } = self.breaker;
        let rules = [
            (fits(self.timeout), "timeout", "must be above 0 and at most 1h, such as 100ms"),
            (
                fits(self.connect_timeout),
                "connect_timeout",
                "must be above 0 and at most 1h, such as 500ms",
            ),
            (
                self.wait_replicas.is_none_or(|(_, span)| fits(span)),
                "wait_replicas",
                "must have a time above 0 and at most 1h, such as 5ms",
            ),
            ((1..=1024).contains(&self.connections), "connections", "must be 1 to 1024"),
            ((1..=1 << 16).contains(&self.in_flight), "in_flight", "must be 1 to 65536"),
            (
                failures > 0 && fits(backoff) && fits(backoff_max),
                "breaker",
                "must have at least one failure, and a backoff above 0 and at most 1h",
            ),
            (
                self.tls.client_cert.is_some() == self.tls.client_key.is_some(),
                "tls",
                "needs both a client certificate and its key, or neither",
            ),
        ];
        match rules.into_iter().find(|(is_valid, ..)| !is_valid) {
            Some((_, name, why)) => Err(LinkError::Option { name, why }),
            None => Ok(()),
        }
    }
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 5,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(2),
        }
    }
}

impl Secret {
    /// Wraps a password.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The password.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::NoRuntime => f.write_str("a link must be opened within a Tokio runtime"),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Option { name, why } => write!(f, "{name}: {why}"),
            Self::AccessDenied(why) => {
                write!(f, "Redis does not accept the user or the password: {why}")
            }
            Self::Unreachable(why) => write!(f, "no connection to Redis yet: {why}"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<AddressError> for LinkError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl Settings {
    pub(super) fn new(address: &Address, options: LinkOptions) -> Result<Self, LinkError> {
        options.check()?;
        let tls = if address.tls { Some(tls::config(&options.tls)?.into()) } else { None };
        let settings = Self {
            username: options.username.clone().or_else(|| address.username.clone()),
            password: options.password.clone().or_else(|| address.password.clone()),
            database: address.database,
            tls,
            ..Self::without_server(options)
        };
        settings.login()?;
        Ok(settings)
    }

    /// For a [`Transport`](super::Transport), which needs no connection.
    pub(super) fn without_server(options: LinkOptions) -> Self {
        Self {
            options,
            username: None,
            password: None,
            database: 0,
            tls: None,
            password_version: watch::Sender::new(0),
        }
    }

    /// Credentials for the store, with the current content of the password file.
    pub(super) fn login(&self) -> Result<Login, LinkError> {
        let password = match &self.options.password_file {
            None => self.password.clone(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| LinkError::File {
                    path: path.clone(),
                    why: error.to_string().into(),
                })?;
                let text = text.trim_end_matches(['\n', '\r']);
                (!text.is_empty()).then(|| Secret::new(text))
            }
        };
        Ok(Login { username: self.username.clone(), password, database: self.database })
    }

    /// Credentials for a Sentinel.
    pub(super) fn sentinel_login(&self) -> Login {
        Login {
            username: self.options.sentinel_username.clone(),
            password: self.options.sentinel_password.clone(),
            database: 0,
        }
    }

    /// TLS configuration from the current files; the last valid one if they cannot be read.
    pub(super) fn tls(&self) -> Option<Arc<ClientConfig>> {
        let known = self.tls.as_ref()?;
        let files = &self.options.tls;
        let has_files = files.ca.is_some() || files.client_cert.is_some();
        if has_files && let Ok(config) = tls::config(files) {
            known.store(config);
        }
        Some(known.load_full())
    }

    /// Polls the password file, if there is one, and increments `password_version` on a change.
    pub(super) fn watch_password(self: &Arc<Self>) -> Option<AbortHandle> {
        self.options.password_file.as_ref()?;
        let settings = self.clone();
        let mut known = settings.login().ok().and_then(|login| login.password);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(PASSWORD_POLL_INTERVAL).await;
                // The file may be missing for a moment while it is replaced.
                let Ok(login) = settings.login() else { continue };
                if login.password != known {
                    known = login.password;
                    settings
                        .password_version
                        .send_modify(|version| *version = version.wrapping_add(1));
                }
            }
        });
        Some(task.abort_handle())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
