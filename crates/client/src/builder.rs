//! How a client is made.

use std::io;
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::breaker::Patience;
use crate::client::Client;
use crate::connect::Connector;
use crate::denials::Bounds;
use crate::error::Error;
use crate::policy::WhenAway;
use crate::post::Post;
use crate::retry::Backoff;

/// What there is to say about a client; everything has a default.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_client::{Client, WhenAway};
///
/// let client = Client::builder("http://127.0.0.1:8080")
///     .timeout(Duration::from_millis(50))
///     .tries(3)
///     .backoff(Duration::from_millis(10), Duration::from_millis(200))
///     .when_away(WhenAway::Deny)
///     .build()?;
/// # Ok::<(), sluicegate_client::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "there is no client until it is built"]
pub struct Builder {
    address: String,
    connector: Option<Connector>,
    #[cfg(feature = "tls")]
    roots: Vec<u8>,
    pub(crate) config: Config,
}

/// What a client goes by.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) timeout: Duration,
    pub(crate) tries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) again_percent: u32,
    pub(crate) patience: Patience,
    pub(crate) denials: Bounds,
    pub(crate) spread_percent: u32,
    pub(crate) idempotency_keys: bool,
    pub(crate) when_away: WhenAway,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(500),
            tries: 2,
            backoff: Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) },
            again_percent: 10,
            patience: Patience { failures: 5, probe_every: Duration::from_secs(1) },
            denials: Bounds { keys_max: 10_000, time_max: Duration::from_secs(30) },
            spread_percent: 10,
            idempotency_keys: true,
            when_away: WhenAway::default(),
        }
    }
}

// === impl Builder ===

impl Builder {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            connector: None,
            #[cfg(feature = "tls")]
            roots: Vec::new(),
            config: Config::default(),
        }
    }

    /// How long each try may take; half a second unless told.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How often something is asked at most, the first time included; twice unless told.
    ///
    /// Asked again is only what a service did not answer: it could not be reached, broke off, took too long, or said 502, 503 or 504. An
    /// `Idempotency-Key` sees to it that nothing is charged twice.
    pub const fn tries(mut self, tries: u32) -> Self {
        self.config.tries = tries;
        self
    }

    /// The time before a further try is anything up to `first`, up to twice that before the next, and so on up to `longest`. A service that says
    /// `Retry-After` is left alone for so long; if that is more than `longest`, it is not asked again.
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.config.backoff = Backoff { first, longest };
        self
    }

    /// Further tries, of all calls together, are at most this share of the calls; a tenth unless told. A client that asks seldom has ten.
    pub const fn retry_budget(mut self, percent: u32) -> Self {
        self.config.again_percent = percent;
        self
    }

    /// After so many failures in a row, calls are answered by [`when_away`](Self::when_away) at once, and one every so often goes out to see whether the
    /// service is back; after 5, and every second, unless told.
    pub const fn breaker(mut self, failures: u32, probe_every: Duration) -> Self {
        self.config.patience = Patience { failures, probe_every };
        self
    }

    /// What is answered when the service does not answer; [`WhenAway::Allow`] unless told.
    pub fn when_away(mut self, policy: WhenAway) -> Self {
        self.config.when_away = policy;
        self
    }

    /// Who was denied is not asked about again before the time that the service told, but for at most `time_max`, since rules may change; of
    /// at most `keys_max`. 10,000 and 30 seconds unless told; 0 to ask always.
    pub const fn remember(mut self, keys_max: usize, time_max: Duration) -> Self {
        self.config.denials = Bounds { keys_max, time_max };
        self
    }

    /// [`Client::until_allowed`] waits as long as told, and up to this share longer, as chance has it: so that not everybody comes back at
    /// once. A tenth unless told.
    pub const fn spread(mut self, percent: u32) -> Self {
        self.config.spread_percent = percent;
        self
    }

    /// Sends no `Idempotency-Key`. What the service may have charged is not asked again then.
    pub const fn without_idempotency_keys(mut self) -> Self {
        self.config.idempotency_keys = false;
        self
    }

    /// Makes connections in a way of your own, such as over a Unix socket.
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

    /// For `https://`: the authorities, as PEM, one of which must have signed the server's certificate. There are no others.
    #[cfg(feature = "tls")]
    pub fn trust(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.roots.extend_from_slice(pem.as_ref());
        self.roots.push(b'\n');
        self
    }

    /// The client. Nothing is asked yet: a service that is away now may be there later.
    ///
    /// # Errors
    /// When the address is none.
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
        Ok(Client::with(Post::new(connector, prefix.clone()), prefix, self.config))
    }

    #[cfg(feature = "tls")]
    fn encrypted(&self, host: String, port: u16) -> Result<Connector, String> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};

        let mut roots = rustls::RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(&self.roots) {
            let one = one.map_err(|error| format!("what `trust` was given is no PEM: {error}"))?;
            roots.add(one).map_err(|error| format!("`trust` was given no authority: {error}"))?;
        }
        if roots.is_empty() {
            return Err("nobody is trusted to sign its certificate; name the authority by `trust`"
                .to_owned());
        }
        Connector::tls(host, port, roots)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn encrypted(&self, _: String, _: u16) -> Result<Connector, String> {
        Err("this client was built without TLS; turn on the feature `tls`, or write `http://`"
            .to_owned())
    }
}

/// An address, taken apart.
struct Address {
    https: bool,
    host: String,
    port: u16,
    /// What paths are put behind.
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
            return Err(
                "it has a name or a password, which nobody asks for; leave them out".to_owned()
            );
        }
        if uri.query().is_some() {
            return Err("it has a query; leave out what begins with `?`".to_owned());
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let scheme = if https { "https" } else { "http" };
        let prefix = format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'));
        Ok(Self { https, host, port, prefix })
    }
}
