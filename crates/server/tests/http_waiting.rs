//! Whoever waits and goes gives its turn back, over a connection as clients have it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use bytes::Bytes;
use http_support::engine_of;
use sluicegate::backend::ready;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules_of;
use sluicegate_server::app::App;
use sluicegate_server::http::{HttpLimits, HttpServer, Options, routes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

const RULES: &str = "
domain: shop
descriptors:
  - key: paced
    limits: { algorithm: token_bucket, rate: 1/m, burst: 1 }
";

const WAIT: &str = r#"{"domain":"shop","descriptors":[{"paced":"x"}],"timeout_ms":600000}"#;

fn connect() -> (DuplexStream, App, ManualClock, JoinHandle<()>) {
    let (engine, clock) = engine_of(RULES);
    let service = App::new(engine);
    let server = HttpServer::new(
        routes(service.clone(), Options::default()),
        service.clone(),
        HttpLimits { idle: Duration::from_secs(20), ..HttpLimits::default() },
    );
    let (client, io) = duplex(1 << 16);
    let served =
        tokio::spawn(async move { server.connection(None, io, std::future::pending()).await });
    (client, service, clock, served)
}

async fn until(so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never is");
}

/// Sends a request that waits; returns when it does.
async fn send_wait(client: &mut DuplexStream, service: &App) {
    let head =
        format!("POST /v1/wait HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", WAIT.len());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(WAIT.as_bytes()).await.unwrap();
    until(|| service.reservations().waiting() == 1).await;
}

/// Takes the turn that comes next, which is there.
fn take_the_first(service: &App) {
    let entries = [Entry::new("paced", "x")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    assert!(ready(service.engine().check_async(&request)).unwrap().unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_connection_gives_its_turn_back() {
    let (mut client, service, clock, served) = connect();
    take_the_first(&service);
    send_wait(&mut client, &service).await;
    drop(client);
    until(|| service.reservations().waiting() == 0).await;
    served.await.unwrap();
    clock.advance(Duration::from_secs(60));
    take_the_first(&service);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_not_idle() {
    let (mut client, service, clock, _served) = connect();
    take_the_first(&service);
    send_wait(&mut client, &service).await;
    // Longer than a connection may be idle.
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(service.reservations().waiting(), 1);
    clock.advance(Duration::from_secs(60));
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_about_the_rules_that_decided_it() {
    let (mut client, service, clock, _served) = connect();
    take_the_first(&service);
    send_wait(&mut client, &service).await;
    service.engine().reload(rules_of("domain: shop").unwrap()).unwrap();
    clock.advance(Duration::from_secs(60));
    let mut response = String::new();
    while !response.contains("waited_ms") {
        let mut piece = vec![0; 4_096];
        let length = client.read(&mut piece).await.unwrap();
        assert!(length > 0, "{response}");
        response += &String::from_utf8_lossy(&piece[..length]);
    }
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains(r#"ratelimit: "token_bucket";r=0;t=60"#), "{response}");
    assert!(response.contains(r#""rule":"shop/paced""#), "{response}");
}

#[tokio::test(start_paused = true)]
async fn so_does_a_stream_that_is_reset() {
    let (client, service, clock, _served) = connect();
    take_the_first(&service);
    let (send, connection) = h2::client::handshake(client).await.unwrap();
    tokio::spawn(connection);
    let mut send = send.ready().await.unwrap();
    let request = http::Request::post("http://x/v1/wait").body(()).unwrap();
    let (answer, mut body) = send.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(WAIT.as_bytes()), true).unwrap();
    until(|| service.reservations().waiting() == 1).await;
    drop((answer, body));
    until(|| service.reservations().waiting() == 0).await;
    clock.advance(Duration::from_secs(60));
    take_the_first(&service);
}
