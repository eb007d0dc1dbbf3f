//! What is reserved, settled, given back and waited for over HTTP; and what is asked twice.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_support::{Told, engine_of, post, send};
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{Options, router};
use sluicegate_server::rls::Options as RlsOptions;
use sluicegate_server::telemetry::{Endpoint, Fault};

const RULES: &str = "
domain: llm
descriptors:
  - key: user
    limits: { name: tokens, algorithm: token_bucket, rate: 1000/day }
  - key: calls
    limits: { name: slots, algorithm: concurrency, max: 1, lease: 30s }
  - key: paced
    limits: { name: pace, algorithm: token_bucket, rate: 1/s, burst: 1 }
  - key: address
    rate_limit: { unit: day, requests_per_unit: 100 }
";

fn app() -> (Router, App, ManualClock) {
    let (engine, clock) = engine_of(RULES);
    let service = App::new(engine);
    (router(service.clone(), Options::default()), service, clock)
}

async fn ask(app: &Router, path: &str, body: Value) -> Told {
    post(app, path, body.to_string()).await
}

async fn ask_as(app: &Router, key: &str, path: &str, body: &Value) -> Told {
    let request = Request::post(path).header("Idempotency-Key", key);
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

fn tokens(hits: u64) -> Value {
    json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "hits": hits })
}

/// What user 42 has left.
async fn left(app: &Router) -> i64 {
    let told = ask(app, "/v1/peek", tokens(0)).await.json();
    told["statuses"][0]["remaining"].as_i64().unwrap()
}

async fn reserve(app: &Router, hits: u64) -> String {
    let told = ask(app, "/v1/reserve", tokens(hits)).await;
    assert_eq!(told.status, StatusCode::OK, "{}", told.text);
    told.json()["reservation"].as_str().unwrap().to_owned()
}

fn code(told: &Told) -> String {
    told.json()["error"]["code"].as_str().unwrap().to_owned()
}

// === reserving ===

#[tokio::test]
async fn an_estimate_is_settled_with_what_was_used() {
    let (app, service, _) = app();
    let told = ask(&app, "/v1/reserve", tokens(400)).await;
    assert_eq!(told.status, StatusCode::OK);
    assert_eq!(told.headers["X-RateLimit-Remaining"], "600");
    let told = told.json();
    assert_eq!((&told["allowed"], &told["expires_after_ms"]), (&json!(true), &json!(60_000)));
    assert_eq!(service.reservations().pending(service.engine().now()), 1);

    let name = told["reservation"].as_str().unwrap();
    let told = ask(&app, "/v1/commit", json!({ "reservation": name, "hits": 150 })).await;
    assert_eq!(told.status, StatusCode::OK, "{}", told.text);
    assert_eq!(told.headers["X-RateLimit-Remaining"], "850");
    assert_eq!(told.json()["returned"], 250);
    assert_eq!(told.json()["statuses"][0]["remaining"], 850);
    assert_eq!(service.reservations().pending(service.engine().now()), 0);

    let again = ask(&app, "/v1/commit", json!({ "reservation": name, "hits": 150 })).await;
    assert_eq!((again.status, code(&again).as_str()), (StatusCode::GONE, "settled_reservation"));
    assert_eq!(left(&app).await, 850);
    assert_eq!(service.telemetry().calls(Endpoint::Commit), 2);
    assert_eq!(service.telemetry().failures(Endpoint::Commit, Fault::Invalid), 1);
}

#[tokio::test]
async fn what_is_not_needed_is_given_back() {
    let (app, ..) = app();
    let name = reserve(&app, 400).await;
    let told = ask(&app, "/v1/cancel", json!({ "reservation": name })).await;
    assert_eq!((told.status, &told.json()["returned"]), (StatusCode::OK, &json!(400)));
    assert_eq!(left(&app).await, 1_000);
    let again = ask(&app, "/v1/cancel", json!({ "reservation": name })).await;
    assert_eq!(again.status, StatusCode::GONE);
}

#[tokio::test]
async fn nobody_settles_and_time_does() {
    let (app, service, clock) = app();
    let mut body = tokens(400);
    body["ttl_ms"] = json!(5_000);
    let told = ask(&app, "/v1/reserve", body).await.json();
    assert_eq!(told["expires_after_ms"], 5_000);
    clock.advance(Duration::from_millis(4_999));
    assert_eq!(left(&app).await, 600);
    clock.advance(Duration::from_millis(1));
    assert_eq!(left(&app).await, 1_000);
    // Late, it is charged all the same.
    let late = json!({ "reservation": told["reservation"], "hits": 10 });
    assert_eq!(ask(&app, "/v1/commit", late).await.json()["returned"], 0);
    assert_eq!(left(&app).await, 990);
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
}

