//! Counts that survive a restart: restored at the start, saved at the end and in between.

use std::path::Path;
use std::sync::Arc;

use sluicegate::snapshot::{Restoration, SnapshotFile};
use sluicegate::{Memory, SnapshotError};

use crate::app::App;
use crate::logs::events;
use crate::telemetry::Event;

/// The file that counts are saved to.
#[derive(Debug, Clone)]
pub(super) struct Saving {
    file: Arc<SnapshotFile>,
}

/// The store, as it was saved or empty; the file, locked for this process; and which of the two it
/// was.
///
/// # Errors
/// When the file is something else or belongs to another process, its folder does not exist, or a
/// file that cannot be restored cannot be moved aside.
pub(super) fn open(
    path: Option<&Path>,
    identities_max: u64,
) -> Result<(Memory, Option<Saving>, Restoration), SnapshotError> {
    let most = usize::try_from(identities_max).unwrap_or(usize::MAX);
    let Some(path) = path else {
        return Ok((Memory::with_entries(most), None, Restoration::Missing));
    };
    let file = SnapshotFile::open(path)?;
    let (memory, restoration) = file.restore(most)?;
    Ok((memory, Some(Saving { file: Arc::new(file) }), restoration))
}

/// Reports how the store was restored. Counters at zero admit more than they should, which an
/// operator must see, and which is no reason to be down.
pub(super) fn report(app: &App, saving: Option<&Saving>, restoration: &Restoration) {
    let Some(Saving { file }) = saving else { return };
    match restoration {
        Restoration::Restored => events::snapshot_restored(&file.path().display()),
        Restoration::Failed { error, moved_to } => {
            app.telemetry().record(Event::SnapshotNotRestored);
            events::snapshot_rejected(error, &moved_to.display());
        }
        _ => {}
    }
}

impl Saving {
    /// Saves all. It blocks while it writes, and while another does.
    pub(super) fn save(&self, app: &App) {
        match self.file.save(app.engine().memory()) {
            Ok(saved) => events::snapshot_saved(&self.file.path().display(), &saved),
            Err(error) => {
                app.telemetry().record(Event::SnapshotNotSaved);
                events::snapshot_failed(&error);
            }
        }
    }
}
