//! What an API tells in its headers.
//!
//! | dialect | looks like |
//! |---|---|
//! | IETF draft 11 | `RateLimit: "default";r=50;t=30` with `RateLimit-Policy: "default";q=100;w=60` |
//! | IETF draft 7 | `RateLimit: limit=100, remaining=50, reset=30` |
//! | older drafts | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`: seconds to go |
//! | most of the world | `X-RateLimit-…` or `X-Rate-Limit-…`: the reset in seconds to go, or as UNIX time in seconds or milliseconds |
//!
//! The first that is there counts. Times of day are held against the `Date` of the answer and not against a clock of ours, which may be wrong.

use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use super::date::unix_seconds;
use super::fields::{count, items, seconds};

/// What an answer says about the calls to come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// The call was turned away because there were too many: 429, or 503 with a `Retry-After`.
    pub denied: bool,
    /// How long to wait before the next call.
    pub retry_after: Option<Duration>,
    /// What is left of each limit that was told.
    pub windows: Vec<Window>,
}

/// What is left of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// What it is called; empty where limits have no names.
    pub name: String,
    /// How many calls it allows in all.
    pub quota: Option<u64>,
    /// How many it still allows.
    pub remaining: u64,
    /// Until there are as many as in the beginning.
    pub reset_after: Duration,
}

impl Told {
    /// What the status and the headers of an answer say.
    #[must_use]
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let date = text(headers, DATE.as_str()).and_then(unix_seconds);
        let retry_after = text(headers, RETRY_AFTER.as_str()).and_then(|told| {
            // A date that is over says: now.
            let until = || Some(Duration::from_secs(unix_seconds(told)?.saturating_sub(date?)));
            seconds(told).or_else(until)
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

    pub(super) fn speaks_of(&self, name: &str) -> bool {
        self.windows.iter().any(|window| window.name == name)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `RateLimit`, which may come several times.
fn in_one_field(headers: &HeaderMap) -> Vec<Window> {
    let all =
        |name: &'static str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let policies: Vec<_> = all("ratelimit-policy").flat_map(items).collect();
    let policy = |name: &str, what| {
        let policy = policies.iter().find(|policy| policy.name == name);
        policy.and_then(|policy| policy.get(what))
    };
    let window = |field| {
        items(field).filter_map(|item| {
            // A limit that says no more than its window is full again after all of it.
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

/// How long it is to a reset: no API resets after thirty years, and none is told of the time before 2001.
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
