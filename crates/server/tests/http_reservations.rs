//! Reservations that wait, are renewed and are committed in parts; slots that a check takes.

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
use sluicegate_server::http::{KeysAccess, Options, router};
use sluicegate_server::reservations::Reservations;

const RULES: &str = "
domain: llm
descriptors:
  - key: tokens
    limits: { name: tokens, algorithm: fixed_window, rate: 1000/m }
  - key: day
    limits: { name: day, algorithm: fixed_window, rate: 1000/day }
  - key: calls
    limits: { name: calls, algorithm: concurrency, max: 2, lease: 60s }
";

fn app() -> (Router, App, ManualClock) {
    let (engine, clock) = engine_of(RULES);
    let service = App::new(engine);
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    (router(service.clone(), options), service, clock)
}

async fn ask(app: &Router, path: &str, body: &Value) -> Told {
    post(app, path, body.to_string()).await
}

fn of(descriptors: Value, hits: u64) -> Value {
    json!({ "domain": "llm", "descriptors": descriptors, "hits": hits })
}

async fn left(app: &Router, descriptors: Value) -> i64 {
    let told = ask(app, "/v1/peek", &of(descriptors, 0)).await.json();
    told["statuses"][0]["remaining"].as_i64().unwrap()
}

fn token(told: &Told) -> Value {
    let token = told.json()["reservation"].clone();
    assert!(token.is_string(), "{}", told.text);
    token
}

fn code(told: &Told) -> (StatusCode, String) {
    (told.status, told.json()["error"]["code"].as_str().unwrap().to_owned())
}

fn settled() -> (StatusCode, String) {
    (StatusCode::GONE, "settled_reservation".to_owned())
}

#[tokio::test]
async fn what_was_waited_for_is_settled() {
    let (app, service, clock) = app();
    assert_eq!(ask(&app, "/v1/check", &of(json!([{ "tokens": "a" }]), 800)).await.status, 200);
    let mut body = of(json!([{ "tokens": "a" }]), 800);
    assert_eq!(ask(&app, "/v1/reserve", &body).await.status, 429, "by default it does not wait");
    body["timeout_ms"] = json!(1_000);
    assert_eq!(ask(&app, "/v1/reserve", &body).await.status, 429, "40 seconds are too long");
    assert_eq!(service.reservations().pending(service.engine().now()), 0);

    body["timeout_ms"] = json!(60_000);
    let waiting = tokio::spawn({
        let (app, body) = (app.clone(), body.clone());
        async move { ask(&app, "/v1/reserve", &body).await }
    });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.reservations().waiting(), 1);
    clock.advance(Duration::from_secs(40));
    let told = waiting.await.unwrap();
    assert_eq!(told.status, StatusCode::OK, "{}", told.text);
    assert_eq!(
        (&told.json()["waited_ms"], &told.json()["expires_after_ms"]),
        (&json!(40_000), &json!(60_000))
    );
    assert_eq!(service.reservations().pending(service.engine().now()), 1);
    let commit = json!({ "reservation": token(&told), "hits": 250 });
    let told = ask(&app, "/v1/commit", &commit).await;
    assert_eq!((told.status, &told.json()["returned"]), (StatusCode::OK, &json!(550)));
    assert_eq!(left(&app, json!([{ "tokens": "a" }])).await, 750);
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
    assert_eq!(code(&ask(&app, "/v1/commit", &commit).await), settled());
}

#[tokio::test]
async fn a_client_that_goes_while_it_waits_reserves_nothing() {
    let (app, service, clock) = app();
    assert_eq!(ask(&app, "/v1/check", &of(json!([{ "tokens": "a" }]), 800)).await.status, 200);
    let mut body = of(json!([{ "tokens": "a" }]), 800);
    body["timeout_ms"] = json!(60_000);
    let waiting = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, "/v1/reserve", &body).await }
    });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.is_err());
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
    clock.advance(Duration::from_secs(40));
    assert_eq!(left(&app, json!([{ "tokens": "a" }])).await, 1_000);
}

