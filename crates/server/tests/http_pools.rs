//! Rules with pools, over HTTP: which pool was drawn from, its refund, its state and its credit.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_support::{Told, engine_of, post, send};
use serde_json::{Value, json};
use sluicegate_server::app::App;
use sluicegate_server::http::schema::{CheckResult, KeyStates};
use sluicegate_server::http::{KeysAccess, Options, router};

const RULES: &str = "
domain: llm
descriptors:
  - key: team
    id: included
    limits: { name: month, algorithm: fixed_window, rate: 100/month, align: calendar }
    pools:
      - { name: credits, limits: { name: credits, algorithm: fixed_window, rate: 50/year } }
";

fn app() -> Router {
    let (engine, _) = engine_of(RULES);
    router(App::new(engine), Options { keys: KeysAccess::Open, ..Options::default() })
}

fn body(hits: u64, pool: Option<&str>) -> Value {
    let mut body = json!({ "domain": "llm", "descriptors": [{ "team": "a" }], "hits": hits });
    if let Some(pool) = pool {
        body["pool"] = pool.into();
    }
    body
}

async fn ask(app: &Router, path: &str, body: &Value) -> Told {
    post(app, path, body.to_string()).await
}

/// The rule, the pool and the remaining quota of the only status.
fn status(told: &Told) -> (String, Option<String>, i64) {
    let result: CheckResult = serde_json::from_value(told.json()).unwrap();
    let status = &result.statuses[0];
    (status.rule.clone().unwrap(), status.pool.clone(), status.remaining.unwrap())
}

fn of_credits(left: i64) -> (String, Option<String>, i64) {
    ("llm/included:credits".to_owned(), Some("credits".to_owned()), left)
}

fn of_included(left: i64) -> (String, Option<String>, i64) {
    ("llm/included".to_owned(), None, left)
}

#[tokio::test]
async fn a_response_names_the_pool() {
    let app = app();
    assert_eq!(status(&ask(&app, "/v1/check", &body(90, None)).await), of_included(10));
    let mut detailed = body(20, None);
    detailed["limits"] = true.into();
    let drawn = ask(&app, "/v1/check", &detailed).await;
    assert_eq!(status(&drawn), of_credits(30));
    assert_eq!(drawn.headers["ratelimit-policy"], r#""credits";q=50;w=31536000"#);
    assert_eq!(drawn.headers["x-ratelimit-remaining"], "30");
    assert_eq!(drawn.json()["statuses"][0]["limits"][0]["limit"], "credits");
    let only = ask(&app, "/v1/check", &body(5, Some("credits"))).await;
    assert_eq!(status(&only), of_credits(25), "although the first has 10");
    let denied = ask(&app, "/v1/check", &body(40, None)).await;
    assert_eq!((denied.status, status(&denied)), (StatusCode::TOO_MANY_REQUESTS, of_included(10)));
    let unknown = ask(&app, "/v1/check", &body(1, Some("gifts"))).await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
    assert!(unknown.text.contains("no rule of the request has a pool `gifts`"), "{}", unknown.text);
}

#[tokio::test]
async fn a_refund_by_the_key_of_a_check_goes_to_the_pool_that_it_charged() {
    for keys in [KeysAccess::Open, KeysAccess::Off] {
        let (engine, _) = engine_of(RULES);
        refunds_by_key(&router(App::new(engine), Options { keys, ..Options::default() })).await;
    }
}

async fn refunds_by_key(app: &Router) {
    assert_eq!(status(&ask(app, "/v1/check", &body(90, None)).await), of_included(10));
    let keyed = |path: &str| {
        let request = Request::post(path).header("idempotency-key", "k1");
        request.body(Body::from(body(20, None).to_string())).unwrap()
    };
    assert_eq!(status(&send(app, keyed("/v1/check")).await), of_credits(30));
    let refunded = send(app, keyed("/v1/refund")).await;
    assert_eq!((refunded.status, status(&refunded)), (StatusCode::OK, of_credits(50)));
    assert_eq!(
        refunded.json()["statuses"][0]["returned"],
        json!([{ "limit": "credits", "hits": 20 }])
    );
    let again = send(app, keyed("/v1/refund")).await;
    assert_eq!(again.text, refunded.text, "stored");
    assert_eq!(status(&ask(app, "/v1/peek", &body(1, None)).await), of_included(10));
}

#[tokio::test]
async fn a_reservation_is_settled_at_its_pool() {
    let app = app();
    assert_eq!(status(&ask(&app, "/v1/check", &body(90, None)).await), of_included(10));
    let reserved = ask(&app, "/v1/reserve", &body(40, None)).await.json();
    assert_eq!(reserved["statuses"][0]["pool"], "credits");
    let commit = json!({ "reservation": reserved["reservation"], "hits": 15 });
    let committed = ask(&app, "/v1/commit", &commit).await.json();
    assert_eq!(
        (&committed["returned"], &committed["statuses"][0]["pool"]),
        (&25.into(), &"credits".into())
    );
    assert_eq!(committed["statuses"][0]["remaining"], 35);
}

#[tokio::test]
async fn operators_see_every_pool_and_name_the_one_to_credit() {
    let app = app();
    assert_eq!(status(&ask(&app, "/v1/check", &body(90, None)).await), of_included(10));
    assert_eq!(status(&ask(&app, "/v1/check", &body(20, None)).await), of_credits(30));
    let inspected = ask(&app, "/v1/keys/inspect", &body(1, None)).await;
    let states: KeyStates = serde_json::from_value(inspected.json()).unwrap();
    let pools = states.keys[0].pools.as_deref().unwrap();
    assert_eq!((pools[0].pool.as_str(), pools[0].limits[0].remaining), ("credits", Some(30)));
    assert_eq!(states.keys[0].limits[0].remaining, Some(10));
    let credited = ask(&app, "/v1/keys/credit", &body(5, Some("credits"))).await;
    assert_eq!(status(&credited), of_credits(35));
    assert_eq!(status(&ask(&app, "/v1/keys/credit", &body(5, None)).await), of_included(15));
    let reset = ask(&app, "/v1/keys/reset", &body(1, Some("credits"))).await;
    assert_eq!(status(&reset), of_credits(50));
    ask(&app, "/v1/check", &body(50, None)).await;
    assert_eq!(status(&ask(&app, "/v1/keys/reset", &body(1, None)).await), of_included(100));
    assert_eq!(status(&ask(&app, "/v1/peek", &body(1, Some("credits"))).await), of_credits(50));
    let explained = ask(&app, "/v1/explain", &body(1, None)).await.json();
    let under = &explained["descriptors"][0]["under"];
    assert_eq!(under["pools"], json!(["llm/included", "llm/included:credits"]));
}
