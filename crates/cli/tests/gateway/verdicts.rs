//! The verdict of each request in the access log and in the metrics: what the limits decided.

use std::net::TcpStream;

use serde_json::Value;

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::{asked_on, get};

const RULES: &str = "domain: api
allow: [{ key: user, value: probe }]
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 1/year }
";
const CONFIG: &str = "access_log: json
rules: rules.yaml
max_body_bytes: 8
trusted_proxies: [127.0.0.1]
access: { allow: [192.0.2.1], deny: [192.0.2.2] }
identity: { api_keys: { file: keys.yaml } }
routes:
  - { path: /limited, respond: { status: 200 }, limit: { domain: api, descriptors: [{ user: header X-User }] } }
  - { path: /optional, respond: { status: 200 }, limit: { domain: api, descriptors: [{ user: header X-User }], on_missing: pass } }
  - { path: /other, respond: { status: 200 }, limit: { domain: api, descriptors: [{ no_rule: path }] } }
  - { path: /free, respond: { status: 200 } }
  - { path: /old, redirect: https://example.com/ }
  - { path: /key, respond: { status: 200 }, require: api_key }
  - { path: /get, methods: GET, respond: { status: 200 } }
";

/// A request with these further header lines; the status and the verdict of its line in the log.
fn verdict(gateway: &mut Gateway, line: &str, headers: &str) -> (u64, String) {
    let client = TcpStream::connect(&gateway.address).unwrap();
    let request = format!("{line} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
    let answer = asked_on(client, request.as_bytes());
    let logged: Value = serde_json::from_str(&gateway.process.says("\"verdict\":")).unwrap();
    assert_eq!(logged["status"], answer.status, "{logged}");
    (logged["status"].as_u64().unwrap(), logged["verdict"].as_str().unwrap().to_owned())
}

#[test]
fn a_request_has_the_verdict_of_its_limits_and_none_without_them() {
    let folder = Folder::new();
    folder.file("rules.yaml", RULES);
    folder.file("keys.yaml", "[]");
    let mut gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", CONFIG)]);
    let cases = [
        ("GET /limited", "x-user: a\r\n", (200, "passed")),
        ("GET /limited", "x-user: a\r\n", (429, "denied")),
        ("GET /limited", "x-user: probe\r\n", (200, "exempt")),
        ("GET /limited", "x-user: a\r\nx-forwarded-for: 192.0.2.1\r\n", (200, "exempt")),
        ("GET /limited", "x-user: a\r\nx-forwarded-for: 192.0.2.2\r\n", (403, "none")),
        ("GET /limited", "", (400, "none")),
        ("POST /limited", "x-user: b\r\ncontent-length: 9\r\n", (413, "none")),
        ("GET /optional", "x-user: a\r\n", (429, "denied")),
        ("GET /optional", "", (200, "none")),
        ("GET /other", "", (200, "none")),
        ("GET /free", "", (200, "none")),
        ("GET /old", "", (308, "none")),
        ("GET /key", "", (401, "none")),
        ("POST /get", "", (405, "none")),
        ("GET /nowhere", "", (404, "none")),
        ("GET /limited%00", "x-user: b\r\n", (400, "none")),
    ];
    for (line, headers, (status, expected)) in cases {
        let logged = verdict(&mut gateway, line, &format!("host: a\r\n{headers}"));
        assert_eq!(logged, (status, expected.to_owned()), "{line} {headers:?}");
    }
    let page = get(&gateway.admin, "/metrics", &[]).body;
    let passed: Vec<&str> = page.lines().filter(|line| line.contains("\"passed\"")).collect();
    let only =
        r#"sluicegate_gateway_requests_total{route="/limited",status="2xx",verdict="passed"} 1"#;
    assert_eq!(passed, [only]);
}

#[test]
fn a_redirect_of_the_listener_has_no_verdict() {
    let folder = Folder::new();
    let text = "access_log: json
listen: { address: \"127.0.0.1:0\", redirect_to_https: true }
routes: [{ path: /*, respond: { status: 200 } }]
";
    let mut gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", text));
    let logged = verdict(&mut gateway, "GET /", "host: a\r\n");
    assert_eq!(logged, (308, "none".to_owned()));
}

#[test]
fn a_request_without_a_rule_is_an_error_of_the_operator_where_that_is_set() {
    let folder = Folder::new();
    folder.file("rules.yaml", RULES);
    folder.file("keys.yaml", "[]");
    let config = folder.file("gateway.yaml", CONFIG);
    let gateway = Gateway::with(&["--config", &config], &[("SLUICEGATE_UNMATCHED", "error")]);
    let failed = gateway.get("/other");
    assert_eq!(failed.status, 500);
    assert!(failed.body.contains(r#""code":"unmatched""#), "{}", failed.body);
    assert_eq!(failed.header("retry-after"), None, "a retry would fail as well");
}
