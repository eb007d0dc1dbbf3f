//! Who is limited: credentials, fields of bodies, and addresses behind proxies.

use std::fs;
use std::path::PathBuf;

use sluicegate_config::gateway::route::{Credential, LimitConfig, OnMissing};
use sluicegate_config::gateway::{ApiKeysConfig, GatewayConfig};
use sluicegate_rules::mapping::Mapping;

use super::*;
use crate::identity::hash_key;

/// A gateway whose rule admits two requests a day of each value.
async fn limited_by(part: &str, change: impl FnOnce(&mut GatewayConfig)) -> RunningGateway {
    let url = server(|_, mut socket| async move {
        // Echoes head and body.
        while let Some(head) = read_head(&mut socket).await {
            let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
                true => read_until(&mut socket, "0\r\n\r\n").await.unwrap(),
                false => {
                    let head = head.to_lowercase();
                    let length = head.split("content-length: ").nth(1);
                    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
                    let mut body = vec![0; length.unwrap_or(0)];
                    socket.read_exact(&mut body).await.unwrap();
                    String::from_utf8(body).unwrap()
                }
            };
            let echo = format!("{head}{body}");
            let length = echo.len();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{echo}");
            socket.write_all(response.as_bytes()).await.unwrap();
        }
    });
    let mut config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), Vec::new(), None);
    config.upstreams = vec![upstream(&url.await)];
    let mapping = Mapping {
        descriptors: vec![vec![("who".into(), part.parse().unwrap())].into()],
        hits: None,
    };
    config.routes[0].limit =
        Some(LimitConfig { on_missing: OnMissing::Pass, ..LimitConfig::new("test", mapping) });
    change(&mut config);
    let rules = "domain: test\ndescriptors:\n  - key: who\n    prefix: { v6: 64 }\n    limits:\n      - \
                 { algorithm: fixed_window, rate: 2/d }\n";
    RunningGateway::with_rules(config, Some(rules.to_owned())).await
}

fn request(line: &str, headers: &str, body: &str) -> String {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}{length}\r\n{body}")
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default()
}

async fn statuses(gateway: &RunningGateway, requests: &[String]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(status(&gateway.exchange(request).await));
    }
    statuses
}

fn key_file(name: &str, keys: &[(&str, &str)]) -> PathBuf {
    let name = format!("sluicegate-gateway-keys-{}-{name}.yaml", std::process::id());
    let path = std::env::temp_dir().join(name);
    write_keys(&path, keys);
    path
}

fn write_keys(path: &PathBuf, keys: &[(&str, &str)]) {
    let line =
        |(name, key): &(&str, &str)| format!("- {{ name: {name}, sha256: {} }}\n", hash_key(key));
    fs::write(path, keys.iter().map(line).collect::<String>()).unwrap();
}

