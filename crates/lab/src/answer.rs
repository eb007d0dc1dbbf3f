//! An answer of `sluicegate try`, as it is printed.

use serde::Serialize;
use sluicegate_core::account::Answer;
use sluicegate_core::time::Span;
use sluicegate_core::verdict::{Outcome, Verdict};

/// One answer. Its fields are the printed ones, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Printed {
    /// Whether the request may go.
    pub allowed: bool,
    /// The cost can never pass.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// The largest cost that could, when this one never can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    /// Which limit decided.
    pub limit: Option<String>,
    /// Whole units left; negative in debt; null without a limit.
    pub remaining: Option<i64>,
    /// How long a denied caller has to wait; null for never.
    pub retry_after_us: Option<u64>,
    /// How long until the limit is full.
    pub reset_after_us: u64,
    /// How long an admitted caller has to wait for its turn, or a debt to be paid.
    pub wait_us: u64,
    /// How much a `take` or `drain` took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<u64>,
    /// How much a `cancel` or `commit` gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<u64>,
    /// Admitted above a soft limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
    /// Admitted above the plain limit of an elastic one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// In shadow mode: what enforcement would have said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_allow: Option<bool>,
}

// === impl Printed ===

impl Printed {
    /// An answer with the names of the limits in place of their numbers.
    #[must_use]
    pub fn new(answer: &Answer, names: &[String]) -> Self {
        let verdict = &answer.verdict;
        // A shadow does not deny, but its numbers are the ones worth reading.
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
            soft: verdict.soft,
            elastic: verdict.elastic,
            would_allow: verdict.shadow.map(|shadow| shadow.is_allowed()),
        }
    }

    /// The same after a change of the limits: how it stands then. A look at a tally is denied
    /// beyond its limit; a change is not.
    #[must_use]
    pub(crate) fn after_change(answer: &Answer, names: &[String]) -> Self {
        let free = Outcome::Allow { wait: Span::ZERO };
        let shadow = answer.verdict.shadow.map(|_| free);
        let verdict = Verdict { outcome: free, shadow, ..answer.verdict };
        Self::new(&Answer { verdict, ..*answer }, names)
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
