//! Requests of HTTP/1.1 on the wire: the server reads what hyper's server reads, and bytes in any
//! pieces as bytes at once.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod http_support;

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};
use sluicegate_server::app::App;
use sluicegate_server::http::{
    Connection, Handler, HttpLimits, HttpServer, InFlight, IncomingBody,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::time::{sleep, timeout};

/// A request as a handler has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    line: String,
    headers: Vec<String>,
    /// `None` if it did not arrive.
    body: Option<Vec<u8>>,
}

type Log = Arc<Mutex<Vec<Seen>>>;

async fn read<B>(mut body: B) -> Option<Vec<u8>>
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            all.extend_from_slice(&data);
        }
    }
    Some(all)
}

/// Reads a request whole, and answers with its body.
async fn echo<B>(request: Request<B>, log: Log) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let (head, body) = request.into_parts();
    let body = read(body).await;
    let line = format!("{} {} {:?}", head.method, head.uri, head.version);
    log.lock().unwrap().push(Seen { line, headers: sorted(&head.headers), body: body.clone() });
    Response::new(Body::from(body.unwrap_or_default()))
}

fn sorted(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers.iter().map(|line| format!("{line:?}")).collect();
    lines.sort_unstable();
    lines
}

struct Echo(Log);

impl Handler for Echo {
    type Context = ();
    type Future = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
    type Response = Response<Body>;
    type Body = Body;

    fn call(&self, request: Request<IncomingBody>, _: &Connection<()>) -> Self::Future {
        Box::pin(echo(request, self.0.clone()))
    }

    fn overloaded(&self, _: &Request<IncomingBody>, _: &Connection<()>, _: &App) -> Response<Body> {
        unreachable!()
    }

    fn send(&self, response: Response<Body>, _: InFlight<()>) -> Response<Body> {
        response
    }
}

async fn serve(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, log: Log) {
    let app = App::new(http_support::engine().0);
    HttpServer::with_handler(Echo(log), &app, HttpLimits::default())
        .connection((), io, pending())
        .await;
}

