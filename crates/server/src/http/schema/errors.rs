//! JSON schema of errors and denials.

use serde::Deserialize;
use utoipa::ToSchema;

/// Error response; an RFC 9457 problem if so configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Refused)]
pub struct ErrorResponse {
    /// The error.
    pub error: Error,
}

/// An error or a denial.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Error {
    /// For programs: `rate_limited`, `invalid_request` and others, see the guide to the service.
    pub code: String,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// Details.
    pub context: Context,
}

/// Details of an error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Of a denial: when to retry, in UNIX milliseconds.
    pub renewal: Option<u64>,
    /// Of a denial: the limit that decided.
    pub limit: Option<String>,
    /// Of a denial: milliseconds to wait.
    pub retry_after_ms: Option<u64>,
    /// Of a denial: `true` if that is an estimate, since a slot of a concurrency limit is lacking.
    pub estimated: Option<bool>,
    /// Of a request that can never pass: the largest cost that could.
    pub max_cost: Option<u64>,
    /// Of a malformed body: the line, from 1 on.
    pub line: Option<u64>,
    /// Of a malformed body: the column, from 1 on.
    pub column: Option<u64>,
    /// Of a malformed or unmatched request: the field, such as `descriptors[0].hits`.
    pub field: Option<String>,
    /// Of an unmatched request: `no_domain` or `no_rule`.
    pub reason: Option<String>,
}
