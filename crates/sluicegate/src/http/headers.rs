//! The headers about limits, in all dialects. Only they say which limit's numbers are told.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::time::Span;

use super::{Reset, Style, Told, fields, number, seconds_to_go, seconds_to_wait};
use crate::Policy;

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const X_WARNING: HeaderName = HeaderName::from_static("x-ratelimit-warning");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// No limit is named: a plan says that one of its limits is soft, not which.
const WARNING: &str = "Request quota exceeded. Admitted within the margin of a soft limit.";

/// The numbers of the limit that decided, as headers carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Its quota.
    pub limit: u64,
    /// What is left of it.
    pub remaining: u64,
    /// Until it is full; `None` if it never will be.
    pub reset_after: Option<Span>,
}

/// What is told of the limit that decided.
struct Numbers<'a> {
    policy: &'a Policy,
    quota: u64,
    remaining: u64,
    /// Until it is full; `None` if it never will be.
    reset_after: Option<Span>,
}

// === impl Told ===

impl<'a> Told<'a> {
    /// The numbers of the limit that decided, for those who write them otherwise. Nothing where headers say nothing.
    ///
    /// ```
    /// # use sluicegate::http::Told;
    /// # use sluicegate_core::{time::Timestamp, verdict::judge};
    /// let verdict = judge(&[]);
    /// let told = Told { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// assert_eq!(told.figures(), None, "nothing is limited");
    /// ```
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let Numbers { quota: limit, remaining, reset_after, .. } = self.numbers()?;
        Some(Figures { limit, remaining, reset_after })
    }

    /// Writes what HTTP and gRPC have in common.
    pub(super) fn write_limits(&self, style: &Style, headers: &mut HeaderMap) {
        if let Some(numbers) = self.numbers() {
            if style.x_headers {
                self.write_numbers(&numbers, style.reset, headers);
            }
            if style.ietf_fields {
                self.write_field(RATE_LIMIT, self.service_limit(&numbers), headers);
            }
        }
        if style.ietf_fields {
            let told = self.policies.iter().filter(|policy| policy.enforced);
            if let Some(list) = fields::quota_policies(told) {
                self.write_field(RATE_LIMIT_POLICY, list, headers);
            }
        }
        if let Some(wait) = self.retry_after() {
            let seconds = number::header(seconds_to_wait(wait));
            if style.x_headers {
                put(headers, X_RETRY_AFTER, seconds.clone());
            }
            put(headers, RETRY_AFTER, seconds);
        }
        if style.x_headers && self.verdict.soft && !self.is_denied() {
            put(headers, X_WARNING, HeaderValue::from_static(WARNING));
        }
    }

    fn numbers(&self) -> Option<Numbers<'a>> {
        let policy = self.decider()?;
        let quota = policy.quota?;
        let remaining = u64::try_from(self.verdict.remaining?.max(0)).unwrap_or_default();
        let reset_after = (quota > 0).then(|| self.reset_after(policy));
        Some(Numbers { policy, quota, remaining, reset_after })
    }

    /// Until the limit that decided is full, as far as the verdict tells.
    fn reset_after(&self, policy: &Policy) -> Span {
        let longest_of_all = self.verdict.reset_after;
        let in_debt = self.verdict.remaining.is_some_and(|remaining| remaining < 0);
        match policy.window {
            Some(window) if self.policies.len() > 1 && !in_debt => {
                longest_of_all.min(window).max(self.retry_after().unwrap_or_default())
            }
            _ => longest_of_all,
        }
    }

    fn write_numbers(&self, numbers: &Numbers<'_>, reset: Reset, headers: &mut HeaderMap) {
        // Most are the first to write.
        if !headers.is_empty() {
            if !self.is_denied() && has_less(headers, numbers.remaining) {
                return;
            }
            // One of another limiter would not belong to ours.
            headers.remove(X_RESET);
        }
        put(headers, X_LIMIT, number::header(numbers.quota));
        put(headers, X_REMAINING, number::header(numbers.remaining));
        if let Some(reset_after) = numbers.reset_after {
            let at_us = self.now.after(reset_after).as_micros();
            let told = match reset {
                Reset::UnixSeconds => at_us.div_ceil(1_000_000),
                Reset::UnixMillis => at_us.div_ceil(1_000),
                Reset::SecondsToGo => seconds_to_go(reset_after),
            };
            put(headers, X_RESET, number::header(told));
        }
    }

    fn service_limit(&self, numbers: &Numbers<'_>) -> String {
        let window = match self.retry_after() {
            Some(wait) => Some(seconds_to_wait(wait)),
            None => numbers.reset_after.map(seconds_to_go).filter(|seconds| *seconds > 0),
        };
        fields::service_limit(&numbers.policy.name, numbers.remaining, window)
    }

    /// Adds to what the upstream says; a denial has no upstream.
    fn write_field(&self, name: HeaderName, list: String, headers: &mut HeaderMap) {
        // Copied, so that it takes no more memory than it needs.
        let Ok(value) = HeaderValue::from_str(&list) else {
            return;
        };
        if self.is_denied() {
            put(headers, name, value);
        } else {
            // Full only with tens of thousands of headers, and then ours do not matter.
            let _ = headers.try_append(name, value);
        }
    }
}

/// Sets one header; in a map that is full, with tens of thousands of them, it is left out.
pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_insert(name, value);
}

/// Whether another limiter, nearer to the upstream, has said that less is left.
fn has_less(headers: &HeaderMap, remaining: u64) -> bool {
    let said = headers.get(X_REMAINING).and_then(|value| value.to_str().ok());
    said.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|left| left < remaining)
}
