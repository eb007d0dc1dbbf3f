//! Snapshots of the counts: restored at the start, saved periodically and at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluicegate::snapshot::{Restoration, SnapshotFile};
use sluicegate::{Memory, SnapshotError};
use tokio::time::{Instant, interval_at};

use crate::app::App;
use crate::logs::events;
use crate::telemetry::Event;

/// The file that counts are saved to.
#[derive(Debug, Clone)]
pub(super) struct Snapshots {
    file: Arc<SnapshotFile>,
}

/// Opens and locks the snapshot file and restores the store from it; without a file it is empty.
///
/// # Errors
/// When the file is something else or belongs to another process, its folder does not exist, or a
/// file that cannot be restored cannot be moved aside.
pub(super) fn open(
    path: Option<&Path>,
    identities_max: u64,
) -> Result<(Memory, Option<Snapshots>, Restoration), SnapshotError> {
    let entries_max = usize::try_from(identities_max).unwrap_or(usize::MAX);
    let Some(path) = path else {
        return Ok((Memory::with_entries(entries_max), None, Restoration::Missing));
    };
    let file = SnapshotFile::open(path)?;
    let (memory, restoration) = file.restore(entries_max)?;
    Ok((memory, Some(Snapshots { file: Arc::new(file) }), restoration))
}

/// Reports how the store was restored. Counters at zero admit more than they should, which an
/// operator must see, and which is no reason to be down.
pub(super) fn report(app: &App, snapshots: Option<&Snapshots>, restoration: &Restoration) {
    let Some(Snapshots { file }) = snapshots else { return };
    match restoration {
        Restoration::Restored => events::snapshot_restored(&file.path().display()),
        Restoration::Failed { error, moved_to } => {
            app.telemetry().record(Event::SnapshotNotRestored);
            events::snapshot_rejected(error, &moved_to.display());
        }
        _ => {}
    }
}

impl Snapshots {
    /// Saves all counts. Blocks while it writes, and while another call does.
    pub(super) fn save(&self, app: &App) {
        match self.file.save(app.engine().memory()) {
            Ok(saved) => events::snapshot_saved(&self.file.path().display(), &saved),
            Err(error) => {
                app.telemetry().record(Event::SnapshotNotSaved);
                events::snapshot_failed(&error);
            }
        }
    }

    /// Saves all counts on a blocking thread.
    pub(super) async fn save_in_background(&self, app: &App) {
        let (snapshots, app) = (self.clone(), app.clone());
        let _ = tokio::task::spawn_blocking(move || snapshots.save(&app)).await;
    }

    /// Saves periodically, forever; returns at once if the interval is zero.
    pub(super) async fn save_every(&self, every: Duration, app: &App) {
        if every.is_zero() {
            return;
        }
        let mut ticks = interval_at(Instant::now() + every, every);
        loop {
            ticks.tick().await;
            self.save_in_background(app).await;
        }
    }
}
