//! HTTP/2 from clients: requests that become others in HTTP/1.1, and what is not offered.

use std::io::Write;
use std::process::Command;

use crate::frames::{
    DATA, END_HEADERS, END_STREAM, Field, HEADERS, Outcome, SETTINGS, frame, headers, next, open,
    outcome,
};
use crate::gateway::Gateway;
use crate::support::server;
use crate::support::upstream::Upstream;
use crate::wire::Recorder;

fn started() -> (Gateway, Recorder) {
    let recorder = Recorder::start();
    let upstream = format!("http://{}", recorder.address);
    (Gateway::start(&["--upstream", &upstream]), recorder)
}

const METHOD: Field<'_> = (":method", b"POST");
const SCHEME: Field<'_> = (":scheme", b"http");
const PATH: Field<'_> = (":path", b"/");
const HOST: Field<'_> = (":authority", b"a");

/// Sends a request with a body on a connection of its own.
fn send(gateway: &Gateway, fields: &[Field<'_>], body: &[u8]) -> Outcome {
    let mut socket = open(&gateway.address, &[]);
    let request =
        [frame(HEADERS, END_HEADERS, 1, &headers(fields)), frame(DATA, END_STREAM, 1, body)];
    socket.write_all(&request.concat()).unwrap();
    outcome(&mut socket)
}

#[test]
fn a_request_that_could_become_another_is_refused() {
    let (gateway, recorder) = started();
    let with = |fields: &[Field<'_>], body: &[u8]| {
        send(&gateway, &[&[METHOD, SCHEME, PATH, HOST], fields].concat(), body)
    };
    let smuggled = b"x\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    let in_place = |index: usize, field: (&'static str, &'static [u8])| {
        let mut fields = [METHOD, SCHEME, PATH, HOST];
        fields[index] = field;
        send(&gateway, &fields, b"")
    };
    let refused = [
        ("CR LF in a value", with(&[("x", smuggled)], b"")),
        ("LF in a value", with(&[("x", b"a\nb: c")], b"")),
        ("NUL in a value", with(&[("x", b"a\0b")], b"")),
        ("CR LF in a name", with(&[("x\r\ny", b"a")], b"")),
        ("a colon in a name", with(&[("x: y", b"a")], b"")),
        ("a space in a name", with(&[("x y", b"a")], b"")),
        ("capitals in a name", with(&[("X-Upper", b"a")], b"")),
        ("an empty name", with(&[("", b"a")], b"")),
        ("transfer-encoding", with(&[("transfer-encoding", b"chunked")], b"0\r\n\r\n")),
        ("connection", with(&[("connection", b"x-secret")], b"")),
        ("keep-alive", with(&[("keep-alive", b"1")], b"")),
        ("upgrade", with(&[("upgrade", b"websocket")], b"")),
        ("te", with(&[("te", b"gzip")], b"")),
        ("a length above the body", with(&[("content-length", b"9")], b"abc")),
        ("a length below the body", with(&[("content-length", b"1")], b"abc")),
        ("two lengths", with(&[("content-length", b"3"), ("content-length", b"0")], b"abc")),
        ("a length that is none", with(&[("content-length", b"+3")], b"abc")),
        ("two hosts", with(&[("host", b"a"), ("host", b"a")], b"")),
        ("a pseudo-header behind", with(&[("x", b"a"), (":path", b"/b")], b"")),
        ("two paths", with(&[(":path", b"/b")], b"")),
        ("an unknown pseudo-header", with(&[(":x", b"a")], b"")),
        ("CR LF in the method", in_place(0, (":method", b"GET / HTTP/1.1\r\nx: y"))),
        ("a space in the method", in_place(0, (":method", b"GET /x"))),
        ("CR LF in the path", in_place(2, (":path", b"/ HTTP/1.1\r\nhost: b\r\n\r\n"))),
        ("a space in the path", in_place(2, (":path", b"/a b"))),
        ("an empty path", in_place(2, (":path", b""))),
        ("a path without slash", in_place(2, (":path", b"a"))),
        ("CR LF in the host", in_place(3, (":authority", b"a\r\nx: y"))),
        ("a slash in the host", in_place(3, (":authority", b"a/b"))),
        ("a user in the host", in_place(3, (":authority", b"u@a"))),
        ("no host", send(&gateway, &[METHOD, SCHEME, PATH], b"")),
        ("no method", send(&gateway, &[SCHEME, PATH, HOST], b"")),
        ("no path", send(&gateway, &[METHOD, SCHEME, HOST], b"")),
    ];
    for (name, outcome) in refused {
        let is_refused = match outcome {
            Outcome::Status(status) => status == 400 || status == 404,
            Outcome::Reset | Outcome::Closed => true,
        };
        assert!(is_refused, "{name}: {outcome:?}");
    }
    drop(gateway);
    assert_eq!(recorder.finish(), []);
}

