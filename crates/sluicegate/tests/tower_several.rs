//! Several limiters on one layer: all agree, or nobody keeps anything of the request.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod tower_support;

use std::task::Poll;
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, FixedWindow, LeakyBucket, TokenBucket};
use sluicegate::tower::RateLimitLayer;
use sluicegate::tower::key::{Everybody, header};
use sluicegate::{Limiter, Mode};
use tower::ServiceExt;
use tower_support::{Polled, Upstream, ask, from, limiter, statuses, text};

const SECOND: Duration = Duration::from_secs(1);

fn left(limiter: &Limiter, key: &str) -> i64 {
    limiter.of(key).peek().remaining.unwrap()
}

// === all of them police ===

#[test]
fn per_user_and_global() {
    let clock = ManualClock::new();
    let users = limiter(FixedWindow::per_hour(2).named("user"), &clock);
    let all = limiter(FixedWindow::per_day(3).named("all"), &clock);
    let layer = RateLimitLayer::new(users.clone(), header("x-user")).and(all.clone(), Everybody);
    let (upstream, service) = Upstream::behind(&layer);

    let first = ask(&service, from("alice"));
    assert_eq!(first.headers()["ratelimit"], r#""user";r=1;t=3600"#, "who has the least left");
    assert_eq!(first.headers()["ratelimit-policy"], r#""user";q=2;w=3600, "all";q=3;w=86400"#);
    assert_eq!(statuses(&service, "alice", 3), [200, 429, 429]);
    assert_eq!(left(&all, ""), 1, "a request that her own limit denies costs the others nothing");

    assert_eq!(statuses(&service, "bob", 1), [200]);
    let denied = ask(&service, from("bob"));
    assert_eq!(denied.headers()["ratelimit"], r#""all";r=0;t=86400"#);
    assert!(text(denied).contains(r#""limit":"all""#));
    assert_eq!(left(&users, "bob"), 1, "and neither does the other way round");
    assert_eq!(upstream.calls(), 3);
}

#[test]
fn more_than_one_decision_takes_in() {
    let clock = ManualClock::new();
    let limiters: Vec<Limiter> = (0..40)
        .map(|place| limiter(FixedWindow::per_hour(if place == 37 { 1 } else { 9 }), &clock))
        .collect();
    let first = RateLimitLayer::new(limiters[0].clone(), header("x-user"));
    let layer =
        limiters[1..].iter().fold(first, |layer, one| layer.and(one.clone(), header("x-user")));
    let (_, service) = Upstream::behind(&layer);
    assert_eq!(statuses(&service, "alice", 3), [200, 429, 429], "each of them has a say");
    let rest: Vec<i64> = limiters.iter().map(|one| left(one, "alice")).collect();
    assert!(rest.iter().enumerate().all(|(place, left)| *left == if place == 37 { 0 } else { 8 }));
}

// === some give slots ===

#[test]
fn a_rate_for_each_and_slots_for_all() {
    let clock = ManualClock::new();
    let users = limiter(TokenBucket::per_minute(3).named("user"), &clock);
    let slots = limiter(Concurrency::at_most(1).named("slots"), &clock);
    let layer = RateLimitLayer::new(slots.clone(), Everybody).and(users.clone(), header("x-user"));
    let (upstream, service) = Upstream::behind(&layer);

    let first = ask(&service, from("alice"));
    assert_eq!(first.headers()["ratelimit"], r#""slots";r=0;t=60"#);
    let policies = r#""user";q=3;w=60, "slots";q=1;qu="concurrent-requests""#;
    assert_eq!(first.headers()["ratelimit-policy"], policies);
    let second = ask(&service, from("alice"));
    assert!(text(second).contains(r#""limit":"slots""#));
    assert_eq!(left(&users, "alice"), 2, "no slot, no charge");
    drop(first);
    assert_eq!(statuses(&service, "alice", 3), [200, 200, 429]);
    assert_eq!(left(&slots, ""), 1, "no token, no slot");
    assert_eq!((upstream.calls(), left(&users, "alice")), (3, 0));
}

// === some make requests wait ===

/// A rate for each user, a queue for all.
fn rate_and_queue(clock: &ManualClock) -> (Limiter, Limiter, RateLimitLayer) {
    let users = limiter(TokenBucket::per_minute(2).named("user"), clock);
    let queue = limiter(LeakyBucket::per_second(1).queue(1).named("queue"), clock);
    let layer = RateLimitLayer::new(queue.clone(), Everybody).and(users.clone(), header("x-user"));
    (users, queue, layer)
}

#[test]
fn a_rate_denies_where_a_queue_lets_wait() {
    let clock = ManualClock::new();
    let (users, queue, layer) = rate_and_queue(&clock);
    let (upstream, service) = Upstream::behind(&layer);
    assert_eq!(statuses(&service, "alice", 1), [200]);
    let mut second = Polled::new(service.clone().oneshot(from("alice")));
    assert!(second.waits());
    assert_eq!(left(&users, "alice"), 0);
    let denied = ask(&service, from("alice"));
    assert!(text(denied).contains(r#""limit":"user""#), "her own rate denies at once");
    let denied = ask(&service, from("bob"));
    assert!(text(denied).contains(r#""limit":"queue""#), "the queue is full");
    assert_eq!(left(&users, "bob"), 2, "which costs him nothing");

    clock.advance(SECOND);
    assert!(second.is_woken());
    let Poll::Ready(Ok(response)) = second.poll() else { panic!() };
    assert_eq!(response.headers()["ratelimit"], r#""user";r=0;t=60"#, "the first of equals");
    assert_eq!((upstream.calls(), left(&queue, "")), (2, 1));
    clock.advance(SECOND);
    assert_eq!(left(&users, "alice"), 0, "used, and never given back");
}

#[test]
fn who_goes_away_gives_everything_back() {
    let clock = ManualClock::new();
    let (users, queue, layer) = rate_and_queue(&clock);
    let slots = limiter(Concurrency::at_most(5), &clock);
    let (_, service) = Upstream::behind(&layer.and(slots.clone(), Everybody));
    drop(ask(&service, from("alice")));
    let mut gone = Polled::new(service.clone().oneshot(from("bob")));
    assert!(gone.waits());
    assert_eq!((left(&users, "bob"), left(&queue, ""), left(&slots, "")), (1, 0, 4));
    drop(gone);
    assert_eq!((left(&users, "bob"), left(&queue, ""), left(&slots, "")), (2, 1, 5));
}

#[test]
fn a_reservation_lasts_as_long_as_the_longest_wait() {
    let clock = ManualClock::new();
    let users = limiter(FixedWindow::per_day(2), &clock);
    let queue = limiter(LeakyBucket::per_minute(2).queue(1), &clock);
    let layer = RateLimitLayer::new(users.clone(), header("x-user")).and(queue, Everybody);
    let (_, service) = Upstream::behind(&layer);
    ask(&service, from("alice"));
    let mut second = Polled::new(service.oneshot(from("alice")));
    assert!(second.waits());
    clock.advance(30 * SECOND);
    assert!(second.poll().is_ready());
    clock.advance(120 * SECOND);
    assert_eq!(left(&users, "alice"), 0);
}

#[test]
fn with_patience_the_longest_wait_counts() {
    let clock = ManualClock::new();
    let users = limiter(TokenBucket::per_second(1).burst(1), &clock);
    let all = limiter(TokenBucket::per_second(2).burst(1), &clock);
    let layer = RateLimitLayer::new(users, header("x-user")).and(all, Everybody).within(SECOND);
    let (_, service) = Upstream::behind(&layer);
    assert_eq!(statuses(&service, "alice", 1), [200]);
    let mut alice = Polled::new(service.clone().oneshot(from("alice")));
    let mut bob = Polled::new(service.oneshot(from("bob")));
    assert!(alice.waits() && bob.waits());
    clock.advance(SECOND / 2);
    assert!(alice.waits() && bob.waits(), "alice's own bucket; bob comes after alice");
    clock.advance(SECOND / 2);
    assert!(alice.poll().is_ready() && bob.poll().is_ready());
}

#[test]
fn the_waits_for_a_slot_and_for_a_turn_count_together() {
    let clock = ManualClock::new();
    let slots = limiter(Concurrency::at_most(1), &clock);
    let bucket = limiter(TokenBucket::per(1, 4 * SECOND), &clock);
    let layer = RateLimitLayer::new(bucket.clone(), Everybody).and(slots.clone(), Everybody);
    let (_, service) = Upstream::behind(&layer.within(5 * SECOND));

    let taken = slots.of("").permit().unwrap();
    let mut request = Polled::new(service.clone().oneshot(from("alice")));
    assert!(request.waits(), "for a slot");
    clock.advance(3 * SECOND);
    bucket.hit("");
    drop(taken);
    assert!(request.is_woken());
    let Poll::Ready(Ok(denied)) = request.poll() else { panic!() };
    assert_eq!(denied.status(), 429, "three seconds have passed, and it would be four more");
    assert_eq!(left(&slots, ""), 1);

    clock.advance(2 * SECOND);
    let taken = slots.of("").permit().unwrap();
    let mut request = Polled::new(service.clone().oneshot(from("alice")));
    assert!(request.waits(), "for a slot");
    clock.advance(SECOND);
    drop(taken);
    assert!(request.waits(), "for its turn");
    assert_eq!(left(&slots, ""), 0);
    clock.advance(SECOND);
    let Poll::Ready(Ok(response)) = request.poll() else { panic!() };
    assert_eq!(response.status(), 200);
}

#[test]
fn what_costs_nothing_passes_whatever_is_used_up() {
    let clock = ManualClock::new();
    let (users, queue, layer) = rate_and_queue(&clock);
    let slots = limiter(Concurrency::at_most(1), &clock);
    let layer = layer
        .and(slots.clone(), Everybody)
        .cost(|request| if request.headers["x-user"] == "free" { 0 } else { 1 });
    let (_, service) = Upstream::behind(&layer);
    let taken = ask(&service, from("alice"));
    users.of("free").drain().unwrap();
    queue.of("").drain().unwrap();
    assert_eq!(statuses(&service, "alice", 1), [429]);
    assert_eq!(statuses(&service, "free", 3), [200; 3]);
    drop(taken);
    assert_eq!((left(&users, "free"), left(&slots, "")), (0, 1));
}

// === shadows ===

#[test]
fn a_limiter_in_the_shadow_is_counted_and_not_told() {
    let clock = ManualClock::new();
    let shadow = Limiter::builder()
        .limit(Concurrency::at_most(1).named("tried out"))
        .mode(Mode::Shadow)
        .clock(clock.clone())
        .build()
        .unwrap();
    let users = limiter(FixedWindow::per_hour(9).named("user"), &clock);
    let layer = RateLimitLayer::new(shadow.clone(), Everybody).and(users, header("x-user"));
    let (_, service) = Upstream::behind(&layer);
    let first = ask(&service, from("alice"));
    let second = ask(&service, from("alice"));
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert_eq!(second.headers()["ratelimit"], r#""user";r=7;t=3600"#);
    assert_eq!(second.headers()["ratelimit-policy"], r#""user";q=9;w=3600"#);
    drop((first, second));
    assert_eq!(left(&shadow, ""), 1);
}
