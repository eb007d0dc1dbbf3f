//! Denied requests in the log of `sluicegate serve`, whatever the protocol.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use support::Folder;
use support::http::{get, post};
use support::service::Service;

/// Everybody passes once.
const RULES: &str = "domain: shop
forward_auth:
  trusted_proxies: [127.0.0.1]
  descriptors: [{ user: client_ip }]
descriptors: [{ key: user, limits: { algorithm: fixed_window, rate: 1/year } }]
";

/// The first line of the reply to an inline command.
fn redis(address: &str, command: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn denials_are_logged_at_debug_on_every_protocol() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let args = ["--rules", &rules, "--resp", "127.0.0.1:0", "--log-level", "debug"];
    let mut service = Service::with(&args, &[]);
    let body = r#"{"domain":"shop","descriptors":[{"user":"alice"}]}"#;
    assert_eq!(service.check("shop", "alice"), 200);
    let with = |field: &str| body.replacen('{', &format!("{{{field},"), 1);
    for (path, body) in [
        ("/v1/check", body.to_owned()),
        ("/v1/reserve", with(r#""ttl_ms":1000"#)),
        ("/v1/wait", with(r#""timeout_ms":1"#)),
    ] {
        let answer = post(&service.http, path, &body);
        assert_eq!(answer.status, 429, "{path}: {}", answer.body);
        let line = service.says("request denied domain=shop rule=shop/user");
        assert!(line.contains("DEBUG") && !line.contains("alice"), "{path}: {line}");
    }
    let batch = format!(r#"{{"checks":[{body},{body}]}}"#);
    assert_eq!(post(&service.http, "/v1/check", &batch).status, 200);
    service.says("request denied domain=shop rule=shop/user");
    service.says("request denied domain=shop rule=shop/user");
    let envoy = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#;
    assert_eq!(post(&service.http, "/json", envoy).status, 429);
    service.says("request denied domain=shop rule=shop/user");
    let forwarded: [(&str, &[u8]); 3] = [
        ("x-forwarded-for", b"192.0.2.7"),
        ("x-forwarded-uri", b"/"),
        ("x-forwarded-method", b"GET"),
    ];
    for status in [200, 429] {
        assert_eq!(get(&service.http, "/v1/forward-auth", &forwarded).status, status);
    }
    service.says("request denied domain=shop rule=shop/user");
    for (command, options) in
        [("SG.CHECK", ""), ("SG.RESERVE", " TTL 1000"), ("SG.WAIT", " TIMEOUT 1")]
    {
        let reply = redis(&service.resp, &format!("{command} shop user=alice{options}"));
        assert!(reply.starts_with('*'), "{command}: {reply}");
        service.says("request denied domain=shop rule=shop/user");
    }
    redis(&service.resp, "CL.THROTTLE alice 0 1 60 5");
    let line = service.says("request denied command=CL.THROTTLE");
    assert!(line.contains("DEBUG") && !line.contains("alice"), "{line}");
}
