//! Whether the store may have forgotten something.
//!
//! A primary that took over may lack the last writes of the one before, and one that was started anew has what it had saved. Either way the
//! process that we talk to is another one, or it has become something else meanwhile. Every process has an id of its own (`run_id`), and so has the
//! history of its data (`master_replid`); both are told on each connect, before the first call.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How often the store may have forgotten something.
#[derive(Debug)]
pub(super) struct Epoch(watch::Sender<u64>);

/// Who was last seen in one place.
#[derive(Debug)]
pub(super) struct Witness {
    epoch: Arc<Epoch>,
    seen: Mutex<Seen>,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Nobody,
    /// Somebody who may not, or does not, say who he is.
    Stranger,
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

    pub(super) fn raise(&self) {
        self.0.send_modify(|epoch| *epoch = epoch.saturating_add(1));
    }
}

impl Witness {
    pub(super) fn new(epoch: Arc<Epoch>) -> Self {
        Self { epoch, seen: Mutex::new(Seen::Nobody) }
    }

    /// A connection was made, to this process. Whether it is the first, there is no other: a stranger whom we never lost sight of is the same one.
    pub(super) fn saw(&self, identity: Option<&str>, first: bool) {
        let mut seen = self.seen.lock();
        let now = identity.map_or(Seen::Stranger, |identity| Seen::Process(identity.into()));
        let another = match (&*seen, &now) {
            (Seen::Nobody, _) => false,
            (Seen::Process(before), Seen::Process(now)) => before != now,
            _ => first,
        };
        *seen = now;
        if another {
            self.epoch.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_another_epoch() {
        let epoch = Arc::new(Epoch::new());
        let witness = Witness::new(epoch.clone());
        for (identity, first, expected) in [
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
            witness.saw(identity, first);
            assert_eq!(epoch.now(), expected, "{identity:?} {first}");
        }
    }
}
