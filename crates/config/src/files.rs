//! The files that rules are read from: one, or all of a directory.
//!
//! A directory is read as envoyproxy/ratelimit reads it: recursively, every file regardless of its
//! name. Kubernetes mounts a ConfigMap as links into a directory `..data`, itself a link; names
//! that begin with a dot are skipped, so each file is read once, under its plain name.
//!
//! Everything is bounded, since a path may be mistyped: `/` is not a directory of rules.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::rules::Source;

/// Maximum size of a file in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of all files together in bytes.
pub const TOTAL_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of files of a directory.
pub const FILES_MAX: usize = 10_000;
/// How deeply directories may be nested.
pub const DIRECTORIES_MAX: usize = 16;

const _: () = assert!(FILE_BYTES_MAX as usize == crate::yaml::TEXT_BYTES_MAX);

/// The directory in which a store of rules holds its revisions; it holds no rules.
pub const STORE_DIRECTORY: &str = ".sluicegate";

/// Which files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether files and directories whose names begin with a dot are left out
    /// (`RUNTIME_IGNOREDOTFILES`).
    pub ignore_dot_files: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { ignore_dot_files: true }
    }
}

/// Why a file could not be read.
///
/// ```
/// use sluicegate_config::files::{ReadOptions, read};
///
/// let error = read("no/such/file".as_ref(), &ReadOptions::default()).unwrap_err();
/// assert_eq!(error.to_string(), "no/such/file: there is no such file; check the path");
/// ```
#[derive(Debug)]
pub struct FileError {
    path: PathBuf,
    reason: String,
    cause: Option<io::Error>,
}

/// Reads a file, or every file of a directory, sorted by path.
///
/// ```
/// use sluicegate_config::files::{ReadOptions, read};
///
/// let sources = read("src/lib.rs".as_ref(), &ReadOptions::default())?;
/// assert_eq!(sources.len(), 1);
/// assert_eq!(sources[0].name, "src/lib.rs");
/// # Ok::<(), sluicegate_config::files::FileError>(())
/// ```
///
/// # Errors
/// When a file cannot be read or is not UTF-8, a size limit is exceeded, or there is no file: a
/// directory that is not mounted looks like an empty one, and must not remove all limits.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Vec<Source>, FileError> {
    let paths = paths(path, options)?;
    if paths.is_empty() {
        return Err(no_files(path, options));
    }
    let mut total = 0_u64;
    let mut sources = Vec::with_capacity(paths.len());
    for path in paths {
        let text = text_of(&path)?;
        // A length in memory is at most the bound of one file.
        total = total.saturating_add(text.len() as u64);
        if total > TOTAL_BYTES_MAX {
            let max_mib = TOTAL_BYTES_MAX >> 20;
            let reason = format!(
                "the files up to this one hold more than {max_mib} MiB; check that this is a \
                 directory of rules"
            );
            return Err(FileError::new(&path, reason));
        }
        sources.push(Source { name: path.display().to_string(), text });
    }
    Ok(sources)
}

/// The paths of a file, or of every file of a directory, sorted.
pub(crate) fn paths(path: &Path, options: &ReadOptions) -> Result<Vec<PathBuf>, FileError> {
    let metadata = fs::metadata(path).map_err(|cause| FileError::io(path, cause))?;
    if metadata.is_dir() {
        let mut walk = Walk::new(options);
        walk.directory(path, 0)?;
        Ok(walk.finish())
    } else if metadata.is_file() {
        Ok(vec![path.to_owned()])
    } else {
        Err(FileError::new(path, "is neither a file nor a directory; check the path"))
    }
}

fn text_of(path: &Path) -> Result<String, FileError> {
    let file = File::open(path).map_err(|cause| FileError::io(path, cause))?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|cause| FileError::io(path, cause))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let max_mib = FILE_BYTES_MAX >> 20;
        let reason =
            format!("is longer than {max_mib} MiB; split it, or check that it holds rules");
        return Err(FileError::new(path, reason));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..good).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count().saturating_add(1);
        let reason = format!(
            "is not UTF-8 text on line {line}; save it as UTF-8, or move it out of the directory if \
             it holds no rules"
        );
        FileError::new(path, reason)
    })
}

