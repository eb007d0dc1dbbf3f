//! Pages of metrics with every series, and what Prometheus' own tool says of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::http::get;
use crate::support::service::Service;
use crate::support::upstream::Upstream;
use crate::support::{Folder, server};

/// Nobody answers for this store: no limit can be decided.
const AWAY: [&str; 2] = ["--store", "redis://127.0.0.1:1"];

/// Metrics with names that are stable, against the advice of Prometheus: those of
/// envoyproxy/ratelimit, and two of our own.
const STABLE: [&str; 3] =
    ["ratelimit_service_", "sluicegate_redis_epoch ", "sluicegate_sync_interval_milliseconds "];

const LEVELS: &str = "  - { key: key, consistency: { strict: { hot_keys: leased } }, limits: { algorithm: fixed_window, rate: 5/year } }
  - { key: tenant, consistency: leased, limits: { algorithm: fixed_window, rate: 5/year } }
  - { key: user, consistency: { eventual: { sync_interval: 50ms } }, limits: { algorithm: fixed_window, rate: 5/year } }
";

/// Pages of two gateways in which everything has happened that alerts and dashboards are about.
pub fn gateway_pages(folder: &Folder) -> [String; 2] {
    let app = Upstream::answering(|_| async { "hello" });
    let rules = format!(
        "domain: api\ndescriptors:\n  - {{ key: remote_address, on_store_failure: error, limits: {{ algorithm: fixed_window, rate: 0/year }} }}\n  - {{ key: path, on_store_failure: error, limits: {{ algorithm: fixed_window, rate: 1/year }} }}\n{LEVELS}"
    );
    folder.file("rules.yaml", &rules);
    let made = rcgen::generate_simple_self_signed(["b.example.com".to_owned()]).unwrap();
    folder.file("b.key", &made.signing_key.serialize_pem());
    folder.file("b.pem", &made.cert.pem());
    let text = format!(
        "listen:
  - 127.0.0.1:0
  - {{ address: \"127.0.0.1:0\", tls: {{ acme: {{ domains: a.example.com, directory: \"https://127.0.0.1:1/\", state: acme }}, certificates: {{ cert: b.pem, key: b.key }} }} }}
rules: rules.yaml
access_log: {{ path: access.log }}
upstreams: {{ app: \"http://{}\", none: \"http://127.0.0.1:1\" }}
routes:
  - {{ path: /*, upstream: app }}
  - {{ path: /none, upstream: none }}
  - {{ path: /denied, upstream: app, limit: {{ domain: api, descriptors: [{{ remote_address: client_ip }}] }} }}
  - {{ path: /undecided, upstream: app, limit: {{ domain: api, descriptors: [{{ path: path }}] }} }}
",
        app.address
    );
    let mut gateway = Gateway::at_addresses_with(&folder.file("gateway.yaml", &text), &AWAY);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/none").status, 502);
    assert_eq!(gateway.get("/undecided").status, 503);
    let mut plain = TcpStream::connect(&gateway.addresses[1]).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    gateway.process.has_said("certificate not obtained");
    let handshake = r#"sluicegate_client_connections_rejected_total{reason="tls_handshake"}"#;
    until("the handshake has failed", || {
        gateway.metric(handshake).filter(|count| count != "0").map(drop)
    });
    let away = get(&gateway.admin, "/metrics", &[]).body;
    drop(gateway);
    // A limit of zero, in memory.
    let gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", &text));
    assert_eq!(gateway.get("/denied").status, 429);
    [away, get(&gateway.admin, "/metrics", &[]).body]
}

/// Pages of a service with rules of each consistency level and usage records, and of one with a
/// control plane that does not answer.
pub fn service_pages(folder: &Folder) -> [String; 2] {
    let rules = folder.file("service.yaml", &format!("domain: api\ndescriptors:\n{LEVELS}"));
    let usage = format!("{}/usage", folder.path());
    let args = ["--rules", &rules, "--usage", &usage, "--usage-rules", "*"];
    let service = Service::with(&[&args[..], &AWAY].concat(), &[]);
    let variables =
        [("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("CONFIG_GRPC_XDS_SERVER_URL", "127.0.0.1:1")];
    let controlled = Service::with(&[], &variables);
    [service, controlled].map(|service| service.admin("/metrics").body)
}

/// What `promtool` prints about a text on its standard input.
fn promtool(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(server("promtool"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The number of the rules in a file that Prometheus accepts.
pub fn check_rules(rules: &str) -> usize {
    let folder = Folder::new();
    let output = promtool(&["check", "rules", &folder.file("rules.yaml", rules)], "");
    let [printed, errors] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{printed}{errors}");
    let count = printed.split_once("SUCCESS: ").and_then(|(_, rest)| rest.split(' ').next());
    count.unwrap().parse().unwrap()
}

#[test]
fn metrics_are_those_of_the_text_format() {
    let folder = Folder::new();
    let pages = gateway_pages(&folder).into_iter().chain(service_pages(&folder));
    for page in pages {
        let output = promtool(&["check", "metrics"], &page);
        let errors = String::from_utf8_lossy(&output.stderr);
        let of_stable = |line: &&str| STABLE.iter().any(|prefix| line.starts_with(prefix));
        let others: Vec<_> = errors.lines().filter(|line| !of_stable(line)).collect();
        // 3 is for advice alone.
        assert_eq!((output.status.code(), others), (Some(3), Vec::new()));
    }
}

#[test]
fn prometheus_refuses_what_is_no_expression() {
    let folder = Folder::new();
    let text = "groups: [{ name: a, rules: [{ record: b, expr: \"sum by (c (d)\" }] }]";
    let output = promtool(&["check", "rules", &folder.file("rules.yaml", text)], "");
    assert!(!output.status.success(), "{output:?}");
}
