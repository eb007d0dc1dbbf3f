//! What the service writes, as JSON. What it may add later is not minded.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::decision::{Decision, Status};

/// To a check, a peek, a refund, a reservation, and whoever waits.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    #[serde(default)]
    statuses: Vec<OneStatus>,
    pub(crate) reservation: Option<String>,
    expires_after_ms: Option<u64>,
    waited_ms: Option<u64>,
}

/// To several checks.
#[derive(Debug, Deserialize)]
pub(crate) struct Answers {
    pub(crate) answers: Vec<Answer>,
}

/// To whoever settles a reservation.
#[derive(Debug, Deserialize)]
pub(crate) struct Settled {
    pub(crate) returned: u64,
    #[serde(default)]
    statuses: Vec<OneStatus>,
}

#[derive(Debug, Deserialize)]
struct OneStatus {
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

impl Answer {
    pub(crate) fn expires_after(&self) -> Option<Duration> {
        self.expires_after_ms.map(Duration::from_millis)
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_millis(self.waited_ms.unwrap_or_default())
    }
}

impl From<Answer> for Decision {
    fn from(answer: Answer) -> Self {
        Self::of(answer.allowed, answer.statuses.into_iter().map(Status::from).collect())
    }
}

impl Settled {
    pub(crate) fn statuses(self) -> Vec<Status> {
        self.statuses.into_iter().map(Status::from).collect()
    }
}

impl From<OneStatus> for Status {
    fn from(one: OneStatus) -> Self {
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

/// Why the service refused: the code and the message of either form of its errors.
pub(crate) fn refusal(body: &[u8]) -> (String, String) {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = json.pointer("/error/code").or_else(|| json.get("code"));
    let message = json.pointer("/error/message").or_else(|| json.get("detail"));
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    match text(message) {
        message if message.is_empty() => (text(code), "it is no answer of Sluicegate's".to_owned()),
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
        assert_eq!(
            refusal(b"<html>"),
            (String::new(), "it is no answer of Sluicegate's".to_owned())
        );
    }
}
