//! Files of an endpoint: their paths, and reads of files that belong together.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::TlsError;

/// PEM files of an endpoint, and what it requires of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates, chosen by the name that a client requests; the first for unknown names.
    pub certificates: Vec<CertificateFiles>,
    /// CA of client certificates; if set, every client must have one.
    pub client_ca: Option<PathBuf>,
    /// Subject alternative name (DNS name, IP address or URI) required of client certificates.
    pub client_san: Option<String>,
    /// Whether TLS 1.2 is refused.
    pub only_tls13: bool,
    /// Application protocols (ALPN), in order of preference.
    pub alpn: &'static [&'static [u8]],
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate of the server, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// Its key, as PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// Files that belong together, with what was last loaded from them.
#[derive(Debug)]
pub(super) struct Loaded<T> {
    pub(super) value: T,
    /// Last contents that were tried, accepted or not.
    tried: Fingerprint,
}

/// Contents of some files.
#[derive(Debug)]
pub(super) struct Contents<'a, const N: usize>([(&'a Path, io::Result<Vec<u8>>); N]);

/// Hash of the contents, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint(u64);

/// Limit of reads while the files change.
const READS_MAX: usize = 5;

/// Limit of a file's size, far above that of any certificate chain.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl TlsFiles {
    /// One certificate, for HTTP/2.
    #[must_use]
    pub fn new(cert: PathBuf, key: PathBuf) -> Self {
        Self {
            certificates: vec![CertificateFiles { cert, key }],
            client_ca: None,
            client_san: None,
            only_tls13: false,
            alpn: &[b"h2"],
        }
    }
}

impl CertificateFiles {
    pub(super) fn paths(&self) -> [&Path; 2] {
        [&self.cert, &self.key]
    }
}

impl<T> Loaded<T> {
    /// Reads the files.
    pub(super) fn new<const N: usize>(
        paths: [&Path; N],
        build: impl FnOnce([Vec<u8>; N]) -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let contents = Contents::read_stable(paths);
        let tried = contents.fingerprint();
        Ok(Self { value: build(contents.into_bytes()?)?, tried })
    }

    /// Reads the files again, and loads contents that were not tried before; returns whether there
    /// were any. On an error the last good value stays.
    pub(super) fn reload<const N: usize>(
        &mut self,
        paths: [&Path; N],
        build: impl FnOnce([Vec<u8>; N]) -> Result<T, TlsError>,
    ) -> Result<bool, TlsError> {
        let contents = Contents::read_stable(paths);
        let fingerprint = contents.fingerprint();
        if std::mem::replace(&mut self.tried, fingerprint) == fingerprint {
            return Ok(false);
        }
        self.value = build(contents.into_bytes()?)?;
        Ok(true)
    }
}

impl<'a, const N: usize> Contents<'a, N> {
    /// Reads the files until two reads agree, since they may be replaced one after the other.
    fn read_stable(paths: [&'a Path; N]) -> Self {
        let mut last = Self::read(paths);
        for _ in 1..READS_MAX {
            let again = Self::read(paths);
            if again.fingerprint() == last.fingerprint() {
                break;
            }
            last = again;
        }
        last
    }

    fn read(paths: [&'a Path; N]) -> Self {
        Self(paths.map(|path| (path, read(path))))
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for (_, file) in &self.0 {
            file.as_ref().map_err(io::Error::kind).hash(&mut hasher);
        }
        Fingerprint(hasher.finish())
    }

    /// The contents, or the error of the first file that cannot be read.
    fn into_bytes(self) -> Result<[Vec<u8>; N], TlsError> {
        let mut failed = None;
        let bytes = self.0.map(|(path, file)| {
            file.unwrap_or_else(|error| {
                failed.get_or_insert(TlsError::Unreadable { path: path.to_owned(), error });
                Vec::new()
            })
        });
        failed.map_or(Ok(bytes), Err)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    fs::read(path)
}
