//! The table of `sluicegate::http`, row by row.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use http::{HeaderMap, HeaderValue, StatusCode};
use sluicegate::Policy;
use sluicegate::http::{Reset, Style, VerdictResponse};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

const NOW: Timestamp = Timestamp::from_micros(1_404_429_033_924_001);

fn verdict(outcome: Outcome) -> Verdict {
    Verdict {
        outcome,
        decided_by: Some(0),
        remaining: Some(3),
        reset_after: Span::from_millis(1_500),
        beyond: 0,
        soft: false,
        elastic: false,
        shadow: None,
    }
}

fn allow() -> Verdict {
    verdict(Outcome::Allow { wait: Span::ZERO })
}

fn deny(retry_after: Span) -> Verdict {
    verdict(Outcome::Deny { retry_after })
}

fn never(max_cost: u64) -> Verdict {
    verdict(Outcome::Never { max_cost })
}

fn policy(name: &str, quota: u64, window: Span) -> Policy {
    Policy {
        name: name.to_owned(),
        algorithm: "token_bucket",
        quota: Some(quota),
        window: Some(window),
        enforced: true,
    }
}

fn burst() -> Policy {
    policy("burst", 50, Span::from_secs(5))
}

fn daily() -> Policy {
    Policy { algorithm: "fixed_window", ..policy("daily", 10_000, Span::from_secs(86_400)) }
}

fn told<'a>(verdict: &'a Verdict, policies: &'a [Policy]) -> VerdictResponse<'a> {
    VerdictResponse { verdict, policies, now: NOW }
}

/// The headers as sorted lines.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let line = |(name, value): (&_, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    let mut lines: Vec<String> = headers.iter().map(line).collect();
    lines.sort();
    lines
}

fn headers_in(style: &Style, verdict: &Verdict, policies: &[Policy]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    told(verdict, policies).write_headers(style, &mut headers);
    lines(&headers)
}

fn headers(verdict: &Verdict, policies: &[Policy]) -> Vec<String> {
    headers_in(&Style::default(), verdict, policies)
}

fn header(name: &str, verdict: &Verdict, policies: &[Policy]) -> Option<String> {
    let mut headers = HeaderMap::new();
    told(verdict, policies).write_headers(&Style::default(), &mut headers);
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

// === whole answers ===

#[test]
fn admitted() {
    let expected = [
        r#"ratelimit-policy: "burst";q=50;w=5"#,
        r#"ratelimit: "burst";r=3;t=2"#,
        "x-ratelimit-limit: 50",
        "x-ratelimit-remaining: 3",
        "x-ratelimit-reset: 1404429036",
    ];
    assert_eq!(headers(&allow(), &[burst()]), expected);

    let verdict = allow();
    let policies = [burst()];
    let told = told(&verdict, &policies);
    assert_eq!(told.status(&Style::default()), None);
    assert_eq!((told.message(), told.body()), (None, None));
    assert!(told.denial(&Style::default()).is_none());
}

#[test]
fn denied() {
    let verdict = Verdict { remaining: Some(0), ..deny(Span::from_micros(179_999_999)) };
    let policies = [Policy { name: "burst".to_owned(), ..daily() }];
    let response = told(&verdict, &policies).denial(&Style::default()).unwrap();
    let expected = [
        "cache-control: no-store",
        "content-type: application/json",
        r#"ratelimit-policy: "burst";q=10000;w=86400"#,
        r#"ratelimit: "burst";r=0;t=180"#,
        "retry-after: 180",
        "x-ratelimit-limit: 10000",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 1404429036",
        "x-ratelimit-retry-after: 180",
    ];
    assert_eq!(lines(response.headers()), expected);
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        response.body(),
        r#"{"error":{"code":"rate_limited","message":"Request quota exceeded. Wait 3 minutes and try again.","context":{"renewal":1404429213924,"limit":"burst","retry_after_ms":180000}}}"#
    );
}

