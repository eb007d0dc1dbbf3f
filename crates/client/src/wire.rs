//! JSON responses of the service. Unknown fields are ignored.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::decision::{Decision, Status};

/// Response to check, peek, refund, reserve and wait.
#[derive(Debug, Deserialize)]
pub(crate) struct CheckResponse {
    pub(crate) allowed: bool,
    #[serde(default)]
    statuses: Vec<WireStatus>,
    pub(crate) reservation: Option<String>,
    expires_after_ms: Option<u64>,
    waited_ms: Option<u64>,
}

/// Response to several checks.
#[derive(Debug, Deserialize)]
pub(crate) struct BatchResponse {
    pub(crate) answers: Vec<CheckResponse>,
}

/// Response to commit and cancel.
#[derive(Debug, Deserialize)]
pub(crate) struct SettleResponse {
    pub(crate) returned: u64,
    #[serde(default)]
    statuses: Vec<WireStatus>,
}

#[derive(Debug, Deserialize)]
struct WireStatus {
    allowed: bool,
    rule: Option<String>,
    limit: Option<String>,
    quota: Option<u64>,
    remaining: Option<i64>,
    reset_after_ms: Option<u64>,
    retry_after_ms: Option<u64>,
    max_cost: Option<u64>,
    wait_ms: Option<u64>,
}

impl CheckResponse {
    pub(crate) fn expires_after(&self) -> Option<Duration> {
        self.expires_after_ms.map(Duration::from_millis)
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_millis(self.waited_ms.unwrap_or_default())
    }
}

impl From<CheckResponse> for Decision {
    fn from(answer: CheckResponse) -> Self {
        Self::of(answer.allowed, answer.statuses.into_iter().map(Status::from).collect())
    }
}

impl SettleResponse {
    pub(crate) fn statuses(self) -> Vec<Status> {
        self.statuses.into_iter().map(Status::from).collect()
    }
}

impl From<WireStatus> for Status {
    fn from(one: WireStatus) -> Self {
        let span = |ms: Option<u64>| ms.map(Duration::from_millis);
        Self {
            allowed: one.allowed,
            rule: one.rule,
            limit: one.limit,
            quota: one.quota,
            remaining: one.remaining,
            reset_after: span(one.reset_after_ms),
            retry_after: span(one.retry_after_ms),
            max_cost: one.max_cost,
            wait: span(one.wait_ms),
        }
    }
}

/// Code and message of an error response, in either form.
pub(crate) fn refusal(body: &[u8]) -> (String, String) {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = json.pointer("/error/code").or_else(|| json.get("code"));
    let message = json.pointer("/error/message").or_else(|| json.get("detail"));
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    match text(message) {
        message if message.is_empty() => (text(code), "not a response of Sluicegate".to_owned()),
        message => (text(code), message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_errors() {
        let known = ("no_rules".to_owned(), "none".to_owned());
        let envelope = br#"{"error":{"code":"no_rules","message":"none","context":{}}}"#;
        assert_eq!(refusal(envelope), known);
        assert_eq!(refusal(br#"{"type":"about:blank","detail":"none","code":"no_rules"}"#), known);
        assert_eq!(refusal(b"<html>"), (String::new(), "not a response of Sluicegate".to_owned()));
    }
}
