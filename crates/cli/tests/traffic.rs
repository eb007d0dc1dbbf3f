//! Traffic statistics of `sluicegate serve` over its admin endpoint.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use sluicegate_testkit::until;
use support::http::{Answer, asked_on, post};
use support::service::Service;
use support::{Folder, sluicegate};

/// Nothing of it comes back while a test runs.
const RULES: &str = "domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }
  - key: user
    value: vip
    rate_limit: { unit: year, requests_per_unit: 1000 }
  - { key: path, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
";

fn request(service: &Service, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    asked_on(TcpStream::connect(&service.admin).unwrap(), request.as_bytes())
}

fn read(service: &Service, path: &str) -> Value {
    let answer = request(service, "GET", path, "", "");
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// A service that has decided 12 requests: bob 1, alice 8, vip 2, and one of a path in shadow mode.
fn busy() -> (Folder, Service) {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let service = Service::with(&["--rules", &rules], &[]);
    // The first tick has seen the rules.
    until("the rules are observed", || {
        let rules = read(&service, "/api/v1/traffic/rules");
        rules["rules"][0]["observed_since"].is_string().then_some(())
    });
    assert_eq!(service.check("shop", "bob"), 200);
    let statuses: Vec<u16> = (0..8).map(|_| service.check("shop", "alice")).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429, 429, 429]);
    assert_eq!([(); 2].map(|()| service.check("shop", "vip")), [200, 200]);
    let body = r#"{"domain":"shop","descriptors":[{"path":"/x"}],"hits":3}"#;
    assert_eq!(post(&service.http, "/v1/check", body).status, 200);
    (folder, service)
}

#[test]
fn figures_are_those_that_were_sent() {
    let (_folder, service) = busy();
    let overview = read(&service, "/api/v1/traffic");
    let totals = json!({ "requests": 12, "allowed": 6, "denied": 6, "shadow_denied": 1 });
    assert_eq!((&overview["totals"], &overview["scope"]), (&totals, &json!("node")), "{overview}");
    assert_eq!(overview["store"], json!({ "kind": "memory", "state": "up" }));

    let all = read(&service, "/api/v1/traffic/rules?sort=denied");
    let row = |rule: &str| {
        let rows = all["rules"].as_array().unwrap();
        rows.iter().find(|row| row["rule"] == rule).unwrap_or_else(|| panic!("{all}")).clone()
    };
    let hits = |row: &Value| {
        ["hits", "denied_hits", "shadow_denied_hits", "identities", "denied_identities"]
            .map(|name| row[name].as_u64().unwrap())
    };
    assert_eq!(all["rules"][0]["rule"], "shop/user", "the most denied hits first");
    assert_eq!(hits(&row("shop/user")), [9, 6, 0, 2, 1]);
    assert_eq!(hits(&row("shop/user=vip")), [2, 0, 0, 1, 0]);
    assert_eq!(hits(&row("shop/path")), [3, 0, 2, 1, 1]);
    assert_eq!(row("shop/user")["denied_share"], 0.6667);
    assert!(row("shop/user")["last_denied"].is_string());
    assert_eq!(row("shop/path")["last_denied"], Value::Null);
    assert_eq!(row("shop/path")["mode"], "shadow");
    assert_eq!(row("shop/user")["judgement"]["code"], "too_little_traffic");

    let limited = read(&service, "/api/v1/traffic/limited?key=user");
    assert_eq!(limited["count"], 1, "{limited}");
    let alice = &limited["identities"][0];
    assert_eq!([&alice["value"], &alice["descriptor"]], ["alice", "user=alice"]);
    assert_eq!((&alice["denied_hits"], &alice["over_estimate_max"]), (&json!(6), &json!(0)));
    assert_eq!(alice["rules"], json!(["shop/user"]));
    let talkers = read(&service, "/api/v1/traffic/talkers?limit=2");
    let names = talkers["identities"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|row| (&row["descriptor"], &row["hits"])).collect();
    assert_eq!(names, [(&json!("user=alice"), &json!(8)), (&json!("path=/x"), &json!(3))]);
    assert_eq!(talkers["count"], 4);
}

