//! Why a request got no response.

use crate::error::ProxyError;

/// Why a request got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendError {
    /// There is no connection to the server.
    Unreachable(ConnectError),
    /// The connection was closed before the request was sent.
    Unsent,
    /// The connection was closed without a byte of the response.
    Closed,
    /// The response did not arrive in time.
    Timeout,
    /// The client did not send the body.
    Body,
    /// Anything else.
    Failed,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// The name has no address.
    Resolve,
    /// The server refuses connections.
    Refused,
    /// The TLS handshake failed.
    Tls,
    /// It took too long.
    Timeout,
}

impl ConnectError {
    /// Its name, in logs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Resolve => "its name has no address",
            Self::Refused => "the connection failed",
            Self::Tls => "the TLS handshake failed",
            Self::Timeout => "the connection took too long",
        }
    }
}

impl SendError {
    /// Whether the server is to blame, and not the client.
    pub(super) const fn is_failure_of_server(&self) -> bool {
        !matches!(self, Self::Body)
    }

    /// Its name, in logs.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Unreachable(error) => error.name(),
            Self::Unsent | Self::Closed => "the connection was closed without a response",
            Self::Timeout => "the response did not arrive in time",
            Self::Body => "the client did not send the body",
            Self::Failed => "the response is malformed or incomplete",
        }
    }
}

impl From<SendError> for ProxyError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Timeout | SendError::Unreachable(ConnectError::Timeout) => Self::Timeout,
            SendError::Body => Self::BadRequest("The body of the request is incomplete."),
            SendError::Unreachable(_)
            | SendError::Unsent
            | SendError::Closed
            | SendError::Failed => Self::BadGateway,
        }
    }
}