#[tokio::test]
async fn a_long_stream_renews_and_commits_in_parts() {
    let (app, service, clock) = app();
    let all = json!([{ "day": "a" }, { "calls": "a", "hits": 1 }]);
    let token = token(&ask(&app, "/v1/reserve", &of(all, 400)).await);
    let part = |hits| json!({ "reservation": token, "hits": hits, "partial": true });
    for (hits, held) in [(100, 300), (50, 250)] {
        clock.advance(Duration::from_secs(50));
        let renew = json!({ "reservation": token, "ttl_ms": 55_000 });
        let told = ask(&app, "/v1/renew", &renew).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text);
        assert_eq!(told.text, r#"{"expires_after_ms":55000}"#);
        let told = ask(&app, "/v1/commit", &part(hits)).await;
        assert_eq!((told.status, &told.json()["held"]), (StatusCode::OK, &json!(held)));
        assert_eq!(left(&app, json!([{ "calls": "a" }])).await, 1, "the slot stays held");
        assert_eq!(service.reservations().pending(service.engine().now()), 1);
    }
    let told = ask(&app, "/v1/commit", &json!({ "reservation": token, "hits": 20 })).await;
    assert_eq!((told.status, &told.json()["returned"]), (StatusCode::OK, &json!(230)));
    assert_eq!(left(&app, json!([{ "day": "a" }])).await, 830);
    assert_eq!(left(&app, json!([{ "calls": "a" }])).await, 2);
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
    assert_eq!(code(&ask(&app, "/v1/commit", &part(1)).await), settled());
    let renew = json!({ "reservation": token, "ttl_ms": 1_000 });
    assert_eq!(code(&ask(&app, "/v1/renew", &renew).await), settled());
}

#[tokio::test]
async fn what_is_not_renewed_expires() {
    let (app, service, clock) = app();
    let mut body = of(json!([{ "day": "a" }]), 400);
    body["ttl_ms"] = json!(1_000);
    let token = token(&ask(&app, "/v1/reserve", &body).await);
    let renew = json!({ "reservation": token, "ttl_ms": 2_000 });
    assert_eq!(ask(&app, "/v1/renew", &renew).await.status, StatusCode::OK);
    clock.advance(Duration::from_millis(1_999));
    assert_eq!(left(&app, json!([{ "day": "a" }])).await, 600);
    assert_eq!(service.reservations().pending(service.engine().now()), 1);
    clock.advance(Duration::from_millis(1));
    assert_eq!(left(&app, json!([{ "day": "a" }])).await, 1_000);
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
    let told = ask(&app, "/v1/renew", &renew).await;
    assert_eq!(code(&told), settled());
    assert_eq!(told.json()["error"]["context"]["reason"], "expired", "{}", told.text);
    // Late, a part is charged all the same.
    let part = json!({ "reservation": renew["reservation"], "hits": 30, "partial": true });
    assert_eq!(ask(&app, "/v1/commit", &part).await.json()["held"], 0);
    assert_eq!(left(&app, json!([{ "day": "a" }])).await, 970);
}

#[tokio::test]
async fn renewals_are_counted_within_the_bound() {
    let (engine, clock) = engine_of(RULES);
    let service = App::builder(engine).reservations(Reservations::new(2, 10)).build();
    let app = router(service.clone(), Options::default());
    let mut tokens = Vec::new();
    // Four, of which the last two are brief.
    for user in ["a", "b", "c", "d"] {
        let mut body = of(json!([{ "day": user }]), 10);
        body["ttl_ms"] = json!(1_000);
        tokens.push(token(&ask(&app, "/v1/reserve", &body).await));
        if user == "b" {
            clock.advance(Duration::from_secs(1));
        }
    }
    for token in &tokens[2..] {
        let renew = json!({ "reservation": token, "ttl_ms": 5_000 });
        assert_eq!(ask(&app, "/v1/renew", &renew).await.status, StatusCode::OK);
    }
    clock.advance(Duration::from_secs(4));
    assert_eq!(service.reservations().pending(service.engine().now()), 2);
    let full = ask(&app, "/v1/reserve", &of(json!([{ "day": "e" }]), 1)).await;
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);
    let commit = json!({ "reservation": tokens[2], "hits": 3 });
    assert_eq!(ask(&app, "/v1/commit", &commit).await.json()["returned"], 7);
    assert_eq!(service.reservations().pending(service.engine().now()), 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
}

