//! HTTP/2 clients that exhaust a server by cheap frames.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Running, Upstream, config, is_closed, within};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET / HTTP/2` of `a`, with the static table of HPACK.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 5;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

async fn gateway() -> (Running, Upstream) {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.timeouts.header = Duration::from_millis(400);
    (Running::start(&config).await, upstream)
}

async fn connect(gateway: &Running) -> TcpStream {
    let mut socket = gateway.connect().await;
    socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    socket
}

/// The error of the GOAWAY that ends a connection; `None` if it ends without.
async fn goaway(socket: &mut TcpStream) -> Option<u32> {
    loop {
        let (kind, payload) = next(socket).await?;
        if kind == GOAWAY {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
}

async fn next(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    within(socket.read_exact(&mut head)).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    within(socket.read_exact(&mut payload)).await.ok()?;
    Some((head[3], payload))
}

#[tokio::test]
async fn streams_are_limited() {
    let (gateway, _upstream) = gateway().await;
    let (kind, settings) = next(&mut connect(&gateway).await).await.unwrap();
    assert_eq!(kind, SETTINGS);
    let max_concurrent_streams = settings.chunks(6).find(|one| one[..2] == [0, 3]).unwrap();
    assert_eq!(max_concurrent_streams[2..], 256_u32.to_be_bytes());
}

#[tokio::test]
async fn a_rapid_reset_ends_the_connection() {
    let (gateway, _upstream) = gateway().await;
    let mut socket = connect(&gateway).await;
    let mut flood = Vec::new();
    for index in 0..2_000 {
        let stream = 2 * index + 1;
        flood.extend(frame(HEADERS, END_STREAM_AND_HEADERS, stream, GET));
        flood.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    // The gateway may close before all is sent.
    let _ = socket.write_all(&flood).await;
    assert_eq!(goaway(&mut socket).await, Some(ENHANCE_YOUR_CALM));
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn continuations_without_end_end_the_connection() {
    let (gateway, upstream) = gateway().await;
    let mut socket = connect(&gateway).await;
    let mut flood = frame(HEADERS, 1, 1, GET);
    // A header of 4 KiB: literal, never indexed.
    let header = [&[0x10, 1, b'x', 0x7f, 0x81, 0x1f][..], &[b'a'; 4_096]].concat();
    for _ in 0..1_000 {
        flood.extend(frame(CONTINUATION, 0, 1, &header));
    }
    let _ = socket.write_all(&flood).await;
    // Whether it is told or not, it ends.
    let _ = goaway(&mut socket).await;
    while next(&mut socket).await.is_some() {}
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
    drop(upstream);
}

#[tokio::test]
async fn empty_pieces_of_a_body_without_end_end_the_connection() {
    let (gateway, _upstream) = gateway().await;
    let mut socket = connect(&gateway).await;
    // `POST / HTTP/2` of `a`.
    socket.write_all(&frame(HEADERS, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a'])).await.unwrap();
    let flood = frame(DATA, 0, 1, &[]).repeat(1_000);
    within(async { while socket.write_all(&flood).await.is_ok() {} }).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_floods_and_does_not_read_is_cut() {
    let (gateway, _upstream) = gateway().await;
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])] {
        let flood = flood.repeat(1_000);
        let mut socket = connect(&gateway).await;
        within(async { while socket.write_all(&flood).await.is_ok() {} }).await;
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
    }
}

/// A gateway with a short idle time, and a client that requests a path with this window.
async fn requested(path: &str, window_bytes: u32) -> (Running, Upstream, TcpStream) {
    let mut upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.timeouts.header = Duration::from_millis(100);
    config.timeouts.idle = Duration::from_millis(200);
    let gateway = Running::start(&config).await;
    let mut socket = gateway.connect().await;
    let settings = frame(SETTINGS, 0, 0, &[&[0, 4][..], &window_bytes.to_be_bytes()].concat());
    let length = u8::try_from(path.len()).unwrap();
    let get = [&[0x82, 0x86, 0x04, length][..], path.as_bytes(), &[0x41, 1, b'a']].concat();
    let request = frame(HEADERS, END_STREAM_AND_HEADERS, 1, &get);
    socket.write_all(&[PREFACE, &settings, &request].concat()).await.unwrap();
    upstream.arrival().await;
    (gateway, upstream, socket)
}

#[tokio::test]
async fn a_client_that_never_opens_the_window_of_a_stream_is_cut() {
    let (_gateway, _upstream, mut socket) = requested("/large", 0).await;
    while next(&mut socket).await.is_some() {}
}

#[tokio::test]
async fn a_stream_that_waits_for_its_server_is_not_cut() {
    let (gateway, upstream, mut socket) = requested("/hold", 65_535).await;
    // Each is closed for its own silence, at least a header time later.
    for _ in 0..8 {
        assert!(is_closed(&mut gateway.connect().await).await);
    }
    upstream.held.add_permits(1);
    loop {
        let (kind, _) = next(&mut socket).await.expect("a response");
        if kind == HEADERS {
            return;
        }
    }
}

#[tokio::test]
async fn an_http2_head_that_is_too_long_gets_431() {
    let (gateway, _upstream) = gateway().await;
    let mut socket = connect(&gateway).await;
    // Four headers of 16 KiB, literal and never indexed, in as few frames as possible.
    let header = [&[0x10, 1, b'x', 0x7f, 0x81, 0x7f][..], &[b'a'; 16_384]].concat();
    let block = [GET, &header.repeat(4)].concat();
    let pieces: Vec<_> = block.chunks(16_384).collect();
    let mut bytes = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let kind = if index == 0 { HEADERS } else { CONTINUATION };
        let end_stream = u8::from(index == 0);
        let end_headers = if index + 1 == pieces.len() { 4 } else { 0 };
        bytes.extend(frame(kind, end_stream | end_headers, 1, piece));
    }
    socket.write_all(&bytes).await.unwrap();
    loop {
        let (kind, payload) = next(&mut socket).await.expect("a response");
        if kind == HEADERS {
            // `:status` as a literal in the Huffman code of HPACK.
            assert!(payload.windows(3).any(|bytes| bytes == [0x69, 0x90, 0xff]), "{payload:x?}");
            return;
        }
        assert_ne!(kind, GOAWAY, "the connection goes on");
    }
}
