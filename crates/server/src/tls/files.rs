//! Where certificates are, and what is there now.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// Where certificates are, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate of the server, and those between it and the root.
    pub cert: PathBuf,
    /// Its key, as PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// Who vouches for clients. With it every client must have a certificate.
    pub client_ca: Option<PathBuf>,
    /// The name (DNS, IP address or URI) that a client's certificate must be for.
    pub client_san: Option<String>,
}

/// What is in the files.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) cert: io::Result<Vec<u8>>,
    pub(super) key: io::Result<Vec<u8>>,
    pub(super) client_ca: Option<io::Result<Vec<u8>>>,
}

/// By which contents are known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print(u64);

/// How often files are read that change meanwhile.
const READS_MAX: usize = 5;

/// The longest of them; nothing that belongs here is nearly as long.
const FILE_BYTES_MAX: u64 = 4 << 20;

// === impl Files ===

impl Files {
    /// What is in them, read twice the same: they may be changed one after the other.
    pub(super) fn settled(&self) -> Contents {
        let mut last = self.read();
        for _ in 1..READS_MAX {
            let again = self.read();
            if again.print() == last.print() {
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
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    fs::read(path)
}

// === impl Contents ===

impl Contents {
    pub(super) fn print(&self) -> Print {
        let mut hasher = DefaultHasher::new();
        for file in [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()] {
            let file = file.map(|file| file.as_ref().map_err(io::Error::kind));
            file.hash(&mut hasher);
        }
        Print(hasher.finish())
    }
}
