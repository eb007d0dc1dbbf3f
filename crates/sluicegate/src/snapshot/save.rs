//! Writing a snapshot.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::file::{SnapshotFile, beside, folder_of};
use super::format::Sink;
use super::{Saved, SnapshotError};
use crate::memory::Memory;

impl Memory {
    /// Writes the state of all limiters of this store to a file, replacing it.
    ///
    /// Decisions continue meanwhile. See [`crate::snapshot`] for the guarantees. An existing file
    /// that cannot be restored is moved aside. Checking it requires reading it: a million
    /// identities (28 MB) take 0.44 s instead of 0.23 s. A process that saves often, or needs
    /// exclusive access, uses a [`SnapshotFile`].
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Memory};
    ///
    /// let path = std::env::temp_dir().join(format!("save-{}.snapshot", std::process::id()));
    /// let memory = Memory::new();
    /// let limiter =
    ///     Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).memory(&memory).build()?;
    /// limiter.hit("alice");
    /// assert_eq!(memory.save(&path)?.identities, 1);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be written or belongs to another process, or two limiters have the same
    /// name. Then the old file is unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<Saved, SnapshotError> {
        // Two threads that save to one file take turns; another process is an error.
        static SAVING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = SAVING.lock();
        let file = SnapshotFile::open(path)?;
        file.move_aside_unless_intact()?;
        file.save(self)
    }

    /// Writes all limiters to a file that this process owns.
    pub(super) fn write_to(&self, path: &Path) -> Result<Saved, SnapshotError> {
        let limiters = self.store.limiters();
        let mut names: Vec<&str> = limiters.iter().map(|limiter| limiter.name()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SnapshotError::SameName { name: pair[0].to_owned() });
        }
        let write = |file: &File| {
            let mut out = BufWriter::new(file);
            let mut sink = Sink::new(&mut out);
            sink.header(self.store.key(), limiters.len() as u64)?;
            for limiter in &limiters {
                limiter.write_to(&mut sink)?;
            }
            let (identities, bytes) = sink.finish()?;
            out.flush()?;
            Ok(Saved { identities, bytes })
        };
        replace(path, write).map_err(SnapshotError::io(path))
    }
}

/// Writes a temporary file, syncs it and renames it to `path`.
fn replace<T>(path: &Path, write: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    let beside = unused(path);
    let result = (|| {
        let file = create(&beside)?;
        let written = write(&file)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        sync_folder(path);
        Ok(written)
    })();
    if result.is_err() {
        // The partial file is useless; a failure to remove it must not hide the first error.
        let _ = std::fs::remove_file(&beside);
    }
    result
}

/// A unique name in the same folder.
fn unused(path: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);

    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    beside(path, &format!("{}-{next}.tmp", std::process::id()))
}

/// Creates files that only their owner may read.
pub(super) fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

/// A new file that only its owner may read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    match options.open(path) {
        // Left by a killed process: in a container the next one has the same PID.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

/// Syncs the directory. Where that is unsupported, the old file may be back after a power failure.
pub(super) fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
}