#[tokio::test]
async fn a_token_that_was_never_issued_is_unknown() {
    let (app, ..) = app();
    let issued = token(&ask(&app, "/v1/reserve", &of(json!([{ "day": "a" }]), 1)).await);
    let issued = issued.as_str().unwrap();
    let cut = &issued[..issued.len() - 3];
    let mistyped = issued.replace(&issued[5..6], if &issued[5..6] == "x" { "y" } else { "x" });
    for name in ["nonsense", "", cut, &mistyped] {
        for (path, more) in [
            ("/v1/commit", json!({ "hits": 1 })),
            ("/v1/commit", json!({ "hits": 1, "partial": true })),
            ("/v1/renew", json!({ "ttl_ms": 1 })),
            ("/v1/cancel", json!({})),
        ] {
            let mut body = more;
            body["reservation"] = json!(name);
            let told = ask(&app, path, &body).await;
            let unknown = (StatusCode::NOT_FOUND, "unknown_reservation".to_owned());
            assert_eq!(code(&told), unknown, "{path} {name}: {}", told.text);
        }
    }
}

#[tokio::test]
async fn what_is_malformed_is_named() {
    let (app, ..) = app();
    let issued = token(&ask(&app, "/v1/reserve", &of(json!([{ "day": "a" }]), 1)).await);
    for (path, body, due) in [
        ("/v1/renew", json!({ "reservation": issued }), "`ttl_ms` is missing"),
        ("/v1/renew", json!({ "reservation": issued, "ttl_ms": 0 }), "from 1 to 86400000"),
        ("/v1/renew", json!({ "reservation": issued, "hits": 1 }), "known are reservation, ttl_ms"),
        ("/v1/commit", json!({ "reservation": issued, "hits": 1, "partial": 1 }), "`partial`"),
        (
            "/v1/cancel",
            json!({ "reservation": issued, "partial": true }),
            "unknown field `partial`",
        ),
        ("/v1/reserve", json!({ "timeout_ms": 600_001 }), "from 0 to 600000"),
        ("/v1/reserve", json!({ "timeout_m": 1 }), "did you mean `timeout_ms`?"),
    ] {
        let told = ask(&app, path, &body).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{path} {body}");
        assert!(told.text.contains(due), "{path} {body}: {}", told.text);
    }
}

#[tokio::test]
async fn a_check_returns_the_slot_that_it_takes() {
    let (app, ..) = app();
    let calls = of(json!([{ "calls": "a" }]), 1);
    let first = token(&ask(&app, "/v1/check", &calls).await);
    let batch = json!({ "checks": [calls, of(json!([{ "day": "a" }]), 1), calls] });
    let told = ask(&app, "/v1/check", &batch).await.json();
    assert!(told["answers"][0]["reservation"].is_string(), "{told}");
    assert!(told["answers"][1]["reservation"].is_null(), "nothing to release");
    assert!(told["answers"][2]["reservation"].is_null(), "denied");
    assert_eq!(ask(&app, "/v1/check", &calls).await.status, 429);
    let cancel = json!({ "reservation": first });
    assert_eq!(ask(&app, "/v1/cancel", &cancel).await.json()["returned"], 1);
    assert_eq!(code(&ask(&app, "/v1/cancel", &cancel).await), settled());
    assert_eq!(left(&app, json!([{ "calls": "a" }])).await, 1);
    // Renewed, it outlives its lease.
    let second = told["answers"][0]["reservation"].clone();
    let renew = json!({ "reservation": second, "ttl_ms": 600_000 });
    assert_eq!(ask(&app, "/v1/renew", &renew).await.json()["expires_after_ms"], 60_000);
}

