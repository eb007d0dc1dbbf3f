//! What a backend shares with its users: options, and the state of this node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use sluicegate_config::rules::Options;
use tokio::sync::watch;

use crate::error::StoreError;
use crate::ledger::{Change, Policy};
use crate::revision::{Revision, RevisionState};
use crate::store::{Clock, StoreEvent, StoreOptions};

/// State of this node for metrics and health.
#[derive(Debug, Default)]
pub struct StoreStatus {
    handed: AtomicU64,
    enforced: watch::Sender<u64>,
    refused: AtomicU64,
    conflicts: AtomicU64,
    disconnected: AtomicBool,
    pub(crate) contacted_at: AtomicU64,
    pub(crate) served_from_cache: AtomicBool,
}

impl StoreStatus {
    /// The revision that the engine of this node enforces; 0 for none.
    #[must_use]
    pub fn enforced(&self) -> u64 {
        *self.enforced.borrow()
    }

    /// Changes that were refused: invalid, conflicting, not permitted.
    #[must_use]
    pub fn refused(&self) -> (u64, u64) {
        (self.refused.load(Ordering::Relaxed), self.conflicts.load(Ordering::Relaxed))
    }

    /// Whether the database is connected; always true of files.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.disconnected.load(Ordering::Relaxed)
    }

    /// Unix time of the last contact with the database; 0 if there was none.
    #[must_use]
    pub fn contacted_at(&self) -> u64 {
        self.contacted_at.load(Ordering::Relaxed)
    }

    /// Whether the rules are those of the copy on disk.
    #[must_use]
    pub fn is_served_from_cache(&self) -> bool {
        self.served_from_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn record_loaded(&self) {
        self.enforced.send_replace(self.handed.load(Ordering::Relaxed));
    }

    /// Waits until a revision is enforced, or a later one.
    pub(crate) async fn enforced_at_least(&self, revision: u64) {
        let mut enforced = self.enforced.subscribe();
        // The sender lives as long as the store.
        let _ = enforced.wait_for(|number| *number >= revision).await;
    }

    /// Waits until another revision is enforced.
    pub(crate) async fn enforced_other_than(&self, revision: u64) {
        let mut enforced = self.enforced.subscribe();
        let _ = enforced.wait_for(|number| *number != revision).await;
    }

    /// The source has returned the files of this revision.
    pub(crate) fn handed(&self, revision: Option<u64>) {
        self.handed.store(revision.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn set_connected(&self, is_connected: bool) {
        self.disconnected.store(!is_connected, Ordering::Relaxed);
    }

    pub(crate) fn record<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match &result {
            Err(StoreError::Conflict(_)) => self.conflicts.fetch_add(1, Ordering::Relaxed),
            Err(StoreError::Unavailable(_)) | Ok(_) => 0,
            Err(_) => self.refused.fetch_add(1, Ordering::Relaxed),
        };
        result
    }
}

/// What a backend shares with its users.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) rules: Options,
    pub(crate) policy: Policy,
    pub(crate) status: Arc<StoreStatus>,
    clock: Clock,
    report: Arc<dyn Fn(StoreEvent) + Send + Sync>,
    wake: Arc<ArcSwapOption<Wake>>,
}

/// Wakes the follower of the source.
struct Wake(Box<dyn Fn() + Send + Sync>);

impl Shared {
    pub(crate) fn new(options: &StoreOptions) -> Self {
        Self {
            rules: options.rules,
            policy: Policy { require_approval: options.require_approval },
            status: Arc::default(),
            clock: options.clock.clone(),
            report: options.report.clone(),
            wake: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn report(&self, event: StoreEvent) {
        (self.report)(event);
    }

    pub(crate) fn report_change(&self, change: &Change) {
        let is_event = |one: &&Revision| one.state != RevisionState::Superseded;
        let changed = change.revisions().filter(is_event);
        changed.for_each(|one| self.report(StoreEvent::Revision(Box::new(one.clone()))));
    }

    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wake.store(Some(Arc::new(Wake(Box::new(wake)))));
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = &*self.wake.load() {
            (wake.0)();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("policy", &self.policy).finish_non_exhaustive()
    }
}
