//! What clients see of their limits, as the API has it: headers, and the error of a denial.
//!
//! | API | headers |
//! |---|---|
//! | `openai` | `x-ratelimit-{limit,remaining,reset}-{tokens,requests}`, the reset like `6m0s` |
//! | `anthropic` | `anthropic-ratelimit-{tokens,input-tokens,output-tokens,requests}-{limit,remaining,reset}`, the reset as a time |
//!
//! Of each kind, the limit with the least left is shown; none that is hidden, or has no quota.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use sluicegate::http::VerdictResponse;
use sluicegate::{Checked, Outcome, Policy, Snapshot, Span, Timestamp, Verdict};
use sluicegate_config::gateway::route::{DenialConfig, LimitConfig};
use sluicegate_config::gateway::tokens::ModelApi;
use sluicegate_rules::mapping::UsageUnit;
use sluicegate_server::status::{denying_status, policies};

use crate::body::ResponseBody;
use crate::denial::visible;
use crate::limit::Decision;

/// Clients wait this long at most before they try again by themselves.
const RETRY_MAX: Span = Span::from_secs(60);
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The headers of a request's limits.
#[derive(Debug)]
pub(crate) struct TokenHeaders<'a> {
    api: ModelApi,
    /// The unit of each descriptor of the request; `None` for requests.
    units: Vec<Option<UsageUnit>>,
    denial: &'a DenialConfig,
}

/// A limit as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VisibleLimit {
    quota: u64,
    remaining: u64,
    reset_after: Span,
}

impl<'a> TokenHeaders<'a> {
    /// Those of a limit, if it counts tokens. `indices` are those of the request's descriptors in
    /// the mapping.
    pub(crate) fn new(
        limit: &LimitConfig,
        denial: &'a DenialConfig,
        indices: impl Iterator<Item = usize>,
    ) -> Option<Self> {
        let api = limit.tokens.as_ref()?.api;
        let descriptors = &limit.mapping.descriptors;
        let unit = |index: usize| descriptors.get(index).and_then(|one| one.usage_unit());
        Some(Self { api, units: indices.map(unit).collect(), denial })
    }

    /// Adds them to the response. A denial without a body of its own gets the error of the API.
    pub(crate) fn apply(
        &self,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        decision: &mut Decision,
    ) {
        let headers = match decision {
            Decision::Admitted(admission) => admission.headers.get_or_insert_default(),
            Decision::Denied(response) => {
                if self.denial.body.is_none() && self.denial.html.is_none() {
                    self.deny(rules, now, checked, response);
                }
                response.headers_mut()
            }
            // Requests whose cost is settled are not deferred.
            Decision::Deferred(_) => return,
        };
        self.write(rules, now, checked, headers);
    }

