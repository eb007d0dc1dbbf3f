//! Who may do what on the admin endpoint: tokens with roles, sessions of browsers, pages of other
//! sites.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Method, Request, StatusCode, header};
use ring::digest;
use serde_json::Value;
use sluicegate::clock::ManualClock;
use sluicegate::config::admin_tokens::{AdminTokenConfig, Role};
use sluicegate::{Engine, rules_of};
use sluicegate_server::admin::{AuditLog, Options, router};
use sluicegate_server::app::App;
use sluicegate_server::http::Peer;
use sluicegate_server::token::Token;
use tower::ServiceExt;

const RULES: &str =
    "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2 } }]";
const ALICE: &str = r#"{"domain":"shop","descriptors":[{"user":"alice"}]}"#;

struct Admin {
    router: Router,
    clock: ManualClock,
    audit: Arc<AuditLog>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

/// A request that is built field by field.
struct Sent<'a> {
    method: Method,
    path: &'a str,
    headers: Vec<(&'static str, &'a str)>,
    body: &'a str,
}

fn of<'a>(method: Method, path: &'a str, headers: &[(&'static str, &'a str)]) -> Sent<'a> {
    Sent { method, path, headers: headers.to_vec(), body: "" }
}

impl Admin {
    fn new(options: Options) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder(rules_of(RULES).unwrap()).clock(clock.clone()).build();
        let audit = options.audit.clone();
        Self { router: router(App::new(engine.unwrap()), options), clock, audit }
    }

    /// With a token of each role, named like it, and the single token `root`.
    fn with_tokens() -> Self {
        let token = |role: Role| {
            let mut sha256 = [0; 32];
            let secret = format!("secret of {}", role.name());
            sha256.copy_from_slice(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
            AdminTokenConfig { name: role.name().into(), role, sha256 }
        };
        let tokens = Arc::new(arc_swap::ArcSwap::default());
        tokens.store(Arc::new(Role::ALL.map(token).to_vec()));
        let token = Some(Token::new("root").unwrap());
        Self::new(Options { token, tokens: Some(tokens), is_loopback: true, ..Options::default() })
    }

    async fn send(&self, sent: Sent<'_>) -> Answer {
        let mut request = Request::builder().method(sent.method).uri(sent.path);
        for (name, value) in sent.headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Body::from(sent.body.to_owned())).unwrap();
        request.extensions_mut().insert(Peer(IpAddr::from([127, 0, 0, 1])));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Answer { status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// Logs a browser in; the cookie.
    async fn log_in(&self, secret: &str) -> String {
        let body = format!("token={}&next=%2Fconsole%2Frules", secret.replace(' ', "+"));
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let sent = Sent { body: &body, ..of(Method::POST, "/console/login", &headers) };
        let answer = self.send(sent).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        assert_eq!(answer.headers[header::LOCATION], "/console/rules");
        let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        cookie.split(';').next().unwrap().to_owned()
    }
}

impl Answer {
    fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

#[tokio::test]
async fn a_role_allows_what_it_says_and_changes_are_recorded() {
    let admin = Admin::with_tokens();
    for (secret, reads, resets) in [
        ("secret of read", 200, 403),
        ("secret of operate", 200, 200),
        ("secret of edit", 200, 200),
        ("root", 200, 200),
        ("secret", 401, 401),
    ] {
        let bearer = format!("Bearer {secret}");
        let headers = [("authorization", bearer.as_str())];
        let inspected = Sent { body: ALICE, ..of(Method::POST, "/api/v1/keys/inspect", &headers) };
        assert_eq!(admin.send(inspected).await.status, reads, "{secret}");
        let reset = Sent { body: ALICE, ..of(Method::POST, "/api/v1/keys/reset", &headers) };
        let reset = admin.send(reset).await;
        assert_eq!(reset.status, resets, "{secret}: {}", reset.body);
        if resets == 403 {
            assert!(
                reset.body.contains("needs the role `operate`, and the token `read` has `read`")
            );
        }
    }
    let entries = admin.audit.last(10);
    let who: Vec<_> = entries.iter().map(|one| (one.caller.as_str(), one.action)).collect();
    assert_eq!(who, [("admin", "keys.reset"), ("edit", "keys.reset"), ("operate", "keys.reset")]);
    assert!(entries[0].target.contains("alice"));
}

#[tokio::test]
async fn a_browser_logs_in_works_and_logs_out() {
    let admin = Admin::with_tokens();
    let page = [("accept", "text/html")];
    let answer = admin.send(of(Method::GET, "/console/rules?x=1", &page)).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(answer.headers[header::LOCATION], "/console/login?next=%2Fconsole%2Frules%3Fx%3D1");
    let cookie = admin.log_in("secret of operate").await;
    let headers = [("cookie", cookie.as_str()), ("accept", "text/html")];
    let answer = admin.send(of(Method::GET, "/console/rules", &headers)).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.body.contains("operate (operate)") && answer.body.contains("shop/user"));
    let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(!answer.body.contains("secret"));

    let own = [
        ("cookie", cookie.as_str()),
        ("origin", "http://10.0.0.7:6070"),
        ("host", "10.0.0.7:6070"),
    ];
    let reset = Sent { body: ALICE, ..of(Method::POST, "/api/v1/keys/reset", &own) };
    assert_eq!(admin.send(reset).await.status, StatusCode::OK);

    let answer = admin.send(of(Method::POST, "/console/logout", &own)).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert!(answer.headers[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    let answer = admin.send(of(Method::GET, "/console/rules", &headers)).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "the session has ended");
}

#[tokio::test]
async fn a_session_ends_by_time_and_a_wrong_token_begins_none() {
    let admin = Admin::with_tokens();
    let cookie = admin.log_in("secret of edit").await;
    let headers = [("cookie", cookie.as_str())];
    let status = async || admin.send(of(Method::GET, "/api/v1/audit", &headers)).await.status;
    admin.clock.advance(Duration::from_secs(59 * 60));
    assert_eq!(status().await, StatusCode::OK);
    admin.clock.advance(Duration::from_secs(60 * 60));
    assert_eq!(status().await, StatusCode::UNAUTHORIZED);

    let form = [("content-type", "application/x-www-form-urlencoded")];
    let wrong = || Sent { body: "token=wrong", ..of(Method::POST, "/console/login", &form) };
    for _ in 0..10 {
        let answer = admin.send(wrong()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert!(answer.headers.get(header::SET_COOKIE).is_none());
        assert!(answer.body.contains("not a token of this node"));
    }
    let right = Sent { body: "token=root", ..of(Method::POST, "/console/login", &form) };
    assert_eq!(admin.send(right).await.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing() {
    let admin = Admin::with_tokens();
    let cookie = admin.log_in("secret of edit").await;
    let cookie = ("cookie", cookie.as_str());
    let host = ("host", "127.0.0.1:6070");
    for headers in [
        vec![cookie, host, ("origin", "http://evil.example")],
        vec![cookie, host, ("origin", "null")],
        vec![cookie, host, ("sec-fetch-site", "cross-site")],
        vec![cookie, host, ("sec-fetch-site", "same-site")],
    ] {
        let reset = Sent { body: ALICE, ..of(Method::POST, "/api/v1/keys/reset", &headers) };
        let answer = admin.send(reset).await;
        assert_eq!((answer.status, &*answer.code()), (StatusCode::FORBIDDEN, "other_site"));
        let login = of(Method::POST, "/console/login", &headers);
        assert_eq!(admin.send(login).await.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(admin.audit.last(10).iter().filter(|one| one.action == "keys.reset").count(), 0);
}

#[tokio::test]
async fn without_tokens_loopback_is_open_to_programs_and_not_to_other_sites() {
    let admin = Admin::new(Options { is_loopback: true, ..Options::default() });
    let status = async |headers: &[(&'static str, &'static str)]| {
        let reset = Sent { body: ALICE, ..of(Method::POST, "/api/v1/keys/reset", headers) };
        admin.send(reset).await.status
    };
    assert_eq!(status(&[]).await, StatusCode::OK);
    assert_eq!(status(&[("host", "127.0.0.1:6070")]).await, StatusCode::OK);
    assert_eq!(status(&[("host", "[::1]:6070")]).await, StatusCode::OK);
    let own = [("host", "localhost:6070"), ("origin", "http://localhost:6070")];
    assert_eq!(status(&own).await, StatusCode::OK);
    let other = [("host", "localhost:6070"), ("origin", "http://evil.example")];
    assert_eq!(status(&other).await, StatusCode::FORBIDDEN);
    // A name of another site that resolves to loopback.
    let rebound = [("host", "evil.example:6070"), ("origin", "http://evil.example:6070")];
    assert_eq!(status(&rebound).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn off_loopback_the_console_needs_a_token() {
    let admin = Admin::new(Options::default());
    for path in ["/api/v1/audit", "/console/rules"] {
        let answer = admin.send(of(Method::GET, path, &[])).await;
        assert_eq!(
            (answer.status, &*answer.code()),
            (StatusCode::FORBIDDEN, "no_tokens"),
            "{path}"
        );
        assert!(answer.body.contains("--admin-token"));
    }
    for path in ["/metrics", "/ready", "/live", "/config"] {
        assert_eq!(admin.send(of(Method::GET, path, &[])).await.status, StatusCode::OK, "{path}");
    }
    // A file of tokens without a token opens nothing.
    let tokens = Some(Arc::default());
    let admin = Admin::new(Options { tokens, is_loopback: true, ..Options::default() });
    let answer = admin.send(of(Method::GET, "/metrics", &[])).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}
