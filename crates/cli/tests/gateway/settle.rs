//! Requests that are charged by their responses.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use serde_json::Value;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::http::{Answer, get};
use crate::support::{Folder, sluicegate};
use crate::wire::{read_head, read_head_or_end};

const RULES: &str = "domain: api
descriptors:
  - key: user
    limits: { name: user, algorithm: fixed_window, rate: 1000/year }
  - key: failed
    limits: { name: failed, algorithm: fixed_window, rate: 3/year }
  - key: calls
    limits: { name: calls, algorithm: concurrency, max: 1, lease: 1h }
  - key: envoy
    rate_limit: { unit: year, requests_per_unit: 10 }
";

/// A server that answers as the query says: with a status, headers, and a body in pieces.
struct App {
    address: String,
    reached: Arc<AtomicU64>,
}

fn app() -> App {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let reached = Arc::new(AtomicU64::new(0));
    let counter = reached.clone();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let counter = counter.clone();
            thread::spawn(move || {
                while let Some(head) = read_head_or_end(&mut socket) {
                    counter.fetch_add(1, Relaxed);
                    if socket.write_all(response(&head).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    App { address, reached }
}

fn response(head: &str) -> String {
    let target = head.split(' ').nth(1).unwrap().replace("%22", "\"");
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let asked = lines.find(|(name, _)| name.eq_ignore_ascii_case("accept-encoding"));
    let status = value("status").unwrap_or("200");
    let kind = value("type").unwrap_or("application/json");
    let asked = asked.map_or("", |(_, value)| value);
    let mut text = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nx-asked: {asked}\r\n");
    for name in ["x-cost", "x-cache", "content-encoding"] {
        if let Some(value) = value(name) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if status == "204" {
        return text + "\r\n";
    }
    let pad = "x".repeat(value("pad").map_or(0, |length| length.parse().unwrap()));
    let usage = value("usage").map(|usage| format!(r#","usage":{{"total":{usage}}}"#));
    let body = format!(r#"{{"pad":"{pad}"{}}}"#, usage.unwrap_or_default());
    text.push_str("transfer-encoding: chunked\r\n\r\n");
    for piece in body.as_bytes().chunks(7) {
        let piece = str::from_utf8(piece).unwrap();
        text.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
    }
    text + "0\r\n\r\n"
}

/// A gateway with one route; `limit` are the lines of its limit below the domain.
fn started(folder: &Folder, app: &str, limit: &str, more: &[&str]) -> Gateway {
    let config = written(folder, app, limit);
    Gateway::start(&[&["--config", &config], more].concat())
}

fn written(folder: &Folder, app: &str, limit: &str) -> String {
    folder.file("rules.yaml", RULES);
    let text = format!(
        "rules: rules.yaml\nlimit_headers: true\naccess_log: json\nupstreams: {{ app: {{ servers: \"http://{app}\", eject: {{ failures: 0 }} }} }}\nroutes:\n  - path: /*\n    upstream: app\n    limit:\n      domain: api\n{limit}"
    );
    folder.file("gateway.yaml", &text)
}

const USER: &str =
    "      descriptors: [{ entries: { user: header X-User or a }, hits: header X-Hits or 100 }]\n";

fn remaining(answer: &Answer) -> u64 {
    answer.header("x-ratelimit-remaining").unwrap().parse().unwrap()
}

/// What is left of the thousand when nothing is reserved: a request that reserves 1, and gives
/// it back.
fn left(gateway: &Gateway) -> u64 {
    let one = [("x-hits", "1".as_bytes())];
    let answer = get(&gateway.address, "/?status=204&x-cost=0", &one);
    assert_eq!(answer.status, 204, "{answer:?}");
    remaining(&answer) + 1
}

/// The cost of a request to a path, by what is left.
fn cost(gateway: &Gateway, path: &str) -> u64 {
    let before = left(gateway);
    get(&gateway.address, path, &[]);
    before - left(gateway)
}

fn outcome(gateway: &Gateway, outcome: &str) -> Option<String> {
    let labels = format!(r#"{{route="/*",outcome="{outcome}"}}"#);
    gateway.metric(&format!("sluicegate_gateway_settled_total{labels}"))
}

#[test]
fn only_failures_count_and_a_success_resets_them() {
    let (folder, app) = (Folder::new(), app());
    let limit = "      descriptors: [{ user: header X-User or a }, { failed: header X-User or a }]
      settle:
        - { descriptor: failed, status: [401, 403], cost: 1 }
        - { descriptor: failed, status: 2xx, reset: true }
        - { descriptor: failed, cost: 0 }
";
    let gateway = started(&folder, &app.address, limit, &[]);
    let status = |status: &str| gateway.get(&format!("/?status={status}")).status;
    let statuses: Vec<_> =
        ["401", "403", "404", "500", "200", "401", "401", "403", "200", "401"].map(status).into();
    assert_eq!(statuses, [401, 403, 404, 500, 200, 401, 401, 403, 429, 429]);
    assert_eq!(app.reached.load(Relaxed), 8);
    // A denied request is neither charged nor settled: of the other descriptor eight are used.
    let other = get(&gateway.address, "/", &[("x-user", b"b")]);
    assert_eq!(remaining(&other), 2, "of the three failures of another user, one is reserved");
    assert_eq!(outcome(&gateway, "settled").unwrap(), "9");
}

#[test]
fn a_cost_is_read_from_the_response() {
    let (folder, app) = (Folder::new(), app());
    let settle = "      settle:
        - { header: { X-Cache: HIT }, cost: 0 }
        - { status: [204, 206], cost: header X-Cost }
        - { status: 201, cost: bytes }
        - { status: 5xx, cost: 3 }
        - { status: 2xx, cost: json usage.total }
";
    let mut gateway = started(&folder, &app.address, &format!("{USER}{settle}"), &[]);
    let mut settled = |path: &str| -> Value {
        let answer = gateway.get(path);
        loop {
            let line = gateway.process.says("\"verdict\":");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["status"] == answer.status {
                return line["settled"].clone();
            }
        }
    };
    assert_eq!(settled("/?usage=25"), serde_json::json!({ "user": 25 }));
    assert_eq!(settled("/?status=404"), Value::Null, "no case");
    for (path, expected) in [
        ("/?usage=25", 25),
        ("/?usage=25&pad=1000000", 25),
        ("/?usage=0", 0),
        ("/?usage=700", 700),
        ("/?x-cache=hit", 0),
        ("/?x-cache=MISS&usage=5", 5),
        ("/?status=206&x-cost=17", 17),
        // {"pad":"xxx"}
        ("/?status=201&pad=3", 13),
        ("/?status=503", 3),
    ] {
        // Each has a counter of its own.
        let folder = Folder::new();
        let gateway = started(&folder, &app.address, &format!("{USER}{settle}"), &[]);
        assert_eq!(cost(&gateway, path), expected, "{path}");
    }
}

#[test]
fn a_cost_that_cannot_be_read_leaves_the_estimate() {
    let (folder, app) = (Folder::new(), app());
    let settle = "      settle:
        - { status: [204, 206], cost: header X-Cost }
        - { status: 2xx, cost: json usage.total }
";
    let gateway = started(&folder, &app.address, &format!("{USER}{settle}"), &[]);
    let paths = [
        "/",
        "/?usage=-1",
        "/?usage=1.5",
        "/?usage=1e3",
        "/?usage=\"7\"",
        "/?usage=99999999999999999",
        "/?usage=7&content-encoding=gzip",
        "/?usage=7&type=text/plain",
        "/?status=206",
    ];
    let paths = paths.map(|path| path.replace('"', "%22"));
    for (count, path) in paths.iter().take(8).enumerate() {
        assert_eq!(cost(&gateway, path), 100, "{path}");
        assert_eq!(outcome(&gateway, "unreadable").unwrap(), (count + 1).to_string(), "{path}");
    }
    assert_eq!(gateway.get("/?status=404").status, 404, "no case fits");
    assert_eq!(outcome(&gateway, "estimate").unwrap(), "1");
}

#[test]
fn a_response_that_is_read_is_not_compressed() {
    let (folder, app) = (Folder::new(), app());
    let gzip = [("accept-encoding", "gzip".as_bytes())];
    for (case, asked) in [("json usage.total", "identity"), ("bytes", "gzip")] {
        let limit = format!("{USER}      settle: [{{ cost: {case} }}]\n");
        let gateway = started(&folder, &app.address, &limit, &[]);
        let answer = get(&gateway.address, "/", &gzip);
        assert_eq!(answer.header("x-asked"), Some(asked), "{case}");
    }
}

#[test]
fn an_upstream_that_fails_is_a_status() {
    let folder = Folder::new();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let limit = format!("{USER}      settle: [{{ status: 502, cost: 7 }}, {{ cost: json x }}]\n");
    let mut gateway = started(&folder, &dead, &limit, &[]);
    assert_eq!(gateway.get("/").status, 502);
    assert!(gateway.process.says("\"verdict\":").contains(r#""settled":{"user":7}"#));
    let answer = gateway.get("/");
    assert_eq!((answer.status, outcome(&gateway, "settled").unwrap().as_str()), (502, "2"));
}

/// A server that reads a head, sends this, and then closes the connection, or waits for the
/// client to do so.
fn breaking(response: &'static str, closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            read_head(&mut socket);
            let _ = socket.write_all(response.as_bytes());
            if !closes {
                let _ = socket.read_to_end(&mut Vec::new());
            }
        }
    });
    address
}

/// Sends a request, reads the beginning of the response, if there is one, and goes away: the line
/// of the log.
fn aborted(gateway: &mut Gateway, has_response: bool) -> Value {
    let mut client = TcpStream::connect(&gateway.address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    if has_response {
        // An upstream that breaks off may take what was not sent yet with it.
        let _ = read_head_or_end(&mut client);
        let _ = client.read_exact(&mut [0; 20]);
    } else {
        // Only once the request is on its way is its outcome unknown.
        let in_flight = r#"sluicegate_gateway_requests_in_flight{route="/*"}"#;
        until("the request has begun", || (gateway.metric(in_flight)? == "1").then_some(()));
    }
    drop(client);
    serde_json::from_str(&gateway.process.says("\"verdict\":")).unwrap()
}

#[test]
fn a_response_that_breaks_off_is_settled_once() {
    const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-cost: 5\r\n\
        content-length: 99\r\n\r\n{\"usage\":{\"total\":25";
    for (case, expected) in [
        ("cost: header X-Cost", serde_json::json!({ "user": 5 })),
        ("cost: bytes", serde_json::json!({ "user": 20 })),
        ("cost: json usage.total", Value::Null),
    ] {
        let limit = format!("{USER}      settle: [{{ {case} }}]\n");
        for closes in [true, false] {
            let folder = Folder::new();
            let mut gateway = started(&folder, &breaking(HALF, closes), &limit, &[]);
            let line = aborted(&mut gateway, true);
            assert_eq!(line["settled"], expected, "{case} {closes}: {line}");
            let total = ["settled", "unreadable", "estimate", "failed"];
            let total: u64 =
                total.iter().filter_map(|one| outcome(&gateway, one)?.parse::<u64>().ok()).sum();
            assert_eq!(total, 1, "{case}");
        }
    }
}

#[test]
fn a_client_that_goes_away_before_the_response_is_charged_its_estimate() {
    for (cases, expected) in [
        ("{ cost: 0 }", Value::Null),
        ("{ status: 499, cost: 9 }, { cost: 0 }", serde_json::json!({ "user": 9 })),
    ] {
        let folder = Folder::new();
        let limit = format!("{USER}      settle: [{cases}]\n");
        let mut gateway = started(&folder, &breaking("", false), &limit, &[]);
        let line = aborted(&mut gateway, false);
        assert_eq!((&line["status"], &line["settled"]), (&499.into(), &expected), "{line}");
    }
}

#[test]
fn a_slot_beside_a_settled_cost_is_free_at_the_end() {
    let (folder, app) = (Folder::new(), app());
    let limit = "      descriptors: [{ user: text a }, { calls: text a }]\n      settle: [{ cost: json usage.total }]\n";
    let gateway = started(&folder, &app.address, limit, &[]);
    let statuses = [(); 5].map(|()| gateway.get("/?usage=10").status);
    assert_eq!(statuses, [200; 5]);
}

#[test]
fn costs_are_settled_in_a_store() {
    let (folder, app, redis) = (Folder::new(), app(), Single::start());
    let limit =
        format!("{USER}      settle: [{{ status: 204, cost: 0 }}, {{ cost: json usage.total }}]\n");
    let [first, second] =
        [(); 2].map(|()| started(&folder, &app.address, &limit, &["--store", redis.url()]));
    assert_eq!(first.get("/?usage=300").status, 200);
    // Twice: what is not settled passes this number once, too.
    for _ in 0..2 {
        until("the cost is settled", || (left(&second) == 700).then_some(()));
    }
    // While the store is away the rules decide, and nothing can be settled.
    redis.kill();
    assert_eq!(first.get("/?usage=300").status, 200);
    assert_eq!(outcome(&first, "unreserved").unwrap(), "1");
}

#[test]
fn limits_that_cannot_be_settled_are_refused() {
    let (folder, app) = (Folder::new(), app());
    let limit = "      descriptors: [{ user: text a }, { envoy: text a }]\n      settle: [{ descriptor: user, cost: 0 }]\n";
    let config = written(&folder, &app.address, limit);
    let expected = "routes[0].limit.settle: cannot settle the descriptor `envoy`: a rule for it has `rate_limit`, which \
                    counts each request when it comes; write the rule with `limits`, such as `{ algorithm: \
                    fixed_window, rate: 100/m }`, or remove `settle`";
    let checked = sluicegate(&["check", &config], "");
    assert_eq!(checked.code, 1);
    assert!(
        checked.stderr.contains(expected) || checked.stdout.contains(expected),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
    let start =
        ["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", &config];
    let started = Command::new(env!("CARGO_BIN_EXE_sluicegate")).args(start).output().unwrap();
    let errors = String::from_utf8_lossy(&started.stderr).into_owned();
    assert!(!started.status.success() && errors.contains(expected), "{errors}");
    // A running gateway keeps the configuration that it has.
    let good = limit.replace(", { envoy: text a }", "");
    let config = written(&folder, &app.address, &good);
    let mut gateway = Gateway::start(&["--config", &config]);
    written(&folder, &app.address, limit);
    gateway.signal("HUP");
    gateway.process.says("cannot settle the descriptor");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_running_gateway_charges_what_changed_rules_cannot_reserve() {
    let (folder, app) = (Folder::new(), app());
    let limit = "      descriptors: [{ user: text a }]\n      settle: [{ cost: 0 }]\n";
    let mut gateway = started(&folder, &app.address, limit, &[]);
    assert_eq!(gateway.get("/").status, 200);
    let envoy = "domain: api\ndescriptors:\n  - key: user\n    rate_limit: { unit: year, requests_per_unit: 2 }\n";
    folder.file("rules.yaml", envoy);
    gateway.signal("HUP");
    gateway.process.says("cannot settle the descriptor");
    until("the rules are in force", || (gateway.get("/").status == 429).then_some(()));
    assert!(outcome(&gateway, "settled").unwrap().parse::<u64>().unwrap() > 0);
    assert!(outcome(&gateway, "unreserved").unwrap().parse::<u64>().unwrap() >= 3);
}
