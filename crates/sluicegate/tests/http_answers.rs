//! Messages for people, answers to gRPC clients, and responses that another limiter has written on.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use http::{HeaderMap, HeaderValue};
use sluicegate::Policy;
use sluicegate::http::{Style, VerdictResponse, is_grpc};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn verdict(outcome: Outcome) -> Verdict {
    Verdict {
        outcome,
        decided_by: Some(0),
        remaining: Some(40),
        reset_after: Span::from_secs(1),
        beyond: 0,
        soft: false,
        elastic: false,
        shadow: None,
    }
}

fn deny(us: u64) -> Verdict {
    verdict(Outcome::Deny { retry_after: Span::from_micros(us) })
}

fn policies() -> [Policy; 1] {
    [Policy {
        name: "burst".to_owned(),
        algorithm: "token_bucket",
        quota: Some(50),
        window: Some(Span::from_secs(5)),
        enforced: true,
    }]
}

fn told<'a>(verdict: &'a Verdict, policies: &'a [Policy]) -> VerdictResponse<'a> {
    VerdictResponse { verdict, policies, now: Timestamp::EPOCH }
}

// === words ===

#[test]
fn a_wait_in_words() {
    let cases = [
        (0, "1 second"),
        (1, "1 second"),
        (SECOND, "1 second"),
        (SECOND + 1, "2 seconds"),
        (59 * SECOND, "59 seconds"),
        (59 * SECOND + 1, "1 minute"),
        (MINUTE, "1 minute"),
        (MINUTE + 1, "61 seconds"),
        (119 * SECOND, "119 seconds"),
        (119 * SECOND + 1, "2 minutes"),
        (2 * MINUTE + 1, "3 minutes"),
        (3 * MINUTE, "3 minutes"),
        (59 * MINUTE + 1, "1 hour"),
        (HOUR + 1, "61 minutes"),
        (2 * HOUR - 1, "2 hours"),
        (2 * HOUR, "2 hours"),
        (23 * HOUR + 1, "1 day"),
        (DAY, "1 day"),
        (DAY + 1, "25 hours"),
        (47 * HOUR + 1, "2 days"),
        (5 * DAY, "5 days"),
        (5 * DAY + 1, "6 days"),
        (u64::MAX, "104250 days"),
    ];
    for (us, words) in cases {
        let expected = format!("Request quota exceeded. Wait {words} and try again.");
        assert_eq!(told(&deny(us), &[]).message().unwrap(), expected, "{us} µs");
    }
}

// === gRPC ===

#[test]
fn a_denied_call() {
    let response = told(&deny(1_500_001), &policies()).grpc_denial(&Style::default()).unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(header("content-type"), "application/grpc");
    assert_eq!(header("grpc-status"), "8");
    assert_eq!(header("grpc-message"), "Request quota exceeded. Wait 2 seconds and try again.");
    assert_eq!(header("grpc-retry-pushback-ms"), "1501");
    assert_eq!(header("x-ratelimit-limit"), "50");
    assert_eq!(header("retry-after"), "2");
    assert_eq!(header("ratelimit"), r#""burst";r=40;t=2"#);
}

#[test]
fn a_client_library_is_asked_to_sleep_a_minute_at_most() {
    let never = verdict(Outcome::Never { max_cost: 9 });
    let cases = [
        (deny(1), "1"),
        (deny(MINUTE), "60000"),
        (deny(MINUTE + 1), "-1"),
        (deny(u64::MAX), "-1"),
        (never, "-1"),
    ];
    for (verdict, expected) in cases {
        let response = told(&verdict, &policies()).grpc_denial(&Style::default()).unwrap();
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], expected, "{verdict:?}");
    }
}