    fn write(
        &self,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        headers: &mut HeaderMap,
    ) {
        let kinds: &[(Option<UsageUnit>, &str)] = match self.api {
            ModelApi::OpenAi => &[(Some(UsageUnit::Tokens), "tokens"), (None, "requests")],
            ModelApi::Anthropic => &[
                (Some(UsageUnit::Tokens), "tokens"),
                (Some(UsageUnit::InputTokens), "input-tokens"),
                (Some(UsageUnit::OutputTokens), "output-tokens"),
                (None, "requests"),
            ],
        };
        for (unit, kind) in kinds {
            let Some(limit) = self.closest(*unit, rules, checked) else { continue };
            let reset = match self.api {
                ModelApi::OpenAi => duration(limit.reset_after),
                ModelApi::Anthropic => date_time(now.after(limit.reset_after)),
            };
            let figures = [
                ("limit", limit.quota.to_string()),
                ("remaining", limit.remaining.to_string()),
                ("reset", reset),
            ];
            for (figure, value) in figures {
                let name = match self.api {
                    ModelApi::OpenAi => format!("x-ratelimit-{figure}-{kind}"),
                    ModelApi::Anthropic => format!("anthropic-ratelimit-{kind}-{figure}"),
                };
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), value.parse()) {
                    headers.insert(name, value);
                }
            }
        }
    }

    /// The limit of a unit with the least left.
    fn closest(
        &self,
        unit: Option<UsageUnit>,
        rules: &Snapshot<'_>,
        checked: &Checked,
    ) -> Option<VisibleLimit> {
        let statuses = checked.statuses.iter().zip(&self.units).filter(|(_, one)| **one == unit);
        let limits = statuses.filter_map(|(status, _)| {
            let policies = policies(status.target, rules);
            let (verdict, policies) = visible(&status.verdict, &policies, &self.denial.hide);
            limit_of(&verdict, &policies)
        });
        limits.min_by_key(|limit| limit.remaining)
    }

    /// The error of a denial, in the place of the body.
    fn deny(
        &self,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        response: &mut Response<ResponseBody>,
    ) {
        let status = denying_status(&checked.statuses);
        let verdict = status.map(|status| status.verdict);
        let wait = match verdict.map(|verdict| verdict.outcome) {
            Some(Outcome::Deny { retry_after }) => Some(retry_after),
            _ => None,
        };
        let is_brief = wait.is_some_and(|wait| wait <= RETRY_MAX);
        let message = status.and_then(|status| {
            let policies = policies(status.target, rules);
            let (verdict, policies) = visible(&status.verdict, &policies, &self.denial.hide);
            VerdictResponse { verdict: &verdict, policies: &policies, now }.message()
        });
        let message = message.unwrap_or_else(|| "This client is not admitted.".to_owned());
        let kind = match (wait, is_brief) {
            // A quota that is used up, and not a rate.
            (Some(_), false) => "insufficient_quota",
            _ => "rate_limit_exceeded",
        };
        let body = match self.api {
            ModelApi::OpenAi => serde_json::json!({
                "error": { "message": message, "type": kind, "param": null, "code": kind },
            }),
            ModelApi::Anthropic => serde_json::json!({
                "type": "error",
                "error": { "type": "rate_limit_error", "message": message },
            }),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let should_retry = is_brief && headers.contains_key(RETRY_AFTER);
        let should_retry = if should_retry { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
        *response.body_mut() = ResponseBody::full(body.to_string().into());
    }
}

/// Removes the headers of a provider about the limits of its own customer: the gateway has others.
pub(crate) fn remove_provider_limits(headers: &mut HeaderMap) {
    let is_limit = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("x-ratelimit-") || name.starts_with("anthropic-ratelimit-")
    };
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_limit(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// A limit that decided, if its numbers are known.
fn limit_of(verdict: &Verdict, policies: &[Policy]) -> Option<VisibleLimit> {
    let policy = policies.get(verdict.decided_by?)?;
    if policy.has_slots() || !policy.enforced {
        return None;
    }
    let remaining = u64::try_from(verdict.remaining?.max(0)).unwrap_or(0);
    Some(VisibleLimit { quota: policy.quota?, remaining, reset_after: verdict.reset_after })
}

/// A time span as OpenAI writes it, rounded up.
fn duration(span: Span) -> String {
    let millis = span.as_micros().div_ceil(1_000);
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let seconds = millis.div_ceil(1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A time as Anthropic writes it (RFC 3339), rounded up.
fn date_time(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_micros().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_apis() {
        for (micros, expected) in [
            (0, "0ms"),
            (1, "1ms"),
            (999_001, "1s"),
            (59_000_001, "1m0s"),
            (360_000_000, "6m0s"),
            (86_400_000_000, "24h0m0s"),
        ] {
            assert_eq!(duration(Span::from_micros(micros)), expected);
        }
        let at = Timestamp::from_micros(1_700_000_000_000_001);
        assert_eq!(date_time(at), "2023-11-14T22:13:21Z");
    }

    #[test]
    fn limits_of_the_provider_are_removed() {
        let names =
            ["x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-limit", "x-request-id"];
        let mut headers: HeaderMap = names
            .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")))
            .into_iter()
            .collect();
        remove_provider_limits(&mut headers);
        assert_eq!(headers.len(), 1);
    }
}
