//! JSON schema of requests and responses, for the OpenAPI document and for clients in Rust, which
//! write requests and read responses.
//!
//! The service itself parses and writes JSON without these types; tests compare both.
//!
//! ```
//! use sluicegate_server::http::schema::{Check, Descriptor};
//!
//! let alice = Descriptor::of([("user", "alice")]);
//! let (domain, descriptors) = ("shop".to_owned(), vec![alice]);
//! let check = Check { domain, descriptors, hits: None, limits: None, pool: None };
//! let json = r#"{"domain":"shop","descriptors":[{"user":"alice"}]}"#;
//! assert_eq!(serde_json::to_string(&check)?, json);
//! # Ok::<(), serde_json::Error>(())
//! ```

mod errors;
mod keys;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::errors::{Context, Error, ErrorResponse};
pub use self::keys::{InspectResponse, InspectResults, KeyState, KeyStates, LimitState, PoolState};

/// One check or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Asked)]
pub enum CheckBody {
    /// One check.
    One(Check),
    /// Several checks, decided one by one, in order and at the same time.
    Many(CheckBatch),
}

/// Several checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Checks)]
pub struct CheckBatch {
    /// At most 1,000 by default.
    pub checks: Vec<Check>,
}

/// A check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Domain of the rules.
    pub domain: String,
    /// Descriptors.
    pub descriptors: Vec<Descriptor>,
    /// Hits, 1 by default, at most 2^53 - 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Whether each status lists the state of all its limits after the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<bool>,
    /// The pool to draw from, of rules with pools: by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A descriptor. Its entries are string fields, in their order, or a list under `entries`, for keys
/// that occur twice or are called `entries`, `hits` or `limit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Descriptor {
    /// Entries, from the general to the particular.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<Entry>>,
    /// Hits, if not those of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Limit that replaces those of the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Entries as fields, ordered by key; where the order matters, use the list.
    #[serde(flatten)]
    pub fields: BTreeMap<String, String>,
}

/// An entry of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Key, such as `user`.
    pub key: String,
    /// Value, such as `42`.
    pub value: String,
}

/// Limit of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Requests per unit.
    pub requests_per_unit: u32,
    /// Unit of time.
    pub unit: Unit,
}

/// Unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "units of time")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// Result of one check or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Answered)]
#[expect(clippy::large_enum_variant, reason = "responses are parsed one at a time")]
pub enum CheckResponse {
    /// Of one check.
    One(CheckResult),
    /// Of several checks.
    Many(CheckResults),
}

/// Results of several checks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answers)]
pub struct CheckResults {
    /// In the order of the checks.
    pub answers: Vec<CheckResult>,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answer)]
pub struct CheckResult {
    /// Reason of a denial, if it is one of several checks.
    pub error: Option<Error>,
    /// Whether it is admitted.
    pub allowed: bool,
    /// Status of each descriptor, in order.
    pub statuses: Vec<CheckStatus>,
    /// Name of the concurrency slot that was acquired, to release it.
    pub reservation: Option<String>,
}

/// Result of a denied check.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Denied)]
pub struct DeniedResponse {
    /// Reason, of the descriptor with the longest wait.
    pub error: Error,
    /// `false`.
    pub allowed: bool,
    /// Status of each descriptor, in order.
    pub statuses: Vec<CheckStatus>,
}

/// Status of a descriptor. Fields without a value are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Status)]
pub struct CheckStatus {
    /// Whether its limits admit it.
    pub allowed: bool,
    /// Whether an entry is on a list of the domain: `allow` or `deny`.
    pub listed: Option<String>,
    /// The rule that applies; `null` if none does.
    pub rule: Option<String>,
    /// Why no rule applies: `no_domain` (the domain has no rules), `no_rule` (none of them
    /// matches), or `exempt` (the rules name the descriptor without a limit).
    pub reason: Option<String>,
    /// Whether another rule of the request replaces that one.
    pub replaced: Option<bool>,
    /// The further pool of the rule that decided; absent where the rule's own limits did.
    pub pool: Option<String>,
    /// The limit that decided.
    pub limit: Option<String>,
    /// Its quota.
    pub quota: Option<u64>,
    /// Remaining quota; negative in debt.
    pub remaining: Option<i64>,
    /// Milliseconds until that limit is full.
    pub reset_after_ms: Option<u64>,
    /// Milliseconds to wait before a retry; only if denied, and if waiting helps.
    pub retry_after_ms: Option<u64>,
    /// `true` if that is an estimate: a slot of a concurrency limit is lacking.
    pub estimated: Option<bool>,
    /// Largest cost that could pass, of a request that can never pass.
    pub max_cost: Option<u64>,
    /// Milliseconds to delay a shaped request.
    pub wait_ms: Option<u64>,
    /// Admitted above a soft limit.
    pub soft: Option<bool>,
    /// Admitted above the plain limit of an elastic one.
    pub elastic: Option<bool>,
    /// Outcome of shadow limits.
    pub shadow: Option<Shadow>,
    /// Consistency level, if the shared store did not decide: `leased` (from quota that this node
    /// has acquired in advance) or `eventual` (from counts that nodes synchronize afterwards).
    pub level: Option<String>,
    /// Hits by which the limit may be exceeded at that level: those of other nodes that are not
    /// synchronized yet. 0 for `leased`.
    pub over: Option<u64>,
    /// The state of all limits after the decision, in the order of the rule; only on request.
    pub limits: Option<Vec<LimitState>>,
    /// After a refund, credit, commit or cancel: what each limit got back.
    pub returned: Option<Vec<ReturnedHits>>,
}