async fn serve_by_hyper(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, log: Log) {
    let service = hyper::service::service_fn(move |request| {
        let log = log.clone();
        async move { Ok::<_, Infallible>(echo(request, log).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.max_buf_size(16 << 10);
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

/// What comes of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    seen: Vec<Seen>,
    /// Responses of handlers, without headers of the connection.
    answers: Vec<Answer>,
    is_closed: bool,
}

type Answer = (u16, Vec<String>, Vec<u8>);

impl Outcome {
    /// Removes a last request whose body did not arrive; whether there is one.
    fn drop_failed(&mut self) -> bool {
        let has_failed = self.seen.last().is_some_and(|seen| seen.body.is_none());
        if has_failed {
            self.seen.pop();
            self.answers.truncate(self.seen.len());
        }
        has_failed
    }
}

/// What comes of these bytes in pieces of these lengths, repeated; each is read before the next.
fn outcome(by_hyper: bool, bytes: &[u8], pieces: &[usize]) -> Outcome {
    let builder =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    builder.unwrap().block_on(async {
        let log = Log::default();
        let (mut client, io) = duplex(1 << 20);
        let served = match by_hyper {
            true => tokio::spawn(serve_by_hyper(io, log.clone())),
            false => tokio::spawn(serve(io, log.clone())),
        };
        let (mut rest, mut pieces) = (bytes, pieces.iter().cycle());
        while !rest.is_empty() {
            let count = pieces.next().map_or(rest.len(), |count| *count).clamp(1, rest.len());
            let (piece, later) = rest.split_at(count);
            if client.write_all(piece).await.is_err() {
                break;
            }
            rest = later;
            // The clock advances when every task waits.
            sleep(Duration::from_micros(1)).await;
        }
        let mut received = Vec::new();
        let read = timeout(Duration::from_millis(1), client.read_to_end(&mut received)).await;
        served.abort();
        let seen = log.lock().unwrap().clone();
        Outcome { answers: answers(&received, &seen), seen, is_closed: read.is_ok() }
    })
}

/// The responses to these requests in these bytes. Requests that are refused are not compared:
/// hyper closes some without a response.
fn answers(mut bytes: &[u8], seen: &[Seen]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        let mut lines = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut lines);
        let status = head.parse(bytes).unwrap();
        assert!(status.is_complete(), "{}", String::from_utf8_lossy(bytes));
        let code = head.code.unwrap();
        let mut headers = HeaderMap::new();
        for line in &*head.headers {
            let name = http::HeaderName::from_bytes(line.name.as_bytes()).unwrap();
            headers.append(name, http::HeaderValue::from_bytes(line.value).unwrap());
        }
        bytes = &bytes[status.unwrap()..];
        if code == 100 {
            continue;
        }
        let length = headers.get(CONTENT_LENGTH).map_or("0", |length| length.to_str().unwrap());
        let is_head = seen.get(answers.len()).is_some_and(|seen| seen.line.starts_with("HEAD"));
        let length = if is_head { 0 } else { length.parse().unwrap() };
        let (body, rest) = bytes.split_at(length);
        bytes = rest;
        assert!(headers.remove(DATE).is_some() && !headers.contains_key(TRANSFER_ENCODING));
        headers.remove(CONNECTION);
        if code == 200 {
            answers.push((code, sorted(&headers), body.to_vec()));
        } else {
            assert!(matches!(code, 400 | 414 | 431) && bytes.is_empty(), "{code}");
        }
    }
    answers
}

/// Lines that framing depends on, right and wrong.
fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("Content-Length"),
        Just("Transfer-Encoding"),
        Just("Connection"),
        Just("Host"),
        Just("Expect"),
        Just("X-Other"),
        Just("X Other"),
    ];
    let value = prop_oneof![
        4 => "[0-9]{1,2}",
        4 => Just("chunked".to_owned()),
        1 => Just("gzip, Chunked".to_owned()),
        1 => Just("close".to_owned()),
        2 => Just("Keep-Alive, x".to_owned()),
        1 => Just("100-continue".to_owned()),
        1 => "[ -~\t\u{b}\0\u{80}]{0,12}",
    ];
    let colon = prop_oneof![9 => Just(": "), 1 => Just(" :"), 1 => Just(":"), 1 => Just("")];
    let end = prop_oneof![20 => Just("\r\n"), 3 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\n ")];
    (name, colon, value, end)
        .prop_map(|(name, colon, value, end)| format!("{name}{colon}{value}{end}"))
}

fn request() -> impl Strategy<Value = String> {
    let method = prop_oneof![
        6 => Just("GET"), 6 => Just("POST"), 2 => Just("HEAD"), 1 => Just("PRI"), 1 => Just("g@t"),
        1 => Just("G(T"), 1 => Just("\r\nPUT"), 1 => Just("\n\nGET"),
    ];
    let target = prop_oneof![
        8 => Just("/"), 1 => Just("*"), 1 => Just("http://a/b?c"), 1 => Just("a:80"), 1 => Just("/%00"),
        1 => Just("/a#b"), 1 => Just("/\u{e9}"), 1 => Just("http://"), 1 => Just("/a{b}|\\^`\""),
    ];
    let version = prop_oneof![
        12 => Just(" HTTP/1.1"), 4 => Just(" HTTP/1.0"), 1 => Just(" HTTP/2.0"), 1 => Just(""),
        1 => Just("  HTTP/1.1"), 1 => Just(" HTTP/1.1 "),
    ];
    let end = prop_oneof![12 => Just("\r\n"), 1 => Just("\n")];
    let piece = prop_oneof![
        3 => "[0-9a-f]{1,2}\r\n[a-z]{0,9}\r\n",
        6 => Just("3\r\nabc\r\n".to_owned()),
        1 => Just("3;a=\"b\"\r\nabc\r\n".to_owned()),
        1 => Just("3 ;a\nb\r\nabc\r\n".to_owned()),
        6 => Just("0\r\n\r\n".to_owned()),
        1 => Just("0\r\nX-Sum: 1\r\n\r\n".to_owned()),
        1 => "[ -~\r\n]{0,20}",
    ];
    let lines = proptest::collection::vec(line(), 0..4);
    let body = proptest::collection::vec(piece, 0..4);
    (method, target, version, end, lines, body).prop_map(
        |(method, target, version, end, lines, body)| {
            let (lines, body) = (lines.concat(), body.concat());
            format!("{method} {target}{version}{end}Host: a{end}{lines}{end}{body}")
        },
    )
}

#[test]
fn hyper_reads_the_same_requests() {
    let config = Config { cases: 3_000, ..Config::default() };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let requests = proptest::collection::vec(request(), 1..4);
    let pieces = prop_oneof![Just(vec![usize::MAX]), proptest::collection::vec(1_usize..60, 1..5),];
    let (mut answered, mut closed) = (0, 0);
    let counted = std::cell::RefCell::new((&mut answered, &mut closed));
    let run = runner.run(&(requests, pieces), |(requests, pieces)| {
        let bytes = requests.concat();
        let expected = outcome(true, bytes.as_bytes(), &pieces);
        let mut served = outcome(false, bytes.as_bytes(), &pieces);
        let mut expected = expected;
        // hyper may wait for the rest of a body that cannot become right.
        if served.drop_failed() | expected.drop_failed() {
            served.is_closed = expected.is_closed;
        }
        prop_assert_eq!(&served, &expected, "{:?}", bytes);
        let mut counted = counted.borrow_mut();
        *counted.0 += expected.answers.len();
        *counted.1 += usize::from(expected.is_closed);
        Ok(())
    });
    run.unwrap();
    assert!(answered > 500 && closed > 500, "{answered} answered, {closed} closed");
}

#[test]
fn bytes_in_any_pieces_are_the_same_requests() {
    let head = "POST /a HTTP/1.1\r\nHost: a\r\n";
    let bytes = format!(
        "{head}Content-Length: 3\r\n\r\nabc\r\n\n{head}Transfer-Encoding: chunked\r\n\r\n\
         5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 1\r\n\r\nGET /b HTTP/1.1\nHost: b\n\n\
         {head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok\
         GET /c HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /d HTTP/1.0\r\n\r\n"
    );
    let whole = outcome(false, bytes.as_bytes(), &[usize::MAX]);
    assert_eq!((whole.seen.len(), whole.is_closed), (6, true), "{whole:?}");
    for length in 1..bytes.len() {
        assert_eq!(outcome(false, bytes.as_bytes(), &[length]), whole, "{length}");
        assert_eq!(outcome(false, bytes.as_bytes(), &[length, usize::MAX]), whole, "{length}");
    }
}
