//! `on_limit: shape`: requests over their limit wait for a turn.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use serde_json::Value;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::{Answer, asked_on, get};

const RULES: &str = "domain: api
descriptors:
  - key: all
    limits: { algorithm: token_bucket, rate: 20/s, burst: 1 }
    on_limit: shape
  - key: daily
    limits: { algorithm: fixed_window, rate: 1/year }
  - key: calls
    limits: { algorithm: concurrency, max: 1, lease: 1m }
    on_limit: shape
  - key: leaky
    limits: { algorithm: leaky_bucket, rate: 20/s, queue: 10 }
";
const CONFIG: &str = "access_log: json
rules: rules.yaml
routes:
  - { path: /, respond: { status: 200 }, limit: { domain: api, descriptors: [{ all: path }] } }
  - { path: /daily, respond: { status: 200 }, limit: { domain: api, descriptors: [{ all: path }, { daily: path }] } }
  - { path: /short, respond: { status: 200 }, limit: { domain: api, descriptors: [{ daily: path }] }, on_limit: shape, shape: { max_wait: 1s } }
  - { path: /leaky, respond: { status: 200 }, limit: { domain: api, descriptors: [{ leaky: path }] } }
";

fn gateway(config: &str, more: &[&str]) -> (Folder, Gateway) {
    let folder = Folder::new();
    folder.file("rules.yaml", RULES);
    let file = folder.file("gateway.yaml", config);
    let args = [&["--config", &file][..], more].concat();
    let gateway = Gateway::start(&args);
    (folder, gateway)
}

/// Requests at the same time, each on a connection of its own.
fn together(addresses: &[&str], path: &str, count: usize) -> Vec<Answer> {
    thread::scope(|scope| {
        let requests: Vec<_> = (0..count)
            .map(|at| scope.spawn(move || get(addresses[at % addresses.len()], path, &[])))
            .collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    })
}

fn delay_of(answer: &Answer) -> Option<u64> {
    answer.header("x-ratelimit-delay-ms").map(|millis| millis.parse().unwrap())
}

#[test]
fn requests_over_their_limit_wait_and_say_so() {
    let (_folder, mut gateway) = gateway(CONFIG, &[]);
    let answers = together(&[&gateway.address], "/", 6);
    assert!(answers.iter().all(|answer| answer.status == 200));
    let mut delays: Vec<u64> = answers.iter().filter_map(delay_of).collect();
    delays.sort_unstable();
    assert_eq!(delays.len(), 5, "one was admitted at once");
    // 20/s: the others follow in steps of 50 ms, less the time between the first two requests.
    assert!(delays.last() >= Some(&150), "{delays:?}");
    let mut verdicts = Vec::new();
    for _ in 0..6 {
        let line: Value = serde_json::from_str(&gateway.process.says("\"verdict\":")).unwrap();
        assert_eq!(line["delay_ms"].is_number(), line["verdict"] == "delayed", "{line}");
        verdicts.push(line["verdict"].as_str().unwrap().to_owned());
    }
    assert_eq!(verdicts.iter().filter(|verdict| *verdict == "delayed").count(), 5);
    assert_eq!(gateway.metric("sluicegate_gateway_waiting_requests").as_deref(), Some("0"));
    let delayed = r#"sluicegate_gateway_requests_total{route="/",status="2xx",verdict="delayed"}"#;
    assert_eq!(gateway.metric(delayed).as_deref(), Some("5"));
    // What waited was not denied.
    let hits = |name: &str| {
        let name = format!(
            r#"ratelimit_service_rate_limit_{name}{{domain="api",key1="all",rule="api/all"}}"#
        );
        gateway.metric(&name)
    };
    assert_eq!(hits("over_limit").as_deref(), Some("0"));
    assert_eq!(hits("total_hits").as_deref(), Some("6"));
}