#[tokio::test]
async fn a_denial_is_that_of_a_check() {
    let (app, service, _) = app();
    reserve(&app, 900).await;
    let told = ask(&app, "/v1/reserve", tokens(101)).await;
    let checked = ask(&app, "/v1/check", tokens(101)).await;
    assert_eq!(
        (told.status, told.text.as_str()),
        (StatusCode::TOO_MANY_REQUESTS, checked.text.as_str())
    );
    assert_eq!(told.limits(), checked.limits());
    assert!(told.headers.contains_key("retry-after"));
    assert_eq!(service.reservations().pending(service.engine().now()), 1);
}

#[tokio::test]
async fn tokens_and_a_slot_are_one_reservation() {
    let (app, ..) = app();
    let both = json!({ "domain": "llm", "hits": 400, "descriptors": [{ "user": "42" }, { "calls": "all", "hits": 1 }] });
    let first = ask(&app, "/v1/reserve", both.clone()).await.json();
    assert_eq!(ask(&app, "/v1/reserve", both.clone()).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(left(&app).await, 600, "the second took nothing");
    let used = json!({ "reservation": first["reservation"], "hits": 1 });
    assert_eq!(ask(&app, "/v1/commit", used).await.status, StatusCode::OK);
    assert_eq!(left(&app).await, 999);
    assert_eq!(ask(&app, "/v1/reserve", both).await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_nothing_is_held_of_is_not_counted_however_often_it_is_settled() {
    let (app, service, _) = app();
    let held = reserve(&app, 1).await;
    let nothing = json!({ "domain": "llm", "descriptors": [{ "nobody": "42" }] });
    let told = ask(&app, "/v1/reserve", nothing).await.json();
    assert_eq!(service.reservations().pending(service.engine().now()), 1);
    for _ in 0..2 {
        let settled = json!({ "reservation": told["reservation"], "hits": 1 });
        assert_eq!(ask(&app, "/v1/commit", settled).await.status, StatusCode::OK);
        assert_eq!(
            service.reservations().pending(service.engine().now()),
            1,
            "the other is still there"
        );
    }
    ask(&app, "/v1/cancel", json!({ "reservation": held })).await;
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
}

#[tokio::test]
async fn what_counts_at_once_is_refused_with_a_way_out() {
    let (app, ..) = app();
    let body = json!({ "domain": "llm", "descriptors": [{ "user": "42" }, { "address": "x" }] });
    for path in ["/v1/reserve", "/v1/wait"] {
        let told = ask(&app, path, body.clone()).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST);
        let error = &told.json()["error"];
        assert_eq!(error["context"]["field"], "descriptors[1]");
        assert!(error["message"].as_str().unwrap().contains("write it with `limits`"), "{error}");
    }
    assert_eq!(left(&app).await, 1_000);
}

#[tokio::test]
async fn where_nothing_is_enforced_a_reservation_is_settled_too() {
    let (engine, _) = engine_of(RULES);
    let health = Health::default();
    health.rules_loaded(1);
    let options = RlsOptions { shadow_mode: true, ..RlsOptions::default() };
    let service = App::builder(engine).options(options).health(health).build();
    let app = router(service.clone(), Options::default());
    reserve(&app, 900).await;
    let name = reserve(&app, 900).await;
    assert_eq!(
        service.reservations().pending(service.engine().now()),
        1,
        "the second is a name only"
    );
    let told = ask(&app, "/v1/commit", json!({ "reservation": name, "hits": 5 })).await;
    assert_eq!((told.status, &told.json()["returned"]), (StatusCode::OK, &json!(0)));
}

#[tokio::test]
async fn what_cannot_be_read_is_told_where() {
    let (app, ..) = app();
    let name = reserve(&app, 1).await;
    let cases = [
        ("/v1/reserve", json!({ "domain": "llm" }), "`descriptors` is missing"),
        (
            "/v1/reserve",
            json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "ttl_ms": 0 }),
            "must be from 1 to 86400000 milliseconds, got `0`",
        ),
        (
            "/v1/reserve",
            json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "tll_ms": 1 }),
            "did you mean `ttl_ms`?",
        ),
        (
            "/v1/wait",
            json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "timeout_ms": 600_001 }),
            "must be from 0 to 600000 milliseconds",
        ),
        (
            "/v1/wait",
            json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "timeout_ms": -1 }),
            "must be from 0 to 600000 milliseconds, got `-1`",
        ),
        ("/v1/commit", json!({ "hits": 3 }), "`reservation` is missing"),
        ("/v1/commit", json!({ "reservation": name }), "`hits` is missing"),
        ("/v1/cancel", json!({ "reservation": "x".repeat(8_193) }), "has 8193 bytes"),
        ("/v1/cancel", json!({ "reservation": name, "hits": 3 }), "unknown field `hits`"),
        ("/v1/cancel", json!([]), "an object such as"),
    ];
    for (path, body, due) in cases {
        let told = ask(&app, path, body.clone()).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{path} {body}");
        let message = told.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(due), "{path} {body}: {message}");
    }
    assert_eq!(left(&app).await, 999);
}

