//! Reading a snapshot.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use sluicegate_core::mode::Mode;
use sluicegate_rules::limit::LimitConfig;

use super::SnapshotError;
use super::file::folder_of;
use super::format::{Entry, Head, MAGIC, Source, VERSION};
use crate::memory::{ENTRIES_MAX, Memory};

/// An intact snapshot, until its limiters have been built.
#[derive(Debug)]
pub(crate) struct Restored {
    file: File,
    /// Offset of each limiter, and the number of highest bits known of its hashes.
    limiters: HashMap<String, (u64, u32)>,
}

impl Memory {
    /// Restores a store from a file.
    ///
    /// Limiters that are built on it restore the state of the limiter of their name. A file that is
    /// damaged or not a snapshot is rejected; then counters start at zero:
    ///
    /// ```
    /// use sluicegate::Memory;
    ///
    /// # let path = std::env::temp_dir().join("no such file");
    /// let memory = Memory::restore(path).unwrap_or_else(|error| {
    ///     if !error.is_missing() {
    ///         eprintln!("{error}");
    ///     }
    ///     Memory::new()
    /// });
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read, is truncated or damaged, or is not a snapshot of this version.
    pub fn restore(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        Self::restore_with_entries(path, ENTRIES_MAX)
    }

    /// The same for at most `most` entries; the rest is omitted.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    /// use sluicegate::{Limiter, Memory};
    ///
    /// let path = std::env::temp_dir().join(format!("back-{}.snapshot", std::process::id()));
    /// let logins = |memory: &Memory| {
    ///     Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).memory(memory).build()
    /// };
    /// let memory = Memory::new();
    /// let limiter = logins(&memory)?;
    /// limiter.of("alice").cost(4).hit();
    /// memory.save(&path)?;
    ///
    /// let again = logins(&Memory::restore_with_entries(&path, 1_000_000)?)?;
    /// assert_eq!(again.of("alice").peek().remaining, Some(1));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Memory::restore`].
    pub fn restore_with_entries(
        path: impl AsRef<Path>,
        most: usize,
    ) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let (key, restored) = check(open(path)?, path)?;
        let memory = Self::with_key(most, key);
        memory.store.remember(restored);
        Ok(memory)
    }
}

/// Checks that a file is an intact snapshot of this version.
pub(super) fn is_snapshot(path: &Path) -> Result<(), SnapshotError> {
    check(open(path)?, path).map(drop)
}

fn open(path: &Path) -> Result<File, SnapshotError> {
    File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound if !folder_of(path).exists() => {
            SnapshotError::NoFolder { path: path.to_owned() }
        }
        _ => SnapshotError::io(path)(error),
    })
}

/// Reads and validates a whole file.
fn check(file: File, path: &Path) -> Result<([u64; 2], Restored), SnapshotError> {
    let io = SnapshotError::io(path);
    let corrupted = || SnapshotError::Corrupted { path: path.to_owned() };
    check_magic(&file, path)?;
    let mut source = Source::new(BufReader::new(&file), 0);
    source.array::<{ MAGIC.len() }>().map_err(&io)?;
    let found = u32::from_le_bytes(source.array().map_err(&io)?);
    if found != VERSION {
        return Err(SnapshotError::Version { path: path.to_owned(), found });
    }
    source.array::<4>().map_err(&io)?;
    let mut number = || source.number().map_err(&io);
    let (key, count) = ([number()?, number()?], number()?);
    let mut limiters = HashMap::new();
    for _ in 0..count {
        let offset = source.offset;
        let Head { name, bits, .. } = source.limiter().map_err(&io)?.ok_or_else(corrupted)?;
        while let Some(entry) = source.entry().map_err(&io)? {
            entry.ok_or_else(corrupted)?;
        }
        limiters.insert(name, (offset, bits));
    }
    let intact = source.is_intact().map_err(&io)? && source.is_over().map_err(&io)?;
    if !intact {
        return Err(corrupted());
    }
    drop(source);
    Ok((key, Restored { file, limiters }))
}

/// Whether a file begins with the snapshot header; a shorter file is truncated if it is a prefix of
/// it.
pub(super) fn check_magic(mut file: &File, path: &Path) -> Result<(), SnapshotError> {
    let mut start = Vec::new();
    let read = file.take(MAGIC.len() as u64).read_to_end(&mut start).and_then(|_| file.rewind());
    match read {
        Ok(()) if start == MAGIC => Ok(()),
        Ok(()) if MAGIC.starts_with(&start) => {
            Err(SnapshotError::Truncated { path: path.to_owned() })
        }
        Err(error) if error.kind() != ErrorKind::IsADirectory => {
            Err(SnapshotError::io(path)(error))
        }
        _ => Err(SnapshotError::Foreign { path: path.to_owned() }),
    }
}

impl Restored {
    /// Calls `each` with the entries of the limiter of this name, after `rule` with its rules.
    pub(crate) fn limiter<T>(
        &mut self,
        name: &str,
        rule: impl FnOnce(Mode, Vec<LimitConfig>) -> T,
        mut each: impl FnMut(&T, Entry),
    ) {
        let Some((offset, _)) = self.limiters.remove(name) else { return };
        let mut file = &self.file;
        if file.seek(SeekFrom::Start(offset)).is_err() {
            return;
        }
        // The file was read completely once. If the disk fails now the rest is omitted, and no
        // request is admitted that an empty start would deny.
        let mut source = Source::new(BufReader::new(file), offset);
        let Ok(Some(Head { mode, limits, .. })) = source.limiter() else { return };
        let rule = rule(mode, limits);
        while let Ok(Some(Some(entry))) = source.entry() {
            each(&rule, entry);
        }
    }

    /// The number of highest hash bits that are known for the limiter of this name, if it exists.
    pub(crate) fn bits(&self, name: &str) -> Option<u32> {
        self.limiters.get(name).map(|(_, bits)| *bits)
    }

    /// Whether every limiter has been built.
    pub(crate) fn is_used_up(&self) -> bool {
        self.limiters.is_empty()
    }
}