#[test]
fn an_admitted_call_keeps_its_status() {
    let verdict = verdict(Outcome::Allow { wait: Span::ZERO });
    let mut headers = HeaderMap::new();
    told(&verdict, &policies()).write_grpc_headers(&Style::default(), &mut headers);
    assert_eq!(headers["x-ratelimit-remaining"], "40");
    assert!(!headers.contains_key("grpc-status") && !headers.contains_key("content-type"));
    assert!(told(&verdict, &[]).grpc_denial(&Style::default()).is_none());
    assert_eq!(told(&verdict, &[]).grpc_status(), None);
}

#[test]
fn grpc_is_known_by_its_content_type() {
    let cases = [
        ("application/grpc", true),
        ("Application/GRPC", true),
        ("application/grpc+proto", true),
        ("application/grpc; charset=utf-8", true),
        ("application/grpc;a=b", true),
        ("application/grpc-web", false),
        ("application/grpc-web+proto", false),
        ("application/grpcs", false),
        ("application/json", false),
        ("", false),
    ];
    for (kind, expected) in cases {
        let kind_header = (http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
        assert_eq!(is_grpc(&HeaderMap::from_iter([kind_header])), expected, "{kind}");
    }
    assert!(!is_grpc(&HeaderMap::new()));
}

// === one limiter behind another ===

/// Headers that a limiter nearer to the upstream has written.
fn upstream(remaining: &'static str) -> HeaderMap {
    let said = [
        ("x-ratelimit-limit", "9"),
        ("x-ratelimit-remaining", remaining),
        ("x-ratelimit-reset", "8"),
        ("ratelimit", r#""inner";r=7"#),
        ("cache-control", "max-age=60"),
    ];
    said.into_iter().map(|(k, v)| (k.parse().unwrap(), HeaderValue::from_static(v))).collect()
}

#[test]
fn whoever_has_less_left_is_heard() {
    let verdict = verdict(Outcome::Allow { wait: Span::ZERO });
    let cases = [("39", "9", "8"), ("40", "50", "1"), ("41", "50", "1"), ("many", "50", "1")];
    for (theirs, limit, reset) in cases {
        let mut headers = upstream(theirs);
        told(&verdict, &policies()).write_headers(&Style::default(), &mut headers);
        assert_eq!(headers["x-ratelimit-limit"], limit, "{theirs}");
        assert_eq!(headers["x-ratelimit-reset"], reset, "{theirs}");
        let both: Vec<_> = headers.get_all("ratelimit").iter().collect();
        assert_eq!(both, [r#""inner";r=7"#, r#""burst";r=40;t=1"#], "{theirs}");
        assert_eq!(headers["cache-control"], "max-age=60");
    }
}

#[test]
fn a_reset_does_not_outlive_its_limit() {
    let verdict = Verdict { remaining: Some(0), ..verdict(Outcome::Allow { wait: Span::ZERO }) };
    let [burst] = policies();
    let mut headers = upstream("5");
    told(&verdict, &[Policy { quota: Some(0), ..burst }])
        .write_headers(&Style::default(), &mut headers);
    assert_eq!(headers["x-ratelimit-limit"], "0");
    assert!(!headers.contains_key("x-ratelimit-reset"));
}

#[test]
fn a_denial_has_no_upstream() {
    let mut headers = upstream("1");
    told(&deny(SECOND), &policies()).write_headers(&Style::default(), &mut headers);
    assert_eq!(headers["x-ratelimit-remaining"], "40");
    assert_eq!(headers.get_all("ratelimit").iter().count(), 1);
    assert_eq!(headers["cache-control"], "no-store");
}

#[test]
fn a_map_that_is_full_stays_as_it_is() {
    let mut headers = HeaderMap::new();
    let mut place = 0;
    while headers
        .try_insert(
            http::HeaderName::try_from(format!("h{place}")).unwrap(),
            HeaderValue::from_static(""),
        )
        .is_ok()
    {
        place += 1;
    }
    let full = headers.len();
    told(&deny(SECOND), &policies()).write_headers(&Style::default(), &mut headers);
    told(&deny(SECOND), &policies()).write_grpc_headers(&Style::default(), &mut headers);
    assert_eq!(headers.len(), full);
}
