//! Paths, hosts and methods, as the upstream gets them.

use http::Method;
use sluicegate_config::gateway::route::{Action, RouteConfig};
use sluicegate_config::gateway::upstream::Balance;

use super::*;
use crate::route::{Found, RouteTable};

/// A server that answers with the first line and the hosts of a request.
async fn echo() -> String {
    server(|_, mut socket| async move {
        while let Some(head) = read_head(&mut socket).await {
            let is_shown = |line: &&str| {
                let line = line.to_ascii_lowercase();
                line.contains("http/1.1") || line.contains("host:")
            };
            let body = head.lines().filter(is_shown).collect::<Vec<_>>().join("|");
            let length = body.len();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            socket.write_all(response.as_bytes()).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn the_path_that_was_matched_is_forwarded() {
    let mut config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), Vec::new(), None);
    config.upstreams = vec![upstream(&echo().await)];
    config.routes = vec![RouteConfig::forward("/public/*", 0)];
    let gateway = RunningGateway::start(config).await;
    for (path, forwarded) in [
        ("/public/a?x=/../y", "GET /public/a?x=/../y HTTP/1.1"),
        ("//public//a", "GET /public/a HTTP/1.1"),
        ("/x/%2e%2e/public/a", "GET /public/a HTTP/1.1"),
        ("/%70ublic/a%2fb", "GET /public/a%2Fb HTTP/1.1"),
        ("/public/a;x=1", "GET /public/a;x=1 HTTP/1.1"),
    ] {
        let response = gateway.get(path).await;
        assert!(response.contains(forwarded), "{path}: {response}");
    }
    for path in ["/public/../admin", "/public/%2e%2e/admin", "/public/..//admin", "/publ%69c2"] {
        let response = gateway.get(path).await;
        assert!(response.starts_with("HTTP/1.1 404 "), "{path}: {response}");
    }
    for path in ["/public/..;/admin", "/public/%00", "/public/%zz", "/public/..%2Fadmin"] {
        let response = gateway.get(path).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{path}: {response}");
    }
}

#[test]
fn a_route_whose_path_no_request_has_is_refused() {
    let refusal = |path: &str| {
        let table = RouteTable::new(&[RouteConfig::forward(path, 0)]);
        table.err().map(|errors| errors[0].message(|_| String::new()))
    };
    for path in ["/users/@me", "/users/{id}/*", "/", "/*", "/caf%C3%A9", "/a.b/"] {
        assert_eq!(refusal(path), None, "{path}");
    }
    for (path, remedy) in [
        ("/a//b", "write `/a/b`"),
        ("/caf\u{e9}", "write `/caf%C3%A9`"),
        ("/users/%40me", "write `/users/@me`"),
        ("/a;b", "write it without `;`"),
        ("/{id}//b", "write it without `;`"),
        ("/a%2Fb", "write it without `;`"),
        ("/star*", "a prefix ends in `/*`"),
        ("/a*/b", "a prefix ends in `/*`"),
    ] {
        let message = refusal(path).unwrap();
        assert!(message.contains(remedy), "{path}: {message}");
    }
}

#[test]
fn a_method_without_a_route_of_its_own_is_of_the_next_one() {
    let route = |path: &str, methods: &[&str]| {
        let methods = methods.iter().map(ToString::to_string).collect();
        RouteConfig { methods, ..RouteConfig::forward(path, 0) }
    };
    let table = RouteTable::new(&[
        route("/*", &["GET"]),
        route("/login/*", &["PUT"]),
        route("/login", &["POST"]),
        route("/users/{id}", &[]),
        route("/users/me", &["POST"]),
    ]);
    let table = table.unwrap();
    for (method, path, found) in [
        (Method::POST, "/login", Found::Route(2)),
        (Method::PUT, "/login", Found::Route(1)),
        (Method::GET, "/login", Found::Route(0)),
        (Method::GET, "/login/x", Found::Route(0)),
        (Method::POST, "/login/x", Found::OtherMethod),
        (Method::DELETE, "/login", Found::OtherMethod),
        (Method::POST, "/users/me", Found::Route(4)),
        (Method::PUT, "/users/me", Found::Route(3)),
        (Method::GET, "/", Found::Route(0)),
    ] {
        assert_eq!(table.find("any", path, &method), found, "{method} {path}");
    }
}

#[tokio::test]
async fn a_route_strips_a_prefix_and_sets_the_host() {
    let mut config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), Vec::new(), None);
    config.upstreams = vec![upstream(&echo().await)];
    let mut route = RouteConfig::forward("/api/*", 0);
    route.action = Action::Forward {
        upstream: 0,
        strip_prefix: Some("/api".to_owned()),
        host: Some("internal".to_owned()),
    };
    config.routes = vec![route];
    let gateway = RunningGateway::start(config).await;
    let response = gateway.get("/api/users?a=b").await.to_ascii_lowercase();
    assert!(response.contains("get /users?a=b http/1.1"), "{response}");
    assert!(response.contains("|host: internal"), "{response}");
    assert!(response.contains("x-forwarded-host: a"), "{response}");
}

#[tokio::test]
async fn connect_is_refused() {
    let gateway = RunningGateway::forwarding(upstream(&echo().await)).await;
    let request = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nConnection: close\r\n\r\n";
    let response = gateway.exchange(request).await;
    assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
}

#[tokio::test]
async fn a_key_stays_at_its_server() {
    let (one, two) = (named_server("one").await, named_server("two").await);
    let config = UpstreamConfig {
        balance: Balance::Hash("header X-User".parse().unwrap()),
        ..upstreams(&[&one, &two])
    };
    let gateway = RunningGateway::forwarding(config).await;
    let mut servers = std::collections::HashSet::new();
    for user in 0..16 {
        let request =
            format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\nConnection: close\r\n\r\n");
        let first = gateway.exchange(&request).await;
        let server = first.rsplit("\r\n\r\n").next().unwrap().to_owned();
        for _ in 0..3 {
            assert!(gateway.exchange(&request).await.ends_with(&server), "{user}");
        }
        servers.insert(server);
    }
    assert_eq!(servers.len(), 2, "16 keys on one of two servers");
}
