//! Slots of a concurrency limit: held until the response body has ended.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod tower_support;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, LeakyBucket};
use sluicegate::tower::key::Everybody;
use sluicegate::tower::{RateLimitLayer, ResponseBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_support::{Polled, Upstream, ask, from, limiter, text};

/// A body that comes in pieces, and may fail.
struct Pieces(VecDeque<Result<&'static str, &'static str>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let piece = self.0.pop_front();
        Poll::Ready(piece.map(|piece| piece.map(|text| Frame::data(Bytes::from(text)))))
    }
}

fn one_at_a_time(clock: &ManualClock) -> Limiter {
    limiter(Concurrency::at_most(1).named("at a time"), clock)
}

/// A response of these pieces that holds the only slot.
fn response_in(
    limiter: &Limiter,
    pieces: &'static [Result<&'static str, &'static str>],
) -> Response<ResponseBody<Pieces>> {
    let layer = RateLimitLayer::new(limiter.clone(), Everybody);
    let service = layer.layer(service_fn(move |_: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(Pieces(pieces.iter().copied().collect())))
    }));
    Polled::new(service.oneshot(from("alice"))).now().unwrap()
}

fn free(limiter: &Limiter) -> i64 {
    limiter.of("").peek().remaining.unwrap()
}

fn frame<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    Polled::new(body.frame()).now()
}

#[test]
fn a_slot_is_held_until_the_body_has_ended() {
    let limiter = one_at_a_time(&ManualClock::new());
    let response = response_in(&limiter, &[Ok("one "), Ok("two")]);
    assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    assert_eq!(
        response.headers()["ratelimit-policy"],
        r#""at a time";q=1;qu="concurrent-requests""#
    );
    let mut body = response.into_body();
    for _ in 0..2 {
        assert_eq!(free(&limiter), 0);
        assert!(frame(&mut body).unwrap().is_ok());
    }
    assert_eq!(free(&limiter), 0, "nobody has said yet that this was all");
    assert!(frame(&mut body).is_none());
    assert_eq!(free(&limiter), 1);
}

#[test]
fn a_body_that_is_dropped_gives_its_slot_back() {
    let limiter = one_at_a_time(&ManualClock::new());
    let mut body = response_in(&limiter, &[Ok("one"), Ok("two")]).into_body();
    assert!(frame(&mut body).unwrap().is_ok());
    assert_eq!(free(&limiter), 0);
    drop(body);
    assert_eq!(free(&limiter), 1);
}

#[test]
fn a_body_that_fails_gives_its_slot_back_and_the_error_passes_through() {
    let limiter = one_at_a_time(&ManualClock::new());
    let mut body = response_in(&limiter, &[Ok("one"), Err("broken")]).into_body();
    assert!(frame(&mut body).unwrap().is_ok());
    assert_eq!(frame(&mut body).unwrap().unwrap_err(), "broken");
    assert_eq!(free(&limiter), 1);
}

#[test]
fn a_body_that_says_that_this_was_all_is_not_asked_again() {
    let limiter = one_at_a_time(&ManualClock::new());
    let (_, service) = Upstream::behind(&RateLimitLayer::new(limiter.clone(), Everybody));
    let response = ask(&service, from("alice"));
    assert_eq!(response.body().size_hint().exact(), Some(2));
    let mut body = response.into_body();
    assert_eq!(free(&limiter), 0);
    assert!(frame(&mut body).unwrap().is_ok());
    assert!(body.is_end_stream());
    assert_eq!(free(&limiter), 1);
}

#[test]
fn a_service_that_fails_gives_its_slot_back() {
    let limiter = one_at_a_time(&ManualClock::new());
    let layer = RateLimitLayer::new(limiter.clone(), Everybody);
    let service = layer
        .layer(service_fn(|_: Request<()>| async { Err::<Response<Pieces>, _>("no upstream") }));
    assert!(Polled::new(service.oneshot(from("alice"))).now().is_err());
    assert_eq!(free(&limiter), 1);
}

#[test]
fn a_client_that_goes_away_gives_its_slot_back() {
    let limiter = one_at_a_time(&ManualClock::new());
    let layer = RateLimitLayer::new(limiter.clone(), Everybody);
    let service = layer.layer(service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Pieces>, Infallible>>()
    }));
    let mut request = Polled::new(service.oneshot(from("alice")));
    assert!(request.waits());
    assert_eq!(free(&limiter), 0);
    drop(request);
    assert_eq!(free(&limiter), 1);
}

#[test]
fn one_too_many_is_denied_at_once() {
    let limiter = one_at_a_time(&ManualClock::new());
    let (upstream, service) = Upstream::behind(&RateLimitLayer::new(limiter, Everybody));
    let first = ask(&service, from("alice"));
    let second = ask(&service, from("bob"));
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 429));
    drop(first);
    assert_eq!(ask(&service, from("bob")).status(), 200);
    assert_eq!(upstream.calls(), 2);
}

