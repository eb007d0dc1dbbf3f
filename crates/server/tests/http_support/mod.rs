//! A service on a clock that stands still, and how tests ask it.

#![allow(dead_code)] // Each test uses a part of it.

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{Options, router};
use sluicegate_server::rls::Options as RlsOptions;
use tower::ServiceExt;

pub(crate) const RULES: &str = "
domain: shop
deny: [{ key: user, value: mallory }]
descriptors:
  - { key: user, rate_limit: { name: users, unit: minute, requests_per_unit: 2 } }
  - key: team
    limits:
      - { name: burst, algorithm: token_bucket, rate: 1/s, burst: 3 }
      - { name: daily, algorithm: fixed_window, rate: 100/day }
  - { key: watched, mode: shadow, limits: { name: seen, algorithm: fixed_window, rate: 1/h } }
  - { key: soft, mode: { soft: 100% }, limits: { name: soft, algorithm: fixed_window, rate: 1/h } }
  - { key: free, rate_limit: { unlimited: true } }
";

/// 20 seconds into a minute.
pub(crate) const NOW_S: u64 = 1_700_000_000;

pub(crate) fn engine() -> (Engine, ManualClock) {
    engine_of(RULES)
}

pub(crate) fn engine_of(rules: &str) -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_micros(NOW_S * 1_000_000));
    let engine = Engine::builder(rules_of(rules).unwrap()).clock(clock.clone()).build().unwrap();
    (engine, clock)
}

pub(crate) fn app(options: Options) -> (Router, App, ManualClock) {
    let (engine, clock) = engine();
    let service = App::new(engine);
    (router(service.clone(), options), service, clock)
}

pub(crate) fn in_shadow() -> (Router, App) {
    let options = RlsOptions { shadow_mode: true, ..RlsOptions::default() };
    let health = Health::default();
    health.rules_loaded(1);
    let service = App::builder(engine().0).options(options).health(health).build();
    (router(service.clone(), Options::default()), service)
}

pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// What is told about limits, a line each.
    pub(crate) fn limits(&self) -> String {
        let about = |name: &str| name.contains("ratelimit") || name == "retry-after";
        let told = self.headers.iter().filter(|(name, _)| about(name.as_str()));
        let mut told: Vec<String> =
            told.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        told.sort();
        told.join("\n")
    }
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Told {
    let response = app.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    Told { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
}

pub(crate) async fn post(app: &Router, path: &str, body: impl Into<Body>) -> Told {
    send(app, Request::post(path).body(body.into()).unwrap()).await
}

/// Of one descriptor, in short.
pub(crate) fn asking(key: &str, value: &str) -> String {
    format!(r#"{{"domain":"shop","descriptors":[{{"{key}":"{value}"}}]}}"#)
}
