//! The tower layer with counters in Redis.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sluicegate::backend::Backend;
use sluicegate::clock::ManualClock;
use sluicegate::limit::{Concurrency, FixedWindow, TokenBucket};
use sluicegate::tower::key::{Everybody, header};
use sluicegate::tower::{DenialReason, Missing, RateLimitLayer, ResponseBody};
use sluicegate::{CounterStore, Event, Limiter, Listener, Memory, OnStoreFailure};
use sluicegate_redis::{LinkOptions, Redis};
use sluicegate_testkit::redis::Single;
use tower::{Layer, ServiceExt, service_fn};

const LONG: Duration = Duration::from_secs(20);

async fn connect(server: &Single) -> Redis {
    let link = LinkOptions { timeout: LONG, ..LinkOptions::default() };
    let redis = Redis::builder(server.url()).link(link).connect().expect("a handle");
    assert!(redis.connected(LONG).await, "no connection");
    redis
}

type Answer = Response<ResponseBody<Full<Bytes>>>;

async fn call(layer: &RateLimitLayer, user: &str, grpc: bool) -> Answer {
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
    }));
    let kind = if grpc { "application/grpc" } else { "text/plain" };
    let request = Request::builder().header("x-user", user).header("content-type", kind);
    service.oneshot(request.body(()).expect("a request")).await.expect("an answer")
}

fn header_of<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers().get(name).map_or("-", |value| value.to_str().expect("text"))
}

/// Status and remaining quota of alice's and bob's requests, under limits on any store.
async fn script(store: &impl CounterStore, clock: &ManualClock) -> Vec<(u16, String)> {
    let user = Limiter::builder().name("user").limit(FixedWindow::per_hour(3).named("user"));
    let global = Limiter::builder().name("all").limit(FixedWindow::per_hour(4).named("all"));
    let user = user.clock(clock.clone()).on(store).expect("a limiter");
    let global = global.clock(clock.clone()).on(store).expect("a limiter");
    let layer = RateLimitLayer::new(user.clone(), header("x-user")).and(global, Everybody);
    let mut answers = Vec::new();
    for user in ["alice", "alice", "alice", "alice", "bob", "bob", "bob"] {
        let answer = call(&layer, user, false).await;
        let left = header_of(&answer, "x-ratelimit-remaining").to_owned();
        answers.push((answer.status().as_u16(), left));
    }
    let bob = user.of("bob").peek_async().await.expect("an answer").remaining;
    answers.push((0, format!("{bob:?}")));
    clock.advance(Duration::from_secs(3_600));
    answers.push((call(&layer, "alice", false).await.status().as_u16(), String::new()));
    answers
}

#[tokio::test]
async fn the_layer_answers_as_on_memory() {
    let server = Single::start();
    let redis = connect(&server).await;
    let on_memory = script(&Memory::new(), &ManualClock::new()).await;
    let expected =
        [(200, "2"), (200, "1"), (200, "0"), (429, "0"), (200, "0"), (429, "0"), (429, "0")];
    let expected = expected.map(|(status, left)| (status, left.to_owned()));
    assert_eq!(on_memory[..7], expected);
    assert_eq!(on_memory[7].1, "Some(2)", "a denied request is charged to no limit");
    assert_eq!(script(&redis, &ManualClock::new()).await, on_memory);
}

/// Events as lines: limiter, operation, key, cost, and the limit that denied.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Listener for Events {
    fn decided(&self, event: &Event<'_>) {
        let Event { limiter, op, cost, .. } = event;
        let key = String::from_utf8_lossy(event.key.unwrap_or(b"-")).into_owned();
        let outcome = match (event.verdict.is_allowed(), event.limit) {
            (true, limit) => format!("allowed{}", limit.unwrap_or("")),
            (false, limit) => format!("denied by {}", limit.unwrap_or("-")),
        };
        self.0.lock().expect("events").push(format!("{limiter} {op:?} {key} {cost} {outcome}"));
    }
}

