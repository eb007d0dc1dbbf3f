//! Why there is no answer.

use std::fmt;

use sluicegate_redis::StoreError;

use crate::telemetry::Fault;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whose fault it is, as gRPC counts it.
    pub status: GrpcStatus,
    /// What to tell whoever asked.
    pub message: String,
}

/// The statuses of gRPC that an answer may fail with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcStatus {
    /// As envoyproxy/ratelimit answers what it cannot make sense of.
    Unknown = 2,
    /// The request is none.
    InvalidArgument = 3,
    /// The store did not answer. Told as [`GrpcStatus::Unknown`], as there.
    Store,
}

// === impl Failure ===

impl Failure {
    pub(super) fn unknown(message: &str) -> Self {
        Self { status: GrpcStatus::Unknown, message: message.to_owned() }
    }

    /// The store did not answer, and that is to be told: with its own words, as envoyproxy/ratelimit does.
    pub(super) fn store(error: StoreError) -> Self {
        Self { status: GrpcStatus::Store, message: error.to_string() }
    }

    /// Nobody can wait here.
    pub(crate) fn would_wait() -> Self {
        Self::unknown("the answer has to be waited for, where nobody can wait")
    }

    pub(super) fn invalid(message: impl ToString) -> Self {
        Self { status: GrpcStatus::InvalidArgument, message: message.to_string() }
    }

    pub(super) const fn fault(&self) -> Fault {
        match self.status {
            GrpcStatus::Unknown => Fault::Service,
            GrpcStatus::InvalidArgument => Fault::Invalid,
            GrpcStatus::Store => Fault::Store,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
