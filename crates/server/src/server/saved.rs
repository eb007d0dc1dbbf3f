//! What is counted, kept while the process is not there.

use std::path::PathBuf;

use sluicegate::{Engine, Memory};

use crate::logs::events;

/// Where what is counted is saved.
#[derive(Debug, Clone)]
pub(super) struct Saving {
    path: PathBuf,
}

/// The store: as it was saved, or empty.
pub(super) fn memory(saving: Option<&Saving>, identities_max: u64) -> Memory {
    let most = usize::try_from(identities_max).unwrap_or(usize::MAX);
    let empty = || Memory::with_entries(most);
    let Some(Saving { path }) = saving else { return empty() };
    match Memory::restore_with_entries(path, most) {
        Ok(memory) => {
            events::snapshot_restored(&path.display());
            memory
        }
        Err(missing) if missing.is_missing() => empty(),
        // Everybody begins anew, which admits more than it should: worth a warning, not worth being down for.
        Err(error) => {
            events::snapshot_refused(&error);
            empty()
        }
    }
}

impl Saving {
    pub(super) const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Saves all. It blocks while it writes.
    pub(super) fn save(&self, engine: &Engine) {
        match engine.memory().save(&self.path) {
            Ok(saved) => events::snapshot_saved(&self.path.display(), &saved),
            Err(error) => events::snapshot_failed(&error),
        }
    }
}