impl Events {
    /// Those since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("events"))
    }
}

/// The events of a layer with a rate for each user, another for all, and slots.
async fn events_on(store: &impl CounterStore, clock: &ManualClock) -> Vec<Vec<String>> {
    let events = Events::default();
    let builder =
        |name| Limiter::builder().name(name).clock(clock.clone()).listener(events.clone());
    let user = builder("user").limit(FixedWindow::per_minute(5).named("minute"));
    let user = user.limit(FixedWindow::per_hour(3).named("hour")).on(store).expect("a limiter");
    let all = builder("all").limit(FixedWindow::per_hour(4).named("all")).on(store).expect("all");
    let slots = builder("slots").limit(Concurrency::at_most(1).named("slots"));
    let slots = slots.on(store).expect("a limiter");
    let layer = RateLimitLayer::new(user, header("x-user")).and(all, Everybody);
    let rates = layer.clone();
    let layer = layer.and(slots.clone(), Everybody);
    let mut lists = Vec::new();
    let held = call(&layer, "alice", false).await;
    assert_eq!(held.status(), StatusCode::OK);
    lists.push(events.take());
    assert_eq!(call(&layer, "alice", false).await.status(), StatusCode::TOO_MANY_REQUESTS);
    lists.push(events.take());
    drop(held);
    lists.push(events.take());
    for user in ["alice", "alice", "alice", "bob", "bob"] {
        call(&rates, user, false).await;
        lists.push(events.take());
    }
    lists
}

#[tokio::test]
async fn the_events_of_a_layer_are_those_of_the_decision_on_every_store() {
    let server = Single::start();
    let redis = connect(&server).await;
    let on_memory = events_on(&Memory::new(), &ManualClock::new()).await;
    let admitted =
        |user| vec![format!("user Hit {user} 1 allowed"), "all Hit  1 allowed".to_owned()];
    let with_slot = [admitted("alice"), vec!["slots Hit  1 allowed".to_owned()]].concat();
    let denied = |text: &str| vec![text.to_owned()];
    let expected = [
        with_slot,
        denied("slots Hit  1 denied by slots"),
        Vec::new(),
        admitted("alice"),
        admitted("alice"),
        denied("user Hit alice 1 denied by hour"),
        admitted("bob"),
        denied("all Hit  1 denied by all"),
    ];
    assert_eq!(on_memory, expected);
    assert_eq!(events_on(&redis, &ManualClock::new()).await, expected);
}