#[test]
fn series_add_up_to_what_was_sent() {
    let (_folder, service) = busy();
    let sum =
        |column: &Value| column.as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    let seconds = until("the second has ended", || {
        let seconds = read(&service, "/api/v1/traffic?series=seconds")["series"]["seconds"].clone();
        (sum(&seconds["allowed"]) + sum(&seconds["denied"]) == 12).then_some(seconds)
    });
    assert_eq!(sum(&seconds["shadow_denied"]), 1);
    let overview = read(&service, "/api/v1/traffic?series=none");
    assert_eq!(overview["series"], json!({ "seconds": null, "minutes": null }));
    assert!(overview["latency"]["calls"].as_u64() >= Some(12), "{overview}");
    let rule = until("a step of ten seconds has ended", || {
        let rule = read(&service, "/api/v1/traffic/rules/shop/user");
        (sum(&rule["series"]["hits"]) > 0).then_some(rule)
    });
    assert_eq!((sum(&rule["series"]["hits"]), sum(&rule["series"]["denied_hits"])), (9, 6));
    assert_eq!(rule["top"]["denied"][0]["descriptor"], "user=alice");
    assert_eq!((&rule["hits"], &rule["denied_hits"]), (&json!(9), &json!(6)));
}

#[test]
fn other_limits_are_tried_on_recent_traffic() {
    let (_folder, service) = busy();
    let what_if = |body: Value| {
        let answer = request(&service, "POST", "/api/v1/traffic/what-if", "", &body.to_string());
        let json = serde_json::from_str::<Value>(&answer.body);
        (answer.status, json.unwrap_or_else(|_| panic!("{}", answer.body)))
    };
    let denied = |compared: &Value, rule: &str| {
        let rules = compared["rules"].as_array().unwrap();
        let rule =
            rules.iter().find(|one| one["rule"] == rule).unwrap_or_else(|| panic!("{compared}"));
        (rule["before"]["denied"].clone(), rule["after"]["denied"].clone())
    };
    let limits =
        json!({ "rule": "shop/user", "limits": "{ algorithm: fixed_window, rate: 5/year }" });
    let (status, compared) = what_if(limits);
    assert_eq!((status, denied(&compared, "shop/user")), (200, (json!(6), json!(3))), "{compared}");
    assert_eq!(denied(&compared, "shop/path"), (json!(1), json!(1)));
    let requests = &compared["requests"];
    assert_eq!((&requests["recorded_denied"], &requests["denied_before"]), (&json!(6), &json!(6)));
    assert_eq!(
        (&requests["denied_after"], &compared["sample"]["one_identity_in"]),
        (&json!(3), &json!(1))
    );
    let text = RULES.replace("requests_per_unit: 2 ", "requests_per_unit: 8 ");
    let (_, compared) = what_if(json!({ "files": [{ "name": "rules.yaml", "text": text }] }));
    assert_eq!(denied(&compared, "shop/user"), (json!(6), json!(0)));
    assert_eq!(service.check("shop", "alice"), 429, "nothing has changed");

    let (status, refused) =
        what_if(json!({ "files": [{ "name": "a.yaml", "text": "domian: shop" }] }));
    assert_eq!(status, 422);
    assert!(refused["error"]["message"].as_str().unwrap().contains("a.yaml:1:1: "), "{refused}");
    assert_eq!(what_if(json!({ "rule": "shop/user" })).0, 400);
    assert_eq!(what_if(json!({ "rule": "shop/none", "limits": "{}" })).0, 404);
}

