//! What the operator has a say in.

use super::request::Most;

/// How Envoy is answered, beside what the rules say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The most that a request may hold.
    pub most: Most,
    /// Nobody is denied; that somebody would have been is counted.
    pub shadow_mode: bool,
    /// Every rule is in quota mode.
    pub quota_mode: bool,
    /// The headers that Envoy adds to what goes back to the client.
    pub response_headers: Option<HeaderNames>,
    /// The headers that Envoy adds to what goes on to the upstream.
    pub request_headers: Option<HeaderNames>,
    /// Whether Envoy is told, in its dynamic metadata, what it asked.
    pub dynamic_metadata: bool,
    /// Authorization of refunds.
    pub refunds: RefundPolicy,
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
    /// All of them.
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

/// What the headers are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    /// Of the limit.
    pub limit: String,
    /// Of what is left of it.
    pub remaining: String,
    /// Of the seconds until it is full.
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