#[tokio::test]
async fn a_slot_is_not_refunded_in_vain() {
    let (app, ..) = app();
    let both = of(json!([{ "day": "a" }, { "calls": "a" }]), 1);
    let held = token(&ask(&app, "/v1/check", &both).await);
    for path in ["/v1/refund", "/v1/keys/credit"] {
        let told = ask(&app, path, &both).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{path}");
        let error = &told.json()["error"];
        assert_eq!(error["context"]["field"], "descriptors[1]", "{path}");
        assert!(error["message"].as_str().unwrap().contains("/v1/cancel"), "{}", told.text);
    }
    assert_eq!(left(&app, json!([{ "day": "a" }])).await, 999, "nothing was refunded");
    // Its hits were charged: a commit of other hits would not be honoured.
    let told = ask(&app, "/v1/commit", &json!({ "reservation": held, "hits": 0 })).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert!(told.text.contains("cancel it to release the slot"), "{}", told.text);
    assert_eq!(left(&app, json!([{ "calls": "a" }])).await, 1);
    assert_eq!(ask(&app, "/v1/cancel", &json!({ "reservation": held })).await.status, 200);
    assert_eq!(left(&app, json!([{ "calls": "a" }])).await, 2);
}

#[tokio::test]
async fn an_operator_credits_hits() {
    let (app, ..) = app();
    let day = |hits| of(json!([{ "day": "a" }]), hits);
    ask(&app, "/v1/check", &day(1_000)).await;
    let credit = |key: &str| {
        let request = Request::post("/v1/keys/credit").header("Idempotency-Key", key);
        send(&app, request.body(Body::from(day(300).to_string())).unwrap())
    };
    for _ in 0..2 {
        let told = credit("top-up-1").await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text);
        assert_eq!(told.json()["statuses"][0]["remaining"], 300);
    }
    assert_eq!(credit("top-up-2").await.json()["statuses"][0]["remaining"], 600);
    let told = ask(&app, "/v1/keys/credit", &day(5_000)).await.json();
    assert_eq!(told["statuses"][0]["remaining"], 1_000, "at most until it is full");

    let (engine, _) = engine_of(RULES);
    let closed = router(App::new(engine), Options::default());
    assert_eq!(ask(&closed, "/v1/keys/credit", &day(1)).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_denial_says_how_many_run_and_estimates_the_wait() {
    let (app, _, clock) = app();
    let calls = of(json!([{ "calls": "a" }]), 1);
    for _ in 0..2 {
        ask(&app, "/v1/check", &calls).await;
    }
    let told = ask(&app, "/v1/check", &calls).await;
    assert_eq!(told.headers["retry-after"], "60", "nothing was observed: the end of the lease");
    let message = told.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "2 of 2 concurrent requests are running. Wait until one ends, expected within 1 minute, and try again."
    );

    let others = of(json!([{ "calls": "b" }]), 1);
    let first = token(&ask(&app, "/v1/check", &others).await);
    clock.advance(Duration::from_secs(8));
    ask(&app, "/v1/cancel", &json!({ "reservation": first })).await;
    for _ in 0..2 {
        ask(&app, "/v1/check", &others).await;
    }
    clock.advance(Duration::from_secs(3));
    for path in ["/v1/check", "/v1/reserve"] {
        let told = ask(&app, path, &others).await;
        assert_eq!(told.headers["retry-after"], "5", "8 seconds on average, 3 are over");
        assert_eq!(told.json()["statuses"][0]["retry_after_ms"], 5_000);
    }
    clock.advance(Duration::from_secs(15));
    for path in ["/v1/check", "/v1/peek"] {
        let response = ask(&app, path, &others).await.json();
        let status = &response["statuses"][0];
        assert_eq!(status["retry_after_ms"], 10_000, "as long again as it is overdue");
        assert_eq!(status["estimated"], true);
    }
    let denied = ask(&app, "/v1/check", &others).await.json();
    assert_eq!(denied["error"]["context"]["estimated"], true);
    let explained = ask(&app, "/v1/explain", &others).await.json();
    let now = &explained["descriptors"][0]["under"]["now"];
    assert_eq!((&now["retry_after_ms"], &now["estimated"]), (&json!(10_000), &json!(true)));
    assert_eq!(now["in_words"], "denied: 0 left, and `calls` lets it pass after about 10s");
    let keys = ask(&app, "/v1/keys/inspect", &others).await.json();
    let limit = &keys["keys"][0]["limits"][0];
    assert_eq!((&limit["retry_after_ms"], &limit["estimated"]), (&json!(10_000), &json!(true)));
    clock.advance(Duration::from_secs(35));
    assert_eq!(ask(&app, "/v1/check", &others).await.headers["retry-after"], "7", "the lease ends");
    clock.advance(Duration::from_secs(6));
    assert_eq!(ask(&app, "/v1/check", &others).await.headers["retry-after"], "1");
}

