//! How much a client may take.

use std::time::Duration;

use crate::memory::Share;

/// What a client may ask of the server, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at a time; who comes beyond is closed at once.
    pub connections: usize,
    /// Bytes of a head; below 8 KiB they count as 8 KiB.
    pub header_bytes: usize,
    /// For a head, from its first byte to its last, and for the first of a connection. It may take half as long again.
    pub header_patience: Duration,
    /// For a body.
    pub body_patience: Duration,
    /// Between two requests. It may take half of `header_patience` more.
    pub idle: Duration,
    /// Requests at a time, of all connections; who comes beyond is told to come back.
    pub in_flight: usize,
    /// For what has begun when the service ends.
    pub drain: Duration,
    /// Part of the memory budget.
    pub memory: Share,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            header_bytes: 16 << 10,
            header_patience: Duration::from_secs(10),
            body_patience: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            in_flight: 10_000,
            drain: Duration::from_secs(20),
            memory: Share::Clients,
        }
    }
}

impl Bounds {
    /// Requests at a time on one connection, where that can be more than one.
    pub(super) fn streams(&self) -> u32 {
        const STREAMS_MAX: u32 = 256;

        u32::try_from(self.in_flight).unwrap_or(STREAMS_MAX).clamp(1, STREAMS_MAX)
    }
}
