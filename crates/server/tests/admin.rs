//! The operators' endpoint, as curl, a probe and Prometheus use it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod metrics_support;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::request::Builder;
use http::{HeaderMap, Method, Request, StatusCode, header};
use metrics_support::Scrape;
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::rules::domain::{DescriptorConfig, Domain};
use sluicegate::rules::request::{Descriptor, Entry, Request as LimitRequest};
use sluicegate::rules::rule::{Limits, RuleConfig};
use sluicegate::rules::set::RuleSet;
use sluicegate::{Engine, rules_of};
use sluicegate_server::admin::{Options, PATHS, router};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::token::Token;
use tower::ServiceExt;

const RULES: &str = r#"
domain: shop
descriptors:
  - key: user
    rate_limit: { name: users, unit: minute, requests_per_unit: 20 }
    descriptors:
      - { key: path, value: "/login*", shadow_mode: true, rate_limit: { unit: WEEK, requests_per_unit: 5 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: all, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 4294967295 } }
"#;

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

fn service(rules: RuleSet) -> App {
    App::new(Engine::builder(rules).clock(ManualClock::new()).build().unwrap())
}

/// An endpoint on loopback without a token.
fn open() -> Router {
    let config = json!({ "store": "memory" });
    let options = Options { config, is_loopback: true, ..Options::default() };
    router(service(rules_of(RULES).unwrap()), options)
}

async fn ask(app: &Router, request: Builder) -> Answer {
    send(app, request.body(Body::empty()).unwrap()).await
}