/// Hits that a limit got back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Returned)]
pub struct ReturnedHits {
    /// The limit.
    pub limit: String,
    /// Hits; slots of a concurrency limit.
    pub hits: u64,
}

/// Outcome of shadow limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shadow {
    /// Whether it would be admitted.
    pub allowed: bool,
    /// Milliseconds until it would be admitted.
    pub retry_after_ms: Option<u64>,
    /// Largest cost that could pass.
    pub max_cost: Option<u64>,
    /// Milliseconds by which it would be delayed.
    pub wait_ms: Option<u64>,
}

/// Explanation of one check or several.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Explained)]
pub enum ExplainResponse {
    /// Of one check.
    One(Explanation),
    /// Of several checks.
    Many(Explanations),
}

/// Explanations of several checks.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ManyReasons)]
pub struct Explanations {
    /// In the order of the checks.
    pub answers: Vec<Explanation>,
}

/// Outcome that a check would have, and why.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reasons)]
pub struct Explanation {
    /// Domain of the rules.
    pub domain: String,
    /// Hits of descriptors without their own.
    pub hits: u64,
    /// Whether the domain has rules.
    pub known_domain: bool,
    /// Why no rule applies to the domain, or to the first unmatched descriptor, with a suggested
    /// correction.
    pub hint: Option<String>,
    /// Of each descriptor: the lookups that found its rule, the rule, its counter and its state.
    pub descriptors: Vec<serde_json::Value>,
    /// The entry on an allow or deny list, if any.
    pub listed: Option<serde_json::Value>,
    /// Whether it would be admitted.
    pub allowed: bool,
    /// Reason.
    pub why: String,
}

/// A check whose cost is known only later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reserves)]
pub struct ReserveRequest {
    /// Domain of the rules.
    pub domain: String,
    /// Descriptors. One with its own `hits` is settled with those, whatever is committed.
    pub descriptors: Vec<Descriptor>,
    /// Estimated hits, 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Whether each status lists the state of all its limits after the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<bool>,
    /// The pool to draw from, of rules with pools: by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Milliseconds after which it expires: 60,000 by default, a day at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Milliseconds to wait until it is admitted, ten minutes at most. Absent: does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// An admitted reservation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reserved)]
pub struct ReserveResponse {
    /// `true`.
    pub allowed: bool,
    /// Status of each descriptor, in order.
    pub statuses: Vec<CheckStatus>,
    /// Its name: up to 8,192 of the characters `A-Z a-z 0-9 - _`.
    pub reservation: String,
    /// Milliseconds after which it expires.
    pub expires_after_ms: u64,
    /// Milliseconds that it waited, if it was to wait.
    pub waited_ms: Option<u64>,
}

/// Restarts the lifetime of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Renews)]
pub struct RenewRequest {
    /// Name of the reservation, or of a slot.
    pub reservation: String,
    /// Milliseconds after which it expires, a day at most.
    pub ttl_ms: u64,
}

/// A renewed reservation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Renewed)]
pub struct RenewResponse {
    /// Milliseconds after which it expires: `ttl_ms`, or the lease of its slot if that is shorter.
    pub expires_after_ms: u64,
}

/// Settles a reservation with what was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Commits)]
pub struct CommitRequest {
    /// Name of the reservation.
    pub reservation: String,
    /// Hits that were used: less than reserved, or more.
    pub hits: u64,
    /// Whether the rest stays reserved. A later commit counts what was used since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<bool>,
}

/// Cancels a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Cancels)]
pub struct CancelRequest {
    /// Name of the reservation.
    pub reservation: String,
}

/// A settled reservation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Settled)]
pub struct SettleResponse {
    /// Of a partial commit: hits that stay reserved.
    pub held: Option<u64>,
    /// Hits that every limit got back at least; `returned` of each status has those of each limit.
    pub returned: u64,
    /// Status of each descriptor, in order.
    pub statuses: Vec<CheckStatus>,
}

/// A check that waits until it is admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Waits)]
pub struct WaitRequest {
    /// Domain of the rules.
    pub domain: String,
    /// Descriptors.
    pub descriptors: Vec<Descriptor>,
    /// Hits, 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Whether each status lists the state of all its limits after the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<bool>,
    /// The pool to draw from, of rules with pools: by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Milliseconds to wait: 30,000 by default, ten minutes at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// An admitted request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Waited)]
pub struct WaitResponse {
    /// `true`.
    pub allowed: bool,
    /// Status of each descriptor, in order.
    pub statuses: Vec<CheckStatus>,
    /// Milliseconds that it waited.
    pub waited_ms: u64,
    /// Name of the concurrency slot that was acquired, to release it.
    pub reservation: Option<String>,
}

impl Descriptor {
    /// A descriptor of these entries.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let fields = entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { fields: fields.collect(), ..Self::default() }
    }
}
