//! Reasons why certificates cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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

impl TlsError {
    /// The file that the reason is about, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unreadable { path, .. }
            | Self::Malformed { path, .. }
            | Self::NoCertificate { path }
            | Self::NoKey { path }
            | Self::KeyMismatch { key: path, .. } => Some(path),
            Self::NoCertificateFile | Self::Unsupported { .. } | Self::SanWithoutCa { .. } => None,
        }
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
