//! Operations on files and their revisions.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use sluicegate_config::files::ReadOptions;
use sluicegate_config::rules::Source;

use super::history::History;
use super::layout::Layout;
use crate::check::check;
use crate::edit::{Activation, Proposal};
use crate::error::{ReadOnly, StoreError};
use crate::ledger::{Command, Ledger, Policy, is_same};
use crate::revision::{Revision, RevisionKind, StoredRevision};
use crate::shared::Shared;
use crate::store::StoreEvent;

/// Where rule files are, and how they are read.
#[derive(Debug, Clone, Default)]
pub struct FilesOptions {
    /// A file or a directory. With several, the store is read-only.
    pub paths: Vec<PathBuf>,
    /// Which files of a directory are read.
    pub read: ReadOptions,
    /// Why the operator wants no changes through the store.
    pub read_only: Option<ReadOnly>,
}

/// Rule files with their revisions.
#[derive(Debug)]
pub(crate) struct FilesStore {
    layout: Layout,
    read_only: Option<ReadOnly>,
    history: Mutex<History>,
    shared: Shared,
}

impl FilesStore {
    /// Opens the store; nothing fails here: a store that cannot be written is read-only.
    pub(crate) fn open(options: &FilesOptions, shared: Shared) -> Self {
        let layout = Layout::new(&options.paths, options.read);
        let read_only = options.read_only.clone().or_else(|| layout.read_only());
        let read_only = read_only.or_else(|| writable(&layout.store).err());
        let directory = read_only.is_none().then(|| layout.store.clone());
        let history = Mutex::new(History::new(directory));
        Self { layout, read_only, history, shared }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn read_only(&self) -> Option<&ReadOnly> {
        self.read_only.as_ref()
    }

    /// Runs with the lock of all processes, on the latest history, after unfinished writes.
    fn locked<T>(
        &self,
        run: impl FnOnce(&mut History) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut history = self.history.lock();
        let _lock = match history.is_durable() {
            true => Some(self.lock()?),
            false => None,
        };
        let step = "read the log of revisions";
        history.catch_up().map_err(|error| StoreError::unavailable(step, error))?;
        self.complete(&mut history)?;
        run(&mut history)
    }

    fn lock(&self) -> Result<File, StoreError> {
        let locked = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.layout.store.join("lock"))
            .and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| StoreError::unavailable("lock the revisions", error))
    }

    /// Completes a change whose process ended before all files were written.
    fn complete(&self, history: &mut History) -> Result<(), StoreError> {
        let Some(active) = history.ledger.active.as_ref().map(|active| active.number) else {
            return Ok(());
        };
        if history.applied == Some(active) || !history.is_durable() {
            return Ok(());
        }
        let texts = |number| {
            history
                .sources(number)
                .map_err(|error| StoreError::unavailable("read a revision", error))
        };
        let new = texts(active)?;
        let old = history.applied.map_or(Ok(Vec::new()), texts)?;
        let now = self.layout.read().map(|now| self.layout.relative(&now)).unwrap_or_default();
        // A file that is neither was edited meanwhile: that edit is a revision of its own.
        if now.iter().all(|file| new.contains(file) || old.contains(file)) {
            self.write_files(history, &now, &new)?;
        }
        self.mark_applied(history, active)
    }

    /// Replaces the rule files one by one.
    fn write_files(
        &self,
        history: &mut History,
        old: &[Source],
        new: &[Source],
    ) -> Result<(), StoreError> {
        let failed = |path: &Path, error| {
            let step = format!("write `{}`", path.display());
            StoreError::unavailable(
                &step,
                format!("{error}; the revision is stored, and its files are completed later"),
            )
        };
        for file in new.iter().filter(|file| !old.contains(file)) {
            let path = self.layout.path_of(&file.name);
            let written = history.disk.replace(&path, file.text.as_bytes());
            written.map_err(|error| failed(&path, error))?;
        }
        for file in old.iter().filter(|file| !new.iter().any(|other| other.name == file.name)) {
            let path = self.layout.path_of(&file.name);
            history.disk.remove(&path).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }

    fn mark_applied(&self, history: &mut History, revision: u64) -> Result<(), StoreError> {
        let marked = history.mark_applied(revision);
        marked.map_err(|error| StoreError::unavailable("write the log of revisions", error))
    }

    /// Decides and writes a command.
    pub(crate) fn commit(&self, command: Command) -> Result<Option<Revision>, StoreError> {
        if let Some(read_only) = &self.read_only {
            return Err(StoreError::ReadOnly(read_only.clone()));
        }
        if let Command::Propose { proposal, .. } = &command
            && let Some(misfit) = self.layout.misfit(&proposal.sources)
        {
            return Err(StoreError::BadRequest(misfit));
        }
        let (policy, now) = (self.shared.policy, self.shared.now());
        self.locked(|history| {
            let found = match self.layout.read() {
                Ok(found) => self.layout.relative(&found),
                Err(_) if self.layout.is_empty() => Vec::new(),
                Err(error) => return Err(StoreError::NotAllowed(error.to_string())),
            };
            self.observe_in(history, &found).map_err(|error| {
                StoreError::NotAllowed(format!(
                    "the files were edited outside of the store and are invalid; correct them first:\n{error}"
                ))
            })?;
            let change = history.ledger.decide(command, policy, now)?;
            if change.is_empty() {
                return Ok(None);
            }
            let step = "store the revision";
            history.append(&change).map_err(|error| StoreError::unavailable(step, error))?;
            self.shared.report_change(&change);
            if let Some(active) = change.activated().map(|active| active.number) {
                let read = history.sources(active);
                let new = read.map_err(|error| StoreError::unavailable("read a revision", error))?;
                let written = self.write_files(history, &found, &new);
                let written = written.and_then(|()| self.mark_applied(history, active));
                self.shared.wake();
                written?;
            }
            Ok(change.activated().or_else(|| change.revisions().next()).cloned())
        })
    }

    /// Completes unfinished writes, reads what other processes wrote, and activates what is due.
    pub(crate) fn follow_log(&self) -> Result<(), StoreError> {
        let now = self.shared.now();
        let is_due = |ledger: &Ledger| ledger.next_due().is_some_and(|at| at <= now);
        self.locked(|_| Ok(()))?;
        // Each step activates or suspends one revision.
        while is_due(&self.history.lock().ledger) {
            self.commit(Command::ActivateDue)?;
        }
        Ok(())
    }

    /// Whether [`Self::follow_log`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        let history = self.history.lock();
        let active = history.ledger.active.as_ref().map(|active| active.number);
        let now = self.shared.now();
        let is_due = || history.ledger.next_due().is_some_and(|at| at <= now);
        history.is_durable() && (active != history.applied || history.is_behind() || is_due())
    }

    /// Records files that were edited outside of the store, if they are valid.
    pub(crate) fn observe(&self, sources: &[Source]) -> Result<(), StoreError> {
        let sources = self.layout.relative(sources);
        self.locked(|history| self.observe_in(history, &sources))
    }

    fn observe_in(&self, history: &mut History, found: &[Source]) -> Result<(), StoreError> {
        let active = history.ledger.active.as_ref().map(|active| active.number);
        let is_known = active.is_some_and(|active| history.holds(active, found));
        if is_known || found.is_empty() {
            return Ok(());
        }
        let checked = match check(found, &self.shared.rules, self.shared.now()) {
            Ok(checked) => checked,
            // Without an active revision, a valid one may replace them.
            Err(_) if active.is_none() => return Ok(()),
            Err(error) => return Err(error),
        };
        let (kind, note) = match active {
            None => (RevisionKind::Import, "the files at the first start".to_owned()),
            Some(active) => (RevisionKind::Outside, changed_files(history, active, found)),
        };
        let proposal = Proposal {
            base: active,
            author: "files".to_owned(),
            note,
            kind,
            restores: None,
            sources: found.to_vec(),
            activation: Activation::Now,
        };
        let command = Command::Propose { proposal, digest: checked.digest() };
        let now = self.shared.now();
        let change = history.ledger.decide(command, Policy::default(), now)?;
        let step = "store a revision of the files";
        history.append(&change).map_err(|error| StoreError::unavailable(step, error))?;
        if active.is_some() {
            self.shared.report_change(&change);
        }
        let number = history.ledger.active.as_ref().map_or(0, |active| active.number);
        self.mark_applied(history, number)
    }

    /// The active revision's number.
    pub(crate) fn active(&self) -> Option<u64> {
        self.history.lock().ledger.active.as_ref().map(|active| active.number)
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.history.lock().ledger.clone()
    }

    pub(crate) fn revisions(&self, before: Option<u64>, limit: usize) -> Vec<Revision> {
        self.history.lock().revisions(before, limit)
    }

    pub(crate) fn stored(&self, number: u64) -> Result<StoredRevision, StoreError> {
        let history = self.history.lock();
        let revision = history.revision(number).ok_or(StoreError::NotFound(number))?.clone();
        let sources = history.sources(number);
        let sources = sources.map_err(|error| StoreError::unavailable("read a revision", error))?;
        Ok(StoredRevision { revision, sources })
    }

    #[cfg(test)]
    pub(crate) fn crash_after(&self, steps: usize) {
        self.history.lock().disk.steps_left = Some(steps);
    }

    pub(crate) fn report(&self, event: StoreEvent) {
        self.shared.report(event);
    }
}

/// Which files differ from a revision.
fn changed_files(history: &History, active: u64, found: &[Source]) -> String {
    const LISTED_MAX: usize = 5;

    let before = history.sources(active).unwrap_or_default();
    let mut names: Vec<&str> = found
        .iter()
        .filter(|file| !before.contains(file))
        .chain(before.iter().filter(|file| !found.iter().any(|other| other.name == file.name)))
        .map(|file| file.name.as_str())
        .collect();
    debug_assert!(!names.is_empty() || is_same(&before, found));
    let more = names.len().saturating_sub(LISTED_MAX);
    names.truncate(LISTED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("edited outside of the store: {}{more}", names.join(", "))
}

/// Creates the directory of revisions, and tries to write there and beside it.
fn writable(store: &Path) -> Result<(), ReadOnly> {
    let probe = store.join("lock");
    let tried = fs::create_dir_all(store.join("texts"))
        .and_then(|()| File::options().create(true).truncate(false).write(true).open(&probe));
    tried.map(drop).map_err(|error| ReadOnly {
        code: "not_writable",
        reason: format!(
            "`{}` cannot be written: {error}; change the files where they come from, or give this user the right to \
             write there",
            store.display()
        ),
    })
}
