//! Answers of `sluicegate try` as printed.

use serde::Serialize;
use sluicegate_core::account::Answer;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::Outcome;

use crate::line::ScriptOp;

/// One answer; the fields are printed in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrialAnswer {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The cost can never be allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// The largest cost that can be allowed, if this one never can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    /// Name of the deciding limit.
    pub limit: Option<String>,
    /// Remaining whole units; negative in debt; null without a limit.
    pub remaining: Option<i64>,
    /// Time until a denied request can be allowed; null for never.
    pub retry_after_us: Option<u64>,
    /// Time until the quota is fully restored.
    pub reset_after_us: u64,
    /// Delay of an admitted request under a shaping limit or in debt.
    pub wait_us: u64,
    /// Quota taken by `take` or `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<u64>,
    /// Quota refunded by `cancel` or `commit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<u64>,
    /// Quota that a partial commit leaves reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Admitted above a soft limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
    /// Admitted above the plain limit of an elastic one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// In shadow mode: the decision of enforcement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_allow: Option<bool>,
}

impl TrialAnswer {
    /// The answer to an operation, with limit names in place of their indices.
    #[must_use]
    pub fn new(op: &ScriptOp, answer: &Answer, names: &[String]) -> Self {
        let mut verdict = answer.verdict;
        if matches!(op, ScriptOp::SetLimit { .. }) {
            // A peek at a tally is denied beyond its limit; a change of the limits is not.
            verdict.outcome = Outcome::Allow { wait: Span::ZERO };
            verdict.shadow = verdict.shadow.map(|_| verdict.outcome);
        }
        // A shadow does not deny; its numbers are printed.
        let deciding = match verdict.shadow {
            Some(shadow) if verdict.outcome.is_allowed() => shadow,
            _ => verdict.outcome,
        };
        let allowed = verdict.outcome.is_allowed();
        let (never, max_cost, retry_after_us) = match deciding {
            Outcome::Allow { .. } => (false, None, Some(0)),
            Outcome::Deny { retry_after } => (false, None, Some(retry_after.as_micros())),
            Outcome::Never { max_cost } => (true, Some(max_cost), None),
        };
        let wait_us = match verdict.outcome {
            Outcome::Allow { wait } => wait.as_micros(),
            Outcome::Deny { .. } | Outcome::Never { .. } => 0,
        };
        Self {
            allowed,
            never,
            max_cost,
            limit: verdict.decided_by.and_then(|index| names.get(index).cloned()),
            remaining: verdict.remaining,
            retry_after_us,
            reset_after_us: verdict.reset_after.as_micros(),
            wait_us,
            taken: answer.taken,
            returned: answer.returned,
            held: answer.held,
            soft: verdict.soft,
            elastic: verdict.elastic,
            would_allow: verdict.shadow.map(|shadow| shadow.is_allowed()),
        }
    }

    /// The answer as one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| error_json(&error.to_string()))
    }
}

/// An error as one line of JSON.
///
/// ```
/// assert_eq!(sluicegate_lab::answer::error_json("no"), r#"{"error":"no"}"#);
/// ```
#[must_use]
pub fn error_json(message: &str) -> String {
    serde_json::json!({ "error": message }).to_string()
}
