//! A snapshot file that one process owns.
//!
//! ```text
//!   FILE                    the last snapshot: replaced by rename, never written in place
//!   FILE.lock               advisory lock (flock), held by the process that saves to FILE
//!   FILE.PID-N.tmp          a snapshot that is being written; leftovers are removed by the next owner
//!   FILE.damaged-UNIXTIME   a file that could not be restored, moved aside before FILE is replaced
//! ```
//!
//! The lock is on a separate file, since a lock on FILE would be lost with the rename. The
//! operating system releases it when the process ends in any way; FILE.lock itself stays.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::restore::{check_magic, is_snapshot};
use super::save::{private, sync_folder};
use super::{Saved, SnapshotError};
use crate::clock::SystemClock;
use crate::memory::Memory;

/// A snapshot file that this process owns: no other process, and no other `SnapshotFile`, saves to
/// it meanwhile.
///
/// ```
/// use sluicegate::snapshot::{Restoration, SnapshotFile};
/// use sluicegate::SnapshotError;
///
/// # let folder = std::env::temp_dir().join(format!("owned-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let path = folder.join("counts");
/// let file = SnapshotFile::open(&path)?;
/// let (memory, restoration) = file.restore(1_000_000)?;
/// if let Restoration::Failed { error, moved_to } = &restoration {
///     eprintln!("counters start at zero: {error}; the file is now {}", moved_to.display());
/// }
/// file.save(&memory)?;
/// assert!(matches!(SnapshotFile::open(&path), Err(SnapshotError::InUse { .. })));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    /// Locked until it is dropped.
    _lock: File,
    /// Serializes saves: the one that began first must not be renamed last.
    saving: Mutex<()>,
}

/// The source of a restored store.
#[derive(Debug)]
#[non_exhaustive]
pub enum Restoration {
    /// The file.
    Restored,
    /// There is no file yet: the store is empty.
    Missing,
    /// The file could not be restored and was moved aside: the store is empty.
    Failed {
        /// The reason.
        error: SnapshotError,
        /// The path that it was moved to.
        moved_to: PathBuf,
    },
}

impl SnapshotFile {
    /// Locks a file, which may not exist yet.
    ///
    /// # Errors
    /// When another process owns it, its folder does not exist, or the file is not a snapshot.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        check_kind(path)?;
        let lock_path = beside(path, "lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        private(&mut options);
        let lock = options.open(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => SnapshotError::NoFolder { path: path.to_owned() },
            _ => SnapshotError::io(&lock_path)(error),
        })?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(SnapshotError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(SnapshotError::io(&lock_path)(error)),
        }
        remove_leftovers(path);
        Ok(Self { path: path.to_owned(), _lock: lock, saving: Mutex::new(()) })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The store in the file, for at most `most` entries, or an empty one. A file that cannot be
    /// restored is moved aside, so that no later save replaces it.
    ///
    /// # Errors
    /// When the file is no snapshot, or cannot be moved aside.
    pub fn restore(&self, most: usize) -> Result<(Memory, Restoration), SnapshotError> {
        match Memory::restore_with_entries(&self.path, most) {
            Ok(memory) => Ok((memory, Restoration::Restored)),
            Err(error) if error.is_missing() => {
                Ok((Memory::with_entries(most), Restoration::Missing))
            }
            Err(foreign @ SnapshotError::Foreign { .. }) => Err(foreign),
            Err(error) => {
                let moved_to = self.move_aside()?;
                Ok((Memory::with_entries(most), Restoration::Failed { error, moved_to }))
            }
        }
    }

    /// Writes a store to the file, replacing the last snapshot. Decisions continue meanwhile.
    ///
    /// # Errors
    /// When the file cannot be written, or two limiters have the same name. Then the last snapshot
    /// is unchanged.
    pub fn save(&self, memory: &Memory) -> Result<Saved, SnapshotError> {
        let _one_at_a_time = self.saving.lock();
        memory.write_to(&self.path)
    }

    /// Moves the file aside unless a save may replace it.
    pub(super) fn move_aside_unless_intact(&self) -> Result<(), SnapshotError> {
        match is_snapshot(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if error.is_missing() => Ok(()),
            Err(foreign @ SnapshotError::Foreign { .. }) => Err(foreign),
            Err(_) => self.move_aside().map(drop),
        }
    }

    /// Renames the file to one that does not exist yet.
    fn move_aside(&self) -> Result<PathBuf, SnapshotError> {
        let seconds = SystemClock::get().read().as_micros() / 1_000_000;
        let stamped = beside(&self.path, &format!("damaged-{seconds}"));
        let numbered =
            (1..).map(|number| beside(&self.path, &format!("damaged-{seconds}-{number}")));
        let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
        // There are always more numbers than files.
        let free = std::iter::once(stamped.clone()).chain(numbered).find(is_free);
        let free = free.unwrap_or(stamped);
        fs::rename(&self.path, &free).map_err(SnapshotError::io(&self.path))?;
        sync_folder(&self.path);
        Ok(free)
    }
}

/// Rejects files that are certainly not snapshots before anything is created beside them. A device
/// reads like a truncated file.
fn check_kind(path: &Path) -> Result<(), SnapshotError> {
    // Restoring handles a missing, unreadable or truncated file.
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    if !found.is_file() {
        return Err(SnapshotError::Foreign { path: path.to_owned() });
    }
    match File::open(path).map(|file| check_magic(&file, path)) {
        Ok(Err(foreign @ SnapshotError::Foreign { .. })) => Err(foreign),
        _ => Ok(()),
    }
}

/// Removes the temporary file of a killed process. Only the owner of the lock writes there.
fn remove_leftovers(path: &Path) {
    let Some(name) = path.file_name() else { return };
    let Ok(entries) = fs::read_dir(folder_of(path)) else { return };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let (found, name) = (found.as_encoded_bytes(), name.as_encoded_bytes());
        let numbers = found.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"."));
        let numbers = numbers.and_then(|rest| rest.strip_suffix(b".tmp"));
        if numbers.is_some_and(|n| n.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')) {
            // A remaining temporary file takes space but is harmless.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file in the same folder with the same name and a further extension.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
