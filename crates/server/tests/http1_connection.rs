//! A connection of HTTP/1.1 between its requests: unread bodies, clients that go away, and memory.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use sluicegate_server::app::App;
use sluicegate_server::http::{
    Connection, Handler, HttpLimits, HttpServer, InFlight, IncomingBody,
};
use sluicegate_server::memory::MemoryBudget;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Answers without reading a body; a request for `/hold` never, and counts while it waits.
#[derive(Clone, Default)]
struct Unread(Arc<AtomicUsize>);

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Handler for Unread {
    type Context = ();
    type Future = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
    type Response = Response<Body>;
    type Body = Body;

    fn call(&self, request: Request<IncomingBody>, _: &Connection<()>) -> Self::Future {
        let waiting = self.0.clone();
        Box::pin(async move {
            if request.uri().path() == "/hold" {
                waiting.fetch_add(1, Relaxed);
                let _waiting = Waiting(waiting);
                pending::<()>().await;
            }
            let length = request.uri().query().map_or(2, |length| length.parse().unwrap());
            Response::new(Body::from("x".repeat(length)))
        })
    }

    fn overloaded(&self, _: &Request<IncomingBody>, _: &Connection<()>, _: &App) -> Response<Body> {
        unreachable!()
    }

    fn send(&self, response: Response<Body>, _: InFlight<()>) -> Response<Body> {
        response
    }
}

struct Peer {
    client: DuplexStream,
    served: JoinHandle<()>,
    budget: MemoryBudget,
    waiting: Arc<AtomicUsize>,
}

/// A connection whose two directions hold so many bytes.
fn connect(bytes: usize) -> Peer {
    let budget = MemoryBudget::new(1 << 20);
    let app = App::builder(http_support::engine().0).memory_budget(budget.clone()).build();
    let handler = Unread::default();
    let server = HttpServer::with_handler(handler.clone(), &app, HttpLimits::default());
    let (client, io) = duplex(bytes);
    let served = tokio::spawn(async move { server.connection((), io, pending()).await });
    Peer { client, served, budget, waiting: handler.0 }
}

impl Peer {
    async fn send(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
        // The clock advances when every task waits.
        sleep(Duration::from_millis(1)).await;
    }

    /// What has come back.
    async fn received(&mut self) -> String {
        let mut received = Vec::new();
        let _ = timeout(Duration::from_millis(1), self.client.read_to_end(&mut received)).await;
        String::from_utf8(received).unwrap()
    }
}

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn a_short_body_that_is_not_read_is_discarded() {
    let mut peer = connect(1 << 16);
    for _ in 0..3 {
        peer.send(&post(20_000)).await;
        let answer = peer.received().await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection:"), "{answer}");
        peer.send(&"x".repeat(15_000)).await;
        peer.send(&"x".repeat(5_000)).await;
    }
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for rest in ["3\r\nabc\r\n0\r\n\r\n", "3\r\nab"] {
        peer.send(chunked).await;
        assert!(peer.received().await.starts_with("HTTP/1.1 200 "));
        peer.send(rest).await;
    }
    assert!(!peer.served.is_finished());
    // What follows the body is a request, and not discarded.
    peer.send("c\r\n0\r\n\r\nGET /?7 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(peer.received().await.ends_with("\r\n\r\nxxxxxxx"));
    peer.send(&post(3)).await;
    peer.received().await;
    peer.send("abc").await;
    sleep(Duration::from_secs(60)).await;
    assert!(!peer.served.is_finished(), "idle connections have more time than heads");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_follow_ends_the_connection_in_time() {
    let mut peer = connect(1 << 16);
    peer.send(&post(100)).await;
    assert!(peer.received().await.starts_with("HTTP/1.1 200 "));
    let begun = tokio::time::Instant::now();
    (&mut peer.served).await.unwrap();
    let waited = begun.elapsed().as_secs();
    assert!((9..=15).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_long_body_that_is_not_read_ends_the_connection() {
    let expecting = post(2).replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    for head in [post(100_000), expecting] {
        let mut peer = connect(1 << 16);
        peer.send(&head).await;
        let answer = peer.received().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        // The client may send on, so that it reads the response.
        peer.send(&"x".repeat(60_000)).await;
        assert!(!peer.served.is_finished());
        drop(peer.client);
        peer.served.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_when_its_client_goes_away() {
    let mut peer = connect(1 << 16);
    peer.send("GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(peer.waiting.load(Relaxed), 1);
    drop(peer.client);
    peer.served.await.unwrap();
    assert_eq!(peer.waiting.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_client_is_charged() {
    let mut peer = connect(1 << 16);
    peer.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let fixed = peer.budget.reserved_bytes();
    assert!(fixed <= 16 << 10, "{fixed}");
    peer.received().await;
    peer.send(&format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(10_000))).await;
    assert!(peer.budget.reserved_bytes() >= fixed + 10_000, "an incomplete head");
    peer.send("\r\n\r\n").await;
    peer.received().await;
    // The watchdog releases it.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(peer.budget.reserved_bytes(), fixed);

    let mut peer = connect(100);
    peer.send("GET /?15000 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(peer.budget.reserved_bytes() >= fixed + 15_000, "a response that is not read");
    assert!(peer.received().await.ends_with("xxxx"));
}

#[tokio::test(start_paused = true)]
async fn requests_in_one_piece_are_answered_in_order() {
    let mut peer = connect(1 << 16);
    let requests: String =
        (0..100).map(|index| format!("GET /?{index} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    peer.send(&requests).await;
    let received = peer.received().await;
    let lengths = received.lines().filter_map(|line| line.strip_prefix("content-length: "));
    let lengths: Vec<usize> = lengths.map(|length| length.parse().unwrap()).collect();
    assert_eq!(lengths, (0..100).collect::<Vec<_>>());
}
