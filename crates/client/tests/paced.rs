//! Calls to an API that counts, held back by what it tells.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode};
use sluicegate::Limiter;
use sluicegate::limit::FixedWindow;
use sluicegate::tower::RateLimitLayer;
use sluicegate::tower::key::header;
use sluicegate_client::pace::{PacedError, PacedLayer};
use support::{SECOND, TokioClock};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

type Call = Request<String>;
type Api = BoxCloneSyncService<Call, Response<Body>, std::convert::Infallible>;

/// What an API has done.
#[derive(Clone, Default)]
struct Seen {
    answered: Arc<AtomicUsize>,
    denied: Arc<AtomicUsize>,
}

impl Seen {
    fn counts(&self) -> (usize, usize) {
        (self.answered.load(Ordering::Relaxed), self.denied.load(Ordering::Relaxed))
    }
}

/// An API behind a real limiter, ten a minute for each account, that takes a while to answer.
fn api(limit: usize) -> (Api, Seen) {
    let limiter = Limiter::builder()
        .limit(FixedWindow::per_minute(limit as u64))
        .clock(TokioClock(Instant::now()))
        .build()
        .unwrap();
    let plain = service_fn(|_: Call| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    });
    let limited = RateLimitLayer::new(limiter, header("x-account")).layer(plain);
    let seen = Seen::default();
    let (api, sees) = (limited, seen.clone());
    let api = service_fn(move |call: Call| {
        let (api, seen) = (api.clone(), sees.clone());
        async move {
            sleep(SECOND / 20).await;
            let answer = api.oneshot(call).await.unwrap();
            let count = if answer.status().is_success() { &seen.answered } else { &seen.denied };
            count.fetch_add(1, Ordering::Relaxed);
            sleep(SECOND / 20).await;
            Ok(answer.map(Body::new))
        }
    });
    (BoxCloneSyncService::new(api), seen)
}

fn call(account: &str) -> Call {
    let call = Request::get("https://api.example.org/things").header("x-account", account);
    call.body(String::new()).unwrap()
}

/// An API that always says the same.
fn says(status: u16, headers: &'static [(&'static str, &'static str)]) -> (Api, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let api = service_fn(move |_: Call| {
        counts.fetch_add(1, Ordering::Relaxed);
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        let all =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        *answer.headers_mut() = all.collect::<HeaderMap>();
        std::future::ready(Ok(answer))
    });
    (BoxCloneSyncService::new(api), count)
}

