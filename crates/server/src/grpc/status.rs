//! How a call ended, as gRPC tells it.

use std::borrow::Cow;

use http::HeaderValue;

use crate::rls::handler::{Failure, GrpcStatus};
use crate::telemetry::Fault;

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    code: u8,
    message: Cow<'static, str>,
    /// What it counts as, if it has not been counted yet.
    fault: Option<Fault>,
    /// The client may try again with a plain message.
    pub(super) is_for_compression: bool,
}

type Text = Cow<'static, str>;

impl Status {
    fn new(code: u8, fault: Option<Fault>, message: impl Into<Text>) -> Self {
        Self { code, message: message.into(), fault, is_for_compression: false }
    }

    pub(super) fn cancelled(message: impl Into<Text>) -> Self {
        Self::new(1, None, message)
    }

    pub(super) fn too_late(message: impl Into<Text>) -> Self {
        Self::new(4, Some(Fault::Late), message)
    }

    pub(super) fn not_found(message: impl Into<Text>) -> Self {
        Self::new(5, None, message)
    }

    pub(super) fn exhausted(message: impl Into<Text>) -> Self {
        Self::new(8, Some(Fault::Invalid), message)
    }

    pub(super) fn unimplemented(message: impl Into<Text>) -> Self {
        Self::new(12, Some(Fault::Invalid), message)
    }

    pub(super) fn compressed() -> Self {
        let status = Self::unimplemented("compressed messages are not read; send them plain");
        Self { is_for_compression: true, ..status }
    }

    pub(super) fn internal(message: impl Into<Text>) -> Self {
        Self::new(13, Some(Fault::Invalid), message)
    }

    pub(super) fn overloaded() -> Self {
        Self::new(14, Some(Fault::Overload), "overloaded: too many calls wait; try again later")
    }

    pub(super) fn out_of_memory() -> Self {
        let message = "overloaded: the memory budget is exhausted; try again later";
        Self::new(8, Some(Fault::Overload), message)
    }

    pub(super) fn going_away() -> Self {
        Self::new(14, None, "the connection is about to be closed; ask again on another")
    }

    pub(super) fn code(&self) -> HeaderValue {
        HeaderValue::from(u16::from(self.code))
    }

    pub(super) const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The message as a header can carry it: what is not plain ASCII is written as `%XX`.
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

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = match failure.status {
            GrpcStatus::Unknown | GrpcStatus::Store => 2,
            GrpcStatus::InvalidArgument => 3,
        };
        // The service has counted it.
        Self::new(code, None, failure.message)
    }
}
