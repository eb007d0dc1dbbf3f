//! Responses that two clients could read differently, and responses beside the request: no client
//! gets what belongs to another one.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::gateway::Gateway;
use crate::support::http::asked_on;
use crate::wire::{HANG, connect, exchange, read_head_or_end, statuses};

/// A server that answers requests for `/next` with its name, and others with these bytes. It keeps
/// its connections open.
fn server(answer: &Arc<Mutex<Vec<u8>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = answer.clone();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, answer) = (socket.unwrap(), answer.clone());
            thread::spawn(move || serve(socket, &answer));
        }
    });
    url
}

fn serve(mut socket: TcpStream, answer: &Mutex<Vec<u8>>) {
    socket.set_read_timeout(Some(HANG)).unwrap();
    while let Some(head) = read_head_or_end(&mut socket) {
        let bytes = match head.starts_with("GET /next ") {
            true => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext".to_vec(),
            false => answer.lock().unwrap().clone(),
        };
        if socket.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// The responses to each of these, and to the request after it.
fn check(method: &str, cases: &[(&str, u16, &str)]) {
    let answer = Arc::new(Mutex::new(Vec::new()));
    // A server whose responses are malformed must stay in use here.
    let gateway = Gateway::start(&["--upstream", &server(&answer)]);
    for (bytes, status, body) in cases {
        *answer.lock().unwrap() = bytes.as_bytes().to_vec();
        let request = format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let got = asked_on(connect(&gateway.address), request.as_bytes());
        assert_eq!(got.status, *status, "{bytes:?}: {got:?}");
        if *status == 200 {
            assert_eq!(got.body, *body, "{bytes:?}");
            assert!(
                got.header("content-length").is_none() || got.header("transfer-encoding").is_none()
            );
        }
        let next = gateway.get("/next");
        assert_eq!((next.status, next.body.as_str()), (200, "next"), "after {bytes:?}");
    }
}

#[test]
fn the_length_of_a_response() {
    check(
        "GET",
        &[
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, "ok"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", 200, "ok"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\n\r\n",
                200,
                "ok",
            ),
            // A second response, without a request.
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad",
                200,
                "ok",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
                200,
                "ok",
            ),
            ("HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nbad", 204, ""),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\nbad", 304, ""),
            (
                "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                200,
                "ok",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                502,
                "",
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 5\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 502, ""),
            ("HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\nx: a\rb\r\ncontent-length: 2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 99 Low\r\ncontent-length: 2\r\n\r\nok", 502, ""),
            ("HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 502, ""),
            ("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\nbad", 502, ""),
            ("nonsense\r\n\r\n", 502, ""),
        ],
    );
    check("HEAD", &[("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", 200, "")]);
}

#[test]
fn a_malformed_body_ends_the_connection_of_the_client() {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let gateway = Gateway::start(&["--upstream", &server(&answer)]);
    for body in ["zz\r\nok", "2\r\nokay\r\n", "2\nok\n0\n\n", "ffffffffffffffffff\r\nok"] {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        *answer.lock().unwrap() = format!("{head}{body}").into_bytes();
        // The connection of the client would stay open.
        let got = exchange(&gateway.address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        // The head may not have been sent yet.
        assert!(matches!(statuses(&got)[..], [] | [200]), "{got}");
        assert!(!got.ends_with("0\r\n\r\n"), "it does not look complete: {got}");
        assert_eq!(gateway.get("/next").body, "next");
    }
}
