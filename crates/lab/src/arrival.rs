//! Traffic as its clients see it: who sends how much, and when. Recorded logs and built-in traffic
//! have this form in common.

use sluicegate_core::time::Timestamp;

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives; arrivals are in the order of time.
    pub at: Timestamp,
    /// Number of its client, from 0.
    pub client: u32,
    /// Its cost.
    pub cost: u32,
}

/// A client of a traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its name in reports.
    pub name: String,
    /// Whether it is one that limits are meant to stop; unknown for recorded traffic.
    pub is_abuser: Option<bool>,
}
