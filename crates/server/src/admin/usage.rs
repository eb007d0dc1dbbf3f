//! `/api/v1/usage`: sums of usage records.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::access::{Caller, Role};
use super::{AdminInner, error, json};
use crate::usage::UsageQuery;

/// Hours of a report: two years.
const MICROS_MAX: u64 = 2 * 366 * 24 * 3_600_000_000;

pub(super) fn routes() -> Router<Arc<AdminInner>> {
    Router::new().route("/api/v1/usage", get(usage))
}

async fn usage(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Response {
    if let Err(refused) = caller.require(Role::Read) {
        return *refused;
    }
    let Some(recorder) = admin.app.usage() else {
        let message = "no usage is recorded: start with `--usage PATH` and `--usage-rules`";
        return error(StatusCode::NOT_FOUND, "not_found", message);
    };
    let now = admin.app.engine().now().as_micros();
    let query = match parse(query.as_deref().unwrap_or_default(), now) {
        Ok(query) => query,
        Err(message) => return error(StatusCode::BAD_REQUEST, "bad_request", &message),
    };
    let recorder = recorder.clone();
    // One at a time with the other long pages.
    let report = tokio::task::spawn_blocking(move || {
        recorder.report(&query).map(|report| report.to_json(&query))
    });
    match report.await {
        Ok(Ok(report)) => json(&report).into_response(),
        Ok(Err(cause)) => {
            let message = format!("the usage records cannot be read: {cause}");
            error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &message)
        }
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the report failed"),
    }
}

/// The parameters; by default all usage of the last 24 hours.
fn parse(text: &str, now: u64) -> Result<UsageQuery, String> {
    let day = 24 * 3_600_000_000;
    let mut query = UsageQuery { from: now.saturating_sub(day), to: now + 1, ..Default::default() };
    let mut has_from = false;
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match &*name {
            "rule" => query.rule = Some(value.into_owned()),
            "identity" => query.identity = Some(value.into_owned()),
            "from" => (query.from, has_from) = (time(&name, &value)?, true),
            "to" => query.to = time(&name, &value)?,
            other => {
                return Err(format!(
                    "`{other}`: unknown parameter; use `rule`, `identity`, `from` and `to`"
                ));
            }
        }
    }
    if !has_from {
        query.from = query.to.saturating_sub(day);
    }
    if query.to <= query.from || query.to - query.from > MICROS_MAX {
        return Err("`from`, `to`: must be a time of at most two years".to_owned());
    }
    Ok(query)
}

fn time(name: &str, text: &str) -> Result<u64, String> {
    let day = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let time = text.parse::<jiff::Timestamp>().ok().or_else(|| day().map(|day| day.timestamp()));
    time.and_then(|time| u64::try_from(time.as_microsecond()).ok()).ok_or_else(|| {
        format!("`{name}`: must be a day or a time, such as `2026-11-01` or `2026-11-01T12:00:00Z`, got `{text}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let now = 1_800_000_000_000_000;
        let query = parse("", now).unwrap();
        assert_eq!((query.from, query.to), (now + 1 - 86_400_000_000, now + 1));
        let text = "rule=llm%2Fteam&identity=team%3Dacme&from=2026-11-01&to=2026-12-01T00:00:00Z";
        let query = parse(text, now).unwrap();
        assert_eq!(query.rule.as_deref(), Some("llm/team"));
        assert_eq!(query.identity.as_deref(), Some("team=acme"));
        assert_eq!(query.to - query.from, 30 * 86_400_000_000);
        for (text, expected) in [
            ("form=1", "unknown parameter"),
            ("from=yesterday", "must be a day or a time"),
            ("from=2026-11-02&to=2026-11-01", "at most two years"),
            ("from=1970-01-01&to=2026-11-01", "at most two years"),
        ] {
            let error = parse(text, now).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
