//! TLS with certificates that are reloaded when their files change.
//!
//! A certificate is renewed by writing other files, often by swapping a symbolic link to their
//! directory, so changes are detected by content and not by modification time. The files are read
//! periodically; new contents are used if they are complete and match, otherwise the old
//! certificate stays and the error is reported once. Connections retain the certificate of their
//! handshake. An endpoint with several certificates chooses one by the requested name.

mod config;
mod resolver;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::config::Fingerprint;
pub use self::config::{CertificateFiles, TlsFiles};
pub use self::resolver::{CertificateSource, SourceMatch};
use crate::logs::events;

/// Interval between reads of the files.
pub const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Acceptor of TLS connections. Clones share the certificate.
#[derive(Clone)]
pub struct Tls {
    inner: Arc<TlsInner>,
}

struct TlsInner {
    files: TlsFiles,
    source: Option<Arc<dyn CertificateSource>>,
    config: ArcSwap<ServerConfig>,
    /// Last contents that were tried, accepted or not. Locked during an attempt, so that there is
    /// one at a time.
    tried: Mutex<Fingerprint>,
    handler: Mutex<Option<Arc<EventHandler>>>,
}

type EventHandler = dyn Fn(&TlsEvent) + Send + Sync;

/// Outcome of a change of the files.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsEvent {
    /// New connections use the new certificate.
    Reloaded,
    /// New connections use the old certificate.
    Refused(TlsError),
}

/// Reason why certificates cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// A file is not valid PEM, or an item in it is malformed.
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Reason, from the parser.
        reason: String,
    },
    /// A file contains no certificate.
    NoCertificate {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file contains no private key.
    NoKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// The key does not match the certificate.
    KeyMismatch {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// No certificate is configured.
    NoCertificateFile,
    /// No usable combination of versions and algorithms.
    Unsupported {
        /// Reason, from the TLS library.
        reason: String,
    },
    /// A name is required of client certificates, but no CA is configured.
    SanWithoutCa {
        /// Required name.
        san: String,
    },
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read or is malformed, or the key does not match the certificate.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        Self::with_source(files, None)
    }

    /// Reads the files, which may have no certificate if there is a source of others.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn with_source(
        files: TlsFiles,
        source: Option<Arc<dyn CertificateSource>>,
    ) -> Result<Self, TlsError> {
        let contents = files.read_stable();
        let tried = Mutex::new(contents.fingerprint());
        let config = ArcSwap::from_pointee(config::build(&files, contents, source.clone())?);
        let handler = Mutex::new(None);
        Ok(Self { inner: Arc::new(TlsInner { files, source, config, tried, handler }) })
    }

    /// Sets the handler of events, replacing the previous one.
    pub fn on_event(&self, handler: impl Fn(&TlsEvent) + Send + Sync + 'static) {
        *self.inner.handler.lock() = Some(Arc::new(handler));
    }

    /// Logs reloads, with the path of the first certificate.
    pub fn log_events(&self) {
        let first = self.inner.files.certificates.first();
        let path = first.map(|files| files.cert.clone()).unwrap_or_default();
        self.on_event(move |event| match event {
            TlsEvent::Reloaded => events::certificate_loaded(&path.display()),
            TlsEvent::Refused(error) => events::certificate_rejected(&path.display(), error),
        });
    }

    /// Reads the files and uses new contents; returns whether there were any. Contents that were
    /// refused are not tried again.
    ///
    /// # Errors
    /// When the new contents cannot be used; the old certificate stays.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let TlsInner { files, source, config, tried, .. } = &*self.inner;
        let mut tried = tried.lock();
        let contents = files.read_stable();
        let fingerprint = contents.fingerprint();
        if std::mem::replace(&mut *tried, fingerprint) == fingerprint {
            return Ok(false);
        }
        config.store(Arc::new(config::build(files, contents, source.clone())?));
        Ok(true)
    }

    /// Calls [`Tls::check`] periodically, forever.
    pub async fn follow(&self) {
        loop {
            sleep(CHECK_EVERY).await;
            self.check().await;
        }
    }

    /// Reloads changed files on a blocking thread and reports the outcome to the event handler.
    pub async fn check(&self) {
        let tls = self.clone();
        let reloaded = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await;
        let event = match reloaded {
            Ok(Ok(true)) => TlsEvent::Reloaded,
            Ok(Err(error)) => TlsEvent::Refused(error),
            // No change, or the runtime shuts down.
            Ok(Ok(false)) | Err(_) => return,
        };
        // Called without the lock, since the handler may replace itself.
        let handler = self.inner.handler.lock().clone();
        if let Some(handler) = handler {
            handler(&event);
        }
    }

    /// Performs the handshake of a connection.
    ///
    /// # Errors
    /// When the client fails to prove who it is, breaks the protocol or goes away.
    pub async fn accept<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.inner.config.load_full()).accept(socket).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.inner.files).finish_non_exhaustive()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "{}: cannot be read: {error}; name a PEM file", path.display())
            }
            Self::Malformed { path, reason } => {
                write!(f, "{}: {reason}; write it again, as PEM", path.display())
            }
            Self::NoCertificate { path } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: contains no certificate; a `BEGIN CERTIFICATE` section is required"
                )
            }
            Self::NoKey { path } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: contains no usable key; a `BEGIN PRIVATE KEY` section without a \
                     passphrase is required"
                )
            }
            Self::KeyMismatch { cert, key } => {
                let (cert, key) = (cert.display(), key.display());
                write!(
                    f,
                    "{key}: the key does not match the certificate in {cert}, whose first \
                     certificate must be the server's; write both files again"
                )
            }
            Self::NoCertificateFile => f.write_str("no certificate is configured; name one"),
            Self::Unsupported { reason } => write!(f, "{reason}"),
            Self::SanWithoutCa { san } => {
                write!(
                    f,
                    "`{san}` is required of client certificates, but no CA verifies them; name a \
                     file with the CA's certificate"
                )
            }
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            _ => None,
        }
    }
}
