//! What a node has received: read by the engine and the API without a wait.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ledger::Ledger;
use crate::revision::{Revision, RevisionId, StoredRevision};

/// The state of the database as this node knows it.
#[derive(Debug, Default)]
pub(crate) struct Received {
    state: Mutex<ReceivedState>,
    contact: watch::Sender<Contact>,
}

#[derive(Debug, Default)]
struct ReceivedState {
    /// Version of the head; none before the first contact.
    version: Option<i64>,
    ledger: Ledger,
    active: Option<StoredRevision>,
    is_cached: bool,
    failure: String,
}

/// Result of the first attempts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Contact {
    #[default]
    None,
    Failed,
    Read,
}

impl Received {
    /// Waits for the result of the first attempt; whether the database was read.
    pub(crate) async fn wait_for_contact(&self) -> bool {
        let mut contact = self.contact.subscribe();
        let result = contact.wait_for(|contact| *contact != Contact::None).await;
        result.is_ok_and(|contact| *contact == Contact::Read)
    }

    pub(crate) async fn wait_until_read(&self) {
        let mut contact = self.contact.subscribe();
        let _ = contact.wait_for(|contact| *contact == Contact::Read).await;
    }

    pub(crate) fn version(&self) -> Option<i64> {
        self.state.lock().version
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.state.lock().ledger.clone()
    }

    pub(crate) fn active(&self) -> Option<StoredRevision> {
        self.state.lock().active.clone()
    }

    pub(crate) fn active_revision(&self) -> Option<Revision> {
        self.state.lock().active.as_ref().map(|stored| stored.revision.clone())
    }

    pub(crate) fn active_id(&self) -> Option<RevisionId> {
        self.state.lock().active.as_ref().map(|stored| stored.revision.id())
    }

    /// Whether there is a state at all.
    pub(crate) fn is_read(&self) -> bool {
        let state = self.state.lock();
        state.version.is_some() || state.is_cached
    }

    /// Why the last attempt failed.
    pub(crate) fn failure(&self) -> String {
        self.state.lock().failure.clone()
    }

    pub(crate) fn set_failure(&self, reason: &str) {
        reason.clone_into(&mut self.state.lock().failure);
        self.contact.send_if_modified(|contact| {
            let is_first = *contact == Contact::None;
            if is_first {
                *contact = Contact::Failed;
            }
            is_first
        });
    }

    /// Takes the copy on disk, unless the database was read meanwhile.
    pub(crate) fn set_cached(&self, stored: StoredRevision) -> bool {
        let mut state = self.state.lock();
        if state.version.is_some() {
            return false;
        }
        state.ledger = Ledger { active: Some(stored.revision.clone()), ..Ledger::default() };
        state.active = Some(stored);
        state.is_cached = true;
        true
    }

    /// Takes a state of the database; whether another revision is active than before.
    pub(crate) fn set(&self, version: i64, ledger: Ledger, active: Option<StoredRevision>) -> bool {
        let mut state = self.state.lock();
        let id = |stored: &StoredRevision| stored.revision.id();
        let has_changed = state.active.as_ref().map(id) != active.as_ref().map(id);
        *state = ReceivedState {
            version: Some(version),
            ledger,
            active,
            is_cached: false,
            failure: String::new(),
        };
        drop(state);
        self.contact.send_replace(Contact::Read);
        has_changed
    }
}
