//! The files as a source of rules for an engine.

use std::sync::Arc;

use sluicegate_config::rules::Source;
use sluicegate_config::watch::{PollResult, RulesSource, SourceError, Watch};

use super::store::FilesStore;
use crate::error::StoreError;
use crate::store::StoreEvent;

/// Follows the files, and records edits from outside.
#[derive(Debug)]
pub(crate) struct FilesSource {
    store: Arc<FilesStore>,
    watch: Watch,
    /// The revision that was active at the last reading.
    read: Option<u64>,
    /// The failure that was reported last.
    failed: Option<String>,
}

impl FilesSource {
    pub(crate) fn new(store: Arc<FilesStore>, watch: Watch) -> Self {
        Self { store, watch, read: None, failed: None }
    }

    fn follow_log(&mut self) {
        let result = self.store.follow_log();
        self.report(result);
    }

    /// Reports a failure once.
    fn report(&mut self, result: Result<(), StoreError>) {
        let Err(error) = result else {
            self.failed = None;
            return;
        };
        let message = error.to_string();
        if self.failed.as_ref() != Some(&message) {
            self.store.report(StoreEvent::Failed(message.clone()));
            self.failed = Some(message);
        }
    }

    /// Records what was read.
    fn observe(&mut self, sources: &[Source]) {
        let observed = self.store.observe(sources);
        // The engine reports what is invalid.
        if matches!(observed, Ok(()) | Err(StoreError::Unavailable(_))) {
            self.report(observed);
        }
        self.read = self.store.active();
        self.store.shared().status.handed(self.read);
    }
}

impl RulesSource for FilesSource {
    fn read(&mut self) -> Result<Vec<Source>, SourceError> {
        self.follow_log();
        let sources = self.watch.read().map_err(SourceError::File)?;
        self.observe(&sources);
        Ok(sources)
    }

    fn poll(&mut self) -> PollResult<SourceError> {
        if self.store.has_work() {
            self.follow_log();
        }
        if self.store.active() != self.read {
            // A change through the store is complete: there is no half-written file to wait for.
            return PollResult::Changed(self.read());
        }
        match self.watch.poll() {
            PollResult::Same => PollResult::Same,
            PollResult::Changing => PollResult::Changing,
            PollResult::Changed(read) => {
                if let Ok(sources) = &read {
                    self.observe(sources);
                }
                PollResult::Changed(read.map_err(SourceError::File))
            }
        }
    }
}
