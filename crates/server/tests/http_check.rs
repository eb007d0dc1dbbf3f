//! `/v1/…`, as a script uses it: exact headers and bodies.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_support::{app, asking, in_shadow, post, send};
use serde_json::{Value, json};
use sluicegate::http::{Reset, Style};
use sluicegate_server::http::{BODY_BYTES_MAX, BodyLimits, ErrorFormat, KeysAccess, Options};
use sluicegate_server::telemetry::{Endpoint, Event, Fault};
use sluicegate_server::token::Token;
use std::time::Duration;

#[tokio::test]
async fn a_limit_is_reached_and_left_again() {
    let (app, service, clock) = app(Options::default());
    let told = post(&app, "/v1/check", asking("user", "alice")).await;
    assert_eq!(told.status, StatusCode::OK);
    assert_eq!(
        told.text,
        r#"{"allowed":true,"statuses":[{"allowed":true,"rule":"shop/users","limit":"users","quota":2,"remaining":1,"reset_after_ms":40000}]}"#
    );
    assert_eq!(told.headers[CONTENT_TYPE], "application/json");
    assert_eq!(
        told.limits(),
        "ratelimit-policy: \"users\";q=2;w=60\n\
         ratelimit: \"users\";r=1;t=40\n\
         x-ratelimit-limit: 2\n\
         x-ratelimit-remaining: 1\n\
         x-ratelimit-reset: 1700000040"
    );
    post(&app, "/v1/check", asking("user", "alice")).await;
    let told = post(&app, "/v1/check", asking("user", "alice")).await;
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        told.text,
        r#"{"error":{"code":"rate_limited","message":"Request quota exceeded. Wait 40 seconds and try again.","context":{"renewal":1700000040000,"limit":"users","retry_after_ms":40000}},"allowed":false,"statuses":[{"allowed":false,"rule":"shop/users","limit":"users","quota":2,"remaining":0,"reset_after_ms":40000,"retry_after_ms":40000}]}"#
    );
    assert_eq!(
        (&told.headers[CONTENT_TYPE], &told.headers[CACHE_CONTROL]),
        (&"application/json".parse().unwrap(), &"no-store".parse().unwrap())
    );
    assert_eq!(
        told.limits(),
        "ratelimit-policy: \"users\";q=2;w=60\n\
         ratelimit: \"users\";r=0;t=40\n\
         retry-after: 40\n\
         x-ratelimit-limit: 2\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 1700000040\n\
         x-ratelimit-retry-after: 40"
    );
    clock.advance(Duration::from_secs(40));
    assert_eq!(post(&app, "/v1/check", asking("user", "alice")).await.status, StatusCode::OK);
    assert_eq!(service.telemetry().calls(Endpoint::Check), 4);
}

#[tokio::test]
async fn dialects_and_problems() {
    let style = Style {
        ietf_fields: false,
        reset: Reset::SecondsToGo,
        denied: StatusCode::SERVICE_UNAVAILABLE,
        ..Style::default()
    };
    let (app_, ..) =
        app(Options { style, error_format: ErrorFormat::Problem, ..Options::default() });
    let asked = asking("user", "alice").replace("[{", r#"[{"hits":2,"#);
    post(&app_, "/v1/check", asked.clone()).await;
    let told = post(&app_, "/v1/check", asked).await;
    assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told.headers[CONTENT_TYPE], "application/problem+json");
    assert_eq!(
        told.limits(),
        "retry-after: 40\nx-ratelimit-limit: 2\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 40\nx-ratelimit-retry-after: 40"
    );
    let problem = told.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&problem["status"], &problem["code"]), (&json!(503), &json!("rate_limited")));
    assert_eq!(problem["violated-policies"], json!(["users"]));
    assert_eq!(problem["detail"], "Request quota exceeded. Wait 40 seconds and try again.");
    assert_eq!(problem["statuses"][0]["retry_after_ms"], 40_000);

    let told = post(&app_, "/v1/check", "{").await;
    assert_eq!(told.headers[CONTENT_TYPE], "application/problem+json");
    assert_eq!(told.json()["title"], "Bad Request");

    let style = Style { x_headers: false, ..Style::default() };
    let (app_, ..) = app(Options { style, ..Options::default() });
    let told = post(&app_, "/v1/check", asking("user", "alice")).await;
    assert_eq!(
        told.limits(),
        "ratelimit-policy: \"users\";q=2;w=60\nratelimit: \"users\";r=1;t=40"
    );
}

