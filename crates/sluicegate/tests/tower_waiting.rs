//! Requests that wait for their turn. Time is moved by hand.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod tower_support;

use std::task::Poll;
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{Cycle, LeakyBucket, SmoothBursty, TokenBucket, WarmUp};
use sluicegate::tower::key::header;
use sluicegate::tower::{RateLimit, RateLimitLayer, WAIT_MAX};
use tower::ServiceExt;
use tower_support::{Answer, Polled, Upstream, ask, from, limiter, statuses, text};

const SECOND: Duration = Duration::from_secs(1);

fn request(
    service: &RateLimit<Upstream>,
) -> Polled<impl Future<Output = Result<Answer, std::convert::Infallible>>> {
    Polled::new(service.clone().oneshot(from("alice")))
}

/// One a second, so many in the queue.
fn queue(places: u64, clock: &ManualClock) -> RateLimitLayer {
    RateLimitLayer::new(limiter(LeakyBucket::per_second(1).queue(places), clock), header("x-user"))
}

#[test]
fn a_request_goes_on_when_its_turn_has_come() {
    let clock = ManualClock::new();
    let (upstream, service) = Upstream::behind(&queue(2, &clock));
    assert_eq!(ask(&service, from("alice")).status(), 200, "the first does not wait");
    let (mut second, mut third) = (request(&service), request(&service));
    assert!(second.waits() && third.waits());
    assert_eq!(statuses(&service, "alice", 1), [429], "the queue is full");
    assert_eq!(upstream.calls(), 1);

    clock.advance(SECOND - Duration::from_micros(1));
    assert!(!second.is_woken() && second.waits());
    clock.advance(Duration::from_micros(1));
    assert!(second.is_woken() && !third.is_woken());
    let Poll::Ready(Ok(response)) = second.poll() else { panic!() };
    assert_eq!(response.headers()["x-ratelimit-limit"], "3");
    assert_eq!(text(response), "ok");
    assert!(third.waits());

    clock.advance(SECOND);
    assert!(third.is_woken() && third.poll().is_ready());
    assert_eq!(upstream.calls(), 3);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_client_that_goes_away_gives_its_turn_back() {
    let clock = ManualClock::new();
    let (upstream, service) = Upstream::behind(&queue(1, &clock));
    ask(&service, from("alice"));
    for _ in 0..5 {
        let mut gone = request(&service);
        assert!(gone.waits());
        assert_eq!(statuses(&service, "alice", 1), [429], "the queue is full");
    }
    let mut stays = request(&service);
    assert!(stays.waits());
    clock.advance(SECOND);
    assert!(stays.poll().is_ready(), "nobody is before it");
    assert_eq!(upstream.calls(), 2);
}

#[test]
fn a_client_that_goes_away_before_the_first_poll_does_too() {
    let clock = ManualClock::new();
    let (_, service) = Upstream::behind(&queue(1, &clock));
    ask(&service, from("alice"));
    let mut never_polled = service.clone();
    drop(tower::Service::call(&mut never_polled, from("alice")));
    assert!(request(&service).waits());
}

#[test]
fn nobody_waits_longer_than_the_bound() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(
        limiter(LeakyBucket::per_minute(6).queue(100), &clock),
        header("x-user"),
    );
    let (_, service) = Upstream::behind(&layer);
    assert_eq!(WAIT_MAX, 30 * SECOND);
    ask(&service, from("alice"));
    let mut waiting = [request(&service), request(&service), request(&service)];
    assert!(waiting.iter_mut().all(Polled::waits), "10, 20 and 30 seconds");
    let denied = ask(&service, from("alice"));
    assert_eq!(denied.status(), 429, "40 seconds");
    assert_eq!(denied.headers()["retry-after"], "10", "then it would wait 30");
    clock.advance(10 * SECOND);
    assert!(request(&service).waits());
}

#[test]
fn smooth_limits_make_requests_wait_too() {
    let clock = ManualClock::new();
    let smooth = limiter(SmoothBursty::per_second(2).max_burst(Duration::ZERO), &clock);
    let cold = limiter(WarmUp::per_second(2).over(SECOND).cold_factor(1_000), &clock);
    for limiter in [smooth, cold] {
        let (_, service) = Upstream::behind(&RateLimitLayer::new(limiter, header("x-user")));
        assert_eq!(statuses(&service, "alice", 1), [200]);
        let mut second = request(&service);
        assert!(second.waits());
        clock.advance(SECOND / 2);
        assert!(second.is_woken() && second.poll().is_ready());
    }
}

#[test]
fn other_limits_deny_at_once_unless_told() {
    let clock = ManualClock::new();
    let bucket = limiter(TokenBucket::per_second(1), &clock);
    let cycle = limiter(Cycle::of(1), &clock);
    for limiter in [bucket, cycle] {
        let layer = RateLimitLayer::new(limiter, header("x-user"));
        let (_, service) = Upstream::behind(&layer);
        assert_eq!(statuses(&service, "alice", 2), [200, 429]);

        let (_, service) = Upstream::behind(&layer.within(2 * SECOND));
        let (mut second, mut third) = (request(&service), request(&service));
        assert!(second.waits() && third.waits());
        let denied = ask(&service, from("alice"));
        assert_eq!(
            (denied.status().as_u16(), &denied.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        clock.advance(SECOND);
        assert!(second.poll().is_ready() && third.waits());
        clock.advance(SECOND);
        assert!(third.poll().is_ready());
        clock.advance(SECOND);
    }
}

#[test]
fn with_no_patience_nobody_waits() {
    let clock = ManualClock::new();
    let (_, service) = Upstream::behind(&queue(5, &clock).within(Duration::ZERO));
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
    clock.advance(SECOND);
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
}

#[test]
fn a_turn_that_has_come_is_not_given_back() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_second(1).burst(5), &clock);
    let layer = RateLimitLayer::new(limiter.clone(), header("x-user")).within(SECOND);
    let (_, service) = Upstream::behind(&layer);
    assert_eq!(statuses(&service, "alice", 3), [200; 3]);
    assert_eq!(limiter.of("alice").peek().remaining, Some(2), "charged, and not given back");
}

#[test]
fn the_service_is_asked_for_its_readiness_when_the_turn_has_come() {
    let clock = ManualClock::new();
    let (upstream, service) = Upstream::behind(&queue(1, &clock));
    ask(&service, from("alice"));
    let mut second = request(&service);
    assert!(second.waits());
    upstream.set_busy(true);
    clock.advance(SECOND);
    assert!(second.waits() && upstream.calls() == 1, "its turn, but the service is busy");
    upstream.set_busy(false);
    assert!(second.poll().is_ready() && upstream.calls() == 2);
}

#[test]
fn a_denial_after_waiting_speaks_grpc_too() {
    // A slot is waited for in vain.
    let clock = ManualClock::new();
    let limiter = limiter(sluicegate::limit::Concurrency::at_most(1), &clock);
    let layer = RateLimitLayer::new(limiter.clone(), header("x-user")).within(SECOND);
    let (upstream, service) = Upstream::behind(&layer);
    let _taken = limiter.of("alice").permit().unwrap();
    let mut call = from("alice");
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let mut waiting = Polled::new(service.oneshot(call));
    assert!(waiting.waits());
    clock.advance(SECOND);
    let Poll::Ready(Ok(response)) = waiting.poll() else { panic!() };
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(upstream.calls(), 0);
}
