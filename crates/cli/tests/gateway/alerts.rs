//! Alerts of the guide: every series that an expression selects is on the page of a gateway.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::http::get;
use crate::support::upstream::Upstream;
use crate::support::{Folder, root};

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];
/// Metrics that an operator of a gateway must be able to rely on.
const COVERED: [&str; 8] = [
    "sluicegate_upstream_healthy",
    "sluicegate_gateway_upstream_errors_total",
    "sluicegate_gateway_requests_total",
    "sluicegate_gateway_certificate_failures_total",
    "sluicegate_gateway_certificate_expiry_timestamp_seconds",
    "sluicegate_gateway_config_last_reload_successful",
    "sluicegate_client_connections_rejected_total",
    "sluicegate_connections_refused_total",
];

/// A series of the page, or a selector of an expression: a name and its labels.
#[derive(Debug)]
struct Series<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str, &'a str)>,
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// A name and the labels behind it; values have no comma and no brace.
fn series(text: &str) -> Series<'_> {
    let (name, rest) = text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()));
    let labels = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
        let (label, value) = label.split_once('"').unwrap();
        let (label, operator) = label.split_at(label.find(|c| !is_word(c)).unwrap());
        (label, operator, value.trim_end_matches('"'))
    });
    Series { name, labels: labels.collect() }
}

/// The selectors of an expression.
fn selectors(expression: &str) -> Vec<Series<'_>> {
    expression.match_indices("sluicegate_").map(|(at, _)| series(&expression[at..])).collect()
}

/// The labels that an expression or a summary uses: `by (…)`, `$labels.…`.
fn labels_used(text: &str) -> BTreeSet<&str> {
    let by = text.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(','));
    let named = text.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap());
    by.map(str::trim).chain(named).filter(|label| !ADDED.contains(label)).collect()
}

impl Series<'_> {
    fn is_selected_by(&self, selector: &Series<'_>) -> bool {
        self.name == selector.name
            && selector.labels.iter().all(|(label, operator, value)| {
                let own = self.labels.iter().find(|(name, ..)| name == label);
                own.is_some_and(|(.., own)| match *operator {
                    "=" => own == value,
                    "!=" => own != value,
                    "!~" => value.split('|').all(|value| own != &value),
                    other => panic!("the test does not know the operator `{other}`"),
                })
            })
    }
}

/// A gateway in which everything has happened that the alerts are about, and its metrics.
fn page_with_every_series(folder: &Folder) -> String {
    let app = Upstream::answering(|_| async { "hello" });
    let rules = "domain: api\ndescriptors:\n  - { key: remote_address, on_store_failure: error, limits: { algorithm: fixed_window, rate: 0/year } }\n  - { key: path, on_store_failure: error, limits: { algorithm: fixed_window, rate: 1/year } }\n";
    folder.file("rules.yaml", rules);
    let text = format!(
        "listen:
  - 127.0.0.1:0
  - {{ address: \"127.0.0.1:0\", tls: {{ acme: {{ domains: a.example.com, directory: \"https://127.0.0.1:1/\", state: acme }} }} }}
rules: rules.yaml
upstreams: {{ app: \"http://{}\", none: \"http://127.0.0.1:1\" }}
routes:
  - {{ path: /*, upstream: app }}
  - {{ path: /none, upstream: none }}
  - {{ path: /denied, upstream: app, limit: {{ domain: api, descriptors: [{{ remote_address: client_ip }}] }} }}
  - {{ path: /undecided, upstream: app, limit: {{ domain: api, descriptors: [{{ path: path }}] }} }}
",
        app.address
    );
    // Nobody answers for this store: no limit can be decided.
    let away = ["--store", "redis://127.0.0.1:1"];
    let mut gateway = Gateway::at_addresses_with(&folder.file("gateway.yaml", &text), &away);
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
    let page = get(&gateway.admin, "/metrics", &[]).body;
    drop(gateway);
    // A limit of zero, in memory.
    let gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", &text));
    assert_eq!(gateway.get("/denied").status, 429);
    page + &get(&gateway.admin, "/metrics", &[]).body
}

#[test]
fn every_alert_of_the_gateway_selects_series_that_exist() {
    let folder = Folder::new();
    let page = page_with_every_series(&folder);
    let exported: Vec<Series<'_>> = page.lines().map(series).collect();
    let guide = std::fs::read_to_string(root().join("docs/guide/metrics.md")).unwrap();
    let (_, alerts) = guide.split_once("### Alerts of the gateway").unwrap();
    let alerts = alerts.split("```").nth(1).unwrap().split("- alert: ").skip(1);
    let mut covered = BTreeSet::new();
    for alert in alerts {
        let expression = alert.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "{alert}");
        for selector in &selectors {
            let found: Vec<_> =
                exported.iter().filter(|series| series.is_selected_by(selector)).collect();
            assert!(!found.is_empty(), "no series for {selector:?} of {alert}");
            for label in labels_used(alert) {
                let has =
                    |series: &&Series<'_>| series.labels.iter().any(|(own, ..)| *own == label);
                assert!(found.iter().copied().any(|one| has(&one)), "no label {label}: {alert}");
            }
            covered.insert(selector.name);
        }
    }
    for name in COVERED {
        assert!(covered.contains(name), "no alert on `{name}`");
    }
}

#[test]
fn a_selector_of_something_else_selects_nothing() {
    let exported = series(r#"a_total{route="/*",status="5xx"} 1"#);
    let selects = |text: &str| exported.is_selected_by(&series(text));
    assert!(selects("a_total[5m]") && selects(r#"a_total{status="5xx"}[5m]"#));
    assert!(selects(r#"a_total{status!~"2xx|3xx"}"#) && !selects(r#"a_total{status!~"2xx|5xx"}"#));
    assert!(!selects("b_total") && !selects(r#"a_total{status="2xx"}"#));
    assert!(!selects(r#"a_total{class="5xx"}"#), "a label that it does not have");
}
