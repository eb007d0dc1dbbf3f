//! Envoy's rate limit service, version 3.
//!
//! [`request`] decodes, [`handler`] decides, [`response`] encodes. The codec is written by hand: a
//! request borrows from the bytes that it arrived in, and a response is appended to those that
//! leave. `tests/wire.rs` compares both with generated code, on valid and on malformed messages.

pub mod handler;
pub mod json;
mod metadata;
pub mod request;
pub mod response;
pub(crate) mod wire;

use self::request::RequestLimits;
use crate::unmatched::UnmatchedPolicy;

/// Options of the rate limit service, beside its rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Size limits of a request.
    pub limits: RequestLimits,
    /// No request is denied; would-be denials are counted.
    pub shadow_mode: bool,
    /// Every rule is in quota mode.
    pub quota_mode: bool,
    /// Headers that Envoy adds to the response to the client.
    pub response_headers: Option<HeaderNames>,
    /// Headers that Envoy adds to the request to the upstream.
    pub request_headers: Option<HeaderNames>,
    /// Whether responses carry dynamic metadata.
    pub dynamic_metadata: bool,
    /// Authorization of refunds.
    pub refunds: RefundPolicy,
    /// Treatment of requests that no rule matches. The engine must deny them, unless they pass:
    /// [`EngineBuilder::deny_unmatched`](sluicegate::EngineBuilder::deny_unmatched).
    pub unmatched: UnmatchedPolicy,
}

/// Authorization of refunds. Settling a reservation needs none: its name is the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefundPolicy {
    /// Operators; clients that prove the charge by the idempotency key and the request of a check,
    /// once; and gRPC proxies, up to a bound.
    #[default]
    Proven,
    /// Operators only.
    Operators,
    /// All clients: for trusted networks.
    Open,
}

impl RefundPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Proven, Self::Operators, Self::Open];

    /// Its name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Operators => "operators",
            Self::Open => "open",
        }
    }
}

/// Names of the headers that Envoy adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    /// Of the limit.
    pub limit: String,
    /// Of the remaining quota.
    pub remaining: String,
    /// Of the seconds until the limit is full.
    pub reset: String,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}