#[tokio::test]
async fn a_time_that_is_none_is_told_as_it_was_sent() {
    let (app, ..) = app();
    let cases = [
        (json!(-1), "got `-1`"),
        (json!(0), "got `0`"),
        (json!(1.5), "got `1.5`"),
        (json!("60000"), "got `60000` in quotes; leave them out"),
        (json!(null), "got `null`"),
        (json!(1_u64 << 60), "got `1152921504606846976`"),
        (json!(1e30), "got `1000000000000000000000000000000`"),
    ];
    for (ttl_ms, told) in cases {
        let body = json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "ttl_ms": ttl_ms });
        let answer = ask(&app, "/v1/reserve", body).await.json();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("must be from 1 to 86400000 milliseconds, "), "{message}");
        assert!(message.contains(told), "{message}");
    }
}

#[tokio::test]
async fn a_name_has_a_bound() {
    let (app, service, _) = app();
    let long = "x".repeat(4_000);
    let body = json!({ "domain": "llm", "descriptors": [{ "user": long }, { "user": long }] });
    let told = ask(&app, "/v1/reserve", body).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert!(told.text.contains("8192 is the limit"), "{}", told.text);
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
}

// === waiting ===

fn paced(timeout_ms: u64) -> Value {
    json!({ "domain": "llm", "descriptors": [{ "paced": "x" }], "timeout_ms": timeout_ms })
}

#[tokio::test]
async fn a_turn_is_waited_for() {
    let (app, service, clock) = app();
    let first = ask(&app, "/v1/wait", paced(0)).await;
    assert_eq!((first.status, &first.json()["waited_ms"]), (StatusCode::OK, &json!(0)));
    let waiting = {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, "/v1/wait", paced(5_000)).await })
    };
    until(|| clock.sleepers() == 1).await;
    assert_eq!(service.reservations().waiting(), 1);
    clock.advance(Duration::from_secs(1));
    let told = waiting.await.unwrap();
    assert_eq!((told.status, &told.json()["waited_ms"]), (StatusCode::OK, &json!(1_000)));
    assert!(told.json().get("reservation").is_none());
    assert_eq!(service.reservations().waiting(), 0);
}

#[tokio::test]
async fn too_long_a_wait_is_denied_at_once() {
    let (app, _, clock) = app();
    ask(&app, "/v1/wait", paced(0)).await;
    let told = ask(&app, "/v1/wait", paced(999)).await;
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(clock.sleepers(), 0);
    assert_eq!(told.json()["allowed"], false);
}

#[tokio::test]
async fn a_slot_that_was_waited_for_is_given_back_by_name() {
    let (app, ..) = app();
    let call = json!({ "domain": "llm", "descriptors": [{ "calls": "all" }], "timeout_ms": 5_000 });
    let first = ask(&app, "/v1/wait", call.clone()).await.json();
    let waiting = {
        let (app, call) = (app.clone(), call.clone());
        tokio::spawn(async move { ask(&app, "/v1/wait", call).await })
    };
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let freed = ask(&app, "/v1/cancel", json!({ "reservation": first["reservation"] })).await;
    assert_eq!((freed.status, &freed.json()["returned"]), (StatusCode::OK, &json!(1)));
    let second = waiting.await.unwrap();
    assert_eq!(second.status, StatusCode::OK);
    let freed = json!({ "reservation": second.json()["reservation"], "hits": 1 });
    assert_eq!(ask(&app, "/v1/commit", freed).await.status, StatusCode::OK, "commit does as well");
    let third = ask(&app, "/v1/wait", call).await;
    assert_eq!(third.status, StatusCode::OK);
}

#[tokio::test]
async fn whoever_goes_gives_its_turn_back() {
    let (app, service, clock) = app();
    ask(&app, "/v1/wait", paced(0)).await;
    let waiting = {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, "/v1/wait", paced(5_000)).await })
    };
    until(|| clock.sleepers() == 1).await;
    waiting.abort();
    assert!(waiting.await.is_err());
    assert_eq!(service.reservations().waiting(), 0);
    clock.advance(Duration::from_secs(1));
    let next = ask(&app, "/v1/wait", paced(0)).await;
    assert_eq!(next.status, StatusCode::OK, "nobody has taken the turn");
}

