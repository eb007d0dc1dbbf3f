//! Counters of a link.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use super::circuit_breaker::BreakerState;
use crate::CallError;

/// Counters since a [`Link`](super::Link) was opened, and the state of its servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// Calls.
    pub calls: u64,
    /// Calls that missed their deadline, with or without a late reply.
    pub timed_out: u64,
    /// Late replies that settled their call.
    pub late_replies: u64,
    /// Calls that failed because too many were waiting.
    pub busy: u64,
    /// Calls that failed because no server was available.
    pub down: u64,
    /// Calls that failed because the connection broke.
    pub broken: u64,
    /// Calls that the server refused.
    pub refused: u64,
    /// Connections beyond the first ones.
    pub reconnects: u64,
    /// `MOVED` redirects.
    pub moved_redirects: u64,
    /// `ASK` redirects.
    pub ask_redirects: u64,
    /// Retries after `TRYAGAIN`.
    pub tried_again: u64,
    /// Scripts that had to be loaded.
    pub scripts_loaded: u64,
    /// Writes that too few replicas acknowledged in time.
    pub under_replicated: u64,
    /// How often the store may have lost data.
    pub epoch: u64,
    /// Why Sentinels or Cluster nodes report no primary, if they do not.
    pub discovery_error: Option<Box<str>>,
    /// Each known primary.
    pub servers: Vec<ServerStats>,
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Host and port, or path.
    pub address: Box<str>,
    /// Whether calls are sent to it.
    pub up: bool,
    /// Its circuit breaker.
    pub breaker: BreakerState,
    /// Established connections.
    pub connections: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Callers that wait for a permit.
    pub waiting: usize,
    /// The last error, as reported by the system or the server.
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
    pub(super) moved_redirects: AtomicU64,
    pub(super) ask_redirects: AtomicU64,
    pub(super) tried_again: AtomicU64,
    pub(super) scripts_loaded: AtomicU64,
    pub(super) under_replicated: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(super) fn failed(&self, error: &CallError) {
        count(match error {
            // Counted by `missed_deadline`.
            CallError::TimedOut => return,
            CallError::Busy => &self.busy,
            CallError::Down => &self.down,
            CallError::Broken => &self.broken,
            CallError::Refused(_) => &self.refused,
        });
    }

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
            moved_redirects: read(&self.moved_redirects),
            ask_redirects: read(&self.ask_redirects),
            tried_again: read(&self.tried_again),
            scripts_loaded: read(&self.scripts_loaded),
            under_replicated: read(&self.under_replicated),
            epoch,
            discovery_error: None,
            servers,
        }
    }
}
