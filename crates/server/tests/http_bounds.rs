//! Whatever a client does, it gets no more than its share of time, connections and memory.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http_support::{app, asking};
use sluicegate_server::app::App;
use sluicegate_server::http::{
    BODY_BYTES_MAX, ErrorFormat, HttpLimits, HttpServer, Options, routes, serve,
};
use sluicegate_server::memory::MemoryBudget;
use sluicegate_server::telemetry::{Endpoint, Event, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

fn bounds() -> HttpLimits {
    HttpLimits {
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(7),
        idle: Duration::from_secs(60),
        ..HttpLimits::default()
    }
}

/// A connection that needs no network, so that time can be a virtual one.
fn connect(limits: HttpLimits) -> (DuplexStream, App, JoinHandle<()>) {
    connect_to(Options::default(), limits)
}

fn connect_to(options: Options, limits: HttpLimits) -> (DuplexStream, App, JoinHandle<()>) {
    let (_, service, _) = app(Options::default());
    let server = HttpServer::new(routes(service.clone(), options), service.clone(), limits);
    let (client, io) = duplex(1 << 16);
    let served =
        tokio::spawn(async move { server.connection(None, io, std::future::pending()).await });
    (client, service, served)
}

fn request(body: &str) -> String {
    format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// One answer.
async fn answer(client: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut got = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return text;
            }
        }
        let mut piece = [0; 4_096];
        let count = client.read(&mut piece).await.unwrap();
        assert!(count > 0, "closed after {text:?}");
        got.extend_from_slice(&piece[..count]);
    }
}

