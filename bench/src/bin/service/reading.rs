//! What one reading says.

use serde::{Deserialize, Serialize};

/// One contestant in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// As fast as it answers.
    pub(crate) full: Part,
    /// At the same load as the others.
    pub(crate) paced: Option<Part>,
    /// Resident at the end, in bytes.
    pub(crate) resident: u64,
}

/// A stretch of load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) seconds: f64,
    /// Answers by what they say.
    pub(crate) ok: u64,
    pub(crate) over: u64,
    /// CPU time of the server per request.
    pub(crate) cpu_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// How much of the time the server was at work.
    pub(crate) busy: f64,
    /// And how much of it the load was.
    pub(crate) load_busy: f64,
    /// How much of the time the server, or the load, was ready and had no CPU.
    pub(crate) waited: f64,
    /// How much of the time the hypervisor gave to others.
    pub(crate) stolen: f64,
}

/// More than this, stolen or waited, and a reading says more about the machine.
const DISTURBED: f64 = 0.05;

// === impl Part ===

impl Part {
    pub(crate) fn requests(&self) -> u64 {
        self.ok + self.over
    }

    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests() as f64 / self.seconds
    }

    fn is_disturbed(&self) -> bool {
        self.stolen > DISTURBED || self.waited > DISTURBED
    }
}

// === impl Reading ===

impl Reading {
    /// Whether others were at work on the same cores.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.full.is_disturbed() || self.paced.as_ref().is_some_and(Part::is_disturbed)
    }
}