#[tokio::test]
async fn whoever_has_to_wait_longest_speaks_for_the_request() {
    let (app, ..) = app(Options::default());
    let both = r#"{"domain":"shop","descriptors":[{"user":"a"},{"team":"a"}],"hits":2}"#;
    let told = post(&app, "/v1/check", both).await;
    assert_eq!(told.headers["x-ratelimit-remaining"], "0", "the least that is left: the user's");
    let told = post(&app, "/v1/check", both).await;
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(told.json()["error"]["context"]["limit"], "users");
    let told = post(
        &app,
        "/v1/check",
        r#"{"domain":"shop","descriptors":[{"user":"b"},{"team":"a"}],"hits":2}"#,
    )
    .await;
    assert_eq!(told.json()["error"]["context"]["limit"], "burst");
    assert_eq!(told.headers["retry-after"], "1");
    assert_eq!(told.headers["ratelimit-policy"], r#""burst";q=3;w=3, "daily";q=100;w=86400"#);
    // Never is longer than a minute.
    let told = post(
        &app,
        "/v1/check",
        r#"{"domain":"shop","descriptors":[{"user":"a"},{"team":"b","hits":9}]}"#,
    )
    .await;
    assert_eq!(told.json()["error"]["context"], json!({ "limit": "burst", "max_cost": 3 }));
    assert!(!told.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn what_else_a_status_tells() {
    let (app, service, _) = app(Options::default());
    let status = async |body: String| -> Value {
        let mut told = post(&app, "/v1/check", body).await.json();
        told["statuses"][0].take()
    };
    let unmatched = json!({ "allowed": true, "rule": null, "reason": "no_rule" });
    assert_eq!(status(asking("nobody", "1")).await, unmatched);
    assert_eq!(status(asking("free", "1")).await, json!({ "allowed": true, "rule": "shop/free" }));
    let listed = status(asking("user", "mallory")).await;
    assert_eq!((&listed["allowed"], &listed["listed"]), (&json!(false), &json!("deny")));
    status(asking("watched", "1")).await;
    let watched = status(asking("watched", "1")).await;
    assert_eq!(watched["allowed"], true);
    assert_eq!(watched["shadow"]["allowed"], false);
    assert!(watched["shadow"]["retry_after_ms"].as_u64().unwrap() > 0);
    status(asking("soft", "1")).await;
    assert_eq!(status(asking("soft", "1")).await["soft"], true);
    let limit = r#"{"domain":"shop","descriptors":[{"ip":"1","limit":{"requests_per_unit":5,"unit":"hour"}}]}"#;
    let overridden = status(limit.to_owned()).await;
    assert_eq!(
        (&overridden["limit"], &overridden["quota"], &overridden["remaining"]),
        (&json!("override"), &json!(5), &json!(4))
    );
    status(asking("user", "1").replace("shop", "nowhere")).await;
    assert_eq!(service.telemetry().count(Event::UnknownDomain), 1);
}

#[tokio::test]
async fn both_forms_of_a_descriptor_are_the_same() {
    let (app, ..) = app(Options::default());
    post(&app, "/v1/check", asking("user", "a")).await;
    let long = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"\u0061"}]}]}"#;
    let told = post(&app, "/v1/check", long).await;
    assert_eq!(told.json()["statuses"][0]["remaining"], 0);
}

