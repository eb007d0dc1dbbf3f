//! Responses that the application makes of a denial.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod tower_support;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use sluicegate::Outcome;
use sluicegate::clock::ManualClock;
use sluicegate::limit::{FixedWindow, LeakyBucket};
use sluicegate::tower::key::header;
use sluicegate::tower::{Denial, DenialReason, Missing, RateLimitLayer};
use tower::ServiceExt;
use tower_support::{Polled, Upstream, ask, from, limiter, text};

/// Says why, in a header.
fn hooked(layer: RateLimitLayer) -> RateLimitLayer {
    layer.on_denied(|denial: &Denial<'_>, mut response: Response<Bytes>| {
        let why = match &denial.reason {
            DenialReason::Limit { verdict, policies } => {
                let wait = match verdict.outcome {
                    Outcome::Deny { retry_after } => retry_after.as_micros() / 1_000_000,
                    _ => 0,
                };
                format!("{} {wait}", policies[verdict.decided_by.unwrap_or(0)].name)
            }
            DenialReason::MissingKey => "who?".to_owned(),
            other => format!("{other:?}"),
        };
        let user = denial.request.headers.get("x-user").map_or("-", |user| user.to_str().unwrap());
        let why = format!("{user}: {why}, grpc {}", denial.is_grpc);
        response.headers_mut().insert("x-why", HeaderValue::try_from(why).unwrap());
        response
    })
}

#[test]
fn the_default_response_can_be_changed() {
    let clock = ManualClock::new();
    let limits = limiter(FixedWindow::per_hour(1).named("hourly"), &clock);
    let layer = RateLimitLayer::new(limits, header("x-user")).on_missing(Missing::Reject);
    let (upstream, service) = Upstream::behind(&hooked(layer));
    assert!(ask(&service, from("alice")).headers().get("x-why").is_none());
    let denied = ask(&service, from("alice"));
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["x-why"], "alice: hourly 3600, grpc false");
    assert_eq!(denied.headers()["retry-after"], "3600", "the rest stays");
    let nobody = ask(&service, Request::new(()));
    assert_eq!(
        (nobody.status(), &nobody.headers()["x-why"]),
        (StatusCode::BAD_REQUEST, &HeaderValue::from_static("-: who?, grpc false"))
    );
    let mut grpc = from("alice");
    grpc.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let denied = ask(&service, grpc);
    assert_eq!(denied.headers()["x-why"], "alice: hourly 3600, grpc true");
    assert_eq!(denied.headers()["grpc-status"], "8");
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn the_response_can_be_replaced() {
    let clock = ManualClock::new();
    let limits = limiter(FixedWindow::per_hour(1), &clock);
    let layer = RateLimitLayer::new(limits, header("x-user")).on_denied(|_, _| {
        let response =
            Response::builder().status(StatusCode::SEE_OTHER).header("location", "/busy");
        response.body(Bytes::from_static(b"this way")).unwrap()
    });
    let (_, service) = Upstream::behind(&layer);
    ask(&service, from("alice"));
    let denied = ask(&service, from("alice"));
    assert_eq!(
        (denied.status(), &denied.headers()["location"]),
        (StatusCode::SEE_OTHER, &HeaderValue::from_static("/busy"))
    );
    assert!(denied.headers().get("retry-after").is_none());
    assert_eq!(text(denied), "this way");
}

#[tokio::test]
async fn a_request_that_waits_in_vain_is_answered_by_it_too() {
    let clock = ManualClock::new();
    let slots = sluicegate::limit::Concurrency::at_most(1).lease(Duration::from_secs(3_600));
    let layer = RateLimitLayer::new(limiter(slots.named("slots"), &clock), header("x-user"));
    let (_, service) = Upstream::behind(&hooked(layer.within(Duration::from_secs(5))));
    let held = service.clone().oneshot(from("alice")).await.unwrap();
    let mut waiting = Polled::new(service.clone().oneshot(from("alice")));
    assert!(waiting.waits());
    clock.advance(Duration::from_secs(6));
    let denied = waiting.now().unwrap();
    assert_eq!(denied.headers()["x-why"], "alice: slots 3594, grpc false");
    drop(held);
    let leaky = limiter(LeakyBucket::per_hour(1).queue(0).named("leaky"), &clock);
    let (_, service) = Upstream::behind(&hooked(RateLimitLayer::new(leaky, header("x-user"))));
    service.clone().oneshot(from("alice")).await.unwrap();
    let denied = service.clone().oneshot(from("alice")).await.unwrap();
    assert_eq!(denied.headers()["x-why"], "alice: leaky 3600, grpc false");
}
