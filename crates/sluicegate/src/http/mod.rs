//! The table from a verdict to a status, headers and a body. Every endpoint uses it, except that
//! the headers which Envoy adds are those of the service's options (`rls/response.rs` there).
//!
//! | | admitted | denied | can never pass | no limit |
//! |---|---|---|---|---|
//! | status | the upstream's | 429 ([`Style::denied`]) | the same | the upstream's |
//! | `X-RateLimit-Limit` | quota | quota | quota | |
//! | `X-RateLimit-Remaining` | remaining quota | remaining quota | remaining quota | |
//! | `X-RateLimit-Reset` | when it is full | when it is full | when it is full | |
//! | `X-RateLimit-Retry-After`, `Retry-After` | | seconds to wait | | |
//! | `X-RateLimit-Warning` | above a soft limit | | | |
//! | `RateLimit` | `"name";r=left;t=until full` | `"name";r=left;t=wait` | `"name";r=left;t=until full` | |
//! | `RateLimit-Policy` | `"name";q=quota;w=window`, … | the same | the same | |
//! | `Cache-Control` | the upstream's | `no-store` | `no-store` | the upstream's |
//! | `Content-Type` | the upstream's | `application/json` | `application/json` | the upstream's |
//! | body: `code` | the upstream's | `rate_limited` | `rate_limited` | the upstream's |
//! | body: `context` | | `renewal`, `limit`, `retry_after_ms`, `estimated` | `limit`, `max_cost` | |
//! | gRPC: HTTP status | the upstream's | 200 | 200 | the upstream's |
//! | `grpc-status` | the upstream's | 8, `RESOURCE_EXHAUSTED` | 8 | the upstream's |
//! | `grpc-message` | | the body's message | the body's message | |
//! | `grpc-retry-pushback-ms` | | the wait; −1 above a minute | −1 | |
//!
//! **Deciding limit.** Quota, remaining quota and reset are those of the limit that decided: a
//! bucket of 50 per second beside a daily limit is full within a second. The policy list is cut at
//! 2 KiB.
//!
//! **Missing numbers.** A limit without a quota (`warm_up`: the more it has stored, the slower it
//! is) reports only the wait of a denial: no limit, remaining quota or reset. A quota of 0 never
//! fills and has no reset. A full limit has no `t`. A window below a second has no `w`, which
//! counts whole seconds: rounding up would slow clients down many times over.
//!
//! **Never reported.** Shadow limits, and the partition key of the IETF draft, which would disclose
//! how clients are distinguished.
//!
//! **Rounding.** Times round up, so that a client that obeys is admitted; a wait is at least 1
//! second. The remaining quota is at least 0. Seconds are at most 2^31 − 1 (68 years), since many
//! clients store them in 32 bits. Integers in the IETF fields are at most 999,999,999,999,999, the
//! maximum of a structured field.
//!
//! **Names.** In a header field, characters other than printable ASCII are percent-encoded and
//! names are cut after 64 characters; the body contains the name unchanged.
//!
//! **Chained limiters.** A response that already has `X-RateLimit-*` keeps them if their remaining
//! quota is lower; otherwise these replace them. The IETF fields are lists, so these are appended.
//! Call [`VerdictResponse::write_headers`] once per response.
//!
//! **IETF.** The fields are those of `draft-ietf-httpapi-ratelimit-headers-11`. `t` of a denial is
//! the wait and not the reset, because `Retry-After` should not name a time before the end of `t`.
//! A concurrency limit sends `qu="concurrent-requests"`.
//!
//! **gRPC.** A client library with a retry policy sleeps for `grpc-retry-pushback-ms` and blocks
//! its caller. Waits of up to a minute are sent; above, −1 returns the denial to the caller at
//! once, and the message contains the wait.

mod body;
mod grpc;
mod headers;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;

pub use self::grpc::is_grpc;
pub use self::headers::{Figures, HeaderLines};
use crate::Policy;

/// A verdict, rendered for the client. The [module](self) has the table.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use sluicegate::Policy;
/// use sluicegate::http::{Style, VerdictResponse};
/// use sluicegate::{Span, Timestamp};
/// use sluicegate_core::verdict::{Outcome, Verdict};
///
/// let verdict = Verdict {
///     outcome: Outcome::Deny { retry_after: Span::from_millis(1_200) },
///     decided_by: Some(0),
///     remaining: Some(0),
///     reset_after: Span::from_secs(60),
///     beyond: 0,
///     soft: false,
///     elastic: false,
///     shadow: None,
/// };
/// let policies = [Policy {
///     name: "minute".to_owned(),
///     algorithm: "fixed_window",
///     quota: Some(100),
///     window: Some(Span::from_secs(60)),
///     enforced: true,
/// }];
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
/// let response = VerdictResponse { verdict: &verdict, policies: &policies, now };
///
/// let mut headers = HeaderMap::new();
/// response.write_headers(&Style::default(), &mut headers);
/// assert_eq!(response.status(&Style::default()), Some(StatusCode::TOO_MANY_REQUESTS));
/// assert_eq!(headers["X-RateLimit-Limit"], "100");
/// assert_eq!(headers["X-RateLimit-Reset"], "1700000060");
/// assert_eq!(headers["Retry-After"], "2");
/// assert_eq!(headers["RateLimit"], r#""minute";r=0;t=2"#);
/// assert_eq!(headers["RateLimit-Policy"], r#""minute";q=100;w=60"#);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct VerdictResponse<'a> {
    /// The verdict of the plan.
    pub verdict: &'a Verdict,
    /// The limits of the plan, in order.
    pub policies: &'a [Policy],
    /// The time of the verdict.
    pub now: Timestamp,
}