#[tokio::test]
async fn many_are_judged_one_by_one() {
    let (app, service, _) = app(Options::default());
    let one = asking("user", "a");
    let told = post(
        &app,
        "/v1/check",
        format!(r#"{{"checks":[{one},{one},{one},{}]}}"#, asking("user", "b")),
    )
    .await;
    assert_eq!(told.status, StatusCode::OK);
    assert_eq!(told.limits(), "", "whose would they be?");
    let told = told.json();
    let allowed: Vec<bool> = told["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["allowed"].as_bool().unwrap())
        .collect();
    assert_eq!(allowed, [true, true, false, true]);
    assert_eq!(told["answers"][2]["error"]["code"], "rate_limited");
    assert_eq!(service.telemetry().calls(Endpoint::Check), 1);
    // One that cannot be read: none is judged.
    let broken = format!(r#"{{"checks":[{},{{}}]}}"#, asking("user", "c"));
    assert_eq!(post(&app, "/v1/check", broken).await.status, StatusCode::BAD_REQUEST);
    let told = post(&app, "/v1/check", asking("user", "c")).await;
    assert_eq!(told.json()["statuses"][0]["remaining"], 1);
}

#[tokio::test]
async fn peek_charges_nothing_and_refund_gives_back() {
    let (app, service, _) = app(Options { keys: KeysAccess::Open, ..Options::default() });
    let asked = || asking("team", "a").replace("}]}", r#"}],"hits":2}"#);
    for _ in 0..2 {
        let told = post(&app, "/v1/peek", asked()).await;
        assert_eq!(
            (told.status, told.json()["statuses"][0]["remaining"].clone()),
            (StatusCode::OK, json!(3))
        );
    }
    post(&app, "/v1/check", asked()).await;
    let told = post(&app, "/v1/peek", asked()).await;
    assert_eq!(told.status, StatusCode::OK, "nothing was denied");
    assert_eq!(told.json()["allowed"], false);
    assert_eq!(told.json()["statuses"][0]["retry_after_ms"], 1_000);
    assert!(!told.headers.contains_key("retry-after") && told.json().get("error").is_none());
    assert_eq!(told.headers["x-ratelimit-remaining"], "1");
    let told = post(&app, "/v1/refund", asked()).await;
    assert_eq!(
        (told.status, told.json()["statuses"][0]["remaining"].clone()),
        (StatusCode::OK, json!(3))
    );
    let telemetry = service.telemetry();
    assert_eq!(
        [Endpoint::Peek, Endpoint::Check, Endpoint::Refund]
            .map(|endpoint| telemetry.calls(endpoint)),
        [3, 1, 1]
    );
}

#[tokio::test]
async fn counters_are_for_operators() {
    let token = Token::new("sesame").unwrap();
    let (closed, service, _) =
        app(Options { keys: KeysAccess::Token(token), ..Options::default() });
    let told = post(&closed, "/v1/keys/reset", asking("team", "a")).await;
    assert_eq!(
        (told.status, told.json()["error"]["code"].clone()),
        (StatusCode::UNAUTHORIZED, json!("unauthorized"))
    );
    assert_eq!(told.headers["www-authenticate"], "Bearer");
    assert_eq!(service.telemetry().failures(Endpoint::Keys, Fault::Invalid), 1);
    let with_token = Request::post("/v1/keys/inspect").header("authorization", "Bearer sesame");
    let told = send(&closed, with_token.body(asking("team", "a").into()).unwrap()).await;
    assert_eq!(told.status, StatusCode::OK);
    let (off, ..) = app(Options::default());
    let told = post(&off, "/v1/keys/inspect", asking("team", "a")).await;
    assert_eq!(
        (told.status, told.json()["error"]["code"].clone()),
        (StatusCode::FORBIDDEN, json!("forbidden"))
    );

    let (open, ..) = app(Options { keys: KeysAccess::Open, ..Options::default() });
    post(&open, "/v1/check", asking("team", "a")).await;
    let told = post(&open, "/v1/keys/inspect", asking("team", "a")).await.json();
    assert_eq!(
        told["keys"][0],
        json!({
            "limits": [
                { "allowed": true, "limit": "burst", "algorithm": "token_bucket", "quota": 3, "window_ms": 3_000, "remaining": 2, "reset_after_ms": 1_000 },
                { "allowed": true, "limit": "daily", "algorithm": "fixed_window", "quota": 100, "window_ms": 86_400_000, "remaining": 99, "reset_after_ms": 6_400_000 },
            ],
            "rule": "shop/team",
        })
    );
    let from_a_page = Request::post("/v1/keys/reset").header("origin", "https://evil.test");
    let told = send(&open, from_a_page.body(asking("team", "a").into()).unwrap()).await;
    assert_eq!(told.status, StatusCode::FORBIDDEN, "a page in a browser is no operator");
    let told = post(&open, "/v1/keys/reset", asking("team", "a")).await.json();
    assert_eq!(told["statuses"][0]["remaining"], 3);
    let many = format!(r#"{{"checks":[{}]}}"#, asking("nobody", "a"));
    let told = post(&open, "/v1/keys/inspect", many).await.json();
    assert_eq!(
        told,
        json!({ "answers": [{ "keys": [{ "limits": [], "rule": null, "reason": "no_rule" }] }] })
    );
}

#[tokio::test]
async fn what_would_happen_is_explained_and_not_counted() {
    let (closed, ..) = app(Options::default());
    let told = post(&closed, "/v1/explain", asking("user", "a")).await;
    assert_eq!(told.status, StatusCode::FORBIDDEN, "it shows the rules");

    let (open, service, _) = app(Options { keys: KeysAccess::Open, ..Options::default() });
    let explain = async || post(&open, "/v1/explain", asking("user", "a")).await.json();
    for _ in 0..5 {
        let told = explain().await;
        assert_eq!((&told["allowed"], &told["known_domain"]), (&json!(true), &json!(true)));
        assert_eq!(told["descriptors"][0]["under"]["rule"]["id"], "shop/users");
    }
    while post(&open, "/v1/check", asking("user", "a")).await.status == StatusCode::OK {}
    let told = explain().await;
    assert_eq!(told["allowed"], false);
    assert!(told["why"].as_str().unwrap().contains("shop/users"), "{told}");
    assert_eq!(service.telemetry().calls(Endpoint::Explain), 6);

    let descriptors = vec![r#"{"user":"a"}"#; 33].join(",");
    let many = format!(r#"{{"domain":"shop","descriptors":[{descriptors}]}}"#);
    let told = post(&open, "/v1/explain", many).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert!(told.text.contains("at most 32 are explained at a time, got 33"), "{}", told.text);
}

#[tokio::test]
async fn a_service_that_only_watches_denies_nobody() {
    let (app, service) = in_shadow();
    for _ in 0..3 {
        let told = post(&app, "/v1/check", asking("user", "a")).await;
        assert_eq!((told.status, told.json()["allowed"].clone()), (StatusCode::OK, json!(true)));
    }
    let told = post(&app, "/v1/check", asking("user", "a")).await;
    assert_eq!(told.json()["statuses"][0]["allowed"], false, "as it would have been");
    assert_eq!(told.headers["x-ratelimit-remaining"], "0");
    assert!(!told.headers.contains_key("retry-after") && told.json().get("error").is_none());
    assert_eq!(service.telemetry().count(Event::GlobalShadow), 2);
}

#[tokio::test]
async fn what_is_no_request_is_told_where_and_what_to_do() {
    let (app, service, _) = app(Options::default());
    let told =
        post(&app, "/v1/check", "{\n  \"domain\": \"shop\",\n  \"descriptors\": [{\"user\": 42}]}")
            .await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        told.json(),
        json!({ "error": {
            "code": "invalid_request",
            "message": "line 3, column 29, `descriptors[0].user`: must be a string, got `42`; write it in quotes: \"42\"",
            "context": { "line": 3, "column": 29, "field": "descriptors[0].user" },
        } })
    );
    assert_eq!(service.telemetry().failures(Endpoint::Check, Fault::Invalid), 1);
    let told = post(&app, "/v1/check", vec![b' '; BODY_BYTES_MAX + 1]).await;
    assert_eq!(
        (told.status, told.json()["error"]["code"].clone()),
        (StatusCode::PAYLOAD_TOO_LARGE, json!("body_too_large"))
    );
}

#[tokio::test]
async fn whoever_is_lost_is_shown_the_way() {
    let (app, ..) = app(Options::default());
    let told = post(&app, "/v1/chek", "").await;
    assert_eq!(told.status, StatusCode::NOT_FOUND);
    let message = told.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("there is no `/v1/chek`; there are /v1/check, /v1/peek"),
        "{message}"
    );
    let told = send(&app, Request::get("/v1/check").body(axum::body::Body::empty()).unwrap()).await;
    assert_eq!(
        (told.status, told.headers[ALLOW].clone()),
        (StatusCode::METHOD_NOT_ALLOWED, "POST".parse().unwrap())
    );
    assert_eq!(told.json()["error"]["code"], "method_not_allowed");
}

#[tokio::test]
async fn without_rules_there_is_no_answer() {
    let health = sluicegate_server::health::Health::default();
    let (engine, _) = http_support::engine();
    let service = sluicegate_server::app::App::builder(engine).health(health.clone()).build();
    let app = sluicegate_server::http::router(service.clone(), Options::default());
    let told = post(&app, "/v1/check", asking("user", "a")).await;
    assert_eq!(
        (told.status, told.json()["error"]["code"].clone()),
        (StatusCode::SERVICE_UNAVAILABLE, json!("no_rules"))
    );
    assert_eq!(service.telemetry().failures(Endpoint::Check, Fault::Service), 1);
    health.rules_loaded(1);
    assert_eq!(post(&app, "/v1/check", asking("user", "a")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn everything_has_a_bound() {
    let most =
        BodyLimits { checks: 2, descriptors: 2, batch_descriptors: 3, entries: 2, text_bytes: 8 };
    let (app, ..) = app(Options { limits: most, ..Options::default() });
    let one = r#"{"domain":"shop","descriptors":[{"a":"1"}]}"#;
    let entry = r#"{"key":"a","value":"b"}"#;
    for (body, field) in [
        (format!(r#"{{"checks":[{one},{one},{one}]}}"#), "checks[2]"),
        (
            format!(r#"{{"checks":[{two},{two}]}}"#, two = one.replace("[{", r#"[{"a":"2"},{"#)),
            "checks[1]",
        ),
        (
            r#"{"domain":"shop","descriptors":[{"a":"1"},{"a":"1"},{"a":"1"}]}"#.into(),
            "descriptors[2]",
        ),
        (
            r#"{"domain":"shop","descriptors":[{"a":"1","b":"1","c":"1"}]}"#.into(),
            "descriptors[0].c",
        ),
        (
            format!(
                r#"{{"domain":"shop","descriptors":[{{"entries":[{entry},{entry},{entry}]}}]}}"#
            ),
            "descriptors[0].entries[2]",
        ),
        (r#"{"domain":"shop","descriptors":[{"a":"123456789"}]}"#.into(), "descriptors[0].a"),
        (
            r#"{"domain":"shop","descriptors":[{"abcdefghi":"1"}]}"#.into(),
            "descriptors[0].abcdefghi",
        ),
        (r#"{"domain":"shopshops"}"#.into(), "domain"),
    ] {
        let told = post(&app, "/v1/check", body.clone()).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(told.json()["error"]["context"]["field"], field, "{}", told.text);
    }
}
