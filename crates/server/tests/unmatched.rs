//! Requests that no rule matches, on every protocol.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;
mod metrics_support;

use axum::Router;
use http::StatusCode;
use http_support::{asking, post};
use metrics_support::Scrape;
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::http::{ErrorFormat, KeysAccess, Options, router};
use sluicegate_server::metrics;
use sluicegate_server::rls::Options as RlsOptions;
use sluicegate_server::unmatched::UnmatchedPolicy;

const RULES: &str = "
domain: shop
allow: [{ key: user, value: root }]
descriptors:
  - { key: user, limits: { name: users, algorithm: fixed_window, rate: 3/h } }
  - { key: user, value: vip }
  - key: path
    descriptors:
      - { key: user, limits: { algorithm: fixed_window, rate: 5/h } }
";

fn app(policy: UnmatchedPolicy) -> (Router, App) {
    app_with(policy, Options::default(), RlsOptions::default())
}

fn app_with(policy: UnmatchedPolicy, options: Options, rls: RlsOptions) -> (Router, App) {
    let engine = Engine::builder(rules_of(RULES).unwrap())
        .clock(ManualClock::new())
        .deny_unmatched(policy != UnmatchedPolicy::Allow);
    let options_of_rls = RlsOptions { unmatched: policy, ..rls };
    let app = App::builder(engine.build().unwrap()).options(options_of_rls).build();
    (router(app.clone(), options), app)
}

fn unmatched(app: &App, domain: &str) -> Option<f64> {
    let scrape = Scrape::read(&metrics::text(app));
    scrape.value("sluicegate_unmatched_total", &[("domain", domain)])
}

#[tokio::test]
async fn a_status_without_a_rule_has_the_reason() {
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    let (router, _) = app_with(UnmatchedPolicy::Allow, options, RlsOptions::default());
    let table = [
        (asking("user", "vip"), "exempt"),
        (asking("path", "/"), "no_rule"),
        (asking("usr", "alice"), "no_rule"),
        (asking("user", "alice").replace("shop", "shpo"), "no_domain"),
    ];
    for (body, reason) in table {
        for path in ["/v1/check", "/v1/peek", "/v1/reserve", "/v1/wait"] {
            let told = post(&router, path, body.clone()).await;
            assert_eq!(told.status, StatusCode::OK, "{path} {body}");
            let due = format!(r#""statuses":[{{"allowed":true,"rule":null,"reason":"{reason}"}}]"#);
            assert!(told.text.contains(&due), "{path} {body}: {}", told.text);
        }
        let told = post(&router, "/v1/keys/inspect", body).await.json();
        assert_eq!(told["keys"][0], json!({ "limits": [], "rule": null, "reason": reason }));
    }
    let told = post(&router, "/v1/check", asking("user", "alice")).await.json();
    assert_eq!(told["statuses"][0].get("reason"), None, "{told}");
}

#[tokio::test]
async fn unmatched_requests_are_counted_by_known_domains() {
    let (router, service) = app(UnmatchedPolicy::Allow);
    assert_eq!((unmatched(&service, "shop"), unmatched(&service, "other")), (Some(0.), Some(0.)));
    let mixed = r#"{"domain":"shop","descriptors":[{"user":"a"},{"x":"1"},{"y":"2"}]}"#;
    for body in [
        asking("usr", "a"),
        mixed.to_owned(),
        // Neither of these is a mistake.
        asking("user", "vip"),
        asking("user", "root"),
        asking("user", "a"),
    ] {
        post(&router, "/v1/check", body).await;
    }
    for domain in ["shpo", "Shop", "x"] {
        post(&router, "/v1/check", asking("user", "a").replace("shop", domain)).await;
    }
    assert_eq!(unmatched(&service, "shop"), Some(2.));
    assert_eq!(unmatched(&service, "other"), Some(3.));
    assert_eq!(unmatched(&service, "shpo"), None, "clients create no series");

    // A reload keeps the counts of the domains that stay.
    service.engine().reload(rules_of(&RULES.replace("3/h", "4/h")).unwrap()).unwrap();
    assert_eq!(unmatched(&service, "shop"), Some(2.));
}

#[tokio::test]
async fn a_policy_denies_them_and_charges_nothing() {
    let (router, service) = app(UnmatchedPolicy::Deny);
    let mixed = r#"{"domain":"shop","descriptors":[{"user":"alice"},{"usr":"alice"}]}"#;
    for path in ["/v1/check", "/v1/reserve", "/v1/wait"] {
        let told = post(&router, path, mixed).await;
        assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS, "{path}: {}", told.text);
        let json = told.json();
        assert_eq!(json["error"]["code"], "unmatched", "{json}");
        assert_eq!(
            json["error"]["context"],
            json!({ "field": "descriptors[1]", "reason": "no_rule" })
        );
        let message = json["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(
                "no rule of domain `shop` matches descriptors[1] (`usr=alice`), did you mean the \
                 key `user`? Correct the descriptor, or add a rule"
            ),
            "{json}"
        );
        assert_eq!(json["allowed"], false);
        assert_eq!(told.headers.get("retry-after"), None, "waiting does not help");
    }
    assert_eq!(unmatched(&service, "shop"), Some(3.), "a denial is counted too");
    let scrape = Scrape::read(&metrics::text(&service));
    let hits = scrape.value("ratelimit_service_rate_limit_total_hits", &[("key1", "user")]);
    assert_eq!(hits, Some(0.), "no limit was involved");
    let told = post(&router, "/v1/peek", asking("user", "alice")).await.json();
    assert_eq!(told["statuses"][0]["remaining"], 3, "{told}");
    assert_eq!(post(&router, "/v1/peek", mixed).await.json()["allowed"], false);
    for user in ["vip", "root", "alice"] {
        assert_eq!(post(&router, "/v1/check", asking("user", user)).await.status, 200, "{user}");
    }
    let body = r#"{"domain":"nowhere","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;
    let told = post(&router, "/json", body).await;
    assert_eq!(
        (told.status, &*told.json()["overallCode"].to_string()),
        (StatusCode::TOO_MANY_REQUESTS, r#""OVER_LIMIT""#)
    );
}