#[test]
fn can_never_pass() {
    let verdict = never(50);
    let policies = [burst()];
    let response = told(&verdict, &policies).denial(&Style::default()).unwrap();
    let expected = [
        "cache-control: no-store",
        "content-type: application/json",
        r#"ratelimit-policy: "burst";q=50;w=5"#,
        r#"ratelimit: "burst";r=3;t=2"#,
        "x-ratelimit-limit: 50",
        "x-ratelimit-remaining: 3",
        "x-ratelimit-reset: 1404429036",
    ];
    assert_eq!(lines(response.headers()), expected);
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        response.body(),
        r#"{"error":{"code":"rate_limited","message":"Request cost exceeds what the limit can hold. The largest cost that can pass is 50.","context":{"limit":"burst","max_cost":50}}}"#
    );
}

#[test]
fn no_limit() {
    let unlimited = Policy { algorithm: "unlimited", quota: None, window: None, ..burst() };
    let verdict = Verdict { remaining: None, reset_after: Span::ZERO, ..allow() };
    assert!(headers(&verdict, &[unlimited]).is_empty());

    let empty_plan = Verdict { decided_by: None, ..verdict };
    assert!(headers(&empty_plan, &[]).is_empty());
}

// === whose numbers ===

#[test]
fn every_policy_is_listed_and_the_one_that_decided_is_told() {
    let verdict = Verdict { decided_by: Some(1), remaining: Some(7), ..allow() };
    let expected = [
        r#"ratelimit-policy: "burst";q=50;w=5, "daily";q=10000;w=86400"#,
        r#"ratelimit: "daily";r=7;t=2"#,
        "x-ratelimit-limit: 10000",
        "x-ratelimit-remaining: 7",
        "x-ratelimit-reset: 1404429036",
    ];
    assert_eq!(headers(&verdict, &[burst(), daily()]), expected);
}

