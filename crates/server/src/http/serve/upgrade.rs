//! Connections that switch from HTTP/1.1 to another protocol.

use std::fmt;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::listen::ConnectionFuture;

/// A byte stream of any transport.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection after its switch.
pub struct Upgraded {
    read: Bytes,
    stream: Box<dyn ByteStream>,
}

/// What continues a connection after its switch.
pub struct OnUpgrade(Box<dyn FnOnce(Upgraded) -> ConnectionFuture + Send>);

impl Upgraded {
    pub(super) fn new(
        read: Bytes,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self { read, stream: Box::new(stream) }
    }

    /// What the client has sent of the new protocol, and the rest.
    pub fn into_parts(self) -> (Bytes, impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        (self.read, self.stream)
    }
}

impl OnUpgrade {
    /// Continues a connection by this function.
    pub fn new(run: impl FnOnce(Upgraded) -> ConnectionFuture + Send + 'static) -> Self {
        Self(Box::new(run))
    }

    pub(super) fn run(self, connection: Upgraded) -> ConnectionFuture {
        (self.0)(connection)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("read", &self.read.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for OnUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnUpgrade").finish_non_exhaustive()
    }
}
