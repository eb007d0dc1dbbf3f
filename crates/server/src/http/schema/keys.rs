//! JSON schema of the state of limits.

use serde::Deserialize;
use utoipa::ToSchema;

/// State of the limits of one check or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Inspected)]
pub enum InspectResponse {
    /// Of one check.
    One(KeyStates),
    /// Of several checks.
    Many(InspectResults),
}

/// State of the limits of several checks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ManyKeys)]
pub struct InspectResults {
    /// In the order of the checks.
    pub answers: Vec<KeyStates>,
}

/// State of the limits of a check.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Keys)]
pub struct KeyStates {
    /// Of each descriptor, in order.
    pub keys: Vec<KeyState>,
}

/// State of the limits of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Key)]
pub struct KeyState {
    /// All limits, in the order of the rule.
    pub limits: Vec<LimitState>,
    /// The further pools of the rule, in the order that requests draw from them.
    pub pools: Option<Vec<PoolState>>,
    /// The rule that applies; `null` if none does.
    pub rule: Option<String>,
    /// The further pool, if the request names it.
    pub pool: Option<String>,
    /// Why no rule applies: `no_domain`, `no_rule` or `exempt`.
    pub reason: Option<String>,
    /// Whether another rule of the request replaces that one.
    pub replaced: Option<bool>,
}

/// State of a further pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolState {
    /// All limits, in the order of the pool.
    pub limits: Vec<LimitState>,
    /// The id of the pool.
    pub rule: String,
    /// Its name.
    pub pool: String,
}

/// State of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitState {
    /// Whether it would admit a cost of 1; only from `/v1/keys/inspect`.
    pub allowed: Option<bool>,
    /// Its name.
    pub limit: String,
    /// Its algorithm.
    pub algorithm: String,
    /// Its quota.
    pub quota: Option<u64>,
    /// Milliseconds in which the quota refills. Months and years of a calendar have none: their
    /// lengths vary.
    pub window_ms: Option<u64>,
    /// Remaining quota; negative in debt.
    pub remaining: Option<i64>,
    /// Milliseconds until it is full.
    pub reset_after_ms: u64,
    /// Milliseconds until a cost of 1 would be admitted; only from `/v1/keys/inspect`.
    pub retry_after_ms: Option<u64>,
    /// `true` if that is an estimate: a slot of a concurrency limit is lacking.
    pub estimated: Option<bool>,
    /// `false` for a shadow limit.
    pub enforced: Option<bool>,
}
