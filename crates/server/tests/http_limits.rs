//! Numbers of a rule with several limits: those of the limit that is named, and of all on request.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use http_support::{engine_of, post};
use serde_json::{Value, json};
use sluicegate_server::app::App;
use sluicegate_server::http::{Options, router};

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
            { "allowed": minute != 0, "limit": "minute", "algorithm": "token_bucket", "quota": 60,
              "window_ms": 60_000, "remaining": minute,
              "reset_after_ms": 1_000 * (60 - minute.as_i64().unwrap()) },
            { "allowed": true, "limit": "day", "algorithm": "fixed_window", "quota": 1000,
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
