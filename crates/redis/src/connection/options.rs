//! What the way to the store can be told.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;

/// How the store is talked to. All of it has defaults.
///
/// ```
/// use sluicegate_redis::LinkOptions;
/// use std::time::Duration;
///
/// let patient = LinkOptions { timeout: Duration::from_millis(50), ..LinkOptions::default() };
/// assert_eq!(patient.connections, 2);
/// ```
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// For an operation, from the call to its answer, waiting and redirections included.
    pub timeout: Duration,
    /// For a new connection, until the server has said who it is.
    pub connect_timeout: Duration,
    /// To each server.
    pub connections: usize,
    /// Calls that are under way on a connection at once.
    pub in_flight: usize,
    /// Callers that wait for a place; whoever comes beyond is told [`CallError::Busy`](super::super::CallError::Busy) at once.
    pub waiting: usize,
    /// As whom to log in. Before what the address says.
    pub username: Option<Box<str>>,
    /// With which password. Before what the address says.
    pub password: Option<Secret>,
    /// A file with the password: read on every connect, and looked at every second. When it changes, connections are made anew, and each is kept until
    /// its successor is there.
    pub password_file: Option<PathBuf>,
    /// As whom to log in at the Sentinels.
    pub sentinel_username: Option<Box<str>>,
    /// With which password at the Sentinels.
    pub sentinel_password: Option<Secret>,
    /// For `rediss`.
    pub tls: TlsOptions,
    /// When to leave a server alone.
    pub breaker: BreakerOptions,
    /// After each write, how many replicas to wait for and how long. The wait comes on top of `timeout`, and holds up what else is under way
    /// on that connection. A write that too few have is counted, and answered all the same.
    pub wait_replicas: Option<(u32, Duration)>,
}

/// How to be sure of who the server is, and what to show it. Files are in PEM; they are read on every connect.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Who signs the server's certificate, instead of those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate, for servers that ask for one.
    pub client_cert: Option<PathBuf>,
    /// Its key.
    pub client_key: Option<PathBuf>,
    /// Takes any certificate that is signed as it should be, whatever name is in it.
    pub skip_hostname_verification: bool,
}

/// When to leave a server alone, and how often to look whether it is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Failures in a row.
    pub failures: u32,
    /// Before the first look.
    pub pause: Duration,
    /// The pause doubles with every failed look, up to this.
    pub pause_longest: Duration,
}

/// Why there can never be a way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The way needs tokio for what it does in the background.
    NoRuntime,
    /// A file is missing, or not what it should be.
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: Box<str>,
    },
    /// An option has a value that cannot work.
    Option {
        /// Which.
        name: &'static str,
        /// What to do.
        why: &'static str,
    },
}

// === impl LinkOptions ===

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
    pub(super) fn check(&self) -> Result<(), LinkError> {
        const COUNT_MAX: usize = 1 << 16;
        const SPAN_MAX: Duration = Duration::from_secs(3600);
        let fits = |span: Duration| !span.is_zero() && span <= SPAN_MAX;
        let wrong = |name, why| Err(LinkError::Option { name, why });
        if !fits(self.timeout) {
            return wrong(
                "timeout",
                "must be more than nothing and at most an hour, such as 100ms",
            );
        }
        if !fits(self.connect_timeout) {
            let why = "must be more than nothing and at most an hour, such as 500ms";
            return wrong("connect_timeout", why);
        }
        if self.wait_replicas.is_some_and(|(_, span)| !fits(span)) {
            let why = "must have a time of more than nothing and at most an hour, such as 5ms";
            return wrong("wait_replicas", why);
        }
        if !(1..=1024).contains(&self.connections) {
            return wrong("connections", "must be 1 to 1024");
        }
        if !(1..=COUNT_MAX).contains(&self.in_flight) {
            return wrong("in_flight", "must be 1 to 65536");
        }
        let BreakerOptions { failures, pause, pause_longest } = self.breaker;
        if failures == 0 || !fits(pause) || !fits(pause_longest) {
            let why =
                "must have at least one failure, and pauses of at most an hour, such as 100ms";
            return wrong("breaker", why);
        }
        if self.tls.client_cert.is_some() != self.tls.client_key.is_some() {
            return wrong("tls", "a client's certificate and its key are given together");
        }
        Ok(())
    }
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 5,
            pause: Duration::from_millis(100),
            pause_longest: Duration::from_secs(2),
        }
    }
}

// === impl LinkError ===

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRuntime => {
                f.write_str("the way to the store is opened inside of a tokio runtime")
            }
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Option { name, why } => write!(f, "{name}: {why}"),
        }
    }
}

impl std::error::Error for LinkError {}
