//! How many reservations there may be, and what becomes of those that have expired.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use axum::Router;
use http::StatusCode;
use http_support::{Told, engine_of, post};
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{Options, router};
use sluicegate_server::reservations::Reservations;

const RULES: &str = "
domain: llm
descriptors:
  - key: user
    limits: { name: tokens, algorithm: token_bucket, rate: 1000/day }
";

async fn ask(app: &Router, path: &str, body: Value) -> Told {
    post(app, path, body.to_string()).await
}

fn reservation(user: &str, ttl_ms: u64) -> Value {
    json!({ "domain": "llm", "descriptors": [{ "user": user }], "hits": 1, "ttl_ms": ttl_ms })
}

/// A service with room for so many reservations.
fn app_with_room(reservations_max: u64) -> (Router, App, ManualClock) {
    let (engine, clock) = engine_of(RULES);
    let health = Health::default();
    health.rules_loaded(1);
    let reservations = Reservations::new(reservations_max, 1);
    let service = App::builder(engine).health(health).reservations(reservations).build();
    (router(service.clone(), Options::default()), service, clock)
}

#[tokio::test]
async fn expired_reservations_leave_room_for_others() {
    let (app, service, clock) = app_with_room(100);
    for _ in 0..100 {
        assert_eq!(
            ask(&app, "/v1/reserve", reservation("mallory", 1)).await.status,
            StatusCode::OK
        );
    }
    let full = ask(&app, "/v1/reserve", reservation("42", 60_000)).await;
    assert_eq!(
        (full.status, &full.json()["error"]["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("too_many"))
    );
    clock.advance(Duration::from_millis(2));
    assert_eq!(service.reservations().pending(service.engine().now()), 0);
    assert_eq!(ask(&app, "/v1/reserve", reservation("42", 60_000)).await.status, StatusCode::OK);
}

/// As many expired reservations are remembered as there may be active ones; those beyond are
/// dropped, so that memory stays bounded.
#[tokio::test]
async fn late_settlements_are_remembered_up_to_the_bound() {
    let (app, _, clock) = app_with_room(3);
    let mut names = Vec::new();
    for _ in 0..9 {
        let told = ask(&app, "/v1/reserve", reservation("42", 1)).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text);
        names.push(told.json()["reservation"].clone());
        clock.advance(Duration::from_millis(2));
    }
    let settled = |name: &Value| json!({ "reservation": name, "hits": 1 });
    assert_eq!(ask(&app, "/v1/commit", settled(&names[0])).await.status, StatusCode::OK);
    assert_eq!(ask(&app, "/v1/commit", settled(&names[4])).await.status, StatusCode::GONE);
    let peeked = json!({ "domain": "llm", "descriptors": [{ "user": "42" }], "hits": 0 });
    let left = ask(&app, "/v1/peek", peeked).await.json()["statuses"][0]["remaining"].clone();
    assert_eq!(left, 999, "the first was charged late, and nothing else");
}
