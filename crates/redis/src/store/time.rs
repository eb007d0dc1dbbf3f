//! What time it is for scripts.

use sluicegate_core::time::Timestamp;

use super::Store;

impl Store {
    /// The time that scripts are told, where it is not the store's own.
    pub(crate) fn script_time(&self) -> Option<Timestamp> {
        self.inner.clock()
    }
}