#[tokio::test]
async fn api_keys_are_limited_each_and_required() {
    let file = key_file("required", &[("acme", "one"), ("shop", "two")]);
    let api_keys = ApiKeysConfig { file: file.clone(), header: None, query: None, forward: false };
    let gateway = limited_by("api_key", |config| {
        config.identity.api_keys = Some(api_keys);
        config.routes[0].require = Some(Credential::ApiKey);
    });
    let gateway = gateway.await;
    let with = |key: &str| request("GET /", &format!("X-API-Key: {key}\r\n"), "");
    let requests = [with("one"), with("one"), with("one"), with("two"), with("three")];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429, 200, 401]);
    let refused = gateway.exchange(&with("three")).await.to_lowercase();
    assert!(refused.contains("www-authenticate: apikey\r\n"), "{refused}");
    assert!(refused.contains(r#"{"error":{"code":"unauthorized""#), "{refused}");
    let admitted = gateway.exchange(&with("two")).await.to_lowercase();
    assert!(!admitted.contains("x-api-key"), "the upstream does not get it: {admitted}");
    let page = gateway.metrics().await;
    assert!(page.contains("sluicegate_gateway_unauthorized_total 2"), "{page}");
    fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_key_of_the_query_does_not_reach_the_upstream() {
    let file = key_file("query", &[("acme", "one")]);
    let (header, query) = (None, Some("key".to_owned()));
    let api_keys = ApiKeysConfig { file: file.clone(), header, query, forward: false };
    let gateway = limited_by("api_key", |config| config.identity.api_keys = Some(api_keys)).await;
    let response = gateway.exchange(&request("GET /x?a=1&key=one&b=2", "", "")).await;
    assert!(response.contains("GET /x?a=1&b=2 HTTP/1.1"), "{response}");
    fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn fields_of_bodies_are_limited_and_bodies_forwarded_as_they_came() {
    let gateway = limited_by("json user.id", |config| {
        config.identity.body.bytes_max = 100;
    })
    .await;
    let json = "Content-Type: application/json\r\n";
    let of = |user: &str| request("POST /", json, &format!(r#"{{"user":{{"id":"{user}"}}}}"#));
    let requests = [of("a"), of("a"), of("a"), of("b")];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429, 200]);
    let response = gateway.exchange(&of("b")).await;
    assert!(response.ends_with(r#"{"user":{"id":"b"}}"#), "{response}");
    // In chunks.
    let chunked = |user: &str| {
        let chunks = format!("8\r\n{{\"user\":\r\nb\r\n{{\"id\":\"{user}\"}}}}\r\n0\r\n\r\n");
        let headers = format!("{json}Transfer-Encoding: chunked\r\n");
        format!("{}{chunks}", request("POST /", &headers, ""))
    };
    let requests = [chunked("c"), chunked("c"), chunked("c")];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429]);
    // Too long or malformed: the part is missing, and the body is forwarded whole.
    let long = format!(r#"{{"user":{{"id":"a"}},"x":"{}"}}"#, "y".repeat(200));
    for body in [&*long, "{\"user\":"] {
        let response = gateway.exchange(&request("POST /", json, body)).await;
        assert!(status(&response) == 200 && response.ends_with(body), "{response}");
    }
    let page = gateway.metrics().await;
    for reason in ["too_long", "malformed"] {
        let line = format!("sluicegate_gateway_bodies_unread_total{{reason=\"{reason}\"}} 1");
        assert!(page.contains(&line), "{line}: {page}");
    }
}

#[tokio::test]
async fn fields_of_forms_are_limited_and_forms_forwarded_as_they_came() {
    let gateway = limited_by("form user[name]", |config| {
        config.identity.body.bytes_max = 100;
        config.routes[0].limit.as_mut().unwrap().on_missing = OnMissing::Reject;
    })
    .await;
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let of = |body: &str| request("POST /?a=b", form, body);
    let requests = [
        of("user[name]=a+b&x=1"),
        of("x=2&user%5bname%5d=%61%20b"),
        of("user[name]=a+b"),
        of("user[name]=b"),
    ];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429, 200]);
    let response = gateway.exchange(&of("&&user%5bname%5d=%62&")).await;
    assert!(response.ends_with("\r\n\r\n&&user%5bname%5d=%62&"), "as it came: {response}");
    let plain = "user[name]=c";
    let missing = [
        of("user=c"),
        of("user[name]=c&user[name]=d"),
        of("user[name]=c;user[name]=d"),
        of(&format!("{plain}&x={}", "y".repeat(100))),
        request("POST /?user.name=c", form, plain),
        request("POST /", &format!("{form}Content-Type: text/plain\r\n"), plain),
        request("POST /", &format!("{form}Content-Encoding: gzip\r\n"), plain),
        request("POST /", "Content-Type: multipart/form-data; boundary=x\r\n", plain),
        request("POST /", "Content-Type: application/json\r\n", r#"{"user":{"name":"c"}}"#),
        request("POST /", "", plain),
        of(""),
    ];
    assert_eq!(statuses(&gateway, &missing).await, [400; 11]);
    let page = gateway.metrics().await;
    for line in ["{reason=\"too_long\"} 1", "{reason=\"malformed\"} 1"] {
        let line = format!("sluicegate_gateway_bodies_unread_total{line}");
        assert!(page.contains(&line), "{line}: {page}");
    }
}

#[tokio::test]
async fn a_body_that_never_comes_is_a_timeout() {
    let gateway = limited_by("json user", |config| {
        config.identity.body.timeout = std::time::Duration::from_millis(50);
    })
    .await;
    let json = "Content-Type: application/json\r\nContent-Length: 20\r\n";
    let response = gateway.exchange(&request("POST /", json, "")).await;
    assert_eq!(status(&response), 408, "{response}");
}

#[tokio::test]
async fn spoofed_addresses_change_nothing() {
    let gateway = limited_by("client_ip", |_| {}).await;
    let spoofed = |line: &str| request("GET /", &format!("{line}\r\n"), "");
    let requests = [
        spoofed("X-Forwarded-For: 192.0.2.1"),
        spoofed("Forwarded: for=192.0.2.2"),
        spoofed("X-Real-IP: 192.0.2.3"),
        spoofed("X-Forwarded-For: 192.0.2.4, 192.0.2.5"),
    ];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_and_networks_of_ipv6_are_one() {
    let gateway = limited_by("client_ip", |config| {
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let of = |address: &str| request("GET /", &format!("X-Forwarded-For: {address}\r\n"), "");
    let requests = [
        of("2001:db8::1"),
        of("2001:db8::2"),
        of("2001:db8::3"),
        of("2001:db8:0:1::1"),
        // The client writes the first one, the proxy appends the last.
        of("2001:db8:7::1, 2001:db8::4"),
        of("192.0.2.1"),
    ];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429, 200, 429, 200]);
}

#[tokio::test]
async fn the_route_is_a_part() {
    let gateway = limited_by("path_template", |config| {
        let template = config.routes[0].clone();
        config.routes.push(sluicegate_config::gateway::route::RouteConfig {
            path: "/users/{id}".to_owned(),
            ..template
        });
    })
    .await;
    let of = |path: &str| request(&format!("GET {path}"), "", "");
    let requests = [of("/users/1"), of("/users/2"), of("/users/3"), of("/other")];
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 429, 200]);
}

#[tokio::test]
async fn a_request_without_a_part_is_rejected_unless_it_passes() {
    let of = |value: &str| request("GET /", &format!("X-User: {value}\r\n"), "");
    let requests = [of("a"), request("GET /", "", ""), of(""), of("a"), of("a")];
    let reject = |config: &mut GatewayConfig| {
        config.routes[0].limit.as_mut().unwrap().on_missing = OnMissing::Reject;
    };
    let gateway = limited_by("header X-User", reject).await;
    assert_eq!(statuses(&gateway, &requests).await, [200, 400, 400, 200, 429]);
    let gateway = limited_by("header X-User", |_| {}).await;
    assert_eq!(statuses(&gateway, &requests).await, [200, 200, 200, 200, 429]);
    let gateway = limited_by("header X-User or none", reject).await;
    assert_eq!(statuses(&gateway, &requests[1..3]).await, [200, 200]);
    assert_eq!(statuses(&gateway, &requests[1..2]).await, [429]);
}

#[tokio::test]
async fn no_client_names_a_cost_of_zero() {
    let gateway = limited_by("client_ip", |config| {
        let hits = Some("header X-Cost".parse().unwrap());
        config.routes[0].limit.as_mut().unwrap().mapping.hits = hits;
    })
    .await;
    let of = |cost: &str| request("GET /", &format!("X-Cost: {cost}\r\n"), "");
    let requests = ["0", "-1", "0", "0", "9"].map(of);
    assert_eq!(statuses(&gateway, &requests).await, [200, 400, 200, 429, 429]);
}
