//! What a client is told by a limited service.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod tower_support;

use std::convert::Infallible;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate::http::{Reset, Style};
use sluicegate::limit::{FixedWindow, TokenBucket};
use sluicegate::tower::RateLimitLayer;
use sluicegate::tower::key::header;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_support::{Polled, Upstream, ask, from, limiter, statuses, text};

/// One an hour for each user.
fn one_an_hour(clock: &ManualClock) -> RateLimitLayer {
    let limit = FixedWindow::per_hour(1).named("hourly");
    RateLimitLayer::new(limiter(limit, clock), header("x-user"))
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn an_admitted_response_gets_the_headers() {
    let (upstream, service) = Upstream::behind(&one_an_hour(&ManualClock::new()));
    let response = ask(&service, from("alice"));
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["x-ratelimit-limit"], "1");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    assert_eq!(response.headers()["x-ratelimit-reset"], "1704070800");
    assert_eq!(response.headers()["ratelimit"], r#""hourly";r=0;t=3600"#);
    assert_eq!(response.headers()["ratelimit-policy"], r#""hourly";q=1;w=3600"#);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(text(response), "ok");
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn a_denied_request_gets_429_with_everything_and_the_service_is_not_called() {
    let (upstream, service) = Upstream::behind(&one_an_hour(&ManualClock::new()));
    ask(&service, from("alice"));
    let response = ask(&service, from("alice"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let told = [
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1704070800"),
        ("x-ratelimit-retry-after", "3600"),
        ("retry-after", "3600"),
        ("ratelimit", r#""hourly";r=0;t=3600"#),
        ("ratelimit-policy", r#""hourly";q=1;w=3600"#),
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in told {
        assert_eq!(response.headers()[name], value, "{name}");
    }
    assert_eq!(response.headers().len(), told.len());
    assert_eq!(
        text(response),
        r#"{"error":{"code":"rate_limited","message":"Request quota exceeded. Wait 1 hour and try again.","context":{"renewal":1704070800000,"limit":"hourly","retry_after_ms":3600000}}}"#
    );
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn time_brings_it_back_and_users_do_not_share() {
    let clock = ManualClock::new();
    let (_, service) = Upstream::behind(&one_an_hour(&clock));
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
    assert_eq!(statuses(&service, "bob", 2), [200, 429]);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
}

#[test]
fn a_denied_grpc_call_gets_its_status_and_no_body() {
    let (upstream, service) = Upstream::behind(&one_an_hour(&ManualClock::new()));
    let call = |kind: &str| {
        let call = Request::builder().header("x-user", "alice").header("content-type", kind);
        ask(&service, call.body(()).unwrap())
    };
    call("application/grpc");
    let response = call("application/grpc+proto");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1", "an hour is too long to sleep");
    assert_eq!(response.headers()["retry-after"], "3600");
    assert!(http_body::Body::is_end_stream(response.body()), "trailers only");
    assert_eq!(text(response), "");
    assert_eq!(call("application/grpc-web").status(), 429, "another protocol");
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn a_cost_that_can_never_pass_says_so() {
    let layer = one_an_hour(&ManualClock::new()).cost(|_| 2);
    let (_, service) = Upstream::behind(&layer);
    let response = ask(&service, from("alice"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!response.headers().contains_key("retry-after"));
    assert!(text(response).contains(r#""max_cost":1"#));
}

#[test]
fn the_style_is_told() {
    let style = Style {
        x_headers: true,
        reset: Reset::SecondsToGo,
        ietf_fields: false,
        denied: StatusCode::SERVICE_UNAVAILABLE,
    };
    let (_, service) = Upstream::behind(&one_an_hour(&ManualClock::new()).style(style));
    let response = ask(&service, from("alice"));
    assert_eq!(response.headers()["x-ratelimit-reset"], "3600");
    assert!(!response.headers().contains_key("ratelimit"));
    assert_eq!(statuses(&service, "alice", 1), [503]);
}

#[test]
fn without_headers_only_a_denial_says_when_to_come_back() {
    let (_, service) = Upstream::behind(&one_an_hour(&ManualClock::new()).without_headers());
    assert_eq!(names(ask(&service, from("alice")).headers()), [""; 0]);
    let denied = ask(&service, from("alice"));
    assert_eq!(names(denied.headers()), ["cache-control", "content-type", "retry-after"]);
    assert!(text(denied).contains("rate_limited"));
}

#[test]
fn requests_weigh_what_the_closure_says() {
    let limiter = limiter(TokenBucket::per_minute(10), &ManualClock::new());
    let layer = RateLimitLayer::new(limiter.clone(), header("x-user")).cost(|request| {
        request.headers.get("x-items").map_or(1, |items| items.to_str().unwrap().parse().unwrap())
    });
    let (_, service) = Upstream::behind(&layer);
    let items = |count: &str| {
        let request = Request::builder().header("x-user", "alice").header("x-items", count);
        ask(&service, request.body(()).unwrap())
    };
    assert_eq!(items("7").headers()["x-ratelimit-remaining"], "3");
    assert_eq!(items("4").status(), 429);
    assert_eq!(items("0").status(), 200, "nothing is always allowed");
    assert_eq!(statuses(&service, "alice", 4), [200, 200, 200, 429]);
    assert_eq!(items("0").headers()["x-ratelimit-remaining"], "0");
}

#[test]
fn what_is_skipped_is_not_counted_and_stays_as_it_is() {
    let layer = one_an_hour(&ManualClock::new()).skip(|request| request.uri.path() == "/health");
    let (upstream, service) = Upstream::behind(&layer);
    for _ in 0..3 {
        let health = Request::builder().uri("/health").header("x-user", "alice").body(()).unwrap();
        let response = ask(&service, health);
        assert_eq!((response.status(), response.headers().len()), (StatusCode::OK, 0));
    }
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
    assert_eq!(upstream.calls(), 4);
}

#[test]
fn errors_of_the_service_pass_through() {
    let layer = one_an_hour(&ManualClock::new());
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Err::<Response<http_body_util::Empty<bytes::Bytes>>, _>("no upstream")
    }));
    let failed = Polled::new(service.clone().oneshot(from("alice"))).now();
    assert_eq!(failed.unwrap_err(), "no upstream");
    let denied = Polled::new(service.oneshot(from("alice"))).now().unwrap();
    assert_eq!(denied.status(), 429, "what was charged stays charged");
}

#[test]
fn it_is_ready_when_the_service_is() {
    let (upstream, mut service) = Upstream::behind(&one_an_hour(&ManualClock::new()));
    let mut is_ready = || {
        let ready = std::future::poll_fn(|cx| Poll::Ready(service.poll_ready(cx).is_ready()));
        Polled::new(ready).now()
    };
    assert!(is_ready());
    upstream.set_busy(true);
    assert!(!is_ready());
}

#[test]
fn a_live_change_is_told_from_the_next_request_on() {
    let clock = ManualClock::new();
    let limiter: Limiter = limiter(FixedWindow::per_hour(1).named("old"), &clock);
    let layer = RateLimitLayer::new(limiter.clone(), header("x-user"));
    let (_, service) = Upstream::behind(&layer);
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
    let changed = [FixedWindow::per_hour(3).named("old"), FixedWindow::per_day(9).named("new")];
    limiter.set_limits(changed, sluicegate::CarryOver::Used).unwrap();
    let response = ask(&service, from("alice"));
    assert_eq!(response.headers()["ratelimit"], r#""old";r=1;t=3600"#);
    assert_eq!(response.headers()["ratelimit-policy"], r#""old";q=3;w=3600, "new";q=9;w=86400"#);
}

#[test]
fn a_service_may_never_fail() {
    fn infallible<S: Service<Request<()>, Error = Infallible>>(_: &S) {}
    infallible(&Upstream::behind(&one_an_hour(&ManualClock::new())).1);
}