#[tokio::test]
async fn memory_and_redis_decide_together() {
    let server = Single::start();
    let redis = connect(&server).await;
    let clock = ManualClock::new();
    let events = Events::default();
    let own = Limiter::builder().limit(FixedWindow::per_hour(5).named("own")).clock(clock.clone());
    let own = own.name("own").listener(events.clone()).build().expect("a limiter");
    let shared = Limiter::builder().name("shared").limit(FixedWindow::per_hour(1).named("shared"));
    let shared = shared.clock(clock.clone()).on(&redis).expect("a limiter");
    let layer = RateLimitLayer::new(own.clone(), header("x-user")).and(shared, Everybody);
    assert_eq!(call(&layer, "alice", false).await.status(), StatusCode::OK);
    assert_eq!(events.take(), ["own Hit alice 1 allowed"]);
    let denied = call(&layer, "alice", false).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(events.take().is_empty(), "another limiter denied");
    let body = denied.into_body().collect().await.expect("a body").to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(r#""limit":"shared""#), "{body:?}");
    assert_eq!(own.of("alice").peek().remaining, Some(4), "charged for the first only");
}

#[tokio::test]
async fn slots_are_held_until_the_response_ends() {
    let server = Single::start();
    let redis = connect(&server).await;
    let slots = Limiter::builder().name("slots").limit(Concurrency::at_most(1)).on(&redis);
    let slots = slots.expect("a limiter");
    let layer = RateLimitLayer::new(slots.clone(), header("x-user"));
    let first = call(&layer, "alice", false).await;
    assert_eq!(first.status(), StatusCode::OK);
    let denied = call(&layer, "alice", false).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    first.into_body().collect().await.expect("a body");
    let next = call(&layer.within(LONG), "alice", false).await;
    assert_eq!(next.status(), StatusCode::OK, "it waits until the slot is released");
}

#[tokio::test]
async fn a_lost_store_is_answered_by_the_policy() {
    let server = Single::start();
    let redis = connect(&server).await;
    let layer = |policy: OnStoreFailure| {
        let limiter = Limiter::builder().name(format!("{policy:?}")).on_store_failure(policy);
        let limiter = limiter.limit(TokenBucket::per_day(5)).on(&redis).expect("a limiter");
        RateLimitLayer::new(limiter, header("x-user"))
    };
    let (allow, deny) = (layer(OnStoreFailure::Allow), layer(OnStoreFailure::Deny));
    let error = layer(OnStoreFailure::Error);
    server.kill();
    assert_eq!(call(&allow, "alice", false).await.status(), StatusCode::OK);
    assert_eq!(call(&deny, "alice", false).await.status(), StatusCode::TOO_MANY_REQUESTS);
    let unavailable = call(&error, "alice", false).await;
    assert_eq!(unavailable.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header_of(&unavailable, "retry-after"), "1");
    let body = unavailable.into_body().collect().await.expect("a body").to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(r#""code":"store_unavailable""#), "{body:?}");
    let unavailable = call(&error, "alice", true).await;
    assert_eq!(
        (unavailable.status(), header_of(&unavailable, "grpc-status")),
        (StatusCode::OK, "14")
    );
    let hooked = error.on_denied(|denial, response| {
        assert!(matches!(denial.reason, DenialReason::Store(_)) && !denial.is_grpc);
        response.map(|_| Bytes::from(format!("{}", denial.request.headers["x-user"].len())))
    });
    let body = call(&hooked, "alice", false).await.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), "5");
}

/// The type of a limiter on any store.
#[tokio::test]
async fn a_layer_takes_a_limiter_of_any_backend() {
    let memory = Limiter::new(FixedWindow::per_hour(1)).expect("a limiter");
    let any: Limiter<dyn Backend> = memory.into();
    let layer = RateLimitLayer::new(any, header("x-user"));
    assert_eq!(call(&layer, "alice", false).await.status(), StatusCode::OK);
    assert_eq!(call(&layer, "alice", false).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

/// A limiter in the store ignores requests without a key; the others still apply.
#[tokio::test]
async fn requests_without_a_key_pass_limiters_in_the_store() {
    let server = Single::start();
    let redis = connect(&server).await;
    let named = |name: &'static str| Limiter::builder().name(name).limit(FixedWindow::per_hour(1));
    let on_plan = |plan: &'static str| {
        move |request: &http::request::Parts| {
            let user = request.headers.get("x-user")?.to_str().ok()?;
            user.starts_with(plan).then(|| user.to_owned())
        }
    };
    let layer = RateLimitLayer::new(named("free").on(&redis).expect("free"), on_plan("free"))
        .and(named("pro").on(&redis).expect("pro"), on_plan("pro"))
        .on_missing(Missing::Pass);
    for (user, expected) in [("free-1", [200, 429]), ("pro-1", [200, 429]), ("none", [200, 200])] {
        for status in expected {
            assert_eq!(call(&layer, user, false).await.status().as_u16(), status, "{user}");
        }
    }
    let own = Limiter::new(FixedWindow::per_year(1)).expect("a limiter");
    let layer = layer.and(own, header("x-user"));
    assert_eq!(call(&layer, "none", false).await.status(), StatusCode::OK);
    assert_eq!(call(&layer, "none", false).await.status(), StatusCode::TOO_MANY_REQUESTS);
}