async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answer { status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

async fn get(app: &Router, path: &str) -> Answer {
    ask(app, Request::get(path)).await
}

async fn rlconfig(rules: RuleSet) -> String {
    get(&router(service(rules), Options::default()), "/rlconfig").await.body
}

impl Answer {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The message of an error with this code.
    fn error(&self, code: &str) -> String {
        assert_eq!(self.header(header::CONTENT_TYPE), "application/json");
        let told: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(told["error"]["code"], code);
        told["error"]["message"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn everything_that_the_index_names_is_there() {
    let app = open();
    for (path, says) in PATHS {
        let answer = get(&app, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert!(!answer.body.is_empty(), "{path}");
        assert!(get(&app, "/").await.body.contains(&format!("{path}: {says}\n")));
        let head = ask(&app, Request::head(path)).await;
        assert_eq!((head.status, &*head.body), (StatusCode::OK, ""), "{path}");
    }
    let html = ask(&app, Request::get("/").header(header::ACCEPT, "text/html,*/*;q=0.8")).await;
    assert_eq!(html.header(header::CONTENT_TYPE), "text/html; charset=utf-8");
    assert!(html.body.contains("<a href=\"/metrics\">"));
}

#[tokio::test]
async fn probes_are_told_whether_it_is_ready_and_why_not() {
    let (engine, health) = (Engine::new(RuleSet::default()).unwrap(), Health::default());
    let app = router(App::builder(engine).health(health.clone()).build(), Options::default());
    let json = || Request::get("/ready").header(header::ACCEPT, "application/json");

    let answer = get(&app, "/ready").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.body, "no rules are loaded\n");
    let answer = ask(&app, json()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told, json!({ "ready": false, "reason": "no rules are loaded" }));

    health.rules_loaded(1);
    let answer = get(&app, "/ready").await;
    assert_eq!((answer.status, &*answer.body), (StatusCode::OK, "ok\n"));
    let told: Value = serde_json::from_str(&ask(&app, json()).await.body).unwrap();
    assert_eq!(told, json!({ "ready": true, "reason": null }));

    health.drain();
    assert_eq!(get(&app, "/ready").await.body, "shutting down\n");
    let answer = get(&app, "/live").await;
    assert_eq!((answer.status, &*answer.body), (StatusCode::OK, "ok\n"));
}

#[tokio::test]
async fn with_a_token_only_probes_go_without_it() {
    let options = Options {
        token: Some(Token::new("open sesame").unwrap()),
        config: json!({}),
        ..Options::default()
    };
    let unknown = ["/nothing", "/debug/pprof/heap"];
    for path in PATHS.into_iter().map(|(path, _)| path).chain(unknown) {
        // A service each: wrong tokens are limited.
        let app = router(service(RuleSet::default()), options.clone());
        for shown in ["", "Bearer", "Bearer wrong", "Basic open sesame"] {
            let answer = ask(&app, Request::get(path).header(header::AUTHORIZATION, shown)).await;
            if ["/live", "/ready"].contains(&path) {
                assert_eq!(answer.status, StatusCode::OK, "{path}");
                continue;
            }
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {shown}");
            assert_eq!(answer.header(header::WWW_AUTHENTICATE), "Bearer");
            assert!(answer.error("unauthorized").contains("SLUICEGATE_ADMIN_TOKEN"));
        }
        let shown = Request::get(path).header(header::AUTHORIZATION, "Bearer open sesame");
        let due = if unknown.contains(&path) { StatusCode::NOT_FOUND } else { StatusCode::OK };
        assert_eq!(ask(&app, shown).await.status, due, "{path}");
    }
}

/// Rules and answer of a run of envoyproxy/ratelimit 3fb7025, whose lines come in any order.
#[tokio::test]
async fn rules_are_shown_as_envoys_own_service_shows_them() {
    let rules = "
domain: m
descriptors:
  - key: k1
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: k1
    value: v
    rate_limit: {unit: minute, requests_per_unit: 20, name: gold}
    descriptors:
      - key: k2
        shadow_mode: true
        rate_limit: {unit: week, requests_per_unit: 3}
      - key: k2
        value: w*
        quota_mode: true
        rate_limit: {unit: month, requests_per_unit: 0}
  - key: un
    rate_limit: {unlimited: true}
  - key: white
    value: list
  - key: det
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 4294967295}
  - key: rep
    rate_limit: {unit: year, requests_per_unit: 1, replaces: [{name: gold}]}
";
    assert_eq!(
        rlconfig(rules_of(rules).unwrap()).await,
        "\
m.det: unit=HOUR requests_per_unit=4294967295, shadow_mode: false, quota_mode: false
m.k1: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false
m.k1_v.k2: unit=WEEK requests_per_unit=3, shadow_mode: true, quota_mode: false
m.k1_v.k2_w*: unit=MONTH requests_per_unit=0, shadow_mode: false, quota_mode: true
m.k1_v: unit=MINUTE requests_per_unit=20, shadow_mode: false, quota_mode: false
m.rep: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false
m.un: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
"
    );
    let told = get(&open(), "/rlconfig").await;
    assert_eq!(told.header(header::CONTENT_TYPE), "text/plain; charset=utf-8");
}

#[tokio::test]
async fn rules_of_our_own_form_show_their_limits() {
    let rules = "
domain: d
descriptors:
  - key: a
    cost: 3
    limits:
      - { name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }
      - { algorithm: fixed_window, rate: 10000/day, align: calendar, zone: Europe/Berlin }
  - { key: b, cidr: 10.0.0.0/8, mode: shadow, limits: { algorithm: leaky_bucket, rate: 10/s, queue: 20 } }
  - { key: c, limits: { algorithm: sliding_log, rates: [10/m, 2 per 3s] } }
  - { key: d, mode: { soft: 20% }, limits: { algorithm: sliding_window, rate: 100/m } }
  - { key: e, limits: [{ algorithm: smooth_bursty, rate: 5/s }, { algorithm: warm_up, rate: 5/s, warm_up: 10s }] }
  - { key: f, limits: [{ algorithm: cycle, permits: 50, period: 1s }, { algorithm: concurrency, max: 10, lease: 30s }] }
  - { key: g, limits: { algorithm: fixed_window, rate: 0/s } }
";
    assert_eq!(
        rlconfig(rules_of(rules).unwrap()).await,
        "\
d.a: limits=[burst: token_bucket 10/s burst 50, fixed_window 10000/day Europe/Berlin], shadow_mode: false, quota_mode: false, cost: 3
d.b_10.0.0.0/8: limits=[leaky_bucket 10/s queue 20], shadow_mode: true, quota_mode: false
d.c: limits=[sliding_log 10/m 2/3s], shadow_mode: false, quota_mode: false
d.d: limits=[sliding_window 100/m], shadow_mode: false, quota_mode: false, mode: soft
d.e: limits=[smooth_bursty 5/s, warm_up 5/s within 10s], shadow_mode: false, quota_mode: false
d.f: limits=[cycle 50 every 1s, concurrency 10 at a time], shadow_mode: false, quota_mode: false
d.g: limits=[fixed_window closed], shadow_mode: false, quota_mode: false
"
    );
}

#[tokio::test]
async fn a_rule_is_one_line_and_there_is_a_last_one() {
    let unlimited =
        |node| DescriptorConfig { rule: Some(RuleConfig::new(Limits::Unlimited)), ..node };
    let domain = |nodes| vec![Domain { descriptors: nodes, ..Domain::new("d") }];
    let told =
        rlconfig(RuleSet::new(domain(vec![unlimited(DescriptorConfig::any("a\nb"))])).unwrap())
            .await;
    assert!(told.starts_with("d.a\\nb: unit=") && told.lines().count() == 1, "{told}");
    assert_eq!(rlconfig(RuleSet::default()).await, "");

    let many =
        (0..100_002).map(|no| unlimited(DescriptorConfig::text("k", no.to_string()))).collect();
    let told = rlconfig(RuleSet::new(domain(many)).unwrap()).await;
    assert_eq!(told.lines().count(), 100_001);
    assert_eq!(told.lines().last(), Some("# and 2 more, which are not shown"));
}

#[tokio::test]
async fn metrics_are_what_prometheus_reads() {
    let answer = get(&open(), "/metrics").await;
    assert_eq!(
        answer.header(header::CONTENT_TYPE),
        "text/plain; version=0.0.4; charset=utf-8",
        "a scraper that is told nothing refuses"
    );
    assert_eq!(Scrape::read(&answer.body).value("sluicegate_rules", &[]), Some(4.0));
}

#[tokio::test]
async fn statistics_are_for_people() {
    let told = get(&open(), "/stats").await.body;
    assert!(told.contains("\nsluicegate_rules: 4\n"), "{told}");
    assert!(told.contains("key1=\"user\",rule=\"shop/users\"}: 0\n"), "{told}");
    assert!(!told.contains('#') && !told.contains("_bucket"), "{told}");
}

#[tokio::test]
async fn the_configuration_is_told() {
    let answer = get(&open(), "/config").await;
    assert_eq!(answer.header(header::CONTENT_TYPE), "application/json");
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told, json!({ "store": "memory" }));
}

#[tokio::test]
async fn who_shares_no_counters_has_no_leases() {
    let answer = get(&open(), "/leases").await;
    assert_eq!(answer.header(header::CONTENT_TYPE), "application/json");
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told, json!({ "node": null, "leases": [] }));
}

#[tokio::test]
async fn who_asks_for_something_else_learns_what_there_is() {
    let app = open();
    let answer = get(&app, "/metricz").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let message = answer.error("not_found");
    assert!(
        message.starts_with("there is no `/metricz`; there are /, /api/v1/openapi.json, /config,"),
        "{message}"
    );
    for (path, _) in PATHS {
        let answer = ask(&app, Request::builder().method(Method::POST).uri(path)).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let (allow, methods) = match path {
            "/load" => ("GET,HEAD,PUT", "GET or PUT"),
            path if path.starts_with("/api/") => {
                ("GET,HEAD", "one that /api/v1/openapi.json names")
            }
            _ => ("GET,HEAD", "GET"),
        };
        assert_eq!(answer.header(header::ALLOW), allow, "{path}");
        let told = answer.error("method_not_allowed");
        assert_eq!(told, format!("`{path}` does not support `POST`; use {methods}"));
    }
    for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/a/b"] {
        let answer = get(&app, path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.error("not_found").contains("perf record"), "{path}");
    }
    let long = format!("/{}", "é".repeat(5_000).replace('é', "%C3%A9"));
    assert!(get(&app, &long).await.body.len() < 1_000, "what was sent is not sent back at length");
}

