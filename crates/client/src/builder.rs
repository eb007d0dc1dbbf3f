//! Options of a client.

use std::io;
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::breaker::BreakerConfig;
use crate::client::Client;
use crate::connect::Connector;
use crate::decision::UnavailablePolicy;
use crate::denials::CacheBounds;
use crate::error::Error;
use crate::retry::Backoff;
use crate::transport::Transport;

/// Builder of a client; every option has a default.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_client::{Client, UnavailablePolicy};
///
/// let client = Client::builder("http://127.0.0.1:8080")
///     .timeout(Duration::from_millis(50))
///     .tries(3)
///     .backoff(Duration::from_millis(10), Duration::from_millis(200))
///     .on_unavailable(UnavailablePolicy::Deny)
///     .build()?;
/// # Ok::<(), sluicegate_client::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct Builder {
    address: String,
    connector: Option<Connector>,
    #[cfg(feature = "tls")]
    roots: Vec<u8>,
    pub(crate) config: ClientConfig,
}

/// Options of a client.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) timeout: Duration,
    pub(crate) tries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) retry_percent: u32,
    pub(crate) breaker: BreakerConfig,
    pub(crate) denials: CacheBounds,
    pub(crate) spread_percent: u32,
    pub(crate) idempotency_keys: bool,
    pub(crate) on_unavailable: UnavailablePolicy,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(500),
            tries: 2,
            backoff: Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) },
            retry_percent: 10,
            breaker: BreakerConfig { failures: 5, probe_every: Duration::from_secs(1) },
            denials: CacheBounds { keys_max: 10_000, time_max: Duration::from_secs(30) },
            spread_percent: 10,
            idempotency_keys: true,
            on_unavailable: UnavailablePolicy::default(),
        }
    }
}

impl Builder {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            connector: None,
            #[cfg(feature = "tls")]
            roots: Vec::new(),
            config: ClientConfig::default(),
        }
    }

    /// Timeout of each attempt [default: 500 ms].
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// Maximum number of attempts [default: 2].
    ///
    /// Only unanswered calls are retried: connection failures, timeouts, and status 502, 503
    /// or 504. An `Idempotency-Key` prevents a second charge.
    pub const fn tries(mut self, tries: u32) -> Self {
        self.config.tries = tries;
        self
    }

    /// The delay before a retry is random up to `first`, doubled each time, up to `longest`.
    /// `Retry-After` of the service is respected; if it exceeds `longest`, the call is not retried.
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.config.backoff = Backoff { first, longest };
        self
    }

    /// Retries of all calls together, in percent of the calls, and ten more [default: 10].
    pub const fn retry_budget(mut self, percent: u32) -> Self {
        self.config.retry_percent = percent;
        self
    }

    /// Circuit breaker: after this many consecutive failures
    /// [`on_unavailable`](Self::on_unavailable) decides calls, and one probe is sent per interval
    /// [default: 5, 1 s].
    pub const fn breaker(mut self, failures: u32, probe_every: Duration) -> Self {
        self.config.breaker = BreakerConfig { failures, probe_every };
        self
    }

    /// The decision when the service is unavailable [default: [`UnavailablePolicy::Allow`]].
    pub fn on_unavailable(mut self, policy: UnavailablePolicy) -> Self {
        self.config.on_unavailable = policy;
        self
    }

    /// Cache of denials: each for its `retry_after` but at most `time_max`, since rules may change;
    /// at most `keys_max` entries [default: 10,000 and 30 s; 0 disables it].
    pub const fn remember(mut self, keys_max: usize, time_max: Duration) -> Self {
        self.config.denials = CacheBounds { keys_max, time_max };
        self
    }

    /// Jitter of [`Client::until_allowed`], in percent of the wait [default: 10].
    pub const fn spread(mut self, percent: u32) -> Self {
        self.config.spread_percent = percent;
        self
    }

    /// Sends no `Idempotency-Key`. Calls that may have been charged are then not retried.
    pub const fn without_idempotency_keys(mut self) -> Self {
        self.config.idempotency_keys = false;
        self
    }

    /// Connects by a function, such as over a Unix socket.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use sluicegate_client::Client;
    /// use tokio::net::UnixStream;
    ///
    /// let socket = || UnixStream::connect("/run/sluicegate.sock");
    /// let client = Client::builder("http://sluicegate").connect_with(socket).build()?;
    /// # }
    /// # Ok::<(), sluicegate_client::Error>(())
    /// ```
    pub fn connect_with<F, S>(mut self, connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.connector = Some(Connector::by(connect));
        self
    }

    /// Trusted certificate authorities for `https://`, as PEM. No others are trusted.
    #[cfg(feature = "tls")]
    pub fn trust(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.roots.extend_from_slice(pem.as_ref());
        self.roots.push(b'\n');
        self
    }

    /// Builds the client. No connection is made yet.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn build(self) -> Result<Client, Error> {
        let Address { https, host, port, prefix } = Address::read(&self.address)
            .map_err(|why| Error::Address { given: self.address.clone(), why })?;
        let connector = match self.connector.clone() {
            Some(connector) => connector,
            None if https => self
                .encrypted(host, port)
                .map_err(|why| Error::Address { given: self.address.clone(), why })?,
            None => Connector::tcp(host, port),
        };
        Ok(Client::with(Transport::new(connector, prefix.clone()), prefix, self.config))
    }

    #[cfg(feature = "tls")]
    fn encrypted(&self, host: String, port: u16) -> Result<Connector, String> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};

        let mut roots = rustls::RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(&self.roots) {
            let one = one.map_err(|error| format!("`trust` is not valid PEM: {error}"))?;
            roots.add(one).map_err(|error| format!("`trust` has an invalid authority: {error}"))?;
        }
        if roots.is_empty() {
            return Err("no certificate authority is trusted; set one by `trust`".to_owned());
        }
        Connector::tls(host, port, roots)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn encrypted(&self, _: String, _: u16) -> Result<Connector, String> {
        Err("this client was built without TLS; enable the feature `tls`, or use `http://`"
            .to_owned())
    }
}

/// A parsed address.
struct Address {
    https: bool,
    host: String,
    port: u16,
    /// Path prefix.
    prefix: String,
}

impl Address {
    fn read(given: &str) -> Result<Self, String> {
        if !given.contains("://") {
            return Err(format!("there is no scheme; write `http://{given}`"));
        }
        let uri: Uri =
            given.parse().map_err(|error| format!("{error}; write `http://HOST:PORT`"))?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it is neither `http://` nor `https://`".to_owned()),
        };
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        if authority.contains('@') {
            return Err("it has a user name or a password; remove them".to_owned());
        }
        if uri.query().is_some() {
            return Err("it has a query; remove it".to_owned());
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let scheme = if https { "https" } else { "http" };
        let prefix = format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'));
        Ok(Self { https, host, port, prefix })
    }
}
