//! Who may do what: give back what was charged, and guess the operator's token.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_support::{Told, asking, engine, post, send};
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate_server::admin;
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{KeysAccess, Options, router};
use sluicegate_server::rls::handler::Scratch;
use sluicegate_server::rls::json;
use sluicegate_server::rls::{Options as RlsOptions, RefundPolicy};
use sluicegate_server::telemetry::{Endpoint, Event};
use sluicegate_server::token::Token;

const SECRET: &str = "open sesame";

/// A service on an address that others reach, with a token for operators.
fn remote(refunds: RefundPolicy) -> (Router, App, ManualClock) {
    let (engine, clock) = engine();
    let health = Health::default();
    health.rules_loaded(1);
    let service = App::builder(engine)
        .options(RlsOptions { refunds, ..RlsOptions::default() })
        .health(health)
        .build();
    let keys = KeysAccess::Token(Token::new(SECRET).unwrap());
    (router(service.clone(), Options { keys, ..Options::default() }), service, clock)
}

async fn post_with(app: &Router, path: &str, headers: &[(&str, &str)], body: String) -> Told {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(app, request.body(Body::from(body)).unwrap()).await
}

fn team(hits: u64) -> String {
    asking("team", "a").replace("}]}", &format!(r#"}}],"hits":{hits}}}"#))
}

async fn left(app: &Router) -> Value {
    post(app, "/v1/peek", team(0)).await.json()["statuses"][0]["remaining"].clone()
}

fn outcome(told: &Told) -> (u16, String) {
    let code = told.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    (told.status.as_u16(), code)
}

// === refunds over HTTP ===

#[tokio::test]
async fn a_refund_without_proof_is_refused() {
    let (app, ..) = remote(RefundPolicy::Proven);
    post(&app, "/v1/check", team(2)).await;
    let unproven = (403, "refund_unproven".to_owned());
    let all = post(&app, "/v1/refund", team(1 << 53)).await;
    assert_eq!(outcome(&all), unproven);
    // A key that no check has, that of a check with another body, and that of a list.
    let some = post_with(&app, "/v1/refund", &[("Idempotency-Key", "k")], team(2)).await;
    assert_eq!(outcome(&some), unproven);
    post_with(&app, "/v1/check", &[("Idempotency-Key", "k")], team(1)).await;
    let more = post_with(&app, "/v1/refund", &[("Idempotency-Key", "k")], team(3)).await;
    assert_eq!(outcome(&more), unproven);
    let list = format!(r#"{{"checks":[{}]}}"#, asking("user", "1"));
    post_with(&app, "/v1/check", &[("Idempotency-Key", "l")], list.clone()).await;
    let listed = post_with(&app, "/v1/refund", &[("Idempotency-Key", "l")], list).await;
    assert_eq!(outcome(&listed), unproven);
    assert_eq!(left(&app).await, 0);
}

#[tokio::test]
async fn a_charge_is_given_back_once() {
    let (app, ..) = remote(RefundPolicy::Proven);
    let key = [("Idempotency-Key", "0b5f7c1e")];
    post(&app, "/v1/check", team(1)).await;
    let charged = post_with(&app, "/v1/check", &key, team(2)).await;
    assert_eq!((charged.status, left(&app).await), (StatusCode::OK, json!(0)));
    for again in [false, true] {
        let told = post_with(&app, "/v1/refund", &key, team(2)).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text);
        assert_eq!(told.headers.contains_key("idempotent-replayed"), again);
        assert_eq!(left(&app).await, 2);
    }
    assert_eq!(post_with(&app, "/v1/check", &key, team(2)).await.status, StatusCode::OK);
    assert_eq!(left(&app).await, 0, "a check that was given back is charged again");
}

#[tokio::test]
async fn a_rule_that_was_not_charged_gets_nothing_back() {
    let (app, ..) = remote(RefundPolicy::Proven);
    let watched = || asking("watched", "a");
    post(&app, "/v1/check", watched()).await;
    let key = [("Idempotency-Key", "w")];
    assert_eq!(post_with(&app, "/v1/check", &key, watched()).await.status, StatusCode::OK);
    let told = post_with(&app, "/v1/refund", &key, watched()).await;
    assert_eq!(outcome(&told), (403, "refund_unproven".to_owned()));
}

#[tokio::test]
async fn operators_give_back_as_they_like() {
    for policy in [RefundPolicy::Proven, RefundPolicy::Operators] {
        let (app, ..) = remote(policy);
        post(&app, "/v1/check", team(3)).await;
        let token = [("Authorization", "Bearer open sesame")];
        let told = post_with(&app, "/v1/refund", &token, team(1 << 53)).await;
        assert_eq!((told.status, left(&app).await), (StatusCode::OK, json!(3)));
        let wrong = [("Authorization", "Bearer sesame")];
        let told = post_with(&app, "/v1/refund", &wrong, team(1)).await;
        assert_eq!(outcome(&told), (401, "unauthorized".to_owned()));
    }
    let (app, ..) = remote(RefundPolicy::Operators);
    let key = [("Idempotency-Key", "k")];
    post_with(&app, "/v1/check", &key, team(1)).await;
    let told = post_with(&app, "/v1/refund", &key, team(1)).await;
    assert_eq!(outcome(&told), (401, "unauthorized".to_owned()));
    let (app, ..) = remote(RefundPolicy::Open);
    post(&app, "/v1/check", team(3)).await;
    post(&app, "/v1/refund", team(1)).await;
    assert_eq!(left(&app).await, 1);
}

// === negative hits ===

fn negative(hits: u64) -> String {
    json!({ "domain": "shop", "descriptors": [{
        "entries": [{ "key": "team", "value": "a" }], "hitsAddend": hits, "isNegativeHits": true,
    }] })
    .to_string()
}

#[tokio::test]
async fn negative_hits_of_a_proxy_have_a_bound() {
    let most = 1_000_000_000;
    for (policy, hits, is_ok) in [
        (RefundPolicy::Proven, most, true),
        (RefundPolicy::Proven, most + 1, false),
        (RefundPolicy::Operators, 1, false),
        (RefundPolicy::Open, 1 << 53, true),
    ] {
        let (app, service, _) = remote(policy);
        post(&app, "/v1/check", team(3)).await;
        let bytes = json::request(negative(hits).as_bytes()).unwrap();
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        let answered =
            service.answer(Endpoint::ShouldRateLimit, &bytes, &mut scratch, &mut out).await;
        assert_eq!(answered.is_ok(), is_ok, "{policy:?} {hits}");
        assert_eq!(left(&app).await, if is_ok { 3 } else { 0 }, "{policy:?} {hits}");
    }
}

#[tokio::test]
async fn negative_hits_over_json_are_for_operators() {
    let (app, ..) = remote(RefundPolicy::Proven);
    post(&app, "/v1/check", team(3)).await;
    assert_eq!(post(&app, "/json", negative(1)).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(left(&app).await, 0);
    let token = [("Authorization", "Bearer open sesame")];
    assert_eq!(post_with(&app, "/json", &token, negative(1)).await.status, StatusCode::OK);
    assert_eq!(left(&app).await, 1);
}

// === the operator's token ===

#[tokio::test]
async fn guesses_of_the_token_are_bounded() {
    let (app, service, clock) = remote(RefundPolicy::Proven);
    let config = json!({});
    let options = admin::Options {
        token: Some(Token::new(SECRET).unwrap()),
        config,
        ..admin::Options::default()
    };
    let operators = admin::router(service.clone(), options);
    let keys = |secret: &str| {
        let request =
            Request::post("/v1/keys/inspect").header("Authorization", format!("Bearer {secret}"));
        request.body(Body::from(team(1))).unwrap()
    };
    let page = |secret: &str| {
        let request = Request::get("/config").header("Authorization", format!("Bearer {secret}"));
        request.body(Body::empty()).unwrap()
    };
    for _ in 0..5 {
        assert_eq!(send(&app, keys("sesame")).await.status, StatusCode::UNAUTHORIZED);
        assert_eq!(send(&operators, page("sesame")).await.status, StatusCode::UNAUTHORIZED);
    }
    for told in [send(&app, keys(SECRET)).await, send(&operators, page(SECRET)).await] {
        assert_eq!(outcome(&told), (429, "too_many_failures".to_owned()));
        assert_eq!(told.headers["retry-after"], "1");
    }
    // Who shows none guesses nothing.
    assert_eq!(post(&app, "/v1/keys/inspect", team(1)).await.status, StatusCode::UNAUTHORIZED);
    clock.advance(Duration::from_secs(1));
    assert_eq!(send(&app, keys(SECRET)).await.status, StatusCode::OK);
    assert_eq!(send(&operators, page(SECRET)).await.status, StatusCode::OK);
    let telemetry = service.telemetry();
    let counted = [Event::HttpAuthFailed, Event::AdminAuthFailed];
    assert_eq!(counted.map(|what| telemetry.count(what)), [6, 6]);
}
