//! What is asked and answered, as types: the OpenAPI document is made of them, and clients in Rust can use them.
//!
//! The service itself reads and writes JSON without them; the tests hold what it takes and gives against them.
//!
//! ```
//! use sluicegate_server::http::schema::{Check, Descriptor};
//!
//! let alice = Descriptor::of([("user", "alice")]);
//! let check = Check { domain: "shop".to_owned(), descriptors: vec![alice], hits: None };
//! assert_eq!(serde_json::to_string(&check)?, r#"{"domain":"shop","descriptors":[{"user":"alice"}]}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

mod held;

use std::collections::BTreeMap;

pub use held::{Cancels, Commits, Reserved, Reserves, Settled, Waited, Waits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A check, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Asked {
    /// One.
    One(Check),
    /// Several, each judged by itself, in order and at one moment.
    Many(Checks),
}

/// Several checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Checks {
    /// At most 1,000, unless the operator says otherwise.
    pub checks: Vec<Check>,
}

/// May this go?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Whose rules.
    pub domain: String,
    /// Who wants what.
    pub descriptors: Vec<Descriptor>,
    /// How many hits; 1 unless told. More than 2^53 - 1 count as that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
}

/// Somebody: entries as fields with a text, in their order, or in a list under `entries`, which is for a key that comes twice or is called
/// `entries`, `hits` or `limit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Descriptor {
    /// What is known, from the general to the particular.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<Entry>>,
    /// How many hits, if not those of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// The limit to enforce in place of the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The entries in short. Their order is that of their keys here; where it matters, use the list.
    #[serde(flatten)]
    pub in_short: BTreeMap<String, String>,
}

/// One thing that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is: `user`.
    pub key: String,
    /// Which one: `42`.
    pub value: String,
}

/// A limit that comes with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// How many.
    pub requests_per_unit: u32,
    /// In which time.
    pub unit: Unit,
}

/// A time.
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

/// What is answered to a check, or to several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Answered {
    /// To one.
    One(Answer),
    /// To several, in their order.
    Many(Answers),
}

/// What is answered to several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    /// In the order of the checks.
    pub answers: Vec<Answer>,
}

/// What was said of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Why it was denied, if it was one of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// Whether it may go.
    pub allowed: bool,
    /// What was said of each descriptor, in their order.
    pub statuses: Vec<Status>,
}

/// What is answered to a check that is denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Denied {
    /// Why: of the descriptor that has to wait longest.
    pub error: Error,
    /// `false`.
    pub allowed: bool,
    /// What was said of each descriptor, in their order.
    pub statuses: Vec<Status>,
}

/// What was said of a descriptor. What there is nothing to tell of is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Whether its limits let it pass.
    pub allowed: bool,
    /// Whether an entry is on a list of the domain: `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed: Option<String>,
    /// The rule that it is under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether another rule of the request takes the place of that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<bool>,
    /// The limit that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The most that it can have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// What it has left; negative in debt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<i64>,
    /// Until everything is full, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_after_ms: Option<u64>,
    /// How long to wait before trying again, in milliseconds; only of what is denied, and not if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The largest cost that could pass, of what can never pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    /// How long to wait for its turn, of what is shaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Admitted above a soft limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft: Option<bool>,
    /// Admitted above the plain limit of an elastic one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic: Option<bool>,
    /// What limits would have said that are only watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// Who decided, where it was not the store that all nodes share: `leased` (this node had bought ahead) or `eventual` (it hears of the others afterwards).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// How much more than the limit may have passed at that level: what other nodes admitted that this one has not heard of. 0 of what is `leased`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<u64>,
}

/// What limits would have said that are only watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shadow {
    /// Whether it would have passed.
    pub allowed: bool,
    /// How long it would have had to wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The largest cost that could have passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    /// How long it would have waited for its turn, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// What is answered to who asks for reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Explained {
    /// To one check.
    One(Reasons),
    /// To several, in their order.
    Many(ManyReasons),
}

/// What is answered to several checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyReasons {
    /// In the order of the checks.
    pub answers: Vec<Reasons>,
}

/// What would happen, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reasons {
    /// Whose rules.
    pub domain: String,
    /// How many hits, for descriptors that do not say.
    pub hits: u64,
    /// Whether anybody has rules for the domain.
    pub known_domain: bool,
    /// What may have been meant.
    pub hint: Option<String>,
    /// Of each descriptor: the looks by which its rule was found, the rule, whose counter it is, and how it stands.
    pub descriptors: Vec<serde_json::Value>,
    /// The entry that is on a list, if there is one.
    pub listed: Option<serde_json::Value>,
    /// Whether it would go.
    pub allowed: bool,
    /// Why.
    pub why: String,
}

/// What is answered to who asks how limits stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Inspected {
    /// To one check.
    One(Keys),
    /// To several, in their order.
    Many(ManyKeys),
}

/// What is answered to several checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyKeys {
    /// In the order of the checks.
    pub answers: Vec<Keys>,
}

/// How the limits of a check stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Of each descriptor, in their order.
    pub keys: Vec<Key>,
}

/// How the limits of a descriptor stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// All of them, in the order of the rule.
    pub limits: Vec<LimitState>,
    /// The rule that it is under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether another rule of the request takes the place of that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<bool>,
}

/// How a limit stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitState {
    /// Whether it would let a cost of 1 pass.
    pub allowed: bool,
    /// What it is called.
    pub limit: String,
    /// How it counts.
    pub algorithm: String,
    /// The most that it can have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// The time in which that comes back, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    /// What it has left; negative in debt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<i64>,
    /// Until it is full, in milliseconds.
    pub reset_after_ms: u64,
    /// How long a cost of 1 would have to wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// `false` if it is only watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforced: Option<bool>,
}

/// What whoever gets no answer is told; as a problem of RFC 9457 if the operator wants it so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Why.
    pub error: Error,
}

/// Why there is no answer, or a denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Error {
    /// For programs: `rate_limited`, `invalid_request`, `body_too_large`, `body_late`, `no_rules`, `overloaded`, `unauthorized`, `forbidden`,
    /// `not_found`, `method_not_allowed`.
    pub code: String,
    /// For people: what is wrong, and what to do.
    pub message: String,
    /// What there is to know beside it.
    pub context: Context,
}

/// What there is to know beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Of a denial: from when on it is worth trying again, in UNIX milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<u64>,
    /// Of a denial: the limit that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Of a denial: how long to wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Of what can never pass: the largest cost that could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    /// Of what cannot be read: where, from 1 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Of what cannot be read: where, from 1 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// Of what cannot be read: which field, such as `descriptors[0].hits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Descriptor {
    /// These entries, and nothing else said.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let in_short = entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { in_short: in_short.collect(), ..Self::default() }
    }
}
