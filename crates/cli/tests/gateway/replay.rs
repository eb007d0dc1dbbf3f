//! `sluicegate replay` decides the requests of a gateway's access log as the gateway has decided
//! them.

use std::net::TcpStream;

use serde_json::Value;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::http::asked_on;
use crate::support::{Folder, sluicegate};

/// No limit refills while the test runs, so that the order of requests decides alone.
const RULES: &str = "domain: api
deny: [{ key: client, value: 192.0.2.9 }]
descriptors:
  - key: client
    limits: { name: each, algorithm: token_bucket, rate: 1/day, burst: 40 }
  - key: path
    value: /search
    limits: { name: searches, algorithm: sliding_log, rate: 60/year }
  - key: path
    value: /export
    limits:
      - { name: exports, algorithm: fixed_window, rate: 50/year }
      - { name: burst, algorithm: token_bucket, rate: 1/day, burst: 15 }
  - key: path
    value: /new
    mode: shadow
    limits: { name: planned, algorithm: sliding_window, rate: 30/year }
";
const CONFIG: &str = "access_log: { path: access.log, format: json }
rules: rules.yaml
trusted_proxies: [127.0.0.1]
routes:
  - path: /*
    respond: { status: 200 }
    limit: { domain: api, descriptors: [{ client: client_ip }, { path: path }], hits: header X-Cost or 1 }
";
const REQUESTS: u64 = 400;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_replay_of_the_access_log_decides_as_the_gateway_did() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", CONFIG)]);
    for number in 0..REQUESTS {
        // Clients and paths in changing combinations; every seventh request costs three.
        let client = [1, 2, 3, 2, 9, 4, 5, 1, 2, 6, 7, 8][(number % 12) as usize];
        let path = ["/search", "/", "/export", "/new", "/search"][(number % 5) as usize];
        let cost = if number % 7 == 0 { 3 } else { 1 };
        let request = format!(
            "GET {path}?page={number} HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 192.0.2.{client}\r\n\
             x-cost: {cost}\r\nconnection: close\r\n\r\n"
        );
        let answer = asked_on(TcpStream::connect(&gateway.address).unwrap(), request.as_bytes());
        assert!([200, 429].contains(&answer.status), "{}", answer.status);
    }
    let log = format!("{}/access.log", folder.path());
    let written = until("all lines are written", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() as u64 == REQUESTS && text.ends_with('\n')).then_some(text)
    });
    let mapping = ["--descriptor", "{ client: client_ip }", "--descriptor", "{ path: path }"];
    let mut args = vec!["replay", &*log, "--rules", &rules, "--decisions", "-"];
    args.extend(mapping);
    let run = sluicegate(&args, "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let (logged, decided) = (lines(&written), lines(&run.stdout));
    assert_eq!(decided.len() as u64, REQUESTS);
    let mut verdicts = std::collections::BTreeMap::<(String, String), u64>::new();
    for (number, (logged, decided)) in logged.iter().zip(&decided).enumerate() {
        let due = match logged["verdict"].as_str().unwrap() {
            "passed" => "allowed",
            "dry_run_denied" => "shadow_denied",
            verdict => verdict,
        };
        let of_replay = decided["verdict"].as_str().unwrap();
        assert_eq!(of_replay, due, "line {}: {logged} {decided}", number + 1);
        assert_eq!(decided["line"], number as u64 + 1);
        if logged["rule"] != "api" {
            assert_eq!(decided["rule"], logged["rule"], "{logged}");
        }
        let rule = decided["rule"].as_str().unwrap_or("").to_owned();
        *verdicts.entry((due.to_owned(), rule)).or_default() += 1;
    }
    // Every kind of limit has decided.
    let count = |verdict: &str, rule: &str| {
        verdicts.get(&(verdict.to_owned(), rule.to_owned())).copied().unwrap_or(0)
    };
    for (verdict, rule) in [
        ("allowed", ""),
        ("denied", ""),
        ("denied", "api/client"),
        ("denied", "api/path=/search"),
        ("denied", "api/path=/export"),
        ("shadow_denied", "api/path=/new"),
    ] {
        assert!(count(verdict, rule) >= 5, "{verdict} {rule}: {verdicts:?}");
    }
}
