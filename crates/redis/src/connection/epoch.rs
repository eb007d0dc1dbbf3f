//! Epoch of the store: incremented whenever it may have lost data.
//!
//! A new primary may lack the last writes of its predecessor, and a restarted one has only its
//! saved data. Both show in the identity of the process (`run_id`) and of its replication history
//! (`master_replid`), which every connection reads before its first call.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Debug)]
pub(super) struct Epoch(watch::Sender<u64>);

/// Compares the identities of successive connections to one server.
#[derive(Debug)]
pub(super) struct IdentityCheck {
    epoch: Arc<Epoch>,
    last: Mutex<Identity>,
}

#[derive(Debug, PartialEq, Eq)]
enum Identity {
    NeverConnected,
    /// The server does not report one, or this user may not read it.
    Unknown,
    Process(Box<str>),
}

impl Epoch {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn now(&self) -> u64 {
        *self.0.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    pub(super) fn increment(&self) {
        self.0.send_modify(|epoch| *epoch = epoch.saturating_add(1));
    }
}

impl IdentityCheck {
    pub(super) fn new(epoch: Arc<Epoch>) -> Self {
        Self { epoch, last: Mutex::new(Identity::NeverConnected) }
    }

    /// A connection was established. Without an identity, a server that had another connection all
    /// the time (`is_only` is false) is the same one.
    pub(super) fn connected(&self, identity: Option<&str>, is_only: bool) {
        let mut last = self.last.lock();
        let now = identity.map_or(Identity::Unknown, |identity| Identity::Process(identity.into()));
        let has_changed = match (&*last, &now) {
            (Identity::NeverConnected, _) => false,
            (Identity::Process(before), Identity::Process(now)) => before != now,
            _ => is_only,
        };
        *last = now;
        if has_changed {
            self.epoch.increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_another_epoch() {
        let epoch = Arc::new(Epoch::new());
        let check = IdentityCheck::new(epoch.clone());
        for (identity, is_only, expected) in [
            (Some("a"), true, 0),
            (Some("a"), false, 0),
            (Some("a"), true, 0),
            (Some("b"), true, 1),
            (Some("a"), false, 2),
            (None, false, 2),
            (None, false, 2),
            (None, true, 3),
            (Some("a"), true, 4),
        ] {
            check.connected(identity, is_only);
            assert_eq!(epoch.now(), expected, "{identity:?} {is_only}");
        }
    }
}