#[test]
fn a_request_reaches_an_http1_server_in_one_form() {
    let (gateway, recorder) = started();
    let all = [METHOD, SCHEME, PATH, HOST];
    let host_only = [METHOD, SCHEME, PATH, ("host", b"a")];
    let cases: [(&[Field<'_>], &[Field<'_>], &str); 5] = [
        (&all, &[("content-length", b"3")], "POST / HTTP/1.1|content-length: 3|host: a"),
        (&all, &[], "POST / HTTP/1.1|host: a|transfer-encoding: chunked"),
        (&all, &[("host", b"b")], "POST / HTTP/1.1|host: a|transfer-encoding: chunked"),
        (&host_only, &[], "POST / HTTP/1.1|host: a|transfer-encoding: chunked"),
        (
            &all,
            &[("cookie", b"a=1"), ("cookie", b"b=2")],
            "POST / HTTP/1.1|cookie: a=1; b=2|host: a|transfer-encoding: chunked",
        ),
    ];
    for (first, rest, head) in cases {
        assert_eq!(send(&gateway, &[first, rest].concat(), b"abc"), Outcome::Status(200), "{head}");
        let recorded = recorder.requests().pop().unwrap();
        assert_eq!((recorded.head.as_str(), recorded.body.as_str()), (head, "abc"));
    }
}

#[test]
fn websocket_over_http2_is_not_offered_and_refused() {
    let (gateway, recorder) = started();
    let mut socket = open(&gateway.address, &[]);
    let settings = next(&mut socket).unwrap();
    assert_eq!(settings.kind, SETTINGS);
    let ids: Vec<_> = settings.payload.chunks(6).map(|setting| setting[1]).collect();
    assert!(!ids.contains(&8), "SETTINGS_ENABLE_CONNECT_PROTOCOL: {ids:?}");
    let connect: Field<'_> = (":method", b"CONNECT");
    let extended = [connect, (":protocol", b"websocket"), SCHEME, PATH, HOST];
    let refused = send(&gateway, &extended, b"");
    assert!(matches!(refused, Outcome::Reset | Outcome::Status(405 | 501)), "{refused:?}");
    assert_eq!(send(&gateway, &[connect, (":authority", b"a:443")], b""), Outcome::Status(405));
    drop(gateway);
    assert_eq!(recorder.finish(), []);
}

#[test]
fn h2spec_finds_one_deviation() {
    let app = Upstream::answering(|_| async { "x".repeat(200) });
    let gateway = Gateway::start(&["--upstream", &format!("http://{}", app.address)]);
    let (host, port) = gateway.address.rsplit_once(':').unwrap();
    let run = Command::new(server("h2spec")).args(["-h", host, "-p", port, "-o", "20"]).output();
    let report = String::from_utf8_lossy(&run.unwrap().stdout).into_owned();
    let (_, failures) = report.split_once("Failures:").unwrap_or_default();
    // What is not the preface of HTTP/2 is HTTP/1.1, and gets 400.
    assert!(failures.contains("2: Sends invalid connection preface"), "{report}");
    // These send a valid request and then a wrong frame: the response may be there before it.
    let racing = [
        "closed: Sends a DATA frame",
        "payload length that does not equal",
        "Sends a second HEADERS frame without the END_STREAM flag",
    ];
    let failed = failures.lines().filter(|line| line.contains('\u{d7}')).count();
    let raced = racing.iter().filter(|case| failures.contains(**case)).count();
    assert_eq!(failed, 1 + raced, "{report}");
    assert!(report.contains("145 tests, "), "{report}");
}
