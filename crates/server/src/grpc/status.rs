//! gRPC status of a failed call.

use std::borrow::Cow;

use http::HeaderValue;

use crate::rls::handler::{Failure, GrpcStatus};
use crate::telemetry::Fault;

/// GrpcError of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrpcError {
    code: u8,
    message: Cow<'static, str>,
    /// The fault to count, unless it is counted already.
    fault: Option<Fault>,
    /// Whether the client should retry without compression.
    pub(super) is_compressed: bool,
}

type StatusMessage = Cow<'static, str>;

impl GrpcError {
    fn new(code: u8, fault: Option<Fault>, message: impl Into<StatusMessage>) -> Self {
        Self { code, message: message.into(), fault, is_compressed: false }
    }

    pub(super) fn cancelled(message: impl Into<StatusMessage>) -> Self {
        Self::new(1, None, message)
    }

    pub(super) fn deadline_exceeded(message: impl Into<StatusMessage>) -> Self {
        Self::new(4, Some(Fault::Late), message)
    }

    pub(super) fn not_found(message: impl Into<StatusMessage>) -> Self {
        Self::new(5, None, message)
    }

    pub(super) fn exhausted(message: impl Into<StatusMessage>) -> Self {
        Self::new(8, Some(Fault::Invalid), message)
    }

    pub(super) fn unimplemented(message: impl Into<StatusMessage>) -> Self {
        Self::new(12, Some(Fault::Invalid), message)
    }

    pub(super) fn compressed() -> Self {
        let status =
            Self::unimplemented("compressed messages are not supported; send them uncompressed");
        Self { is_compressed: true, ..status }
    }

    pub(super) fn internal(message: impl Into<StatusMessage>) -> Self {
        Self::new(13, Some(Fault::Invalid), message)
    }

    pub(super) fn overloaded() -> Self {
        Self::new(14, Some(Fault::Overload), "overloaded: too many calls wait; retry later")
    }

    pub(super) fn out_of_memory() -> Self {
        let message = "overloaded: the memory budget is exhausted; retry later";
        Self::new(8, Some(Fault::Overload), message)
    }

    pub(super) fn going_away() -> Self {
        Self::new(14, None, "the connection is closing; retry on another one")
    }

    pub(super) fn code(&self) -> HeaderValue {
        HeaderValue::from(u16::from(self.code))
    }

    pub(super) const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The message, percent-encoded as gRPC requires.
    pub(super) fn message(&self) -> HeaderValue {
        let mut text = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

impl From<Failure> for GrpcError {
    fn from(failure: Failure) -> Self {
        let code = match failure.status {
            GrpcStatus::Unknown | GrpcStatus::Store => 2,
            GrpcStatus::InvalidArgument => 3,
        };
        // The handler has counted it.
        Self::new(code, None, failure.message)
    }
}
