//! `/v1/forward-auth`, as proxies ask it: exact headers and bodies. Real ones are in `crates/cli/tests/proxies`.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use axum::Router;
use axum::body::Body as HttpBody;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_support::{Told, engine_of, post, send};
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate::clock::ManualClock;
use sluicegate::config::rules::{Options as LoadOptions, Source, load};
use sluicegate::rules::set::RuleSet;
use sluicegate::{Engine, rules_of};
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{ErrorFormat, HttpLimits, HttpServer, Options, Peer, router, routes};
use sluicegate_server::rls::Options as RlsOptions;
use sluicegate_server::telemetry::{Endpoint, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const WEB: &str = "
domain: web
deny: [{ key: user, value: mallory }]
forward_auth:
  trusted_proxies: [10.0.0.0/8, ::1]
  hits: header X-Cost
  descriptors:
    - { remote_address: client_ip }
    - { user: header X-User, path: path }
    - { user: header X-User }
    - { key: query key }
descriptors:
  - { key: remote_address, limits: { name: addresses, algorithm: fixed_window, rate: 2/h } }
  - key: user
    descriptors:
      - { key: path, value: /login, limits: { name: logins, algorithm: fixed_window, rate: 1/h } }
  - { key: key, limits: { name: keys, algorithm: fixed_window, rate: 1/h } }
";

fn app_of(rules: &str, options: Options) -> (Router, App, ManualClock) {
    let (engine, clock) = engine_of(rules);
    let service = App::new(engine);
    (router(service.clone(), options), service, clock)
}

fn app() -> (Router, App, ManualClock) {
    app_of(WEB, Options::default())
}

/// What a proxy sends.
fn asking(peer: &str, path: &str, headers: &[(&str, &str)]) -> Request<HttpBody> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.extension(Peer(peer.parse().unwrap())).body(HttpBody::empty()).unwrap()
}

async fn ask(app: &Router, headers: &[(&str, &str)]) -> Told {
    send(app, asking("10.0.0.1", "/v1/forward-auth", headers)).await
}

async fn statuses<const N: usize>(app: &Router, headers: &[(&str, &str)]) -> [u16; N] {
    let mut statuses = [0; N];
    for status in &mut statuses {
        *status = ask(app, headers).await.status.as_u16();
    }
    statuses
}

fn code(told: &Told) -> String {
    told.json()["error"]["code"].as_str().unwrap().to_owned()
}

