//! Certificate files and their contents.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// Paths of the PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of the server, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// Its key, as PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// CA of client certificates; if set, every client must have one.
    pub client_ca: Option<PathBuf>,
    /// Subject alternative name (DNS name, IP address or URI) required of client certificates.
    pub client_san: Option<String>,
}

/// Contents of the files.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) cert: io::Result<Vec<u8>>,
    pub(super) key: io::Result<Vec<u8>>,
    pub(super) client_ca: Option<io::Result<Vec<u8>>>,
}

/// Hash of the contents, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

/// Limit of reads while the files change.
const READS_MAX: usize = 5;

/// Limit of a file's size, far above that of any certificate chain.
const FILE_BYTES_MAX: u64 = 4 << 20;

// === impl TlsFiles ===

impl TlsFiles {
    /// Reads the files until two reads agree, since they may be replaced one after the other.
    pub(super) fn read_stable(&self) -> Contents {
        let mut last = self.read();
        for _ in 1..READS_MAX {
            let again = self.read();
            if again.fingerprint() == last.fingerprint() {
                break;
            }
            last = again;
        }
        last
    }

    fn read(&self) -> Contents {
        Contents {
            cert: read(&self.cert),
            key: read(&self.key),
            client_ca: self.client_ca.as_deref().map(read),
        }
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

// === impl Contents ===

impl Contents {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for file in [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()] {
            let file = file.map(|file| file.as_ref().map_err(io::Error::kind));
            file.hash(&mut hasher);
        }
        Fingerprint(hasher.finish())
    }
}