#[test]
fn a_limit_that_does_not_shape_denies_at_once() {
    let (_folder, gateway) = gateway(CONFIG, &[]);
    assert_eq!(gateway.get("/daily").status, 200);
    let denied = gateway.get("/daily");
    assert_eq!((denied.status, delay_of(&denied)), (429, None));
    let over =
        r#"ratelimit_service_rate_limit_over_limit{domain="api",key1="daily",rule="api/daily"}"#;
    assert_eq!(gateway.metric(over).as_deref(), Some("1"));
}

#[test]
fn a_request_that_would_wait_too_long_is_denied_at_once() {
    let (_folder, gateway) = gateway(CONFIG, &[]);
    assert_eq!(gateway.get("/short").status, 200);
    let denied = gateway.get("/short");
    assert_eq!((denied.status, delay_of(&denied)), (429, None));
    assert!(denied.header("retry-after").is_some());
}

#[test]
fn a_leaky_bucket_delays_what_it_admits() {
    let (_folder, gateway) = gateway(CONFIG, &[]);
    let answers = together(&[&gateway.address], "/leaky", 4);
    let delayed = answers.iter().filter_map(delay_of).filter(|delay| *delay > 0).count();
    assert_eq!(delayed, 3);
}

#[test]
fn a_request_waits_for_a_slot_and_leaves_the_queue_with_its_client() {
    // The server answers what it is told to answer, so the slot is held until then.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let config = format!(
        "rules: rules.yaml
upstreams: {{ api: {url} }}
routes:
  - {{ path: /, upstream: api, limit: {{ domain: api, descriptors: [{{ calls: path }}] }} }}
"
    );
    let (_folder, gateway) = gateway(&config, &[]);
    let send = |body: &str| {
        let mut client = TcpStream::connect(&gateway.address).unwrap();
        let length = body.len();
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
        client.write_all(head.as_bytes()).unwrap();
        client
    };
    let waiting = |count: u64| {
        let name = "sluicegate_gateway_waiting_requests";
        until("requests wait", || (gateway.metric(name)? == count.to_string()).then_some(()));
    };
    let first = send("first");
    let accept = |body: &str| {
        let (mut upstream, _) = server.accept().unwrap();
        let mut text = Vec::new();
        while !text.ends_with(body.as_bytes()) {
            let mut byte = [0];
            upstream.read_exact(&mut byte).unwrap();
            text.extend(byte);
        }
        upstream
    };
    let answer = |mut upstream: TcpStream| {
        let response = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        upstream.write_all(response).unwrap();
    };
    let upstream = accept("first");
    let second = send("second");
    waiting(1);
    let third = send("third");
    waiting(2);
    drop(second);
    waiting(1);
    answer(upstream);
    answer(accept("third"));
    for mut client in [first, third] {
        let mut status = [0; 12];
        client.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    waiting(0);
}

#[test]
fn nodes_on_one_redis_take_turns() {
    let redis = Single::start();
    let store = redis.url();
    let nodes: Vec<_> = (0..2).map(|_| gateway(CONFIG, &["--store", store])).collect();
    let addresses: Vec<&str> = nodes.iter().map(|(_, node)| node.address.as_str()).collect();
    let answers = together(&addresses, "/", 8);
    assert!(answers.iter().all(|answer| answer.status == 200));
    let mut delays: Vec<u64> = answers.iter().filter_map(delay_of).collect();
    delays.sort_unstable();
    assert_eq!(delays.len(), 7, "one limit for both");
    assert!(delays.last() >= Some(&250), "{delays:?}");
    let of_node = |node: usize| {
        let answers = answers.iter().skip(node).step_by(2);
        answers.filter_map(delay_of).min()
    };
    assert!(of_node(0) < delays.last().copied() && of_node(1) < delays.last().copied());
}

#[test]
fn a_request_that_is_malformed_does_not_wait() {
    let (_folder, gateway) = gateway(CONFIG, &[]);
    assert_eq!(gateway.get("/").status, 200);
    let client = TcpStream::connect(&gateway.address).unwrap();
    let request = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nx\r\n";
    assert_eq!(asked_on(client, request).status, 400);
}
