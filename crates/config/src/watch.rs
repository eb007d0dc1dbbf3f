//! Polls rule files for changes and reads them when they are stable.
//!
//! A poll compares the metadata of each file: its identity behind all links, its length and its
//! modification time. That detects edits, replaced, added and removed files, and the exchanged link
//! of a Kubernetes ConfigMap mount. It works on every file system and holds no handle. A change is
//! read only after the next poll finds it unchanged, so that no half-written file is loaded.
//!
//! The caller schedules the polls.

use std::fmt;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use crate::files::{self, FileError, ReadOptions};
use crate::rules::Source;

/// Files that may change.
///
/// ```
/// use sluicegate_config::files::ReadOptions;
/// use sluicegate_config::watch::{PollResult, Watch};
///
/// let mut watch = Watch::new(["src/lib.rs"], ReadOptions::default());
/// assert_eq!(watch.read()?.len(), 1);
/// assert!(matches!(watch.poll(), PollResult::Same));
/// # Ok::<(), sluicegate_config::files::FileError>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    options: ReadOptions,
    /// The metadata of the files when they were read.
    read: Stamps,
    /// The metadata at the last poll, if it differed.
    changing: Option<Stamps>,
    /// The last reading; nothing if it failed.
    texts: Option<Vec<Source>>,
    /// Whether to read again without a visible change: a file can be written twice within one tick
    /// of the file system's clock.
    doubtful: bool,
}

/// Where rules come from: files ([`Watch`]), a database, a control plane.
///
/// Neither method waits for a network: a remote source is followed by a task of its own, and
/// returns what that task received last.
pub trait RulesSource: fmt::Debug + Send {
    /// Reads the rules as they are now.
    ///
    /// # Errors
    /// When they cannot be read. The next poll retries if anything has changed.
    fn read(&mut self) -> Result<Vec<Source>, SourceError>;

    /// Polls for changes since the rules were read.
    fn poll(&mut self) -> PollResult<SourceError>;
}

/// Why a source of rules cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// A file.
    File(FileError),
    /// A remote source; the text names it, the cause and the remedy.
    Remote(String),
}

/// The result of a poll.
#[derive(Debug)]
pub enum PollResult<E = FileError> {
    /// Nothing has changed.
    Same,
    /// A file has changed, and may still be changing: poll again soon.
    Changing,
    /// The rules have changed; this is their content.
    Changed(Result<Vec<Source>, E>),
}

/// The metadata of each file, if available.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    /// Which file it is, behind all links.
    real: PathBuf,
    length: u64,
    /// Modification time and file identity, as far as the platform provides them.
    marks: [i64; 5],
}

/// The metadata of a file, to detect changes of one that is not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamp(Option<Stamp>);

impl FileStamp {
    /// Reads it; that of a missing file equals only that of another missing one.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        Self(stamp(path))
    }
}

impl Watch {
    /// Watches these files and directories; nothing has been read yet.
    #[must_use]
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>, options: ReadOptions) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            options,
            read: Stamps::default(),
            changing: None,
            texts: None,
            doubtful: false,
        }
    }

    /// Reads the files as they are now.
    ///
    /// # Errors
    /// When a file cannot be read. The next poll retries if anything has changed.
    pub fn read(&mut self) -> Result<Vec<Source>, FileError> {
        self.adopt(self.stamps());
        let texts = self.texts();
        self.texts = texts.as_ref().ok().cloned();
        texts
    }

    /// Polls for changes since the files were read.
    pub fn poll(&mut self) -> PollResult {
        let stamps = self.stamps();
        if stamps == self.read {
            self.changing = None;
            return if self.doubtful { self.compare_contents() } else { PollResult::Same };
        }
        if self.changing.as_ref() != Some(&stamps) {
            self.changing = Some(stamps);
            return PollResult::Changing;
        }
        let texts = self.texts();
        if self.stamps() != stamps {
            return PollResult::Changing;
        }
        self.adopt(stamps);
        self.compare(texts)
    }

    fn compare_contents(&mut self) -> PollResult {
        self.doubtful = false;
        match self.texts() {
            // The failure was reported when they were read.
            Err(_) if self.texts.is_none() => PollResult::Same,
            texts => self.compare(texts),
        }
    }

    /// Compares contents: a touched or moved file is unchanged.
    fn compare(&mut self, texts: Result<Vec<Source>, FileError>) -> PollResult {
        match texts {
            Ok(texts) if self.texts.as_ref() == Some(&texts) => PollResult::Same,
            // After a failure every reading is a change.
            texts => {
                self.texts = texts.as_ref().ok().cloned();
                PollResult::Changed(texts)
            }
        }
    }

    fn adopt(&mut self, stamps: Stamps) {
        self.read = stamps;
        self.changing = None;
        self.doubtful = true;
    }

    fn texts(&self) -> Result<Vec<Source>, FileError> {
        let mut texts = Vec::new();
        for path in &self.paths {
            texts.extend(files::read(path, &self.options)?);
        }
        Ok(texts)
    }

    fn stamps(&self) -> Stamps {
        let mut stamps = Vec::new();
        for path in &self.paths {
            match files::paths(path, &self.options) {
                Ok(paths) => stamps.extend(paths.into_iter().map(|path| {
                    let stamp = stamp(&path);
                    (path, stamp)
                })),
                Err(error) => stamps.push((error.path().to_owned(), None)),
            }
        }
        Stamps(stamps)
    }
}

impl RulesSource for Watch {
    fn read(&mut self) -> Result<Vec<Source>, SourceError> {
        Self::read(self).map_err(SourceError::File)
    }

    fn poll(&mut self) -> PollResult<SourceError> {
        match Self::poll(self) {
            PollResult::Same => PollResult::Same,
            PollResult::Changing => PollResult::Changing,
            PollResult::Changed(read) => PollResult::Changed(read.map_err(SourceError::File)),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Remote(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => error.source(),
            Self::Remote(_) => None,
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let real = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&real).ok()?;
    Some(Stamp { real, length: metadata.len(), marks: marks(&metadata) })
}

#[cfg(unix)]
fn marks(metadata: &Metadata) -> [i64; 5] {
    use std::os::unix::fs::MetadataExt;

    let number = metadata.ino().cast_signed();
    [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec(), number]
}

#[cfg(not(unix))]
fn marks(metadata: &Metadata) -> [i64; 5] {
    let since =
        metadata.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let nanos = since.map_or(0, |since| since.as_nanos() as i64);
    [nanos, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests;
