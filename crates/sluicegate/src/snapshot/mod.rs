//! Snapshots: saves a store to a file and restores it.
//!
//! ```
//! use sluicegate::limit::FixedWindow;
//! use sluicegate::{Limiter, Memory};
//!
//! let path = std::env::temp_dir().join(format!("doc-{}.snapshot", std::process::id()));
//! let logins = |memory: &Memory| {
//!     Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).memory(memory).build()
//! };
//!
//! let memory = Memory::new();
//! let limiter = logins(&memory)?;
//! limiter.of("alice").cost(4).hit();
//! memory.save(&path)?;
//!
//! let memory = Memory::restore(&path)?;
//! assert_eq!(logins(&memory)?.of("alice").peek().remaining, Some(1));
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A limiter must be alive when its store is saved: a dropped limiter has nothing to save.
//!
//! # What a snapshot is
//!
//! - *Atomic*: it is written to a temporary file, synced, and renamed over the old one. A reader
//!   finds the old one or the new one, even after a power failure.
//! - *Checked*: a truncated, changed or foreign file is refused with the reason.
//! - *Never lost silently*: a file that cannot be restored is moved aside (`FILE.damaged-UNIXTIME`)
//!   before a save takes its place, and a file that is something else is never replaced.
//! - *Owned by one process*: a save takes an advisory lock (`FILE.lock`); a [`SnapshotFile`] holds
//!   it for as long as it lives, so that a second process gets [`SnapshotError::InUse`].
//! - *Taken under load*: a few identities are locked at a time, so accounts are consistent one by
//!   one, and those of one request may differ by concurrent decisions.
//! - *Private*: it contains the secret key of the store's hashes, so its mode is 0600. It contains
//!   hashes of keys, not keys.
//! - *Valid for changed limits*: the limits are stored with the states. A limiter built with other
//!   limits carries the states over as [`Limiter::set_limits`](crate::Limiter::set_limits) does
//!   with [`CarryOver::Used`](crate::CarryOver::Used).

mod file;
mod format;
mod restore;
mod save;

use std::path::{Path, PathBuf};

pub use file::{Restoration, SnapshotFile};
pub(crate) use format::{Entry, Sink};
pub(crate) use restore::Restored;

/// Result of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// Number of identities.
    pub identities: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// Why a snapshot was not written, or not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file system returned an error.
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a snapshot.
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// The file was written by another version.
    Version {
        /// The path.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The file is truncated.
    Truncated {
        /// The path.
        path: PathBuf,
    },
    /// The file was changed after it was written, or the disk lost data.
    Corrupted {
        /// The path.
        path: PathBuf,
    },
    /// Its folder does not exist, for example because a volume is not mounted.
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// Another process, or another [`SnapshotFile`] of this one, owns the file.
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Two limiters of the store have the same name, so their states would be ambiguous.
    SameName {
        /// The name.
        name: String,
    },
}

impl SnapshotError {
    /// Whether the file does not exist, as at the first start.
    ///
    /// ```
    /// let missing = std::env::temp_dir().join("no such file");
    /// assert!(sluicegate::Memory::restore(missing).unwrap_err().is_missing());
    /// // A missing folder is another matter: no snapshot can be saved there.
    /// assert!(!sluicegate::Memory::restore("/nowhere/at/all").unwrap_err().is_missing());
    /// ```
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    fn io(path: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        |source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Truncated { path: path.to_owned() },
            _ => Self::Io { path: path.to_owned(), source },
        }
    }
}

impl std::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const EMPTY: &str = "counters start at zero, and the next save moves this file aside";
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            // Advising removal would be wrong: the file belongs to another program.
            Self::Foreign { path } => write!(
                f,
                "{}: this is no snapshot of a sluicegate store; name another file",
                path.display()
            ),
            Self::Version { path, found } => write!(
                f,
                "{}: a snapshot of version `{found}`, and this program reads version `{}`; {EMPTY}",
                path.display(),
                format::VERSION
            ),
            Self::Truncated { path } => {
                write!(f, "{}: the snapshot is cut short; {EMPTY}", path.display())
            }
            Self::Corrupted { path } => {
                let path = path.display();
                write!(f, "{path}: the snapshot is damaged, its checksum is wrong; {EMPTY}")
            }
            Self::NoFolder { path } => {
                let path = path.display();
                write!(f, "{path}: its folder does not exist; create or mount it")
            }
            Self::InUse { path } => write!(
                f,
                "{}: another process saves to this file; stop it, or name another file for this \
                 process",
                path.display()
            ),
            Self::SameName { name } => write!(
                f,
                "two limiters of this store are called `{name}`: give each a name of its own \
                 (`Limiter::builder().name(…)`)"
            ),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
