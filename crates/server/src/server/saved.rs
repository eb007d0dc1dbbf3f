//! What is counted, kept while the process is not there.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate::{Engine, Memory, SnapshotError};

use crate::logs::events;

/// Where what is counted is saved.
#[derive(Debug, Clone)]
pub(super) struct Saving {
    path: PathBuf,
    /// One at a time: what was begun first must not be put in place last.
    turn: Arc<Mutex<()>>,
}

/// The store: as it was saved, or empty.
///
/// # Errors
/// When something else is at the path, which the first snapshot would take the place of.
pub(super) fn memory(
    saving: Option<&Saving>,
    identities_max: u64,
) -> Result<Memory, SnapshotError> {
    let most = usize::try_from(identities_max).unwrap_or(usize::MAX);
    let empty = || Memory::with_entries(most);
    let Some(Saving { path, .. }) = saving else { return Ok(empty()) };
    match path.metadata() {
        // A device reads like a file that is cut short.
        Ok(there) if !there.is_file() => {
            return Err(SnapshotError::Foreign { path: path.clone() });
        }
        // Somebody has made room for it.
        Ok(there) if there.len() == 0 => return Ok(empty()),
        _ => {}
    }
    match Memory::restore_with_entries(path, most) {
        Ok(memory) => {
            events::snapshot_restored(&path.display());
            Ok(memory)
        }
        Err(missing) if missing.is_missing() => Ok(empty()),
        Err(foreign @ SnapshotError::Foreign { .. }) => Err(foreign),
        // Everybody begins anew, which admits more than it should: worth a warning, not worth being down for.
        Err(error) => {
            events::snapshot_refused(&error);
            Ok(empty())
        }
    }
}

impl Saving {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, turn: Arc::default() }
    }

    /// Saves all. It blocks while it writes, and while another does.
    pub(super) fn save(&self, engine: &Engine) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match engine.memory().save(&self.path) {
            Ok(saved) => events::snapshot_saved(&self.path.display(), &saved),
            Err(error) => events::snapshot_failed(&error),
        }
    }
}