fn message(told: &Told) -> String {
    told.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_address_has_its_limit_and_hears_of_it() {
    let (app, service, _) = app();
    let client = [("X-Forwarded-For", "203.0.113.9")];
    let told = ask(&app, &client).await;
    assert_eq!((told.status, told.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(
        told.limits(),
        "ratelimit-policy: \"addresses\";q=2;w=3600\n\
         ratelimit: \"addresses\";r=1;t=2800\n\
         x-ratelimit-limit: 2\n\
         x-ratelimit-remaining: 1\n\
         x-ratelimit-reset: 1700002800"
    );
    ask(&app, &client).await;
    let told = ask(&app, &client).await;
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        told.limits(),
        "ratelimit-policy: \"addresses\";q=2;w=3600\n\
         ratelimit: \"addresses\";r=0;t=2800\n\
         retry-after: 2800\n\
         x-ratelimit-limit: 2\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 1700002800\n\
         x-ratelimit-retry-after: 2800"
    );
    assert_eq!(
        told.text,
        r#"{"error":{"code":"rate_limited","message":"Request quota exceeded. Wait 47 minutes and try again.","context":{"renewal":1700002800000,"limit":"addresses","retry_after_ms":2800000}},"allowed":false,"statuses":[{"allowed":false,"rule":"web/remote_address","limit":"addresses","quota":2,"remaining":0,"reset_after_ms":2800000,"retry_after_ms":2800000}]}"#
    );
    assert_eq!(told.headers[CONTENT_TYPE], "application/json");
    assert!(!told.headers.contains_key("x-sluicegate-error"), "the body gets through");
    assert_eq!(ask(&app, &[("X-Forwarded-For", "203.0.113.10")]).await.status, StatusCode::OK);
    let telemetry = service.telemetry();
    assert_eq!((telemetry.calls(Endpoint::ForwardAuth), telemetry.calls(Endpoint::Check)), (4, 0));
}

#[tokio::test]
async fn a_denied_slot_has_the_estimate_of_its_release() {
    let rules = "
domain: web
forward_auth: { trusted_proxies: [10.0.0.0/8], descriptors: [{ calls: header X-User }] }
descriptors:
  - { key: calls, limits: { name: calls, algorithm: concurrency, max: 1, lease: 60s } }
";
    let (app, _, clock) = app_of(rules, Options::default());
    let check = r#"{"domain":"web","descriptors":[{"calls":"a"}]}"#;
    let denied = async || {
        let response = ask(&app, &[("X-User", "a")]).await;
        assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
        response
    };
    let first = post(&app, "/v1/check", check).await.json()["reservation"].clone();
    assert_eq!(denied().await.headers["retry-after"], "60");
    clock.advance(Duration::from_secs(8));
    post(&app, "/v1/cancel", format!(r#"{{"reservation":{first}}}"#)).await;
    post(&app, "/v1/check", check).await;
    clock.advance(Duration::from_secs(3));
    let response = denied().await;
    assert_eq!(response.headers["retry-after"], "5", "8 seconds on average, 3 are over");
    assert_eq!(response.json()["statuses"][0]["estimated"], true);
}

/// As Traefik 3 sends them to `address`; and Caddy, but for `X-Forwarded-Port` and `-Server`.
#[tokio::test]
async fn traefik_tells_of_a_request() {
    let (app, ..) = app();
    let headers = [
        ("Accept", "*/*"),
        ("User-Agent", "curl/8.5.0"),
        ("X-User", "42"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Host", "shop.example"),
        ("X-Forwarded-Method", "POST"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Server", "edge-1"),
        ("X-Forwarded-Uri", "/login?next=%2F"),
        ("X-Real-Ip", "203.0.113.9"),
    ];
    let told = ask(&app, &headers).await;
    assert_eq!(
        (told.status, &told.headers["x-ratelimit-limit"]),
        (StatusCode::OK, &"1".parse().unwrap())
    );
    let told = ask(&app, &headers).await;
    assert_eq!(
        (told.status, code(&told).as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "rate_limited")
    );
}

#[tokio::test]
async fn any_method_will_do() {
    let (app, ..) = app();
    let client = [("X-Forwarded-For", "203.0.113.9")];
    for method in ["HEAD", "POST", "DELETE", "OPTIONS", "PROPFIND"] {
        let mut request = asking("10.0.0.1", "/v1/forward-auth/web", &client);
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        let expected = if ["HEAD", "POST"].contains(&method) { 200 } else { 429 };
        assert_eq!(send(&app, request).await.status.as_u16(), expected, "{method}");
    }
}

#[tokio::test]
async fn nobody_but_a_trusted_proxy_is_believed() {
    let (app, service, _) = app();
    let client = [("X-Forwarded-For", "203.0.113.9")];
    for peer in ["192.0.2.1", "127.0.0.1", "2001:db8::1"] {
        let told = send(&app, asking(peer, "/v1/forward-auth", &client)).await;
        assert_eq!((told.status, code(&told).as_str()), (StatusCode::FORBIDDEN, "untrusted_proxy"));
        assert_eq!(
            message(&told),
            format!(
                "the proxy at {peer} is not trusted; if it is yours, add its network to `trusted_proxies` in \
                 `forward_auth` of domain `web`"
            )
        );
        assert_eq!(told.limits(), "");
    }
    for peer in ["::ffff:10.0.0.1", "::1"] {
        let told = send(&app, asking(peer, "/v1/forward-auth", &client)).await;
        assert_eq!(told.status, StatusCode::OK, "nothing was charged before: {peer}");
    }
    assert_eq!(service.telemetry().failures(Endpoint::ForwardAuth, Fault::Invalid), 3);
    let unknown = Request::get("/v1/forward-auth").body(HttpBody::empty()).unwrap();
    assert_eq!(code(&send(&app, unknown).await), "untrusted_proxy");
}

#[tokio::test]
async fn a_client_cannot_make_up_who_it_is() {
    let (app, ..) = app();
    for made_up in ["1.1.1.1", "2.2.2.2", "10.0.0.7"] {
        let told = format!("{made_up}, 203.0.113.9, 10.0.0.2");
        let expected = if made_up == "10.0.0.7" { 429 } else { 200 };
        assert_eq!(statuses(&app, &[("X-Forwarded-For", &told)]).await, [expected], "{made_up}");
    }
}

#[tokio::test]
async fn headers_that_disagree_are_refused() {
    let (app, ..) = app();
    for (one, other) in [
        (("X-Forwarded-Uri", "/cheap"), ("X-Original-URI", "/login")),
        (("X-Forwarded-Method", "GET"), ("X-Original-Method", "POST")),
        (("X-Forwarded-Host", "a.example"), ("X-Forwarded-Host", "b.example")),
    ] {
        let told = ask(&app, &[one, other]).await;
        assert_eq!(
            (told.status, code(&told).as_str()),
            (StatusCode::BAD_REQUEST, "conflicting_headers")
        );
        assert!(message(&told).contains(&format!("`{}`", other.0)), "{}", message(&told));
    }
    let agreed = [("X-Forwarded-Uri", "/x?key=1"), ("X-Original-URI", "/x?key=1")];
    assert_eq!(statuses(&app, &agreed).await, [200, 429]);
    assert_eq!(statuses(&app, &[("X-Original-URI", "/x?key=1")]).await, [429], "one as the other");
}

#[tokio::test]
async fn one_place_is_one_place_however_it_is_written() {
    let (app, ..) = app();
    let mut statuses = Vec::new();
    for (at, path) in
        ["/login", "//login", "/%6cogin", "/x/../login?y", "/login/"].iter().enumerate()
    {
        let client = format!("203.0.113.{at}");
        let headers = [("X-User", "42"), ("X-Forwarded-Uri", path), ("X-Forwarded-For", &client)];
        statuses.push(ask(&app, &headers).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 429, 429, 200]);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_not_charged() {
    let (app, ..) = app();
    let client = ("X-Forwarded-For", "203.0.113.9");
    for (header, why) in [
        (("X-Cost", "many"), "`header X-Cost` of the request is no whole number; "),
        (
            ("X-Forwarded-Uri", "/?key=%zz"),
            "`query key` of the request has a `%` without two hexadecimal digits behind it; ",
        ),
    ] {
        let told = ask(&app, &[client, header]).await;
        assert_eq!(
            (told.status, code(&told).as_str()),
            (StatusCode::BAD_REQUEST, "invalid_request")
        );
        assert!(message(&told).starts_with(why), "{}", message(&told));
    }
    assert_eq!(statuses(&app, &[client, ("X-Cost", "2")]).await, [200, 429]);
}

#[tokio::test]
async fn whom_no_rule_is_for_may_pass() {
    let (app, ..) =
        app_of(&WEB.replace("    - { remote_address: client_ip }\n", ""), Options::default());
    let told = ask(&app, &[("X-Forwarded-For", "203.0.113.9"), ("X-User", "42")]).await;
    assert_eq!((told.status, told.limits().as_str()), (StatusCode::OK, ""));
    assert_eq!(statuses(&app, &[]).await, [200; 3]);
    let told = ask(&app, &[("X-User", "mallory")]).await;
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS, "a list is for everybody");
}

#[tokio::test]
async fn the_domain_is_in_the_path_if_there_is_a_choice() {
    let (app, ..) = app();
    for path in ["/v1/forward-auth/web", "/v1/forward-auth/", "/v1/forward-auth/w%65b"] {
        let told = send(&app, asking("10.0.0.1", path, &[])).await;
        let expected = if path.ends_with("w%65b") { 429 } else { 200 };
        assert_eq!(told.status.as_u16(), expected, "{path}");
    }
    let told = send(&app, asking("10.0.0.1", "/v1/forward-auth/shop", &[])).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        message(&told),
        "domain `shop` has no `forward_auth` in the rules; there are /v1/forward-auth/web"
    );
    let told = send(&app, asking("10.0.0.1", "/v1/forward-auth/%ff", &[])).await;
    assert_eq!(message(&told), "the domain in the path is not UTF-8");

    let (none, ..) = app_of("domain: shop", Options::default());
    let told = ask(&none, &[]).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert!(message(&told).starts_with("no domain of the rules has `forward_auth`"));
}

#[tokio::test]
async fn of_several_domains_one_must_be_named() {
    let both = [WEB.to_owned(), WEB.replace("domain: web", "domain: a/b")]
        .map(|text| Source { name: "rules".to_owned(), text });
    let rules = RuleSet::new(load(&both, &LoadOptions::default()).unwrap().domains).unwrap();
    let app = router(App::new(Engine::new(rules).unwrap()), Options::default());
    let told = ask(&app, &[]).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        message(&told),
        "several domains have `forward_auth`; use one of them: /v1/forward-auth/web, /v1/forward-auth/a/b"
    );
    let told = send(&app, asking("10.0.0.1", "/v1/forward-auth/a/b", &[])).await;
    assert_eq!(told.status, StatusCode::OK);
}

#[tokio::test]
async fn nginx_gets_a_status_that_it_understands_and_the_error_in_a_header() {
    let rules = WEB
        .replace("  hits:", "  deny_status: 403\n  hits:")
        .replace("name: addresses", "name: 'é\"🦀'");
    let (app, ..) = app_of(&rules, Options::default());
    let client = [("X-Forwarded-For", "203.0.113.9"), ("X-Cost", "2")];
    assert_eq!(statuses(&app, &client).await, [200]);
    let told = ask(&app, &client).await;
    assert_eq!(told.status, StatusCode::FORBIDDEN);
    let error = told.headers["x-sluicegate-error"].to_str().unwrap();
    assert!(error.contains(r#""limit":"\u00e9\"\ud83e\udd80""#), "{error}");
    let error: serde_json::Value = serde_json::from_str(error).unwrap();
    assert_eq!(error, told.json()["error"]);
    assert_eq!(told.headers["retry-after"], "2800");
}

#[tokio::test]
async fn a_denial_is_told_as_elsewhere() {
    let options = Options { error_format: ErrorFormat::Problem, ..Options::default() };
    let (app, ..) = app_of(&WEB.replace("  hits:", "  deny_status: 503\n  hits:"), options);
    let told = ask(&app, &[("X-Cost", "3")]).await;
    assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told.headers[CONTENT_TYPE], "application/problem+json");
    assert_eq!(
        (told.json()["status"].as_u64(), told.json()["code"].as_str()),
        (Some(503), Some("rate_limited"))
    );

    let health = Health::default();
    health.rules_loaded(1);
    let shadow = RlsOptions { shadow_mode: true, ..RlsOptions::default() };
    let service = App::builder(engine_of(WEB).0).options(shadow).health(health).build();
    let app = router(service, Options::default());
    assert_eq!(statuses(&app, &[]).await, [200; 4], "the whole service only watches");

    let service = App::builder(engine_of(WEB).0).health(Health::default()).build();
    let told = ask(&router(service, Options::default()), &[]).await;
    assert_eq!((told.status, code(&told).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "no_rules"));
}

/// A whole connection: who is at its other end is known to whoever answers.
#[tokio::test]
async fn the_peer_is_that_of_the_connection() {
    for (peer, status) in [("10.0.0.1", "200"), ("192.0.2.1", "403")] {
        let (_, service, _) = app();
        let server = HttpServer::new(
            routes(service.clone(), Options::default()),
            service,
            HttpLimits::default(),
        );
        let (mut client, io) = duplex(1 << 16);
        let peer = peer.parse().unwrap();
        let served = tokio::spawn(async move {
            server.connection(Some(peer), io, std::future::pending()).await;
        });
        let request = "GET /v1/forward-auth HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        served.await.unwrap();
    }
}

#[tokio::test]
async fn the_peer_is_known_over_http_2_too() {
    let (_, service, _) = app();
    let server = HttpServer::new(
        routes(service.clone(), Options::default()),
        service,
        HttpLimits::default(),
    );
    let (client, io) = duplex(1 << 16);
    let peer = "10.0.0.1".parse().unwrap();
    tokio::spawn(async move { server.connection(Some(peer), io, std::future::pending()).await });
    let (mut client, connection) = h2::client::handshake(client).await.unwrap();
    tokio::spawn(connection);
    for (cost, status) in [("2", 200), ("1", 429)] {
        let request = Request::get("http://x/v1/forward-auth").header("x-cost", cost).body(());
        let (answer, _) = client.send_request(request.unwrap(), true).unwrap();
        assert_eq!(answer.await.unwrap().status().as_u16(), status);
    }
}

#[tokio::test]
async fn what_is_loaded_anew_counts_at_once() {
    let (app, service, _) = app();
    let there = || asking("192.0.2.1", "/v1/forward-auth", &[]);
    assert_eq!(send(&app, there()).await.status, StatusCode::FORBIDDEN);
    let anew = WEB.replace("[10.0.0.0/8, ::1]", "192.0.2.0/24");
    service.engine().reload(rules_of(&anew).unwrap()).unwrap();
    assert_eq!(send(&app, there()).await.status, StatusCode::OK);
    assert_eq!(ask(&app, &[]).await.status, StatusCode::FORBIDDEN);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a client sends through a proxy: an answer, and never an error of ours.
    #[test]
    fn any_headers_are_answered(
        lines in vec((0_usize..8, "[\\x20-\\x7e\\u{80}-\\u{ff}]{0,24}"), 0..8),
    ) {
        let names = [
            "x-forwarded-for", "forwarded", "x-forwarded-uri", "x-original-uri", "x-user", "x-cost", "cookie", "x-forwarded-host",
        ];
        let mut request = asking("10.0.0.1", "/v1/forward-auth", &[]);
        for (name, line) in lines {
            let bytes: Vec<u8> = line.chars().map(|letter| letter as u8).collect();
            request.headers_mut().append(names[name], bytes.try_into().unwrap());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let told = runtime.block_on(send(&app().0, request));
        prop_assert!(matches!(told.status.as_u16(), 200 | 400 | 429), "{}: {}", told.status, told.text);
    }
}
