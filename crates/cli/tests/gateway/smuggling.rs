//! Requests that two servers could read differently: each is refused, and its connection closed, or
//! it reaches the upstream in one unambiguous form.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::wire::{Recorder, exchange, statuses};

fn started() -> (Gateway, Recorder) {
    let recorder = Recorder::start();
    let upstream = format!("http://{}", recorder.address);
    (Gateway::start(&["--upstream", &upstream]), recorder)
}

/// Sends each of these on a connection of its own, followed by a request that must not arrive.
/// `None` is a refusal; otherwise it is the request at the upstream.
fn check(cases: &[(&[u8], Option<&str>)]) {
    let (gateway, recorder) = started();
    let mut expected = Vec::new();
    for (request, forwarded) in cases {
        let text = String::from_utf8_lossy(request);
        let bytes = [request, &b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"[..]].concat();
        let answer = exchange(&gateway.address, &bytes);
        let status = if forwarded.is_some() { 200 } else { 400 };
        assert_eq!(statuses(&answer), [status], "{text:?}: {answer}");
        expected.extend(forwarded.map(str::to_owned));
    }
    drop(gateway);
    let requests = recorder.finish();
    let seen: Vec<_> = requests.iter().map(|one| format!("{}||{}", one.head, one.body)).collect();
    assert_eq!(seen, expected);
}

/// A request with these lines, which ends its connection.
macro_rules! head {
    ($first:literal, $lines:literal) => {
        concat!($first, "\r\nConnection: close\r\n", $lines, "\r\n").as_bytes()
    };
}

macro_rules! post {
    ($lines:literal, $body:literal) => {
        concat!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", $lines, "\r\n", $body)
            .as_bytes()
    };
}

macro_rules! chunked {
    ($body:literal) => {
        post!("Transfer-Encoding: chunked\r\n", $body)
    };
}

const CHUNKED: &str = "POST / HTTP/1.1|host: a|transfer-encoding: chunked||";
const CHUNKED_ABC: &str = "POST / HTTP/1.1|host: a|transfer-encoding: chunked||abc";
const LENGTH_ABC: &str = "POST / HTTP/1.1|content-length: 3|host: a||abc";
const GET: &str = "GET / HTTP/1.1|host: a||";

#[test]
fn the_length_of_a_body() {
    check(&[
        // `Transfer-Encoding` has precedence, and `Content-Length` is removed.
        (post!("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), Some(CHUNKED)),
        (post!("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "0\r\n\r\n"), Some(CHUNKED)),
        (post!("Transfer-Encoding: ChunKed\r\n", "0\r\n\r\n"), Some(CHUNKED)),
        (post!("Transfer-Encoding:\tchunked \r\n", "0\r\n\r\n"), Some(CHUNKED)),
        (post!("Content-Length: 6\r\nTransfer-Encoding : chunked\r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 6\r\nTransfer-Encoding: xchunked\r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 6\r\nTransfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 6\r\nTransfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 6\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 6\r\nTransfer-Encoding: \r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 6\r\nTransfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), None),
        (post!("Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), None),
        (post!("Transfer-Encoding: identity, chunked\r\n", "0\r\n\r\n"), None),
        (post!("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), None),
        (post!("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), None),
        (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", None),
        (post!("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), Some(LENGTH_ABC)),
        (post!("Content-Length: 3 \r\n", "abc"), Some(LENGTH_ABC)),
        (post!("Content-Length: 3\r\nContent-Length: 0\r\n", "abc"), None),
        (post!("Content-Length: 3, 3\r\n", "abc"), None),
        (post!("Content-Length: +3\r\n", "abc"), None),
        (post!("Content-Length: -3\r\n", "abc"), None),
        (post!("Content-Length: 0x3\r\n", "abc"), None),
        (post!("Content-Length: 3 a\r\n", "abc"), None),
        (post!("Content-Length: \r\n", ""), None),
        (post!("Content-Length: 18446744073709551619\r\n", "abc"), None),
        // Named in `Connection`, it is still the length.
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close, content-length\r\n\
              Content-Length: 3\r\n\r\nabc",
            Some(LENGTH_ABC),
        ),
        (
            head!("GET / HTTP/1.1", "Host: a\r\nContent-Length: 0\r\n"),
            Some("GET / HTTP/1.1|content-length: 0|host: a||"),
        ),
    ]);
}

#[test]
fn bodies_in_chunks() {
    check(&[
        (chunked!("3;a=b\r\nabc\r\n0;x\r\n\r\n"), Some(CHUNKED_ABC)),
        (chunked!("3 \r\nabc\r\n0\r\n\r\n"), Some(CHUNKED_ABC)),
        (chunked!("3;a=\"\r\nabc\r\n0\r\n\r\n"), Some(CHUNKED_ABC)),
        // Trailers could pass for headers that nothing has checked.
        (chunked!("3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: b\r\n\r\n"), Some(CHUNKED_ABC)),
        (
            post!(
                "Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, Content-Length\r\n",
                "3\r\nabc\r\n0\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Length: 9\r\n\r\n"
            ),
            Some(CHUNKED_ABC),
        ),
        (chunked!("3;a\nabc\r\n0\r\n\r\n"), None),
        (chunked!("10000000000000003\r\nabc\r\n0\r\n\r\n"), None),
        (chunked!("0x3\r\nabc\r\n0\r\n\r\n"), None),
        (chunked!("+3\r\nabc\r\n0\r\n\r\n"), None),
        (chunked!("0_3\r\nabc\r\n0\r\n\r\n"), None),
        (chunked!("\r\n\r\n"), None),
        (chunked!("3\nabc\n0\n\n"), None),
        (chunked!("3\r\nabc\n0\r\n\r\n"), None),
        (chunked!("3\r\nabcX\r\n0\r\n\r\n"), None),
        (chunked!("3\rabc\r\n0\r\n\r\n"), None),
        (chunked!("0\r\nX-Sum: 1\nX: b\r\n\r\n"), None),
    ]);
}

#[test]
fn lines_of_a_head() {
    check(&[
        // An LF alone ends a line, as for nginx; the upstream gets CR LF.
        (b"GET / HTTP/1.1\nHost: a\nConnection: close\n\n", Some(GET)),
        (head!("GET / HTTP/1.1", "Host: a\nX: b\r\n"), Some("GET / HTTP/1.1|host: a|x: b||")),
        (
            post!("Content-Length: 5\r\nX: b\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            Some("POST / HTTP/1.1|host: a|transfer-encoding: chunked|x: b||"),
        ),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Some(GET)),
        (head!("GET / HTTP/1.1", "Host: a\r\nX: a\r\n b\r\n"), None),
        (b"GET / HTTP/1.1\r\n X: a\r\nHost: a\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\n\tX: a\r\nHost: a\r\n\r\n", None),
        (head!("GET / HTTP/1.1", "Host: a\r\nX: a\rTransfer-Encoding: chunked\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a\r\nX: a\r\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a\r\nX: a\0b\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a\r\nX\0: a\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a\r\nXabc\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a\r\n: abc\r\n"), None),
        (head!("GET  / HTTP/1.1", "Host: a\r\n"), None),
        (head!("GET\t/\tHTTP/1.1", "Host: a\r\n"), None),
        (head!("GET /a b HTTP/1.1", "Host: a\r\n"), None),
        (head!("GET / HTTP/1.1 HTTP/1.1", "Host: a\r\n"), None),
        (head!("GET / HTTP/1.2", "Host: a\r\n"), None),
        (head!("GET / HTTP/2.0", "Host: a\r\n"), None),
        (head!("GET / http/1.1", "Host: a\r\n"), None),
        (b"GET /\r\n\r\n", None),
    ]);
}

#[test]
fn the_host_of_a_request() {
    check(&[
        (head!("GET http://b/x HTTP/1.1", "Host: a\r\n"), Some("GET /x HTTP/1.1|host: b||")),
        (head!("GET http://b?x HTTP/1.1", ""), Some("GET /?x HTTP/1.1|host: b||")),
        (head!("GET / HTTP/1.1", "Host: [::1]:80\r\n"), Some("GET / HTTP/1.1|host: [::1]:80||")),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, host\r\n\r\n", Some(GET)),
        (head!("GET / HTTP/1.1", "Host: a\r\nHost: b\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a\r\nHost: a\r\n"), None),
        (head!("GET / HTTP/1.1", ""), None),
        (head!("GET / HTTP/1.1", "Host: a, b\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a@b\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a/b\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a b\r\n"), None),
        (head!("GET / HTTP/1.1", "Host: a:b\r\n"), None),
        (head!("GET http://a@b/ HTTP/1.1", "Host: b\r\n"), None),
    ]);
}

#[test]
fn the_mark_of_a_limit_cannot_be_removed() {
    let (folder, recorder) = (Folder::new(), Recorder::start());
    folder.file("rules.yaml", "domain: api\ndescriptors:\n  - key: path\n    limits: { algorithm: fixed_window, rate: 0/year }\n");
    let config = format!(
        "rules: rules.yaml\nupstreams: {{ app: \"http://{}\" }}\nroutes:\n  - path: /*\n    upstream: app\n    on_limit: mark\n    limit: {{ domain: api, descriptors: [{{ path: path }}] }}\n",
        recorder.address
    );
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", &config)]);
    let lines = "Host: a\r\nConnection: close, X-RateLimit-Exceeded\r\nX-RateLimit-Exceeded: no\r\nX_RateLimit_Exceeded: no";
    let answer =
        exchange(&gateway.address, format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n").as_bytes());
    assert_eq!(statuses(&answer), [200], "{answer}");
    let requests = recorder.requests();
    assert_eq!(requests[0].head, "GET / HTTP/1.1|host: a|x-ratelimit-exceeded: api/path");
}

#[test]
fn headers_of_the_gateway_cannot_be_forged_or_removed() {
    check(&[
        (
            head!(
                "GET / HTTP/1.1",
                "Host: a\r\nX_Forwarded_For: 1.2.3.4\r\nX-Real_IP: 1.2.3.4\r\n"
            ),
            Some(GET),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Secret, X-Forwarded-For\r\n\
              X-Secret: 1\r\n\r\n",
            Some(GET),
        ),
    ]);
}

/// Lines that framing depends on, right and wrong.
fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("Content-Length"),
        Just("Transfer-Encoding"),
        Just("Connection"),
        Just("Host"),
        Just("X-Other"),
    ];
    let value = prop_oneof![
        "[0-9]{1,2}",
        Just("chunked".to_owned()),
        Just("close".to_owned()),
        Just("a".to_owned()),
        "[ -~\t\u{b}\0]{0,12}",
    ];
    let (colon, end) = (prop_oneof![9 => Just(": "), 1 => Just(" :"), 1 => Just(":")], ending());
    (name, colon, value, end)
        .prop_map(|(name, colon, value, end)| format!("{name}{colon}{value}{end}"))
}

fn ending() -> impl Strategy<Value = &'static str> {
    prop_oneof![12 => Just("\r\n"), 2 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\n ")]
}

fn request() -> impl Strategy<Value = String> {
    let method = prop_oneof![Just("GET"), Just("POST")];
    let piece = prop_oneof![
        4 => "[0-9a-f]{1,2}\r\n[a-z]{0,9}\r\n",
        2 => Just("3\r\nabc\r\n".to_owned()),
        2 => Just("0\r\n\r\n".to_owned()),
        1 => "[ -~\r\n]{0,20}",
    ];
    let lines = prop::collection::vec(line(), 0..5);
    let body = prop::collection::vec(piece, 0..4);
    (method, lines, body).prop_map(|(method, lines, body)| {
        format!("{method} / HTTP/1.1\r\nHost: a\r\n{}\r\n{}", lines.concat(), body.concat())
    })
}

#[test]
fn the_upstream_reads_a_request_for_each_response() {
    // Whatever length the beginning has, a connection ends within these.
    let end = "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".repeat(12);
    let (gateway, recorder) = started();
    let mut runner = TestRunner::new(Config { cases: 400, ..Config::default() });
    let (mut forwarded, mut refused) = (0, 0);
    let counted = std::cell::RefCell::new((&mut forwarded, &mut refused));
    let run = runner.run(&request(), |request| {
        let before = recorder.requests().len();
        let answer = exchange(&gateway.address, format!("{request}{end}").as_bytes());
        let statuses = statuses(&answer);
        let passed = statuses.iter().filter(|status| **status == 200).count();
        prop_assert_eq!(recorder.requests().len() - before, passed, "{:?}", statuses);
        let known = statuses.iter().all(|status| matches!(status, 200 | 400));
        prop_assert!(known && !statuses.is_empty(), "{:?}", statuses);
        let mut counted = counted.borrow_mut();
        *counted.0 += passed;
        *counted.1 += statuses.len() - passed;
        Ok(())
    });
    run.unwrap();
    assert!(forwarded > 100 && refused > 100, "{forwarded} forwarded, {refused} refused");
    drop(gateway);
    recorder.finish();
}