// === walking a directory ===

struct Walk<'a> {
    options: &'a ReadOptions,
    /// Directories that were entered, without their links: each is entered once, so loops end.
    entered: HashSet<PathBuf>,
    /// The path of each file, by its canonical path.
    files: HashMap<PathBuf, PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(options: &'a ReadOptions) -> Self {
        Self { options, entered: HashSet::new(), files: HashMap::new() }
    }

    fn directory(&mut self, path: &Path, depth: usize) -> Result<(), FileError> {
        if depth > DIRECTORIES_MAX {
            let reason = format!(
                "is nested more than {DIRECTORIES_MAX} directories deep; check that this is a \
                 directory of rules"
            );
            return Err(FileError::new(path, reason));
        }
        let real = fs::canonicalize(path).map_err(|cause| FileError::io(path, cause))?;
        if !self.entered.insert(real) {
            return Ok(());
        }
        let entries = fs::read_dir(path).map_err(|cause| FileError::io(path, cause))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|cause| FileError::io(path, cause))?;
            names.push(entry.file_name());
            if names.len() > FILES_MAX.saturating_mul(2) {
                return Err(too_many(path));
            }
        }
        // Sorted, so that the result does not depend on the file system.
        names.sort_unstable();
        let dotted = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".");
        names.retain(|name| !(self.options.ignore_dot_files && dotted(name)));
        names.retain(|name| name != STORE_DIRECTORY);
        for name in names {
            self.entry(&path.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, depth: usize) -> Result<(), FileError> {
        // Follows links: a broken link is an error that should be reported.
        let metadata = fs::metadata(path).map_err(|cause| FileError::io(path, cause))?;
        if metadata.is_dir() {
            return self.directory(path, depth.saturating_add(1));
        }
        // Reading a pipe or a socket would block.
        if !metadata.is_file() {
            return Ok(());
        }
        let real = fs::canonicalize(path).map_err(|cause| FileError::io(path, cause))?;
        let known = self.files.entry(real).or_insert_with(|| path.to_owned());
        // The shorter of two paths to one file is the familiar one.
        if path.components().count() < known.components().count() {
            path.clone_into(known);
        }
        if self.files.len() > FILES_MAX { Err(too_many(path)) } else { Ok(()) }
    }

    fn finish(self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.files.into_values().collect();
        paths.sort_unstable();
        paths
    }
}

fn no_files(path: &Path, options: &ReadOptions) -> FileError {
    let dotted = match options.ignore_dot_files {
        true => "; names that begin with a dot are ignored",
        false => "",
    };
    let reason = format!(
        "there are no files in this directory, so nothing would be limited; put rules into it, or \
         check the path{dotted}"
    );
    FileError::new(path, reason)
}

fn too_many(path: &Path) -> FileError {
    let reason =
        format!("there are more than {FILES_MAX} files; check that this is a directory of rules");
    FileError::new(path, reason)
}

impl FileError {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into(), cause: None }
    }

    pub(crate) fn io(path: &Path, cause: io::Error) -> Self {
        let reason = match cause.kind() {
            io::ErrorKind::NotFound if fs::symlink_metadata(path).is_ok() => {
                "is a link that leads nowhere; remove it, or put back what it leads to".to_owned()
            }
            io::ErrorKind::NotFound => "there is no such file; check the path".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "may not be read; give this user the right to read it".to_owned()
            }
            _ => format!("cannot be read: {cause}; check the path"),
        };
        Self { path: path.to_owned(), reason, cause: Some(cause) }
    }

    /// Which file.
    ///
    /// ```
    /// use sluicegate_config::files::{ReadOptions, read};
    ///
    /// let error = read("no/such/file".as_ref(), &ReadOptions::default()).unwrap_err();
    /// assert_eq!(error.path(), std::path::Path::new("no/such/file"));
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests;
