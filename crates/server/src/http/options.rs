//! What the operator has a say in.

use sluicegate::http::Style;

use crate::token::Token;

/// How HTTP is answered, beside what the rules say.
///
/// ```
/// use sluicegate_server::http::{Body, KeysAccess, Options};
///
/// let options = Options { body: Body::Problem, ..Options::default() };
/// assert_eq!(options.keys, KeysAccess::Off, "nobody resets counters unless told");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Which headers tell of limits, and the status of a denial.
    pub style: Style,
    /// How errors are written, denials among them.
    pub body: Body,
    /// Who may look at counters and reset them.
    pub keys: KeysAccess,
    /// The most that a request may hold.
    pub most: Most,
}

/// How errors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Body {
    /// `{"error":{"code":…,"message":…,"context":{…}}}`.
    #[default]
    Envelope,
    /// `application/problem+json`, as RFC 9457 has it.
    Problem,
}

/// Who may use `/v1/keys/…`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KeysAccess {
    /// Everybody: for a listener that only this machine reaches.
    Open,
    /// Who shows this token.
    Token(Token),
    /// Nobody.
    #[default]
    Off,
}

/// The most that a request may hold. The body as a whole is bounded too, by [`BODY_BYTES_MAX`](super::BODY_BYTES_MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Checks in `checks`.
    pub checks: usize,
    /// Descriptors of a check.
    pub descriptors: usize,
    /// Descriptors of all checks in `checks`.
    pub batch_descriptors: usize,
    /// Entries of a descriptor.
    pub entries: usize,
    /// Bytes of a domain, a key or a value.
    pub text_bytes: usize,
}

impl Default for Most {
    fn default() -> Self {
        Self {
            checks: 1_000,
            descriptors: 256,
            batch_descriptors: 4_096,
            entries: 64,
            text_bytes: 4_096,
        }
    }
}
