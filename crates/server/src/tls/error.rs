//! Why certificates cannot be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why certificates cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is no PEM, or what it holds cannot be read.
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no certificate in a file.
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// There is no key in a file.
    NoKey {
        /// Which.
        path: PathBuf,
    },
    /// The key is of another certificate.
    KeyDoesNotFit {
        /// Where the certificate is.
        cert: PathBuf,
        /// Where the key is.
        key: PathBuf,
    },
    /// Clients are to have a name, but nobody vouches for it.
    NameWithoutCa {
        /// The name.
        san: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "{}: cannot be read: {error}; name a file in PEM", path.display())
            }
            Self::Malformed { path, why } => {
                write!(f, "{}: {why}; write it again, in PEM", path.display())
            }
            Self::NoCertificate { path } => {
                let path = path.display();
                write!(f, "{path}: no certificate in it; it must have a `BEGIN CERTIFICATE` part")
            }
            Self::NoKey { path } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: no key in it that can be read; it must have a `BEGIN PRIVATE KEY` part, \
                     without a passphrase"
                )
            }
            Self::KeyDoesNotFit { cert, key } => {
                let (cert, key) = (cert.display(), key.display());
                write!(
                    f,
                    "{key}: the key does not fit the certificate in {cert}, whose first certificate \
                     must be the server's; write both files again"
                )
            }
            Self::NameWithoutCa { san } => {
                write!(
                    f,
                    "clients are to be `{san}`, but without a CA for them nobody vouches for their \
                     names; name a file with its certificate"
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