#[tokio::test]
async fn brief_holds_are_not_polled_for() {
    let (app, _, clock) = app();
    let calls = of(json!([{ "calls": "a" }]), 1);
    let body = json!({ "domain": "llm", "descriptors": [{ "calls": "a" }], "ttl_ms": 30_000 });
    let first = token(&ask(&app, "/v1/reserve", &body).await);
    clock.advance(Duration::from_millis(6));
    ask(&app, "/v1/cancel", &json!({ "reservation": first })).await;
    for _ in 0..2 {
        ask(&app, "/v1/reserve", &body).await;
    }
    let wait = async || {
        ask(&app, "/v1/peek", &calls).await.json()["statuses"][0]["retry_after_ms"].clone()
    };
    assert_eq!(wait().await, 100, "at least, and a lifetime below the lease is no age");
    clock.advance(Duration::from_secs(10));
    assert_eq!(wait().await, 9_994);
}

#[tokio::test]
async fn a_credit_says_whether_the_key_may_go_on() {
    let (app, ..) = app();
    let reserved = ask(&app, "/v1/reserve", &of(json!([{ "day": "a" }]), 900)).await;
    let commit = json!({ "reservation": token(&reserved), "hits": 1_300 });
    ask(&app, "/v1/commit", &commit).await;
    for (path, left, allowed) in [
        ("/v1/keys/credit", -200, false),
        ("/v1/refund", -100, false),
        ("/v1/keys/credit", 0, false),
        ("/v1/keys/credit", 100, true),
    ] {
        let answer = ask(&app, path, &of(json!([{ "day": "a" }]), 100)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let (answer, checked) = (answer.json(), of(json!([{ "day": "a" }]), 1));
        assert_eq!(
            (&answer["allowed"], &answer["statuses"][0]["remaining"]),
            (&json!(allowed), &json!(left))
        );
        assert_eq!(answer["statuses"][0]["retry_after_ms"].is_null(), allowed, "{answer}");
        let peeked = ask(&app, "/v1/peek", &checked).await.json();
        assert_eq!(peeked["allowed"], allowed, "{peeked}");
    }
}

#[tokio::test]
async fn a_credit_that_no_limit_gets_is_refused() {
    let (app, ..) = app();
    let table = [
        (of(json!([{ "teem": "a" }]), 5), "descriptors[0]", "`teem=a`"),
        (of(json!([{ "day": "a" }, { "x": "y" }]), 5), "descriptors[1]", "`x=y`"),
        (json!({ "domain": "lmm", "descriptors": [{ "day": "a" }], "hits": 5 }), "domain", "`lmm`"),
    ];
    for (body, field, key) in table {
        let answer = ask(&app, "/v1/keys/credit", &body).await;
        assert_eq!(code(&answer), (StatusCode::BAD_REQUEST, "unmatched".to_owned()), "{body}");
        let error = &answer.json()["error"];
        assert_eq!(error["context"]["field"], field, "{error}");
        assert!(error["message"].as_str().unwrap().contains(key), "{error}");
    }
    assert_eq!(left(&app, json!([{ "day": "a" }])).await, 1_000);
}

#[tokio::test]
async fn a_credit_names_its_hits() {
    let (app, ..) = app();
    let one = json!({ "domain": "llm", "descriptors": [{ "day": "a" }] });
    let own = json!({ "domain": "llm", "descriptors": [{ "day": "a", "hits": 3 }] });
    assert_eq!(ask(&app, "/v1/keys/credit", &own).await.status, StatusCode::OK);
    for (body, field) in
        [(one.clone(), "hits"), (json!({ "checks": [own, one] }), "checks[1].hits")]
    {
        let answer = ask(&app, "/v1/keys/credit", &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
        let error = &answer.json()["error"];
        assert_eq!(error["context"]["field"], field);
        assert!(error["message"].as_str().unwrap().contains("send the hits"), "{error}");
    }
    let body = json!({ "domain": "llm", "descriptors": [{ "day": "a" }], "hits": -5 });
    let message = ask(&app, "/v1/keys/credit", &body).await.text;
    assert!(
        message.contains("from 0 on, got `-5`; to give hits back, send a positive number"),
        "{message}"
    );
}

#[tokio::test]
async fn an_error_says_how_a_reservation_was_settled() {
    let (app, service, _) = app();
    let reserve = || async {
        let told = ask(&app, "/v1/reserve", &of(json!([{ "day": "a" }]), 10)).await;
        token(&told)
    };
    let settle = |token: Value, path: &'static str| {
        let app = app.clone();
        async move {
            let mut body = json!({ "reservation": token });
            if path == "/v1/commit" {
                body["hits"] = json!(4);
            }
            ask(&app, path, &body).await
        }
    };
    for (first, reason) in [("/v1/commit", "committed"), ("/v1/cancel", "cancelled")] {
        let token = reserve().await;
        assert_eq!(settle(token.clone(), first).await.status, StatusCode::OK);
        for path in ["/v1/commit", "/v1/cancel"] {
            let again = settle(token.clone(), path).await;
            assert_eq!(code(&again), settled());
            assert_eq!(again.json()["error"]["context"]["reason"], reason, "{first}, {path}");
            assert!(again.text.contains(&format!("was {reason} before")), "{}", again.text);
        }
    }
    // Another node of the same counters does not know.
    let token = reserve().await;
    settle(token.clone(), "/v1/commit").await;
    let other = router(App::new(service.engine().clone()), Options::default());
    let again = ask(&other, "/v1/cancel", &json!({ "reservation": token })).await;
    assert_eq!(code(&again), settled());
    assert_eq!(again.json()["error"]["context"]["reason"], "unknown", "{}", again.text);
}

#[tokio::test]
async fn settling_and_refunding_honour_the_idempotency_key() {
    let (app, ..) = app();
    let told = ask(&app, "/v1/reserve", &of(json!([{ "day": "a" }]), 10)).await;
    let commit = json!({ "reservation": token(&told), "hits": 4 });
    let refund = of(json!([{ "day": "a" }]), 1);
    for (path, body, left_after) in [("/v1/commit", commit, 996), ("/v1/refund", refund, 997)] {
        for is_replay in [false, true] {
            let request = Request::post(path).header("Idempotency-Key", path);
            let request = request.body(Body::from(body.to_string())).unwrap();
            let answer = send(&app, request).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
            assert_eq!(answer.headers.contains_key("idempotent-replayed"), is_replay, "{path}");
            assert_eq!(left(&app, json!([{ "day": "a" }])).await, left_after, "{path}");
        }
    }
}
