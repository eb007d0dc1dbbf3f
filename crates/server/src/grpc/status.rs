//! How a call ended, as gRPC tells it.

use http::HeaderValue;

use crate::rls::service::{Failure, GrpcStatus};

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    code: u8,
    message: String,
}

impl Status {
    pub(super) fn cancelled(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    pub(super) fn too_late(message: impl Into<String>) -> Self {
        Self { code: 4, message: message.into() }
    }

    pub(super) fn exhausted(message: impl Into<String>) -> Self {
        Self { code: 8, message: message.into() }
    }

    pub(super) fn unimplemented(message: impl Into<String>) -> Self {
        Self { code: 12, message: message.into() }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { code: 13, message: message.into() }
    }

    pub(super) fn code(&self) -> HeaderValue {
        HeaderValue::from(u16::from(self.code))
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
            GrpcStatus::Unknown => 2,
            GrpcStatus::InvalidArgument => 3,
        };
        Self { code, message: failure.message }
    }
}
