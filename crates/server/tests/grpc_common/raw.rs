//! HTTP/2 by hand, for what a well-behaved client never does.

use std::net::SocketAddr;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

pub(crate) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A connection; it answers nothing by itself.
pub(crate) struct Raw {
    socket: TcpStream,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Raw {
    /// Past its first words.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[]).await
    }

    /// The same with settings of its own.
    pub(crate) async fn connect_with(address: SocketAddr, settings: &[u8]) -> Self {
        let mut raw = Self { socket: TcpStream::connect(address).await.unwrap() };
        raw.socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        raw.send(SETTINGS, 0, 0, settings).await;
        // The server's settings, and that it has read ours.
        raw.next_of(SETTINGS).await.unwrap();
        raw.send(SETTINGS, ACK, 0, &[]).await;
        raw
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let bytes = frame(kind, flags, stream, payload);
        self.write(&bytes).await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// The next frame; nothing when the connection is closed.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.socket.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The next frame of a kind, whatever comes before it.
    pub(crate) async fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// What is left until the connection is closed.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Whether the connection is closed; if it is not, the server gives a sign of life.
    pub(crate) async fn is_closed(&mut self) -> bool {
        // Nobody may be there to be written to.
        let _ = self.socket.write_all(&frame(PING, 0, 0, b"anybody?")).await;
        loop {
            match self.next().await {
                None => return true,
                Some(frame) if frame.kind == PING && frame.payload == b"anybody?" => return false,
                Some(_) => {}
            }
        }
    }

    pub(crate) async fn pong(&mut self, ping: &Frame) {
        assert_eq!((ping.kind, ping.flags & ACK), (PING, 0));
        self.send(PING, ACK, 0, &ping.payload).await;
    }

    /// Asks the server for a sign of life; then it has done all that it was asked to before. What it sent meanwhile.
    pub(crate) async fn round_trip(&mut self) -> Vec<Frame> {
        self.send(PING, 0, 0, b"as I was").await;
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.unwrap();
            if frame.kind == PING && frame.payload == b"as I was" {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// A whole call, and the data of its answer.
    pub(crate) async fn call(&mut self, stream: u32, user: &str) -> Option<Frame> {
        self.write(&whole(stream, user)).await;
        loop {
            let frame = self.next_of(DATA).await?;
            if frame.stream == stream {
                return Some(frame);
            }
        }
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The headers of a call; more may be added to them.
pub(crate) fn headers(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in usual.iter().chain(more) {
        // Literally, and not to be remembered.
        block.push(0);
        for text in [name, value] {
            put_length(text.len(), &mut block);
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// Seven bits, and then seven at a time.
fn put_length(length: usize, out: &mut Vec<u8>) {
    if length < 127 {
        return out.push(u8::try_from(length).unwrap());
    }
    out.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.push(0x80 | (rest & 0x7F) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A piece of a message.
pub(crate) fn data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, payload)
}

/// The end of a message.
pub(crate) fn last(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, payload)
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    const CANCEL: u32 = 8;
    frame(RESET, 0, stream, &CANCEL.to_be_bytes())
}

/// A message as gRPC frames it.
pub(crate) fn message(user: &str) -> Vec<u8> {
    framed(0, &super::request(user).encode_to_vec())
}

pub(crate) fn framed(compressed: u8, message: &[u8]) -> Vec<u8> {
    let mut framed = vec![compressed];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// A whole call, in one piece.
pub(crate) fn whole(stream: u32, user: &str) -> Vec<u8> {
    [headers(stream, SHOULD_RATE_LIMIT, &[]), last(stream, &message(user))].concat()
}

impl Frame {
    /// Why a stream or a connection is ended.
    pub(crate) fn reason(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}