#[test]
fn top_prints_the_figures_of_a_node() {
    let (_folder, service) = busy();
    let top = |args: &[&str]| {
        let admin = format!("http://{}", service.admin);
        sluicegate(&[&["top", "--once", "--admin", &admin], args].concat(), "")
    };
    let run = top(&["--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let figures: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(figures["overview"]["totals"]["denied"], 6);
    assert_eq!(figures["rules"]["rules"][0]["denied_hits"], 6);
    assert_eq!(figures["limited"]["identities"][0]["descriptor"], "user=alice");
    let run = top(&["--sort", "rule"]);
    let line =
        |start: &str| run.stdout.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(line("total 12").contains("denied 6"), "{}", run.stdout);
    assert!(line("shop/user ").contains("66.7 %"), "{}", run.stdout);
    assert!(line("user=alice").contains('6'), "{}", run.stdout);
    let run = sluicegate(&["top", "--once", "--admin", "127.0.0.1:1"], "");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("no answer of `127.0.0.1:1`"), "{}", run.stderr);
}

#[test]
fn mistakes_are_named_and_a_token_is_required() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let service = Service::with(&["--rules", &rules], &[("SLUICEGATE_ADMIN_TOKEN", "open sesame")]);
    let token = "authorization: Bearer open sesame\r\n";
    let get = |path: &str, headers: &str| request(&service, "GET", path, headers, "");
    for path in
        ["/api/v1/traffic", "/api/v1/traffic/rules", "/api/v1/traffic/limited", "/api/v1/events"]
    {
        assert_eq!(get(path, "").status, 401, "{path}");
    }
    let table = [
        ("/api/v1/traffic/rules?sort=name", 400, "`sort` must be `denied`, `shadow_denied`"),
        (
            "/api/v1/traffic/rules?limit=1001",
            400,
            "`limit` must be a number from 0 to 1000, got `1001`",
        ),
        ("/api/v1/traffic/rules?page=2", 400, "unknown parameter `page`; there are `sort`"),
        ("/api/v1/traffic/limited?key=user%3Dalice", 400, "without a value"),
        ("/api/v1/traffic/rules/shop/none", 404, "there is no rule `shop/none`"),
    ];
    for (path, status, message) in table {
        let answer = get(path, token);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(message), "{path}: {}", answer.body);
    }
}

/// A client of Server-Sent Events.
struct EventSource(BufReader<TcpStream>);

impl EventSource {
    fn open(service: &Service) -> Self {
        let mut connection = TcpStream::connect(&service.admin).unwrap();
        connection.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(connection))
    }

    /// The next event of a kind.
    fn next(&mut self, kind: &str) -> Value {
        let mut is_kind = false;
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended without `{kind}`");
            match line.trim_end().split_once(": ") {
                Some(("event", event)) => is_kind = event == kind,
                Some(("data", data)) if is_kind => return serde_json::from_str(data).unwrap(),
                _ => {}
            }
        }
    }
}

#[test]
fn events_are_read_by_a_plain_client() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let service = Service::with(&["--rules", &rules], &[]);
    let mut events = EventSource::open(&service);
    assert_eq!(events.next("tick")["totals"]["requests"], 0);
    assert_eq!([(); 3].map(|()| service.check("shop", "alice")), [200, 200, 429]);
    let denial = events.next("denial");
    assert_eq!([&denial["rule"], &denial["descriptor"]], ["shop/user", "user=alice"], "{denial}");
    until("a tick has all requests", || {
        (events.next("tick")["totals"]["denied"] == 1).then_some(())
    });
    folder.file("rules.yaml", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 5"));
    service.signal("HUP");
    assert_eq!(events.next("rules")["rejected"], Value::Null);
    folder.file("rules.yaml", "domain: [");
    service.signal("HUP");
    assert!(events.next("rules")["rejected"].is_string());
    service.signal("TERM");
    events.next("shutdown");
}

#[test]
fn statistics_can_be_switched_off() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let off = [("SLUICEGATE_TRAFFIC_STATISTICS", "false")];
    let service = Service::with(&["--rules", &rules], &off);
    assert_eq!([(); 3].map(|()| service.check("shop", "alice")), [200, 200, 429]);
    let answer = request(&service, "GET", "/api/v1/traffic", "", "");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("traffic_off"), "{}", answer.body);
}