async fn seconds_until_closed(client: &mut DuplexStream) -> u64 {
    let begun = Instant::now();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&rest), "");
    begun.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn who_sends_nothing_or_a_head_drop_by_drop_is_closed() {
    let (mut client, ..) = connect(bounds());
    let waited = seconds_until_closed(&mut client).await;
    assert!((10..=15).contains(&waited), "{waited}");

    for begun in ["", "POST /v1/check HTTP/1.1\r\n"] {
        let (mut client, _, served) = connect(bounds());
        // After a request that was right, too.
        client.write_all(request(&asking("user", "a")).as_bytes()).await.unwrap();
        answer(&mut client).await;
        client.write_all(begun.as_bytes()).await.unwrap();
        let since = Instant::now();
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(since.elapsed() < Duration::from_secs(20), "it goes on for ever");
        }
        assert!(since.elapsed() >= Duration::from_secs(10));
        served.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_idle_is_closed_and_who_is_not_is_kept() {
    let (mut client, ..) = connect(bounds());
    for _ in 0..5 {
        client.write_all(request(&asking("team", "a")).as_bytes()).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 "));
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
    let waited = seconds_until_closed(&mut client).await;
    assert!((10..=15).contains(&waited), "60 to 65 after the last, not {waited}");
}

#[tokio::test(start_paused = true)]
async fn http_2_may_be_idle_as_long_however_it_began() {
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0whoami??";

    for first in [1, 2, 3, 24] {
        let (mut client, _, mut served) = connect(bounds());
        let begins = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        for piece in [&begins[..first], &begins[first..], PING] {
            client.write_all(piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let begun = Instant::now();
        (&mut served).await.unwrap();
        assert!(begun.elapsed() > Duration::from_secs(55), "{first}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn too_much_at_once_is_told_in_the_form_that_was_chosen() {
    for (body, told) in
        [(ErrorFormat::Envelope, r#"{"error":{"#), (ErrorFormat::Problem, "problem+json")]
    {
        let options = Options { error_format: body, ..Options::default() };
        let (mut client, ..) = connect_to(options, HttpLimits { in_flight: 0, ..bounds() });
        client.write_all(request(&asking("user", "a")).as_bytes()).await.unwrap();
        let answer = answer(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(told), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_late() {
    let (mut client, service, _) = connect(bounds());
    client
        .write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        .await
        .unwrap();
    let begun = Instant::now();
    let told = answer(&mut client).await;
    assert!(told.starts_with("HTTP/1.1 408 ") && told.contains("body_late"), "{told}");
    assert!(told.contains("connection: close\r\n"), "{told}");
    assert_eq!(begun.elapsed().as_secs(), 7);
    assert_eq!(service.telemetry().failures(Endpoint::Check, Fault::Late), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_refused() {
    let (mut client, ..) = connect(bounds());
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        BODY_BYTES_MAX + 1
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let told = answer(&mut client).await;
    assert!(told.starts_with("HTTP/1.1 413 "), "before any of it was sent: {told}");
    assert!(told.contains("connection: close\r\n"), "the rest is not read: {told}");

    let (mut client, ..) = connect(bounds());
    client
        .write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let (mut from, mut to) = tokio::io::split(client);
    let sending = tokio::spawn(async move {
        let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
        while to.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    assert!(answer(&mut from).await.starts_with("HTTP/1.1 413 "), "without saying so before");
    sending.abort();

    let (mut client, ..) = connect(bounds());
    client.write_all(b"GET /healthcheck HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let line = format!("x-{}: {}\r\n", "a".repeat(100), "b".repeat(1_000));
    for _ in 0..40 {
        let _ = client.write_all(line.as_bytes()).await;
    }
    let mut told = Vec::new();
    let ended = client.read_to_end(&mut told).await;
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("HTTP/1.1 431 "), "{told} {ended:?}");
}

#[tokio::test]
async fn whoever_sends_far_too_large_a_head_is_told_so_and_not_broken_off() {
    let (router, service, _) = app(Options::default());
    let running = run(router, service, HttpLimits::default()).await;
    for before in ["", "GET /none HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut client = TcpStream::connect(running.address).await.unwrap();
        let line = format!("x: {}\r\n", "y".repeat(9_995));
        let begun = format!("{before}GET / HTTP/1.1\r\n{line}{line}");
        client.write_all(begun.as_bytes()).await.unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        assert!(told.contains("HTTP/1.1 431 "), "{told}");
        // Who is still writing need not fail before it reads that.
        for _ in 0..100 {
            client.write_all(line.as_bytes()).await.unwrap();
        }
    }
}

/// A service on a real socket.
struct Running {
    address: std::net::SocketAddr,
    service: App,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

async fn run(router: Router, service: App, limits: HttpLimits) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let counts = service.clone();
    let served = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        serve(listener, router, counts, limits, stopped).await
    });
    Running { address, service, stop, served }
}

/// A route that says when somebody came, and answers when it is told to.
fn slow() -> (Router, mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
    let (came, visitors) = mpsc::unbounded_channel();
    let handler = move || {
        let came = came.clone();
        async move {
            let (go, gone) = oneshot::channel();
            came.send(go).unwrap();
            let _ = gone.await;
            "at last"
        }
    };
    (Router::new().route("/v1/check", get(handler)), visitors)
}

const SLOWLY: &[u8] = b"GET /v1/check HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_at_once() {
    let (router, service, _) = app(Options::default());
    let running =
        run(router, service, HttpLimits { connections: 1, ..HttpLimits::default() }).await;
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(request(&asking("user", "a")).as_bytes()).await.unwrap();
    answer(&mut first).await;
    let mut second = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(second.read(&mut [0; 10]).await.unwrap_or(0), 0);
    let telemetry = running.service.telemetry();
    assert_eq!(telemetry.count(Event::ConnectionRefused), 1);
    assert_eq!(telemetry.count(Event::ConnectionOpened), 1);
    running.stop.send(()).unwrap();
    running.served.await.unwrap().unwrap();
    assert_eq!(telemetry.count(Event::ConnectionClosed), 1);
}

#[tokio::test]
async fn requests_beyond_the_bound_are_told_to_come_back() {
    let ((router, mut visitors), (_, service, _)) = (slow(), app(Options::default()));
    let running = run(router, service, HttpLimits { in_flight: 1, ..HttpLimits::default() }).await;
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(SLOWLY).await.unwrap();
    let go = visitors.recv().await.unwrap();
    let mut second = TcpStream::connect(running.address).await.unwrap();
    second.write_all(SLOWLY).await.unwrap();
    let told = answer(&mut second).await;
    assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("retry-after: 1\r\n"), "{told}");
    assert_eq!(running.service.telemetry().failures(Endpoint::Check, Fault::Overload), 1);
    go.send(()).unwrap();
    assert!(answer(&mut first).await.ends_with("at last"));
    second.write_all(SLOWLY).await.unwrap();
    visitors.recv().await.unwrap().send(()).unwrap();
    assert!(answer(&mut second).await.ends_with("at last"), "there is room again");
}

#[tokio::test]
async fn what_has_begun_is_brought_to_its_end() {
    let ((router, mut visitors), (_, service, _)) = (slow(), app(Options::default()));
    let running = run(router, service, HttpLimits::default()).await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    let mut busy = TcpStream::connect(running.address).await.unwrap();
    busy.write_all(SLOWLY).await.unwrap();
    let go = visitors.recv().await.unwrap();
    running.stop.send(()).unwrap();
    assert_eq!(idle.read(&mut [0; 10]).await.unwrap_or(0), 0, "closed, since it asks for nothing");
    assert!(TcpStream::connect(running.address).await.is_err(), "nobody is accepted any more");
    go.send(()).unwrap();
    assert!(answer(&mut busy).await.ends_with("at last"));
    running.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_end_is_not_put_off_for_ever() {
    let ((router, mut visitors), (_, service, _)) = (slow(), app(Options::default()));
    let limits = HttpLimits { drain: Duration::from_millis(1), ..HttpLimits::default() };
    let running = run(router, service, limits).await;
    let mut busy = TcpStream::connect(running.address).await.unwrap();
    busy.write_all(SLOWLY).await.unwrap();
    let _never_sent = visitors.recv().await.unwrap();
    running.stop.send(()).unwrap();
    running.served.await.unwrap().unwrap();
    assert_eq!(busy.read(&mut [0; 10]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn http_2_without_a_handshake_is_answered_too() {
    let (router, service, _) = app(Options::default());
    let running = run(router, service, HttpLimits::default()).await;
    let socket = TcpStream::connect(running.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    let driven = tokio::spawn(connection);
    let head =
        http::Request::post(format!("http://{}/v1/check", running.address)).body(()).unwrap();
    let (response, mut body) = client.send_request(head, false).unwrap();
    body.send_data(asking("user", "a").into(), true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-ratelimit-remaining"], "1");
    drop((client, response, body));
    running.stop.send(()).unwrap();
    running.served.await.unwrap().unwrap();
    driven.abort();
}

/// A server whose clients have so many bytes together.
fn server_of_budget(bytes: usize) -> (HttpServer, MemoryBudget) {
    let budget = MemoryBudget::new(bytes);
    let service = App::builder(http_support::engine().0).memory_budget(budget.clone()).build();
    (HttpServer::new(routes(service.clone(), Options::default()), service, bounds()), budget)
}

fn connect_with(server: &HttpServer) -> (DuplexStream, JoinHandle<()>) {
    let (client, io) = duplex(1 << 16);
    let server = server.clone();
    let served =
        tokio::spawn(async move { server.connection(None, io, std::future::pending()).await });
    (client, served)
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_together_stay_within_the_memory_budget() {
    const BUDGET: usize = 4 << 20;

    let (server, budget) = server_of_budget(BUDGET);
    let mut clients = Vec::new();
    for _ in 0..10 {
        let (mut client, served) = connect_with(&server);
        let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
        let part = [head.as_bytes(), &vec![b' '; 600_000]].concat();
        // A client that is cut off cannot send all of it.
        let _ = client.write_all(&part).await;
        assert!(budget.reserved_bytes() <= BUDGET, "{}", budget.reserved_bytes());
        clients.push((client, served));
    }
    assert!(budget.refusals() >= 7, "half of the budget holds two or three of them");
    let (mut refused, _) = clients.pop().unwrap();
    let told = answer(&mut refused).await;
    assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("overloaded"), "{told}");
    // Short requests are answered meanwhile.
    let (mut small, _served) = connect_with(&server);
    small.write_all(request(&asking("user", "a")).as_bytes()).await.unwrap();
    assert!(answer(&mut small).await.starts_with("HTTP/1.1 200 "));
    drop((small, refused));
    for (client, served) in clients {
        drop(client);
        served.await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(budget.reserved_bytes(), 0);
}

#[tokio::test]
async fn connections_beyond_the_memory_budget_are_closed_at_once() {
    let (server, budget) = server_of_budget(128 << 10);
    let (mut first, _first) = connect_with(&server);
    first.write_all(request(&asking("user", "a")).as_bytes()).await.unwrap();
    answer(&mut first).await;
    let others: Vec<_> = (0..6).map(|_| connect_with(&server)).collect();
    let mut refused = 0;
    for (_client, served) in others {
        tokio::task::yield_now().await;
        refused += usize::from(served.is_finished());
    }
    assert_eq!((refused, budget.refusals()), (1, 1), "three quarters hold six connections");
}

/// Preface and SETTINGS of HTTP/2.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(start_paused = true)]
async fn frames_and_header_blocks_of_http_2_must_end_in_time() {
    const PREFACE: &[u8] = BEGIN.split_at(24).0;
    /// HEADERS without their end, and a CONTINUATION of 16,000 bytes.
    const BLOCK: &[u8] = b"\0\0\x01\x01\0\0\0\0\x01\x82\0\x3E\x80\x09\0\0\0\0\x01";
    const DATA: &[u8] = b"\0\x3E\x80\0\0\0\0\0\x01";

    for (begun, trickles) in [
        (PREFACE.to_vec(), false),
        ([BEGIN, &BLOCK[..10]].concat(), false),
        ([BEGIN, BLOCK].concat(), true),
        ([BEGIN, &DATA[..5]].concat(), false),
    ] {
        let (mut client, _, mut served) = connect(bounds());
        client.write_all(&begun).await.unwrap();
        let since = Instant::now();
        while !served.is_finished() && since.elapsed() < Duration::from_secs(60) {
            if trickles {
                let _ = client.write_all(b"x").await;
            }
            let _ = tokio::time::timeout(Duration::from_secs(1), &mut served).await;
        }
        let waited = since.elapsed().as_secs();
        assert!((10..=15).contains(&waited), "{} bytes: {waited} s", begun.len());
    }
}

/// A client of HTTP/2 that receives nothing.
async fn connect_without_window(
    server: &HttpServer,
) -> (h2::client::SendRequest<bytes::Bytes>, JoinHandle<()>) {
    let (client, served) = connect_with(server);
    let builder = h2::client::Builder::new().initial_window_size(0).clone();
    let (client, connection) = builder.handshake(client).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    (client, served)
}

fn ask_over(client: &mut h2::client::SendRequest<bytes::Bytes>) -> h2::client::ResponseFuture {
    let head = http::Request::post("http://x/v1/check").body(()).unwrap();
    let (response, mut body) = client.send_request(head, false).unwrap();
    body.send_data(asking("free", "a").into(), true).unwrap();
    response
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_not_received_end_the_connection() {
    let (server, budget) = server_of_budget(4 << 20);
    let (client, served) = connect_without_window(&server).await;
    let mut client = client.ready().await.unwrap();
    let begun = Instant::now();
    let _response = ask_over(&mut client).await.unwrap();
    served.await.unwrap();
    let waited = begun.elapsed().as_secs();
    assert!((10..=15).contains(&waited), "HTTP/2: {waited}");

    let (mut client, io) = duplex(100);
    let served = {
        let server = server.clone();
        tokio::spawn(async move { server.connection(None, io, std::future::pending()).await })
    };
    let begun = Instant::now();
    client.write_all(request(&asking("free", "a")).as_bytes()).await.unwrap();
    served.await.unwrap();
    let waited = begun.elapsed().as_secs();
    assert!((10..=15).contains(&waited), "HTTP/1.1: {waited}");
    assert_eq!(budget.reserved_bytes(), 0);
}

#[tokio::test]
async fn streams_beyond_the_memory_budget_are_refused() {
    const BUDGET: usize = 256 << 10;

    let (server, budget) = server_of_budget(BUDGET);
    let (client, served) = connect_without_window(&server).await;
    let mut client = client.ready().await.unwrap();
    let (mut answered, mut refused) = (0, 0);
    let mut open = Vec::new();
    for _ in 0..60 {
        match ask_over(&mut client).await {
            Ok(response) => {
                answered += 1;
                open.push(response);
            }
            Err(error) => {
                assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM));
                refused += 1;
            }
        }
        assert!(budget.reserved_bytes() <= BUDGET);
    }
    assert!((15..30).contains(&answered) && refused > 30, "{answered}, {refused}");
    drop((client, open));
    served.await.unwrap();
    assert_eq!(budget.reserved_bytes(), 0);
}
