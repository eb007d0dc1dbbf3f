//! Numbers of a rule with several limits: those of the limit that is named, and of all on request.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_support::{NOW_S, engine_of, post};
use serde_json::{Value, json};
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::http::{KeysAccess, Options, router};

const RULES: &str = "
domain: llm
descriptors:
  - key: team
    limits:
      - { name: minute, algorithm: token_bucket, rate: 60/m, burst: 60 }
      - { name: day, algorithm: fixed_window, rate: 1000/day }
";

const TEAM: &str = r#"{"domain":"llm","descriptors":[{"team":"a"}],"hits":50}"#;

fn app() -> axum::Router {
    router(App::new(engine_of(RULES).0), Options::default())
}

#[tokio::test]
async fn a_reset_is_that_of_the_limit_which_is_named() {
    let app = app();
    let answer = post(&app, "/v1/check", TEAM).await;
    let status = &answer.json()["statuses"][0];
    assert_eq!((&status["limit"], &status["remaining"]), (&json!("minute"), &json!(10)));
    assert_eq!(status["reset_after_ms"], 50_000, "{status}");
    assert_eq!(answer.headers["x-ratelimit-reset"], "1700000050");
    assert_eq!(answer.headers["ratelimit"], r#""minute";r=10;t=50"#);

    // Another limit has less left than the one that denies for longer.
    let denied = post(&app, "/v1/check", TEAM.replace("50", "60")).await.json();
    let status = &denied["statuses"][0];
    assert_eq!((&status["limit"], &status["reset_after_ms"]), (&json!("minute"), &json!(50_000)));
    let body = r#"{"domain":"llm","descriptors":[{"entries":[{"key":"team","value":"a"}]}]}"#;
    let envoy = post(&app, "/json", body).await.json();
    assert_eq!(envoy["statuses"][0]["durationUntilReset"], "51s", "{envoy}");
}

#[tokio::test]
async fn in_debt_too() {
    let app = app();
    let reserved = post(&app, "/v1/reserve", TEAM).await.json();
    let commit = json!({ "reservation": reserved["reservation"], "hits": 90 });
    let answer = post(&app, "/v1/commit", commit.to_string()).await;
    let status = &answer.json()["statuses"][0];
    assert_eq!((&status["limit"], &status["remaining"]), (&json!("minute"), &json!(-30)));
    assert_eq!(status["reset_after_ms"], 90_000, "not tomorrow: {status}");
    assert_eq!(status.get("wait_ms"), None, "what was used does not wait: {status}");
    let answer = post(&app, "/v1/check", TEAM).await;
    assert_eq!(answer.json()["statuses"][0]["reset_after_ms"], 90_000);
    assert_eq!(answer.headers["x-ratelimit-reset"], "1700000090");
}

#[tokio::test]
async fn every_limit_is_listed_on_request() {
    let app = app();
    let with_limits = TEAM.replace("50", "50,\"limits\":true");
    let due = |minute: Value, day: i64| {
        json!([
            { "limit": "minute", "algorithm": "token_bucket", "quota": 60,
              "window_ms": 60_000, "remaining": minute,
              "reset_after_ms": 1_000 * (60 - minute.as_i64().unwrap()) },
            { "limit": "day", "algorithm": "fixed_window", "quota": 1000,
              "window_ms": 86_400_000, "remaining": day, "reset_after_ms": 6_400_000 },
        ])
    };
    for (path, minute, day) in [("/v1/check", 10, 950), ("/v1/peek", 10, 950)] {
        let answer = post(&app, path, with_limits.clone()).await.json();
        assert_eq!(answer["statuses"][0]["limits"], due(json!(minute), day), "{path}: {answer}");
    }
    for path in ["/v1/reserve", "/v1/wait"] {
        let few = with_limits.replace("50", "1");
        let answer = post(&app, path, few).await.json();
        assert_eq!(answer["statuses"][0]["limits"][1]["limit"], "day", "{path}: {answer}");
    }
    let denied = post(&app, "/v1/check", with_limits.clone()).await;
    assert_eq!(
        (denied.status.as_u16(), &denied.json()["statuses"][0]["limits"]),
        (429, &due(json!(8), 948))
    );
    for plain in [TEAM.to_owned(), with_limits.replace("true", "false")] {
        let answer = post(&app, "/v1/peek", plain).await.json();
        assert_eq!(answer["statuses"][0].get("limits"), None);
    }
    let unmatched = with_limits.replace("team", "user");
    let answer = post(&app, "/v1/check", unmatched).await.json();
    assert_eq!(answer["statuses"][0]["limits"], json!([]));
    let wrong = post(&app, "/v1/check", with_limits.replace("true", "1")).await;
    assert_eq!(
        (wrong.status.as_u16(), &wrong.json()["error"]["context"]["field"]),
        (400, &json!("limits"))
    );
    // Each status is as long as sixteen others.
    let many = vec![with_limits; 257].join(",");
    let answer = post(&app, "/v1/peek", format!(r#"{{"checks":[{many}]}}"#)).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
}

// === what each limit got back ===

const WINDOWS: &str = "
domain: llm
descriptors:
  - key: team
    limits:
      - { name: minute, algorithm: fixed_window, rate: 60/m }
      - { name: day, algorithm: fixed_window, rate: 1000/day }
  - key: calls
    limits: { name: calls, algorithm: concurrency, max: 2, lease: 60s }
";

fn operated_app() -> (axum::Router, ManualClock) {
    let (engine, clock) = engine_of(WINDOWS);
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    (router(App::new(engine), options), clock)
}

fn hits(minute: u64, day: u64) -> Value {
    json!([{ "limit": "minute", "hits": minute }, { "limit": "day", "hits": day }])
}

#[tokio::test]
async fn a_commit_says_what_each_limit_got_back() {
    let (app, clock) = operated_app();
    let reserved = post(&app, "/v1/reserve", TEAM).await.json();
    assert_eq!(reserved["statuses"][0]["returned"], Value::Null);
    // The minute of the reservation is over.
    clock.advance(Duration::from_secs(41));
    let commit = json!({ "reservation": reserved["reservation"], "hits": 20 });
    let settled = post(&app, "/v1/commit", commit.to_string()).await.json();
    assert_eq!(settled["statuses"][0]["returned"], hits(0, 30), "{settled}");
    assert_eq!(settled["returned"], 0, "the least");
    let check = post(&app, "/v1/check", TEAM).await.json();
    assert_eq!(check["statuses"][0]["returned"], Value::Null, "{check}");
}

#[tokio::test]
async fn a_cancel_says_it_of_each_descriptor() {
    let (app, _) = operated_app();
    let both = r#"{"domain":"llm","descriptors":[{"team":"a"},{"calls":"a","hits":1}],"hits":50}"#;
    let reserved = post(&app, "/v1/reserve", both).await.json();
    let part = json!({ "reservation": reserved["reservation"], "hits": 20, "partial": true });
    let part = post(&app, "/v1/commit", part.to_string()).await.json();
    assert_eq!((&part["held"], &part["statuses"][0]["returned"]), (&json!(30), &Value::Null));
    let cancel = json!({ "reservation": reserved["reservation"] });
    let settled = post(&app, "/v1/cancel", cancel.to_string()).await.json();
    assert_eq!(settled["statuses"][0]["returned"], hits(30, 30), "{settled}");
    assert_eq!(settled["statuses"][1]["returned"], json!([{ "limit": "calls", "hits": 1 }]));
    assert_eq!(settled["returned"], 30);
}

#[tokio::test]
async fn a_refund_and_a_credit_say_it_too() {
    let (app, clock) = operated_app();
    for path in ["/v1/refund", "/v1/keys/credit"] {
        post(&app, "/v1/check", TEAM).await;
        clock.advance(Duration::from_secs(60));
        post(&app, "/v1/check", TEAM.replace("50", "10")).await;
        let refunded = post(&app, path, TEAM).await.json();
        assert_eq!(refunded["statuses"][0]["returned"], hits(10, 50), "{path}: {refunded}");
        assert_eq!(refunded["statuses"][0]["limit"], "minute", "{path}");
        post(&app, "/v1/keys/reset", TEAM).await;
    }
}

// === waiting ===

/// A clock that advances with every look at it.
#[derive(Debug)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(7, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_denial_after_the_longest_wait_is_that_of_a_check() {
    let clock = TickingClock(AtomicU64::new(NOW_S * 1_000_000));
    let engine = Engine::builder(rules_of(WINDOWS).unwrap()).clock(clock).build().unwrap();
    let app = router(App::new(engine), Options::default());
    post(&app, "/v1/check", TEAM).await;
    let plain = post(&app, "/v1/check", TEAM).await;
    assert_eq!(plain.json()["error"]["context"]["retry_after_ms"], 40_000, "{}", plain.text);
    assert_eq!(plain.headers["x-ratelimit-reset"], "1700000040");
    for path in ["/v1/reserve", "/v1/wait"] {
        let timed = TEAM.replace("50}", r#"50,"timeout_ms":15000}"#);
        let waited = post(&app, path, timed).await;
        assert_eq!(waited.status, 429, "{path}: {}", waited.text);
        assert_eq!(waited.json(), plain.json(), "{path}");
        assert_eq!(waited.limits(), plain.limits(), "{path}");
    }
}

#[tokio::test]
async fn the_figures_after_a_wait_are_those_of_its_turn() {
    for path in ["/v1/reserve", "/v1/wait"] {
        let (app, clock) = operated_app();
        post(&app, "/v1/check", TEAM).await;
        let waiting = tokio::spawn({
            let app = app.clone();
            async move { post(&app, path, TEAM.replace("50}", r#"50,"timeout_ms":60000}"#)).await }
        });
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(40));
        let waited = waiting.await.unwrap();
        assert_eq!((waited.status.as_u16(), &waited.json()["waited_ms"]), (200, &json!(40_000)));
        let status = waited.json()["statuses"][0].clone();
        assert_eq!((&status["limit"], &status["remaining"]), (&json!("minute"), &json!(10)));
        assert_eq!(status["reset_after_ms"], 60_000, "{path}: {status}");
        assert_eq!(waited.headers["x-ratelimit-reset"], "1700000100", "{path}");
    }
}

#[tokio::test]
async fn a_slot_is_held_for_its_ttl_also_after_a_wait() {
    let (app, _) = operated_app();
    for timed in [r#""ttl_ms":5000"#, r#""ttl_ms":5000,"timeout_ms":1000"#] {
        let body = format!(r#"{{"domain":"llm","descriptors":[{{"calls":"a"}}],{timed}}}"#);
        let reserved = post(&app, "/v1/reserve", body).await.json();
        assert_eq!(reserved["expires_after_ms"], 5_000, "{reserved}");
        assert_eq!(reserved["statuses"][0]["reset_after_ms"], 5_000, "{timed}: {reserved}");
    }
}

#[tokio::test]
async fn a_month_of_a_calendar_has_no_fixed_length() {
    let rules = RULES.replace("1000/day", "1000/month, align: calendar, zone: Europe/Berlin");
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    let app = router(App::new(engine_of(&rules).0), options);
    let answer = post(&app, "/v1/check", TEAM).await;
    assert_eq!(answer.headers["ratelimit-policy"], r#""minute";q=60;w=60, "day";q=1000"#);
    let keys = post(&app, "/v1/keys/inspect", TEAM).await.json();
    let month = &keys["keys"][0]["limits"][1];
    assert_eq!((&month["quota"], month.get("window_ms")), (&json!(1000), None), "{keys}");
}

#[tokio::test]
async fn a_commit_into_debt_does_not_wait_for_the_next_window() {
    let app = router(App::new(engine_of(&RULES.replace("60", "9000")).0), Options::default());
    for partial in [true, false] {
        let reserved = post(&app, "/v1/reserve", TEAM).await.json();
        let commit =
            json!({ "reservation": reserved["reservation"], "hits": 700, "partial": partial });
        let status =
            post(&app, "/v1/commit", commit.to_string()).await.json()["statuses"][0].take();
        assert_eq!((&status["allowed"], status.get("wait_ms")), (&json!(true), None), "{status}");
    }
    let peeked = post(&app, "/v1/peek", TEAM).await.json();
    assert_eq!(peeked["statuses"][0]["remaining"], -400, "{peeked}");
}
