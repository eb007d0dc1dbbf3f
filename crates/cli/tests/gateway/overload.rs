//! The limit of the requests in flight at an upstream.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::get;

const RULES: &str = "domain: api
descriptors:
  - { key: plan, value: paid, priority: 9, limits: { algorithm: fixed_window, rate: 1000/s } }
  - { key: plan, value: free, priority: 1, limits: { algorithm: fixed_window, rate: 1000/s } }
";

/// A gateway with this limit in front of a server that the test answers for.
fn gateway(concurrency: &str) -> (Folder, TcpListener, Gateway) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let folder = Folder::new();
    folder.file("rules.yaml", RULES);
    let config = format!(
        "rules: rules.yaml
upstreams: {{ api: {{ servers: {url}, concurrency: {concurrency} }} }}
routes:
  - {{ path: /, upstream: api, limit: {{ domain: api, descriptors: [{{ plan: header X-Plan }}] }} }}
"
    );
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", &config)]);
    (folder, server, gateway)
}

fn send(gateway: &Gateway, plan: &str) -> TcpStream {
    let mut client = TcpStream::connect(&gateway.address).unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-plan: {plan}\r\nconnection: close\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    client
}

/// The next request at the server: its plan, and its connection.
fn accept(server: &TcpListener) -> (String, TcpStream) {
    let (mut upstream, _) = server.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        upstream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let plan = head.lines().find_map(|line| line.strip_prefix("x-plan: ")).unwrap();
    (plan.to_owned(), upstream)
}

fn answer(mut upstream: TcpStream) {
    let response = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    upstream.write_all(response).unwrap();
}

fn status(mut client: TcpStream) -> String {
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

/// Waits until so many requests wait for the upstream.
fn waiting(gateway: &Gateway, count: usize) {
    let name = r#"sluicegate_upstream_waiting{upstream="api"}"#;
    until("requests wait", || (gateway.metric(name)? == count.to_string()).then_some(()));
}

#[test]
fn requests_beyond_the_limit_wait_by_priority() {
    let (_folder, server, gateway) = gateway("{ max: 1, max_wait: 1m }");
    let first = send(&gateway, "free");
    let (_, upstream) = accept(&server);
    let free = send(&gateway, "free");
    waiting(&gateway, 1);
    let paid = send(&gateway, "paid");
    waiting(&gateway, 2);
    answer(upstream);
    let (plan, upstream) = accept(&server);
    assert_eq!(plan, "paid", "the more important one goes first");
    answer(upstream);
    let (plan, upstream) = accept(&server);
    assert_eq!(plan, "free");
    answer(upstream);
    for client in [first, paid, free] {
        assert_eq!(status(client), "HTTP/1.1 200 OK");
    }
    let name = r#"sluicegate_upstream_in_flight{upstream="api"}"#;
    until("none is in flight", || (gateway.metric(name)? == "0").then_some(()));
}

#[test]
fn the_least_important_are_rejected_first() {
    let (_folder, server, gateway) = gateway("{ max: 1, max_wait: 1m }");
    let _first = send(&gateway, "free");
    let (_, upstream) = accept(&server);
    let _waiting: Vec<_> = (1..=3)
        .map(|count| {
            let client = send(&gateway, "paid");
            waiting(&gateway, count);
            client
        })
        .collect();
    // Three times the limit wait, all of them before it.
    let rejected = get(&gateway.address, "/", &[("x-plan", b"free")]);
    assert_eq!(rejected.status, 503, "{}", rejected.body);
    assert!(rejected.body.contains("upstream_overload"), "{}", rejected.body);
    assert_eq!(rejected.header("retry-after"), Some("1"));
    let name = r#"sluicegate_upstream_rejected_total{upstream="api",priority="1"}"#;
    assert_eq!(gateway.metric(name).as_deref(), Some("1"));
    drop(upstream);
}

#[test]
fn a_client_that_goes_away_frees_its_place() {
    let (_folder, server, gateway) = gateway("1");
    let first = send(&gateway, "free");
    let (_, upstream) = accept(&server);
    let gone = send(&gateway, "free");
    waiting(&gateway, 1);
    drop(gone);
    waiting(&gateway, 0);
    drop(first);
    // Its response is not read any more, so the next one is admitted.
    let last = send(&gateway, "free");
    let (_, next) = accept(&server);
    answer(next);
    assert_eq!(status(last), "HTTP/1.1 200 OK");
    drop(upstream);
}
