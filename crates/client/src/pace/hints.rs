//! Rate-limit headers of APIs.
//!
//! | dialect | looks like |
//! |---|---|
//! | IETF draft 11 | `RateLimit: "default";r=50;t=30` with `RateLimit-Policy: "default";q=100;w=60` |
//! | IETF draft 7 | `RateLimit: limit=100, remaining=50, reset=30` |
//! | older drafts | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`: seconds to go |
//! | most of the world | `X-RateLimit-…` or `X-Rate-Limit-…`: the reset in seconds to go, or as UNIX time in seconds or milliseconds |
//!
//! The first dialect present is used. Absolute times are relative to the `Date` of the response,
//! not to a local clock.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use super::fields::{count, items, seconds};

/// Limits announced by a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerHints {
    /// The call was rejected as one too many: 429, or 503 with a `Retry-After`.
    pub denied: bool,
    /// Delay before the next call.
    pub retry_after: Option<Duration>,
    /// State of each announced limit.
    pub windows: Vec<Window>,
}

/// State of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Name; may be empty.
    pub name: String,
    /// Quota of calls.
    pub quota: Option<u64>,
    /// Remaining calls.
    pub remaining: u64,
    /// Time until the quota is restored.
    pub reset_after: Duration,
}

impl ServerHints {
    /// Parses the status and the headers of a response.
    #[must_use]
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let date = text(headers, DATE.as_str()).and_then(unix_seconds);
        let retry_after = text(headers, RETRY_AFTER.as_str()).and_then(|hints| {
            // A date in the past means now.
            let until = || Some(Duration::from_secs(unix_seconds(hints)?.saturating_sub(date?)));
            seconds(hints).or_else(until)
        });
        let denied = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::SERVICE_UNAVAILABLE && retry_after.is_some());
        let mut windows = in_one_field(headers);
        if windows.is_empty() {
            let prefixes = ["ratelimit-", "x-ratelimit-", "x-rate-limit-"];
            let window = prefixes.iter().find_map(|prefix| in_three_fields(headers, prefix, date));
            windows = window.into_iter().collect();
        }
        Self { denied, retry_after: retry_after.filter(|_| denied), windows }
    }

    pub(super) fn mentions(&self, name: &str) -> bool {
        self.windows.iter().any(|window| window.name == name)
    }
}

/// Seconds since the UNIX epoch of an HTTP date, in any of its three forms.
fn unix_seconds(date: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(date).ok()?;
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `RateLimit`, which may be repeated.
fn in_one_field(headers: &HeaderMap) -> Vec<Window> {
    let all =
        |name: &'static str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let policies: Vec<_> = all("ratelimit-policy").flat_map(items).collect();
    let policy = |name: &str, parameter| {
        let policy = policies.iter().find(|policy| policy.name == name);
        policy.and_then(|policy| policy.get(parameter))
    };
    let window = |field| {
        items(field).filter_map(|item| {
            // Without a reset the whole window applies.
            let reset = item.get("t").or_else(|| policy(item.name, "w"));
            let key = item.get("pk").map(|key| format!(";{key}")).unwrap_or_default();
            Some(Window {
                quota: policy(item.name, "q").and_then(count),
                remaining: item.get("r").and_then(count)?,
                reset_after: seconds(reset?)?,
                name: format!("{}{key}", item.name),
            })
        })
    };
    let of_draft_7 = || {
        let fields: Vec<_> = all("ratelimit").flat_map(items).collect();
        let get = |name: &str| {
            fields.iter().find_map(|item| item.name.split_once('=').filter(|(key, _)| *key == name))
        };
        let remaining = count(get("remaining")?.1)?;
        let reset_after = seconds(get("reset")?.1)?;
        let quota = get("limit").and_then(|(_, quota)| count(quota));
        Some(Window { name: String::new(), quota, remaining, reset_after })
    };
    let windows: Vec<_> = all("ratelimit").flat_map(window).collect();
    if windows.is_empty() { of_draft_7().into_iter().collect() } else { windows }
}

/// `…-Limit`, `…-Remaining` and `…-Reset`.
fn in_three_fields(headers: &HeaderMap, prefix: &str, date: Option<u64>) -> Option<Window> {
    let field = |name| text(headers, &format!("{prefix}{name}"));
    let remaining = field("remaining").and_then(count)?;
    let reset_after = field("reset").and_then(seconds).and_then(|reset| to_go(reset, date))?;
    let quota =
        field("limit").and_then(|limit| items(limit).next().and_then(|item| count(item.name)));
    Some(Window { name: String::new(), quota, remaining, reset_after })
}

/// Time to a reset: relative below 10⁹ seconds, otherwise UNIX time in seconds or milliseconds.
fn to_go(reset: Duration, date: Option<u64>) -> Option<Duration> {
    const UNIX_SECONDS: u64 = 1_000_000_000;
    const UNIX_MILLIS: u64 = UNIX_SECONDS * 1_000;
    let date = date.map(Duration::from_secs);
    match reset.as_secs() {
        0..UNIX_SECONDS => Some(reset),
        UNIX_SECONDS..UNIX_MILLIS => Some(reset.saturating_sub(date?)),
        millis => Some(Duration::from_millis(millis).saturating_sub(date?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_of_one_date() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(unix_seconds(date), Some(784_111_777), "{date}");
        }
        for no in ["", "soon", "Sun, 06 Nov 1994", "Sun, 06 Nov 1969 08:49:37 GMT"] {
            assert_eq!(unix_seconds(no), None, "{no}");
        }
    }
}
