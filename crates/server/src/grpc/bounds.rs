//! What a client may ask of the server, and for how long.

use std::time::Duration;

/// What a client may ask of the server, and for how long.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_server::grpc::Bounds;
///
/// let bounds = Bounds { connections: 100, age: None, ..Bounds::default() };
/// assert_eq!(bounds.drain, Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at a time. Who comes beyond is let go at once: whoever waits to be accepted cannot know what it waits for.
    pub connections: usize,
    /// Calls at a time on one connection, those included whose answers have not been read yet.
    pub calls: u32,
    /// Calls at a time that wait for something, on all connections. A call whose message is there waits for nothing.
    pub in_flight: usize,
    /// Watchers of the health at a time, on all connections.
    pub watches: usize,
    /// Bytes of a message. As many as gRPC takes by default: a call that is refused for its length passes every limit, if Envoy lets pass what it cannot ask
    /// about, and a client can make it long by its headers.
    pub message_bytes: usize,
    /// Bytes of all headers of a call.
    pub header_bytes: u32,
    /// For the first words of a connection, for the message of a call, for the reading of an answer, and for a sign of life when asked for one.
    pub patience: Duration,
    /// A connection that is quiet for so long is asked for a sign of life. It may stay as long as it gives one. Connections are looked at
    /// once in a patience, so it may take that much longer.
    pub idle: Duration,
    /// A connection that is so old, give or take a tenth, is asked to come again, so that clients spread over new servers.
    pub age: Option<Duration>,
    /// For the calls that an old connection has begun.
    pub age_grace: Duration,
    /// For the calls that have begun when the server is told to stop.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            calls: 1_024,
            in_flight: 10_000,
            watches: 1_000,
            message_bytes: 4 << 20,
            header_bytes: 16 << 10,
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            age: Some(Duration::from_secs(24 * 3_600)),
            age_grace: Duration::from_secs(3_600),
            drain: Duration::from_secs(30),
        }
    }
}