#[tokio::test(start_paused = true)]
async fn a_crowd_gets_everything_and_never_a_429() {
    let (api, seen) = api(10);
    let client = PacedLayer::new().wait_max(600 * SECOND).layer(api);
    // The first one finds out what there is.
    client.clone().oneshot(call("me")).await.unwrap();
    let begun = Instant::now();
    let calls = (0..49).map(|_| tokio::spawn(client.clone().oneshot(call("me"))));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(seen.counts(), (50, 0));
    // Ten in each of five minutes: the last four of them have to be waited for.
    assert!((180 * SECOND..250 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let (api, seen) = api(1);
    let layer = PacedLayer::new().by(|call| call.headers["x-account"].to_str().unwrap().to_owned());
    let client = layer.wait_max(SECOND).layer(api);
    let begun = Instant::now();
    for account in ["a", "b", "c"] {
        client.clone().oneshot(call(account)).await.unwrap();
    }
    assert!(begun.elapsed() < SECOND);
    for account in ["a", "b", "c"] {
        let error = client.clone().oneshot(call(account)).await.unwrap_err();
        let PacedError::WouldWait(would_wait) = &error else { panic!("{error:?}") };
        assert!(would_wait.wait.unwrap() > SECOND);
        assert!(error.to_string().contains("raise `wait_max`"), "{error}");
    }
    assert_eq!(seen.counts(), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_most_keys_they_share_one() {
    let (api, count) = says(200, &[("ratelimit", r#""x";r=0;t=60"#)]);
    let layer = PacedLayer::new().by(|call| call.headers["x-account"].to_str().unwrap().to_owned());
    let client = layer.keys_max(2).wait_max(SECOND).layer(api);
    for account in ["a", "b", "c"] {
        client.clone().oneshot(call(account)).await.unwrap();
    }
    assert!(client.clone().oneshot(call("d")).await.is_err(), "as `c` was announced");
    assert_eq!(count.load(Ordering::Relaxed), 3);
    // Whoever knows nothing any more makes room.
    tokio::time::advance(60 * SECOND).await;
    client.clone().oneshot(call("e")).await.unwrap();
    client.clone().oneshot(call("f")).await.unwrap();
    client.clone().oneshot(call("f")).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_429_holds_the_others_back_and_goes_to_its_caller() {
    let mut waits = BTreeSet::new();
    for _ in 0..10 {
        let (api, count) = says(429, &[("retry-after", "20")]);
        let client = PacedLayer::new().wait_max(30 * SECOND).layer(api);
        let begun = Instant::now();
        let first = client.clone().oneshot(call("me")).await.unwrap();
        let denied = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!((first.status(), begun.elapsed()), (denied, Duration::ZERO));
        client.clone().oneshot(call("me")).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2);
        waits.insert(begun.elapsed());
    }
    // Never earlier, a tenth later at most, and not all at once.
    assert!(waits.iter().all(|wait| (20 * SECOND..=22 * SECOND).contains(wait)), "{waits:?}");
    assert!(waits.len() > 5, "{waits:?}");
}

/// An API that does as it is told: after how many milliseconds it answers, with which status, and
/// what it says of coming back.
fn obedient() -> Api {
    let api = service_fn(|call: Call| async move {
        let hints = |name: &str| call.headers()[name].to_str().unwrap().parse::<u16>().unwrap();
        sleep(Duration::from_millis(hints("x-millis").into())).await;
        let answer = Response::builder().status(hints("x-status"));
        Ok(answer.header("retry-after", hints("x-retry-after")).body(Body::empty()).unwrap())
    });
    BoxCloneSyncService::new(api)
}

fn hints(millis: u16, status: u16, retry_after: u16) -> Call {
    Request::get("https://api.example.org/")
        .header("x-millis", millis)
        .header("x-status", status)
        .header("x-retry-after", retry_after)
        .body(String::new())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_goes_first_and_its_answer_lets_the_others_go() {
    let client = PacedLayer::new().layer(obedient());
    let begun = Instant::now();
    client.clone().oneshot(hints(0, 429, 1)).await.unwrap();
    let calls = (0..3).map(|_| tokio::spawn(client.clone().oneshot(hints(300, 200, 0))));
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    // A second, a tenth of that at most, then one and after it the others together.
    let took = begun.elapsed();
    assert!((SECOND * 16 / 10..=SECOND * 17 / 10).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_in_time_does_not_queue_up_behind_who_can() {
    let client = PacedLayer::new().retrying(1).layer(obedient());
    let begun = Instant::now();
    let late = tokio::spawn(client.clone().oneshot(hints(25_000, 429, 0)));
    sleep(SECOND / 10).await;
    let turned_away = tokio::spawn(client.clone().oneshot(hints(1_400, 429, 29)));
    sleep(5 * SECOND).await;
    // It may go after 30.5 to 33.4 seconds, which is in time for one that came after 5.1.
    let in_time = tokio::spawn(client.clone().oneshot(hints(0, 200, 0)));
    let answer = late.await.unwrap().unwrap();
    assert_eq!((answer.status(), begun.elapsed()), (StatusCode::TOO_MANY_REQUESTS, 25 * SECOND));
    assert!(in_time.await.unwrap().is_ok());
    turned_away.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_429_is_tried_again_if_that_is_wanted_and_possible() {
    let (api, seen) = api(2);
    let client = PacedLayer::new().wait_max(120 * SECOND).retrying(3).layer(api);
    // Nothing is known, so all of them go, and three of them are turned away.
    let calls = (0..5).map(|_| tokio::spawn(client.clone().oneshot(call("me"))));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    let (answered, denied) = seen.counts();
    assert!(answered == 5 && (3..6).contains(&denied), "{denied}");

    let (api, count) = says(429, &[("retry-after", "20")]);
    let client = PacedLayer::new().wait_max(50 * SECOND).retrying(9).layer(api);
    let answer = client.oneshot(call("me")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "as it came, when time is up");
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may() {
    let (api, _) = says(200, &[("ratelimit", r#""x";r=0;t=10"#)]);
    let client = PacedLayer::new().waiting_max(5).layer(api);
    client.clone().oneshot(call("me")).await.unwrap();
    let begun = Instant::now();
    let calls = (0..9).map(|_| {
        let answer = client.clone().oneshot(call("me"));
        tokio::spawn(async move { (answer.await.is_ok(), begun.elapsed().as_secs()) })
    });
    let mut all = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        all.push(call.await.unwrap());
    }
    all.sort_unstable();
    // One is next and five are behind it. Every ten seconds one goes, and after half a minute
    // nobody waits any more.
    let failed = [0, 0, 0, 30, 30, 30].map(|seconds| (false, seconds));
    assert_eq!(all, [&failed[..], &[(true, 10), (true, 20), (true, 30)]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_holds_nobody_up() {
    let (api, count) = says(200, &[("ratelimit", r#""x";r=0;t=10"#)]);
    let client = PacedLayer::new().layer(api);
    client.clone().oneshot(call("me")).await.unwrap();
    let impatient = tokio::time::timeout(SECOND, client.clone().oneshot(call("me"))).await;
    assert!(impatient.is_err());
    let begun = Instant::now();
    client.clone().oneshot(call("me")).await.unwrap();
    assert_eq!((begun.elapsed(), count.load(Ordering::Relaxed)), (9 * SECOND, 2));
    // Neither does one that goes away while it is under way.
    let never =
        service_fn(|_: Call| std::future::pending::<Result<Response<Body>, std::io::Error>>());
    let client = PacedLayer::new().layer(never);
    let _ = tokio::time::timeout(SECOND, client.clone().oneshot(call("me"))).await;
    assert!(
        tokio::time::timeout(SECOND, client.oneshot(call("me"))).await.is_err(),
        "it is called"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_spread_if_that_is_wanted() {
    let (api, seen) = api(10);
    let client = PacedLayer::new().spreading_below(100).wait_max(600 * SECOND).layer(api);
    let mut times = Vec::new();
    for _ in 0..10 {
        client.clone().oneshot(call("me")).await.unwrap();
        times.push(Instant::now());
    }
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, most) = (*gaps.iter().min().unwrap(), *gaps.iter().max().unwrap());
    assert!(least > SECOND && most < least * 3 / 2, "{gaps:?}");
    assert_eq!(seen.counts(), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn an_api_that_says_nothing_is_not_held_up() {
    let (api, count) = says(200, &[]);
    let client = PacedLayer::new().layer(api);
    let begun = Instant::now();
    for _ in 0..100 {
        client.clone().oneshot(call("me")).await.unwrap();
    }
    assert_eq!((begun.elapsed(), count.load(Ordering::Relaxed)), (Duration::ZERO, 100));
}
