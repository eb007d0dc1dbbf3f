//! How much a client may take.

use std::time::Duration;

use super::frame::Most;

/// What a client may ask of the server, and for how long.
///
/// ```
/// use sluicegate_server::resp::Bounds;
///
/// let bounds = Bounds { connections: 100, ..Bounds::default() };
/// assert_eq!(bounds.command.bulk_bytes, 64 << 10);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at a time; who comes beyond is told so and closed.
    pub connections: usize,
    /// What a command may be.
    pub command: Most,
    /// What it may be before a password that is asked for was given.
    pub command_of_strangers: Most,
    /// Bytes of replies; when there are so many, they are sent before the next command is looked at.
    pub reply_bytes: usize,
    /// For a command to come whole, for replies to be read, and for a password. Connections are looked at twice in a patience, so it may take half as long
    /// again.
    pub patience: Duration,
    /// Without a command. Clients keep connections for later, so it is longer than elsewhere.
    pub idle: Duration,
    /// For what has begun when the service ends.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            command: Most::default(),
            command_of_strangers: Most {
                args: 10,
                bulk_bytes: 4 << 10,
                command_bytes: 16 << 10,
                inline_bytes: 4 << 10,
            },
            reply_bytes: 64 << 10,
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            drain: Duration::from_secs(30),
        }
    }
}
