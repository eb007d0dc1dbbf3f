//! Encrypted connections, by certificates in files that may change at any time.
//!
//! A certificate is renewed by writing other files, often by swapping a symbolic link to their directory. So files are known by what is in
//! them, not by their times: they are read at regular times, and what is new is taken if it is whole and fits together. If it is
//! not, the old certificate stays, and whoever asked to be told is told, once. Connections keep the certificate that they began with.

mod config;
mod error;
mod files;
mod san;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::error::TlsError;
pub use self::files::Files;
use self::files::Print;

/// How often the files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Encrypts connections. Clones are the same.
#[derive(Clone)]
pub struct Tls {
    inner: Arc<Inner>,
}

struct Inner {
    files: Files,
    config: ArcSwap<ServerConfig>,
    /// What was tried last, whether it was taken or not. Held while something is tried, so that two do not try at once.
    tried: Mutex<Print>,
    told: Mutex<Option<Arc<Listener>>>,
}

type Listener = dyn Fn(&TlsEvent) + Send + Sync;

/// What became of files that have changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsEvent {
    /// New connections get the new certificate.
    Reloaded,
    /// New connections get the old certificate.
    Refused(TlsError),
}

// === impl Tls ===

impl Tls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// When one of them cannot be read or is not what it should be, or the key does not fit the certificate.
    pub fn new(files: Files) -> Result<Self, TlsError> {
        let contents = files.settled();
        let print = contents.print();
        let config = ArcSwap::from_pointee(config::config(&files, contents)?);
        let (tried, told) = (Mutex::new(print), Mutex::new(None));
        Ok(Self { inner: Arc::new(Inner { files, config, tried, told }) })
    }

    /// Calls `told` for every change of the files that is noticed from now on, instead of whoever was called until now.
    pub fn on_event(&self, told: impl Fn(&TlsEvent) + Send + Sync + 'static) {
        *self.inner.told.lock() = Some(Arc::new(told));
    }

    /// Looks at the files, and takes what is new. Tells whether it did. What was refused once is not tried again.
    ///
    /// # Errors
    /// When what is new is not fit to be taken; then everything stays as it was.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let Inner { files, config, tried, .. } = &*self.inner;
        let mut tried = tried.lock();
        let contents = files.settled();
        let print = contents.print();
        if std::mem::replace(&mut *tried, print) == print {
            return Ok(false);
        }
        config.store(Arc::new(config::config(files, contents)?));
        Ok(true)
    }

    /// Looks at the files at regular times, for ever.
    pub async fn follow(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    /// Looks at the files now, without making other tasks wait for a disk, and tells what became of it.
    pub async fn look(&self) {
        let tls = self.clone();
        let looked = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await;
        let event = match looked {
            Ok(Ok(true)) => TlsEvent::Reloaded,
            Ok(Err(error)) => TlsEvent::Refused(error),
            // Nothing new, or the runtime is about to end.
            Ok(Ok(false)) | Err(_) => return,
        };
        // Not called under the lock: it may want to be replaced.
        let told = self.inner.told.lock().clone();
        if let Some(told) = told {
            told(&event);
        }
    }

    /// The first words of a connection.
    pub(crate) async fn accept<S>(&self, socket: S) -> io::Result<TlsStream<S>>
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