#[tokio::test]
async fn a_policy_answers_them_with_an_error() {
    let options = Options { keys: KeysAccess::Open, ..Options::default() };
    let (router, service) = app_with(UnmatchedPolicy::Error, options, RlsOptions::default());
    let table = ["/v1/check", "/v1/peek", "/v1/reserve", "/v1/wait", "/v1/keys/inspect"];
    for path in table {
        let told = post(&router, path, asking("usr", "alice")).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{path}: {}", told.text);
        assert_eq!(told.json()["error"]["context"]["reason"], "no_rule");
    }
    let told = post(&router, "/v1/check", asking("user", "a").replace("shop", "shpo")).await.json();
    let due = "there are no rules for domain `shpo`, did you mean `shop`? Correct the domain, or \
               add rules for it";
    assert_eq!(told["error"]["message"], due);
    assert_eq!(told["error"]["context"], json!({ "field": "domain", "reason": "no_domain" }));
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"usr","value":"a"}]}]}"#;
    assert_eq!(post(&router, "/json", body).await.status, StatusCode::BAD_REQUEST);
    for path in ["/v1/check", "/v1/keys/inspect"] {
        assert_eq!(post(&router, path, asking("user", "vip")).await.status, StatusCode::OK);
    }
    let explained = post(&router, "/v1/explain", asking("usr", "alice")).await.json();
    let why = "denied: no rule matches it, and such requests are not allowed (`--unmatched`)";
    assert_eq!((&explained["allowed"], &explained["why"]), (&json!(false), &json!(why)));
    assert_eq!(unmatched(&service, "shop"), Some(5.));
}

#[tokio::test]
async fn modes_of_the_service_apply_to_them() {
    let rls = RlsOptions { quota_mode: true, ..RlsOptions::default() };
    let (router, _) = app_with(UnmatchedPolicy::Deny, Options::default(), rls);
    let mixed = r#"{"domain":"shop","descriptors":[{"user":"alice"},{"usr":"alice"}]}"#;
    assert_eq!(post(&router, "/v1/check", mixed).await.status, StatusCode::TOO_MANY_REQUESTS);
    let rls = RlsOptions { shadow_mode: true, ..RlsOptions::default() };
    let (router, _) = app_with(UnmatchedPolicy::Deny, Options::default(), rls);
    assert_eq!(post(&router, "/v1/check", mixed).await.status, StatusCode::OK);
    let options = Options { error_format: ErrorFormat::Problem, ..Options::default() };
    let (router, _) = app_with(UnmatchedPolicy::Deny, options, RlsOptions::default());
    let told = post(&router, "/v1/check", mixed).await;
    assert_eq!(told.headers["content-type"], "application/problem+json");
    let json: Value = told.json();
    assert_eq!((&json["status"], &json["code"]), (&json!(429), &json!("unmatched")));
}
