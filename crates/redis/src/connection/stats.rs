//! What became of the calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use super::circuit_breaker::BreakerState;
use crate::CallError;

/// What became of the calls, since the link was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// All that were made.
    pub calls: u64,
    /// Calls that missed their deadline, answered later or not.
    pub timed_out: u64,
    /// Replies that arrived after the deadline and were used to settle the call.
    pub late_replies: u64,
    /// Too many were waiting.
    pub busy: u64,
    /// There was no server to ask.
    pub down: u64,
    /// The connection broke meanwhile.
    pub broken: u64,
    /// The server said no.
    pub refused: u64,
    /// Connections that were made after the first ones.
    pub reconnects: u64,
    /// Calls that were sent on, to where a slot has gone.
    pub moved: u64,
    /// Calls that were sent on, to where a slot is going.
    pub asked: u64,
    /// Calls that had to be made again since a slot was half gone.
    pub tried_again: u64,
    /// Scripts that a server did not know.
    pub scripts_loaded: u64,
    /// Writes that fewer replicas had in time than wanted.
    pub under_replicated: u64,
    /// How often the store may have forgotten something.
    pub epoch: u64,
    /// Why nobody knows where the primaries are, if so: Sentinels or a Cluster do not say.
    pub lost: Option<Box<str>>,
    /// How every server does.
    pub servers: Vec<ServerStats>,
}

/// How a server does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Where it is.
    pub address: Box<str>,
    /// Whether it is asked.
    pub up: bool,
    /// What the breaker thinks of it.
    pub breaker: BreakerState,
    /// That are open.
    pub connections: usize,
    /// Calls that are under way.
    pub in_flight: usize,
    /// Callers that wait for a place.
    pub waiting: usize,
    /// What went wrong last, if anything did. Texts of the system or the server.
    pub last_error: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: AtomicU64,
    timed_out: AtomicU64,
    pub(super) late_replies: AtomicU64,
    busy: AtomicU64,
    down: AtomicU64,
    broken: AtomicU64,
    refused: AtomicU64,
    pub(super) reconnects: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) tried_again: AtomicU64,
    pub(super) scripts_loaded: AtomicU64,
    pub(super) under_replicated: AtomicU64,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(super) fn failed(&self, error: &CallError) {
        count(match error {
            // Counted when the deadline passed.
            CallError::TimedOut => return,
            CallError::Busy => &self.busy,
            CallError::Down => &self.down,
            CallError::Broken => &self.broken,
            CallError::Refused(_) => &self.refused,
        });
    }

    /// A call was not answered by its deadline.
    pub(super) fn missed_deadline(&self) {
        count(&self.timed_out);
    }

    pub(super) fn read(&self, epoch: u64, servers: Vec<ServerStats>) -> LinkStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        LinkStats {
            calls: read(&self.calls),
            timed_out: read(&self.timed_out),
            late_replies: read(&self.late_replies),
            busy: read(&self.busy),
            down: read(&self.down),
            broken: read(&self.broken),
            refused: read(&self.refused),
            reconnects: read(&self.reconnects),
            moved: read(&self.moved),
            asked: read(&self.asked),
            tried_again: read(&self.tried_again),
            scripts_loaded: read(&self.scripts_loaded),
            under_replicated: read(&self.under_replicated),
            epoch,
            lost: None,
            servers,
        }
    }
}
