//! TLS with certificates that are reloaded when their files change.
//!
//! A certificate is renewed by writing other files, often by swapping a symbolic link to their
//! directory, so changes are detected by content and not by modification time. The files are read
//! periodically, each certificate with its key, and the client CA, by itself: new contents are used
//! if they are complete and match, otherwise the old ones stay and the error is reported once.
//! Connections retain the certificate of their handshake. An endpoint with several certificates
//! chooses one by the requested name.

mod certificate;
mod check;
mod client;
mod config;
mod error;
mod files;
mod metrics;
mod resolver;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluicegate::Timestamp;
use sluicegate::clock::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::certificate::{Certificate, Validity, ValidityWarning};
pub use self::check::TlsCheck;
use self::config::{Current, LoadedFiles};
pub use self::error::TlsError;
pub use self::files::{CertificateFiles, TlsFiles};
pub(crate) use self::metrics::EndpointCertificates;
pub use self::metrics::put_certificates;
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
    current: ArcSwap<Current>,
    /// Locked during an attempt, so that there is one at a time.
    loaded: Mutex<LoadedFiles>,
    /// Changes that were refused, by certificate and client CA.
    failures: BTreeMap<PathBuf, AtomicU64>,
    handler: Mutex<Option<Arc<EventHandler>>>,
}

type EventHandler = dyn Fn(&TlsEvent) + Send + Sync;

/// What a look at the files has found.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsEvent {
    /// New connections use the new certificate or client CA.
    Reloaded {
        /// Its file.
        path: PathBuf,
    },
    /// New connections use the old certificate or client CA.
    Refused {
        /// Its file; the reason may be in that of its key.
        path: PathBuf,
        /// Reason.
        error: TlsError,
    },
    /// Clients refuse a certificate in use, or soon will.
    Validity {
        /// Its file.
        path: PathBuf,
        /// When it is valid.
        validity: Validity,
        /// What is wrong with that.
        warning: ValidityWarning,
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
        let loaded = LoadedFiles::new(&files)?;
        let current = ArcSwap::from_pointee(loaded.build(&files, source.clone())?);
        let paths = files.certificates.iter().map(|files| &files.cert).chain(&files.client_ca);
        let failures = paths.map(|path| (path.clone(), AtomicU64::new(0))).collect();
        let (loaded, handler) = (Mutex::new(loaded), Mutex::new(None));
        Ok(Self { inner: Arc::new(TlsInner { files, source, current, loaded, failures, handler }) })
    }

    /// Sets the handler of events, replacing the previous one.
    pub fn on_event(&self, handler: impl Fn(&TlsEvent) + Send + Sync + 'static) {
        *self.inner.handler.lock() = Some(Arc::new(handler));
    }

    /// Logs all events.
    pub fn log_events(&self) {
        self.on_event(|event| match event {
            TlsEvent::Reloaded { path } => events::certificate_loaded(&path.display()),
            TlsEvent::Refused { path, error } => {
                events::certificate_rejected(&path.display(), error);
            }
            TlsEvent::Validity { path, validity, warning } => {
                events::certificate_validity(&path.display(), *validity, *warning);
            }
        });
    }

    /// Reads the files and uses new contents, each certificate by itself: one that cannot be used
    /// keeps the last good one. Contents that were refused are not tried again.
    pub fn reload(&self, now: Timestamp) -> Vec<TlsEvent> {
        let TlsInner { files, source, current, loaded, failures, .. } = &*self.inner;
        let mut loaded = loaded.lock();
        let mut events = loaded.reload(files);
        if events.iter().any(|event| matches!(event, TlsEvent::Reloaded { .. })) {
            // Fails only if no version of TLS is supported, and then the first one has failed.
            if let Ok(new) = loaded.build(files, source.clone()) {
                current.store(Arc::new(new));
            }
        }
        for event in &events {
            if let TlsEvent::Refused { path, .. } = event
                && let Some(count) = failures.get(path)
            {
                count.fetch_add(1, Relaxed);
            }
        }
        events.extend(loaded.warnings(files, now));
        events
    }

    /// Calls [`Tls::check`] periodically, forever.
    pub async fn follow(&self) {
        loop {
            sleep(CHECK_EVERY).await;
            self.check().await;
        }
    }

    /// Reloads changed files on a blocking thread and reports events to the handler.
    pub async fn check(&self) {
        let tls = self.clone();
        let now = SystemClock::get().now();
        // An error means that the runtime shuts down.
        let events = tokio::task::spawn_blocking(move || tls.reload(now)).await;
        for event in events.unwrap_or_default() {
            // Called without the lock, since the handler may replace itself.
            let handler = self.inner.handler.lock().clone();
            if let Some(handler) = handler {
                handler(&event);
            }
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
        TlsAcceptor::from(self.inner.current.load().config.clone()).accept(socket).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.inner.files).finish_non_exhaustive()
    }
}