#[tokio::test]
async fn a_load_signal_opens_and_closes_elastic_rules() {
    let rules = rules_of(
        "domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 1/year }
    mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }
",
    )
    .unwrap();
    let engine = Engine::new(rules).unwrap();
    let app = router(App::new(engine.clone()), Options::default());
    assert_eq!(get(&app, "/load").await.body, "none\n");
    let entries = [Entry::new("user", "a")];
    let descriptors = [Descriptor::of(&entries)];
    let hit = || {
        engine.check(&LimitRequest { domain: "shop", descriptors: &descriptors, hits: 1 }).allowed
    };
    let put = |body: &'static str| Request::put("/load").body(Body::from(body)).unwrap();
    assert!(hit() && !hit());
    assert_eq!(send(&app, put("50%")).await.status, StatusCode::OK);
    assert_eq!(get(&app, "/load").await.body, "0.5\n");
    assert!(hit(), "half of the capacity is free");
    assert_eq!(send(&app, put("0.9")).await.status, StatusCode::OK);
    assert!(!hit());
    for bad in ["", "much", "-1", "11", "NaN", "1e9%"] {
        let answer = send(&app, put(bad)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad}");
        assert!(answer.error("bad_load").contains("write it like `0.7` or `70%`"), "{bad}");
    }
    assert_eq!(get(&app, "/load").await.body, "0.9\n");
}
