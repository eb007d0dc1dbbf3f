//! Servers that do what a good one seldom does: close connections, answer in pieces, stop in the
//! middle.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sluicegate_load::{
    Amount, KeyOrder, KeySpace, LoadError, Pace, Plan, Report, RequestSpec, Server, Timer, run,
};

fn plan(address: SocketAddr, request: RequestSpec) -> Plan {
    Plan {
        address,
        request,
        keys: KeySpace { count: 50, order: KeyOrder::Sequential, seed: 1 },
        pace: Pace::Closed,
        amount: Amount::Count(200),
        warm_up: Duration::ZERO,
        fill: false,
        connections: 2,
        at_once: 1,
        threads: 1,
        timeout: Duration::from_secs(20),
        request_timeout: None,
        timer: Timer::Exact,
        denied: vec![429],
        password: None,
        server: Server::Listening,
    }
}

fn command(words: &[&str]) -> RequestSpec {
    RequestSpec::Command { words: words.iter().map(|word| (*word).to_owned()).collect() }
}

/// A server with a thread for each connection, as long as the test runs.
fn serving(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(move || serve(socket));
        }
    });
    address
}

/// Reads until all of a text has come; whether it has.
fn read_until(socket: &mut TcpStream, end: &[u8]) -> bool {
    let mut byte = [0];
    let mut read = Vec::new();
    while socket.read(&mut byte).unwrap_or(0) == 1 {
        read.push(byte[0]);
        if read.ends_with(end) {
            return true;
        }
    }
    false
}

fn done(plan: &Plan) -> Report {
    run(plan, |_| {}).unwrap()
}

#[test]
fn a_server_that_closes_politely_costs_connections_and_no_errors() {
    let address = serving(|mut socket| {
        if read_until(&mut socket, b"\r\n\r\n") {
            let _ = socket
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi");
        }
    });
    let report = done(&plan(address, RequestSpec::get("/")));
    assert_eq!((report.allowed, report.errors), (200, 0), "{:?}", report.errors_by_text);
    // The first two were there before it began.
    assert_eq!(report.reconnects, 198);
    assert!(report.is_clean());
}

#[test]
fn a_server_that_hangs_up_is_an_error_each_time() {
    let address = serving(|mut socket| {
        read_until(&mut socket, b"\r\n\r\n");
    });
    let report = done(&plan(address, RequestSpec::get("/")));
    assert_eq!((report.answered, report.errors), (0, 200));
    assert!(!report.is_clean());
    let texts: Vec<&str> = report.errors_by_text.keys().map(String::as_str).collect();
    assert!(
        texts.iter().all(|text| text.contains("closed") || text.contains("reset")),
        "{texts:?}"
    );
}

#[test]
fn replies_may_come_in_any_pieces() {
    let address = serving(|mut socket| {
        socket.set_nodelay(true).unwrap();
        // Every other key may go, and every byte comes alone.
        let mut number = 0;
        while read_until(&mut socket, b"60\r\n") {
            let reply = format!("*5\r\n:{}\r\n:100\r\n:99\r\n:-1\r\n:1\r\n", number % 2);
            number += 1;
            for byte in reply.as_bytes() {
                if socket.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        }
    });
    let request = command(&["CL.THROTTLE", "{key}", "99", "100", "60"]);
    let report = done(&Plan { at_once: 10, ..plan(address, request) });
    assert_eq!(
        (report.allowed, report.denied, report.errors),
        (100, 100, 0),
        "{:?}",
        report.errors_by_text
    );
}

#[test]
fn a_password_is_told_first_and_a_wrong_one_ends_it() {
    let address = serving(|mut socket| {
        let mut first = [0; 4096];
        let count = socket.read(&mut first).unwrap_or(0);
        if !first[..count].ends_with(b"AUTH\r\n$6\r\nsecret\r\n") {
            let _ = socket.write_all(b"-WRONGPASS invalid password\r\n");
            return;
        }
        let _ = socket.write_all(b"+OK\r\n");
        while read_until(&mut socket, b"PING\r\n") && socket.write_all(b"+PONG\r\n").is_ok() {}
    });
    let request = command(&["PING"]);
    let password = |text: &str| Some(text.to_owned());
    let report = done(&Plan { password: password("secret"), ..plan(address, request.clone()) });
    assert_eq!((report.allowed, report.errors), (200, 0));
    let wrong = run(&Plan { password: password("guess"), ..plan(address, request) }, |_| {});
    let Err(LoadError::Connect(text)) = wrong else { panic!("{wrong:?}") };
    assert!(text.contains("the password is refused: WRONGPASS"), "{text}");
}

#[test]
fn a_connection_of_grpc_that_ends_is_made_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(ten_calls(socket));
            }
        });
    });
    let descriptors = vec![vec![("user".to_owned(), "{key}".to_owned())]];
    let request = RequestSpec::Rls { domain: "d".to_owned(), descriptors };
    let report = done(&Plan { connections: 1, ..plan(address, request) });
    assert_eq!((report.denied, report.errors), (200, 0), "{:?}", report.errors_by_text);
    assert!(report.reconnects >= 10, "{}", report.reconnects);
}

/// Answers ten calls with a no, and says good-bye.
async fn ten_calls(socket: tokio::net::TcpStream) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    let mut calls = 0;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        calls += 1;
        if calls == 10 {
            connection.graceful_shutdown();
        }
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(piece)) = body.data().await {
                let _ = body.flow_control().release_capacity(piece.len());
            }
            let response = http::Response::builder().header("content-type", "application/grpc");
            let mut sending = respond.send_response(response.body(()).unwrap(), false).unwrap();
            sending.send_data(bytes::Bytes::from_static(&[0, 0, 0, 0, 2, 0x08, 2]), false).unwrap();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            sending.send_trailers(trailers).unwrap();
        });
    }
}

#[test]
fn threads_share_the_work() {
    let address = serving(|mut socket| {
        while read_until(&mut socket, b"\r\n\r\n")
            && socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_ok()
        {}
    });
    let plan = Plan {
        threads: 3,
        connections: 5,
        fill: true,
        ..plan(address, RequestSpec::get("/{key}"))
    };
    let report = done(&plan);
    assert_eq!((report.allowed, report.errors, report.threads), (200, 0, 3));
    assert_eq!(report.series.iter().map(|point| point.answered).sum::<u64>(), 200);
}
