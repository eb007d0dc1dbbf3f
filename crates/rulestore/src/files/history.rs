//! The log of changes, on disk or, of a store that cannot be written, in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_config::rules::Source;

use super::disk::Disk;
use crate::digest::sha256;
use crate::ledger::{Change, Ledger};
use crate::revision::Revision;

/// Revisions that a store without a log holds in memory.
const MEMORY_REVISIONS_MAX: usize = 50;

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// Revisions in their new state; the first is new if it has files.
    Change {
        revisions: Vec<Revision>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<Vec<StoredFile>>,
    },
    /// The rule files are those of this revision.
    Applied { revision: u64 },
}

/// A file of a revision: its name, and the hash of its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct StoredFile {
    name: String,
    sha256: String,
}

type Revisions = BTreeMap<u64, (Revision, Vec<Arc<StoredFile>>)>;

/// Revisions with their files.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) ledger: Ledger,
    revisions: Revisions,
    /// Most files are the same in many revisions.
    files: HashSet<Arc<StoredFile>>,
    /// The revision that the rule files were last known to hold.
    pub(crate) applied: Option<u64>,
    /// The directory; `None` in memory.
    directory: Option<PathBuf>,
    /// Texts by hash, of a store in memory.
    texts: HashMap<String, String>,
    /// Length of the log that was read.
    length: u64,
    pub(crate) disk: Disk,
}

impl History {
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        Self {
            ledger: Ledger::default(),
            revisions: BTreeMap::new(),
            files: HashSet::new(),
            applied: None,
            disk: Disk::with_temporary(directory.clone()),
            directory,
            texts: HashMap::new(),
            length: 0,
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.directory.is_some()
    }

    /// Reads what other processes have appended. Only the holder of the lock calls this.
    pub(crate) fn catch_up(&mut self) -> io::Result<()> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let mut file = match File::open(directory.join("log")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.length))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // What follows the last complete line was never committed.
        let mut rest = bytes.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            let parsed = serde_json::from_slice(line).map_err(|error| {
                let at = self.length;
                io::Error::other(format!(
                    "the log of revisions is damaged at byte {at}: {error}; restore it, or move `{}` aside to begin anew",
                    directory.display()
                ))
            })?;
            self.length += line.len() as u64;
            rest = after;
            self.take(parsed);
        }
        Ok(())
    }

    /// Whether another process has appended.
    pub(crate) fn is_behind(&self) -> bool {
        let log = self.directory.as_ref().and_then(|path| fs::metadata(path.join("log")).ok());
        log.is_some_and(|log| log.len() > self.length)
    }

    /// Writes a change: its texts first, then its line, which commits it.
    pub(crate) fn append(&mut self, change: &Change) -> io::Result<()> {
        let mut files = None;
        if let Some(stored) = &change.insert {
            let mut list = Vec::with_capacity(stored.sources.len());
            for Source { name, text } in &stored.sources {
                let hash = sha256(text.as_bytes());
                self.put_text(&hash, text)?;
                list.push(StoredFile { name: name.clone(), sha256: hash });
            }
            files = Some(list);
        }
        let line = Line::Change { revisions: change.revisions().cloned().collect(), files };
        self.commit(line)?;
        self.prune();
        Ok(())
    }

    /// Marks the active revision as written to the rule files.
    pub(crate) fn mark_applied(&mut self, revision: u64) -> io::Result<()> {
        if self.applied == Some(revision) {
            return Ok(());
        }
        self.commit(Line::Applied { revision })
    }

    fn commit(&mut self, line: Line) -> io::Result<()> {
        if let Some(directory) = &self.directory {
            let text = serde_json::to_string(&line).map_err(io::Error::other)?;
            self.length = self.disk.append(&directory.join("log"), self.length, &text)?;
        }
        self.take(line);
        Ok(())
    }

    fn put_text(&mut self, hash: &str, text: &str) -> io::Result<()> {
        let Some(directory) = &self.directory else {
            self.texts.insert(hash.to_owned(), text.to_owned());
            return Ok(());
        };
        let path = directory.join("texts").join(hash);
        let is_there = fs::read(&path).is_ok_and(|bytes| sha256(&bytes) == hash);
        if is_there { Ok(()) } else { self.disk.replace(&path, text.as_bytes()) }
    }

    /// A revision.
    pub(crate) fn revision(&self, number: u64) -> Option<&Revision> {
        self.revisions.get(&number).map(|(revision, _)| revision)
    }

    /// Revisions before a number, the newest first.
    pub(crate) fn revisions(&self, before: Option<u64>, limit: usize) -> Vec<Revision> {
        let range = self.revisions.range(..before.unwrap_or(u64::MAX));
        range.rev().take(limit).map(|(_, (revision, _))| revision.clone()).collect()
    }

    /// The files of a revision.
    pub(crate) fn sources(&self, number: u64) -> io::Result<Vec<Source>> {
        let files = self.revisions.get(&number).map(|(_, files)| files.as_slice());
        let read = |file: &Arc<StoredFile>| {
            let text = self.text(&file.sha256)?;
            Ok(Source { name: file.name.clone(), text })
        };
        files.unwrap_or_default().iter().map(read).collect()
    }

    /// Whether the files of a revision are these, by their hashes.
    pub(crate) fn holds(&self, number: u64, sources: &[Source]) -> bool {
        let Some((_, files)) = self.revisions.get(&number) else { return false };
        files.len() == sources.len()
            && sources.iter().all(|source| {
                let hash = sha256(source.text.as_bytes());
                files.iter().any(|file| file.name == source.name && file.sha256 == hash)
            })
    }

    fn text(&self, hash: &str) -> io::Result<String> {
        let Some(directory) = &self.directory else {
            let missing = || io::Error::other("the text is not held any more");
            return self.texts.get(hash).cloned().ok_or_else(missing);
        };
        let text = read_text(&directory.join("texts").join(hash))?;
        match sha256(text.as_bytes()) == hash {
            true => Ok(text),
            false => Err(io::Error::other(format!("the text {hash} of a revision is damaged"))),
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Change { revisions, mut files } => {
                for revision in revisions {
                    self.ledger.restore(revision.clone());
                    if let Some(known) = self.revisions.get_mut(&revision.number) {
                        known.0 = revision;
                        continue;
                    }
                    let files = files.take().unwrap_or_default().into_iter();
                    let files = files.map(|file| self.interned(file)).collect();
                    self.revisions.insert(revision.number, (revision, files));
                }
            }
            Line::Applied { revision } => self.applied = Some(revision),
        }
    }

    fn interned(&mut self, file: StoredFile) -> Arc<StoredFile> {
        if let Some(known) = self.files.get(&file) {
            return known.clone();
        }
        let file = Arc::new(file);
        self.files.insert(file.clone());
        file
    }

    /// Bounds a history in memory.
    fn prune(&mut self) {
        if self.directory.is_some() || self.revisions.len() <= MEMORY_REVISIONS_MAX {
            return;
        }
        self.revisions.pop_first();
        self.files.retain(|file| Arc::strong_count(file) > 1);
        let used: HashSet<&str> = self.files.iter().map(|file| file.sha256.as_str()).collect();
        self.texts.retain(|hash, _| used.contains(hash.as_str()));
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| {
        io::Error::other(format!(
            "the text of a revision cannot be read from `{}`: {error}",
            path.display()
        ))
    })
}