#[test]
fn a_denial_estimates_when_a_slot_is_released() {
    let clock = ManualClock::new();
    let limiter = one_at_a_time(&clock);
    let (_, service) = Upstream::behind(&RateLimitLayer::new(limiter, Everybody));
    let retry_after = || ask(&service, from("bob")).headers()["retry-after"].clone();
    let first = ask(&service, from("alice"));
    assert_eq!(retry_after(), "60", "the end of the lease");
    clock.advance(Duration::from_secs(8));
    drop(first);
    let second = ask(&service, from("alice"));
    clock.advance(Duration::from_secs(3));
    assert_eq!(retry_after(), "5", "8 seconds on average, 3 are over");
    assert!(text(ask(&service, from("bob"))).contains(r#""retry_after_ms":5000,"estimated":true"#));
    clock.advance(Duration::from_secs(25));
    assert_eq!(retry_after(), "20", "as long again as it is overdue");
    drop(second);
}

#[test]
fn a_denial_after_a_wait_estimates_too() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(one_at_a_time(&clock), Everybody);
    let (_, service) = Upstream::behind(&layer.within(Duration::from_secs(5)));
    let first = ask(&service, from("alice"));
    clock.advance(Duration::from_secs(8));
    drop(first);
    let _second = ask(&service, from("alice"));
    let mut third = Polled::new(service.clone().oneshot(from("bob")));
    assert!(third.waits());
    clock.advance(Duration::from_secs(5));
    let Poll::Ready(Ok(denied)) = third.poll() else { panic!() };
    assert_eq!(denied.headers()["retry-after"], "3");
}

#[test]
fn a_slot_is_waited_for_if_told() {
    let clock = ManualClock::new();
    let limiter = one_at_a_time(&clock);
    let layer = RateLimitLayer::new(limiter.clone(), Everybody).within(Duration::from_secs(5));
    let (upstream, service) = Upstream::behind(&layer);
    let first = ask(&service, from("alice"));
    let mut gone = Polled::new(service.clone().oneshot(from("bob")));
    let mut second = Polled::new(service.clone().oneshot(from("bob")));
    let mut third = Polled::new(service.clone().oneshot(from("bob")));
    assert!(gone.waits() && second.waits() && third.waits());
    drop(gone);
    drop(first);
    assert!(second.is_woken() && !third.is_woken(), "one slot, one is woken");
    let Poll::Ready(Ok(response)) = second.poll() else { panic!() };
    assert_eq!(response.status(), 200);
    assert!(third.waits());
    clock.advance(Duration::from_secs(5));
    let Poll::Ready(Ok(denied)) = third.poll() else { panic!() };
    assert_eq!(denied.status(), 429, "none was free in time");
    assert_eq!(upstream.calls(), 2);
    drop(response);
    assert_eq!(free(&limiter), 1);
}

#[test]
fn who_waits_elsewhere_for_the_slot_is_woken() {
    let limiter = one_at_a_time(&ManualClock::new());
    let (_, service) = Upstream::behind(&RateLimitLayer::new(limiter.clone(), Everybody));
    let response = ask(&service, from("alice"));
    let ask = limiter.of("");
    let mut elsewhere = Polled::new(ask.permit_async());
    assert!(elsewhere.waits());
    drop(response);
    assert!(elsewhere.is_woken() && elsewhere.poll().is_ready());
}

#[test]
fn a_turn_beside_the_slots_is_bounded_with_patience_too() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Concurrency::at_most(1))
        .limit(LeakyBucket::per_minute(3).queue(9))
        .clock(clock.clone())
        .build()
        .unwrap();
    let patience = Duration::from_secs(5);
    let layer = RateLimitLayer::new(limiter.clone(), Everybody).within(patience);
    let (upstream, service) = Upstream::behind(&layer);
    drop(ask(&service, from("alice")));
    let denied = ask(&service, from("alice"));
    assert_eq!((denied.status().as_u16(), upstream.calls()), (429, 1));
    assert_eq!(denied.headers()["retry-after"], "15");
    assert_eq!(limiter.of("").peek().remaining, Some(1), "nothing was taken");
}

#[tokio::test(start_paused = true)]
async fn a_turn_beside_the_slots_of_one_limiter_is_waited_for() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Concurrency::at_most(5))
        .limit(LeakyBucket::per_minute(3).queue(9))
        .clock(clock.clone())
        .build()
        .unwrap();
    let (upstream, service) = Upstream::behind(&RateLimitLayer::new(limiter.clone(), Everybody));
    drop(ask(&service, from("alice")));
    let mut second = Polled::new(service.clone().oneshot(from("alice")));
    assert!(second.waits());
    let third = ask(&service, from("alice"));
    assert_eq!(third.status(), 429, "its turn would be in 40 seconds");
    assert_eq!(third.headers()["retry-after"], "10");
    clock.advance(Duration::from_secs(20));
    tokio::time::advance(Duration::from_secs(20)).await;
    let Poll::Ready(Ok(response)) = second.poll() else { panic!() };
    assert_eq!((response.status().as_u16(), upstream.calls()), (200, 2));
    assert_eq!(limiter.of("").peek().remaining, Some(4), "its slot is still held");
}