#[test]
fn the_reset_is_that_of_the_verdict_however_long() {
    let verdict = Verdict { reset_after: Span::from_secs(40_000), ..allow() };
    for (remaining, left) in [(3, 3), (-9, 0)] {
        let verdict = Verdict { remaining: Some(remaining), ..verdict };
        let due = format!(r#""burst";r={left};t=40000"#);
        assert_eq!(header("ratelimit", &verdict, &[burst(), daily()]).unwrap(), due);
    }
}

#[test]
fn what_is_left_is_never_negative() {
    let in_debt = Verdict { remaining: Some(-4), ..allow() };
    assert_eq!(header("x-ratelimit-remaining", &in_debt, &[burst()]).unwrap(), "0");
    assert_eq!(header("ratelimit", &in_debt, &[burst()]).unwrap(), r#""burst";r=0;t=2"#);
}

#[test]
fn a_limit_without_a_quota_tells_only_the_wait() {
    let warm_up = Policy { algorithm: "warm_up", quota: None, window: None, ..burst() };
    assert!(headers(&allow(), std::slice::from_ref(&warm_up)).is_empty());
    let expected = [
        "cache-control: no-store",
        "content-type: application/json",
        "retry-after: 9",
        "x-ratelimit-retry-after: 9",
    ];
    assert_eq!(headers(&deny(Span::from_secs(9)), &[warm_up]), expected);
}

#[test]
fn a_closed_limit_is_never_full() {
    let closed = Policy { algorithm: "closed", quota: Some(0), window: None, ..burst() };
    let verdict = Verdict { remaining: Some(0), reset_after: Span::ZERO, ..never(0) };
    let expected = [
        "cache-control: no-store",
        "content-type: application/json",
        r#"ratelimit-policy: "burst";q=0"#,
        r#"ratelimit: "burst";r=0"#,
        "x-ratelimit-limit: 0",
        "x-ratelimit-remaining: 0",
    ];
    assert_eq!(headers(&verdict, &[closed]), expected);
    let message = told(&verdict, &[]).message().unwrap();
    assert_eq!(message, "The limit is closed: no request can pass. Waiting does not help.");
}

#[test]
fn a_full_limit_has_no_effective_window() {
    let full = Verdict { remaining: Some(50), reset_after: Span::ZERO, ..allow() };
    assert_eq!(header("ratelimit", &full, &[burst()]).unwrap(), r#""burst";r=50"#);
    assert_eq!(header("x-ratelimit-reset", &full, &[burst()]).unwrap(), "1404429034");
}

#[test]
fn a_place_outside_the_plan_names_no_limit() {
    let verdict = Verdict { decided_by: Some(7), ..deny(Span::from_secs(1)) };
    assert_eq!(header("x-ratelimit-limit", &verdict, &[burst()]), None);
    assert_eq!(header("retry-after", &verdict, &[burst()]).unwrap(), "1");
    assert!(!told(&verdict, &[burst()]).body().unwrap().contains(r#""limit""#));
}

// === modes ===

#[test]
fn shadows_are_not_seen() {
    let shadow = |policy| Policy { enforced: false, ..policy };
    let would_deny = Some(Outcome::Deny { retry_after: Span::from_secs(9) });
    let verdict = Verdict { shadow: would_deny, ..allow() };
    assert!(headers(&verdict, &[shadow(burst())]).is_empty());

    let expected = [
        r#"ratelimit-policy: "burst";q=50;w=5"#,
        r#"ratelimit: "burst";r=3;t=2"#,
        "x-ratelimit-limit: 50",
        "x-ratelimit-remaining: 3",
        "x-ratelimit-reset: 1404429036",
    ];
    assert_eq!(headers(&verdict, &[burst(), shadow(daily())]), expected);
}

#[test]
fn above_a_soft_limit_there_is_a_warning() {
    let warning = |verdict: &Verdict| header("x-ratelimit-warning", verdict, &[burst()]);
    let soft = Verdict { soft: true, remaining: Some(-1), ..allow() };
    assert_eq!(
        warning(&soft).unwrap(),
        "Request quota exceeded. Admitted within the margin of a soft limit."
    );
    assert_eq!(warning(&allow()), None);
    assert_eq!(
        warning(&Verdict { elastic: true, ..allow() }),
        None,
        "nobody is asked to slow down"
    );
    assert_eq!(warning(&Verdict { soft: true, ..deny(Span::from_secs(1)) }), None);
}

// === rounding, and what a field can hold ===

#[test]
fn a_wait_is_at_least_a_second_and_rounds_up() {
    let cases = [
        (0, "1"),
        (1, "1"),
        (1_000_000, "1"),
        (1_000_001, "2"),
        (59_000_000, "59"),
        (u64::MAX, "2147483647"),
    ];
    for (us, expected) in cases {
        let verdict = deny(Span::from_micros(us));
        for name in ["retry-after", "x-ratelimit-retry-after"] {
            assert_eq!(header(name, &verdict, &[burst()]).unwrap(), expected, "{us} µs");
        }
        let rate_limit = header("ratelimit", &verdict, &[burst()]).unwrap();
        assert_eq!(rate_limit, format!(r#""burst";r=3;t={expected}"#), "{us} µs");
    }
}

#[test]
fn windows_are_whole_seconds() {
    let cases = [
        (0, r#""a";q=1"#),
        (999_999, r#""a";q=1"#),
        (1_000_000, r#""a";q=1;w=1"#),
        (1_000_001, r#""a";q=1;w=2"#),
        (u64::MAX, r#""a";q=1;w=2147483647"#),
    ];
    for (us, expected) in cases {
        let policies = [policy("a", 1, Span::from_micros(us))];
        assert_eq!(header("ratelimit-policy", &allow(), &policies).unwrap(), expected, "{us} µs");
    }
}

#[test]
fn slots_are_concurrent_requests() {
    let slots = Policy { algorithm: "concurrency", window: None, ..burst() };
    let expected = r#""burst";q=50;qu="concurrent-requests""#;
    assert_eq!(header("ratelimit-policy", &allow(), &[slots]).unwrap(), expected);
}

#[test]
fn a_structured_field_holds_fifteen_digits() {
    let vast = policy("vast", u64::MAX, Span::MAX);
    let verdict = Verdict { remaining: Some(i64::MAX), reset_after: Span::MAX, ..allow() };
    let expected = [
        r#"ratelimit-policy: "vast";q=999999999999999;w=2147483647"#,
        r#"ratelimit: "vast";r=999999999999999;t=2147483647"#,
        "x-ratelimit-limit: 18446744073709551615",
        "x-ratelimit-remaining: 9223372036854775807",
        "x-ratelimit-reset: 9007199255",
    ];
    assert_eq!(headers(&verdict, &[vast]), expected);
}

#[test]
fn names_are_escaped() {
    let cases = [
        ("", r#""""#),
        ("per user", r#""per user""#),
        (r#"a "b" \c"#, r#""a \"b\" \\c""#),
        ("50%", r#""50%""#),
        ("für", r#""f%C3%BCr""#),
        ("a\r\nSet-Cookie: b", r#""a%0D%0ASet-Cookie: b""#),
        ("\u{7f}", r#""%7F""#),
    ];
    for (name, expected) in cases {
        let policies = [policy(name, 1, Span::ZERO)];
        let rate_limit = header("ratelimit", &allow(), &policies).unwrap();
        assert_eq!(rate_limit, format!("{expected};r=3;t=2"));
        assert_eq!(
            header("ratelimit-policy", &allow(), &policies).unwrap(),
            format!("{expected};q=1")
        );
    }
    let long = policy(&"x".repeat(1_000), 1, Span::ZERO);
    let expected = format!(r#""{}";q=1"#, "x".repeat(64));
    assert_eq!(header("ratelimit-policy", &allow(), &[long]).unwrap(), expected);
}

#[test]
fn a_long_list_of_policies_ends_in_time() {
    let many: Vec<Policy> =
        (0..500).map(|place| policy(&format!("limit {place}"), 1, Span::ZERO)).collect();
    let list = header("ratelimit-policy", &allow(), &many).unwrap();
    assert!((1_950..=2_048).contains(&list.len()), "{}", list.len());
    assert!(list.starts_with(r#""limit 0";q=1, "limit 1";q=1, "#) && list.ends_with(";q=1"));
}

// === dialects ===

#[test]
fn reset_in_three_ways() {
    let cases = [
        (Reset::UnixSeconds, "1404429036"),
        (Reset::UnixMillis, "1404429035425"),
        (Reset::SecondsToGo, "2"),
    ];
    for (reset, expected) in cases {
        let style = Style { reset, ..Style::default() };
        let headers = headers_in(&style, &allow(), &[burst()]);
        let expected = format!("x-ratelimit-reset: {expected}");
        assert!(headers.contains(&expected), "{expected} in {headers:?}");
    }
}

#[test]
fn one_dialect_at_a_time() {
    let denied = deny(Span::from_secs(2));
    let soft = Verdict { soft: true, ..allow() };
    let standard = Style { x_headers: false, ..Style::default() };
    let expected = [
        "cache-control: no-store",
        "content-type: application/json",
        r#"ratelimit-policy: "burst";q=50;w=5"#,
        r#"ratelimit: "burst";r=3;t=2"#,
        "retry-after: 2",
    ];
    assert_eq!(headers_in(&standard, &denied, &[burst()]), expected);
    assert_eq!(headers_in(&standard, &soft, &[burst()]), expected[2..4]);

    let classic = Style { ietf_fields: false, ..Style::default() };
    let names = |headers: Vec<String>| -> Vec<String> {
        headers.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    let expected =
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-warning"];
    assert_eq!(names(headers_in(&classic, &soft, &[burst()])), expected);

    let neither = Style { x_headers: false, ..classic };
    assert!(headers_in(&neither, &soft, &[burst()]).is_empty());
    let expected = ["cache-control", "content-type", "retry-after"];
    assert_eq!(names(headers_in(&neither, &denied, &[burst()])), expected);
}

#[test]
fn another_status_on_request() {
    let style = Style { denied: StatusCode::SERVICE_UNAVAILABLE, ..Style::default() };
    for verdict in [deny(Span::from_secs(1)), never(3)] {
        let response = told(&verdict, &[]).denial(&style).unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(told(&allow(), &[]).status(&style), None);
}
