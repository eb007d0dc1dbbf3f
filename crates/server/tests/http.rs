//! `/json` and `/healthcheck`, as a script uses them.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use axum::body::{Body, to_bytes};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use sluicegate::{Engine, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{BODY_BYTES_MAX, Options, router};
use tower::ServiceExt;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: users, unit: year, requests_per_unit: 2 } }
  - { key: team, limits: { name: burst, algorithm: token_bucket, rate: 5/s, burst: 9 } }
";

fn app() -> axum::Router {
    router(App::new(Engine::new(rules_of(RULES).unwrap()).unwrap()), Options::default())
}

async fn post(app: &axum::Router, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::builder().method(Method::POST).uri("/json").body(body.into()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn asking(key: &str, value: &str) -> String {
    json!({ "domain": "shop", "descriptors": [{ "entries": [{ "key": key, "value": value }] }] })
        .to_string()
}

#[tokio::test]
async fn a_limit_is_reached() {
    let app = app();
    for (status, code, left) in [(200, "OK", Some(1)), (200, "OK", None), (429, "OVER_LIMIT", None)]
    {
        let (got, body) = post(&app, asking("user", "alice")).await;
        assert_eq!(got.as_u16(), status, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["overallCode"], code);
        let told = &body["statuses"][0];
        let limit = json!({ "name": "users", "requestsPerUnit": 2, "unit": "YEAR" });
        assert_eq!(told["currentLimit"], limit);
        assert_eq!(told.get("limitRemaining"), left.map(Value::from).as_ref());
        assert!(told["durationUntilReset"].as_str().unwrap().ends_with('s'));
    }
}

#[tokio::test]
async fn a_native_limit_is_told_by_its_number_and_unit() {
    let (_, body) = post(&app(), asking("team", "blue")).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let limit = json!({ "name": "burst", "requestsPerUnit": 5, "unit": "SECOND" });
    assert_eq!(body["statuses"][0]["currentLimit"], limit);
    assert_eq!(body["statuses"][0]["limitRemaining"], 8);
}

#[tokio::test]
async fn numbers_units_and_names_are_read_as_protobuf_writes_them() {
    let app = app();
    for limit in [
        json!({ "requestsPerUnit": 7, "unit": "HOUR" }),
        json!({ "requests_per_unit": "7", "unit": 3 }),
    ] {
        let entries = json!([{ "key": "x", "value": "1" }]);
        let descriptor = json!({ "entries": entries, "limit": limit, "hitsAddend": "2" });
        let asked = json!({ "domain": "shop", "descriptors": [descriptor], "hits_addend": null });
        let (status, body) = post(&app, asked.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    let (_, body) = post(&app, asking("nobody", "1")).await;
    assert_eq!(body, r#"{"overallCode":"OK","statuses":[{"code":"OK"}]}"#);
}

#[tokio::test]
async fn what_is_no_request_is_a_bad_one() {
    let app = app();
    let bad = [
        String::new(),
        "[]".to_owned(),
        "{".to_owned(),
        r#"{"domain":"","descriptors":[{"entries":[]}]}"#.to_owned(),
        r#"{"domain":"shop"}"#.to_owned(),
        r#"{"domain":"shop","descriptors":{}}"#.to_owned(),
        asking("user", "a").replace("domain", "domian"),
        asking("user", "a").replace("entries", "entrys"),
        r#"{"domain":"shop","descriptors":[{"limit":{"unit":"WEEK"}}]}"#.to_owned(),
        r#"{"domain":"shop","descriptors":[{"limit":{"unit":0}}]}"#.to_owned(),
        r#"{"domain":"shop","descriptors":[{}],"hitsAddend":4294967296}"#.to_owned(),
        r#"{"domain":"shop","descriptors":[{}],"hitsAddend":-1}"#.to_owned(),
    ];
    for text in bad {
        let told = post(&app, text.clone()).await;
        assert_eq!(told, (StatusCode::BAD_REQUEST, "Bad Request\n".to_owned()), "{text}");
    }
    let (status, _) = post(&app, vec![b' '; BODY_BYTES_MAX + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_denial_carries_the_headers_of_all_dialects() {
    let app = app();
    for _ in 0..2 {
        assert_eq!(post(&app, asking("user", "alice")).await.0, StatusCode::OK);
    }
    let request = Request::post("/json").body(Body::from(asking("user", "alice"))).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers();
    assert_eq!(headers["X-RateLimit-Limit"], "2");
    assert_eq!(headers["X-RateLimit-Remaining"], "0");
    assert_eq!(headers["RateLimit-Policy"], r#""users";q=2;w=31536000"#);
    assert_eq!(headers["Retry-After"], headers["X-RateLimit-Retry-After"]);
    assert!(headers.contains_key("X-RateLimit-Reset") && headers.contains_key("RateLimit"));
}

#[tokio::test]
async fn it_is_healthy_until_it_ends() {
    let engine = Engine::new(rules_of(RULES).unwrap()).unwrap();
    let health = Health::default();
    let service = App::builder(engine).health(health.clone()).build();
    let app = router(service, Options::default());
    let ask = async || {
        let request = Request::get("/healthcheck").body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        (status, to_bytes(response.into_body(), 100).await.unwrap())
    };
    assert_eq!(ask().await, (StatusCode::OK, "OK".into()));
    health.drain();
    assert_eq!(ask().await, (StatusCode::INTERNAL_SERVER_ERROR, "".into()));
}