#[tokio::test]
async fn who_waits_when_the_service_ends_is_sent_elsewhere() {
    let (app, service, clock) = app();
    ask(&app, "/v1/wait", paced(0)).await;
    let waiting = {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, "/v1/wait", paced(5_000)).await })
    };
    until(|| clock.sleepers() == 1).await;
    service.health().drain();
    let told = waiting.await.unwrap();
    assert_eq!(
        (told.status, code(&told).as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "shutting_down")
    );
    assert_eq!(told.headers["retry-after"], "1");
}

/// Lets everybody else go on until it is so.
async fn until(so: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never is");
}

// === asking twice ===

#[tokio::test]
async fn under_one_key_nothing_is_charged_twice() {
    let (app, _, clock) = app();
    let first = ask_as(&app, "retry-1", "/v1/check", &tokens(10)).await;
    assert!(!first.headers.contains_key("idempotent-replayed"));
    clock.advance(Duration::from_secs(599));
    let again = ask_as(&app, "retry-1", "/v1/check", &tokens(10)).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.limits(), first.limits());
    ask_as(&app, "retry-2", "/v1/check", &tokens(10)).await;
    let told = ask(&app, "/v1/keys/inspect", tokens(0)).await;
    assert_eq!(told.status, StatusCode::FORBIDDEN);
    assert_eq!(left(&app).await, 986, "20 less, and 6 came back in ten minutes");
}

#[tokio::test]
async fn a_key_is_for_one_request_at_one_door() {
    let (app, ..) = app();
    ask_as(&app, "k", "/v1/check", &tokens(10)).await;
    let other = ask_as(&app, "k", "/v1/check", &tokens(11)).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(code(&other), "idempotency_key_reused");
    let refunded = ask_as(&app, "k", "/v1/refund", &tokens(10)).await;
    assert_eq!(refunded.status, StatusCode::OK, "another endpoint is another matter");
    ask_as(&app, "k", "/v1/refund", &tokens(10)).await;
    assert_eq!(left(&app).await, 1_000);
}

#[tokio::test]
async fn a_denial_is_not_for_ever() {
    let (app, _, clock) = app();
    reserve(&app, 1_000).await;
    let denied = ask_as(&app, "k", "/v1/check", &tokens(1)).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    clock.advance(Duration::from_secs(60));
    assert_eq!(ask_as(&app, "k", "/v1/check", &tokens(1)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn reservations_and_their_ends_are_kept_too() {
    let (app, ..) = app();
    let first = ask_as(&app, "r", "/v1/reserve", &tokens(400)).await.json();
    let again = ask_as(&app, "r", "/v1/reserve", &tokens(400)).await.json();
    assert_eq!(first, again);
    let body = json!({ "reservation": first["reservation"], "hits": 100 });
    for _ in 0..2 {
        let told = ask_as(&app, "c", "/v1/commit", &body).await;
        assert_eq!((told.status, &told.json()["returned"]), (StatusCode::OK, &json!(300)));
    }
    let waited = ask_as(&app, "w", "/v1/wait", &paced(0)).await;
    let again = ask_as(&app, "w", "/v1/wait", &paced(0)).await;
    assert_eq!((waited.status, again.status), (StatusCode::OK, StatusCode::OK));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(left(&app).await, 900);
}

#[tokio::test]
async fn who_asks_again_while_the_first_still_waits_takes_no_second_turn() {
    let (app, service, clock) = app();
    ask(&app, "/v1/wait", paced(0)).await;
    let wait = || {
        let app = app.clone();
        tokio::spawn(async move { ask_as(&app, "k", "/v1/wait", &paced(5_000)).await })
    };
    let first = wait();
    until(|| clock.sleepers() == 1).await;
    let second = ask_as(&app, "k", "/v1/wait", &paced(5_000)).await;
    let told = (second.status, code(&second));
    assert_eq!(told, (StatusCode::CONFLICT, "idempotency_key_in_use".to_owned()));
    assert_eq!(service.reservations().waiting(), 1);
    // Whoever goes leaves the key to whoever comes.
    first.abort();
    assert!(first.await.is_err());
    let third = wait();
    until(|| clock.sleepers() == 1).await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(third.await.unwrap().status, StatusCode::OK);
    let again = ask_as(&app, "k", "/v1/wait", &paced(5_000)).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
}

#[tokio::test]
async fn a_key_has_a_bound() {
    let (app, ..) = app();
    for key in ["", &"k".repeat(256)] {
        let told = ask_as(&app, key, "/v1/check", &tokens(10)).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{key:?}");
        assert!(told.text.contains("must have 1 to 255"), "{}", told.text);
    }
    assert_eq!(left(&app).await, 1_000);
}