/// The headers of a response, and their format.
///
/// ```
/// use http::StatusCode;
/// use sluicegate::http::{Reset, Style};
///
/// let github = Style::default();
/// assert!(github.x_headers && github.ietf_fields);
/// assert_eq!((github.reset, github.denied), (Reset::UnixSeconds, StatusCode::TOO_MANY_REQUESTS));
///
/// let standard = Style { x_headers: false, denied: StatusCode::SERVICE_UNAVAILABLE, ..Style::default() };
/// assert!(!standard.x_headers && standard.ietf_fields);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether to write `X-RateLimit-*`.
    pub x_headers: bool,
    /// Format of `X-RateLimit-Reset`.
    pub reset: Reset,
    /// Whether to write `RateLimit` and `RateLimit-Policy`.
    pub ietf_fields: bool,
    /// The status of a denial: 429, 503 or another that the client supports (nginx' `auth_request`:
    /// 403).
    pub denied: StatusCode,
}

/// Format of `X-RateLimit-Reset`. All round up: a request at that time is not early.
///
/// ```
/// use sluicegate::http::Reset;
///
/// assert_eq!(Reset::default(), Reset::UnixSeconds);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
    /// Seconds since 1970, as GitHub does.
    #[default]
    UnixSeconds,
    /// Milliseconds since 1970.
    UnixMillis,
    /// Seconds from now, independent of the client's clock.
    SecondsToGo,
}

impl<'a> VerdictResponse<'a> {
    /// The status of a denial; `None` if the upstream sets it.
    ///
    /// ```
    /// # use sluicegate::http::{Style, VerdictResponse};
    /// # use sluicegate_core::{time::Timestamp, verdict::judge};
    /// let verdict = judge(&[]);
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let mut headers = http::HeaderMap::new();
    /// response.write_headers(&Style::default(), &mut headers);
    /// assert!(headers.is_empty(), "no limit applies");
    /// assert_eq!(response.status(&Style::default()), None);
    /// ```
    #[must_use]
    pub fn status(&self, style: &Style) -> Option<StatusCode> {
        self.is_denied().then_some(style.denied)
    }

    /// Writes the headers of an HTTP response, admitted or denied.
    pub fn write_headers(&self, style: &Style, headers: &mut HeaderMap) {
        self.write_limits(style, headers);
        if self.is_denied() {
            headers::put(headers, CONTENT_TYPE, HeaderValue::from_static("application/json"));
            // Caches do not store a 429 by default, but some are configured to; this one is for one
            // client.
            headers::put(headers, CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }

    /// The complete response to a denied request; `None` if it was admitted.
    ///
    /// ```
    /// # use sluicegate::http::{Style, VerdictResponse};
    /// # use sluicegate_core::{time::*, verdict::*};
    /// let mut verdict = judge(&[]);
    /// verdict.outcome = Outcome::Deny { retry_after: Span::from_secs(180) };
    /// let response = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
    /// let response = response.denial(&Style::default()).expect("it is denied");
    /// assert_eq!(response.status(), 429);
    /// assert_eq!(response.headers()["Retry-After"], "180");
    /// ```
    #[must_use]
    pub fn denial(&self, style: &Style) -> Option<Response<String>> {
        let status = self.status(style)?;
        let mut response = Response::new(self.body()?);
        *response.status_mut() = status;
        self.write_headers(style, response.headers_mut());
        Some(response)
    }

    fn is_denied(&self) -> bool {
        !self.verdict.outcome.is_allowed()
    }

    /// The limit that decided, unless it is a shadow limit, which clients never see.
    fn decider(&self) -> Option<&'a Policy> {
        self.policies.get(self.verdict.decided_by?).filter(|policy| policy.enforced)
    }
}

/// Whole seconds until a time, rounded up and capped at 31 bits.
fn seconds_to_go(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000_000).min(i32::MAX.unsigned_abs().into())
}

/// Whole seconds that a denied client has to wait: at least 1, since 0 means no wait.
fn seconds_to_wait(span: Span) -> u64 {
    seconds_to_go(span).max(1)
}

/// Whole milliseconds until a time, rounded up.
fn millis_to_go(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000)
}

impl Default for Style {
    fn default() -> Self {
        Self {
            x_headers: true,
            reset: Reset::default(),
            ietf_fields: true,
            denied: StatusCode::TOO_MANY_REQUESTS,
        }
    }
}
