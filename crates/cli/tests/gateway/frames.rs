//! Frames of HTTP/2, written by hand: a client of a library sends nothing wrong.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::wire::connect;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Name and value of a header.
pub type Field<'a> = (&'a str, &'a [u8]);

/// A frame as it came.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub payload: Vec<u8>,
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Status(u16),
    /// The stream was reset.
    Reset,
    /// The connection was closed.
    Closed,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Headers of HPACK as literals, as they are written here.
pub fn headers(fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_bytes(), value] {
            assert!(text.len() < 127, "no literal of one byte of length");
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text);
        }
    }
    block
}

/// A connection after the preface, with these settings.
pub fn open(address: &str, settings: &[u8]) -> TcpStream {
    let mut socket = connect(address);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = frame(SETTINGS, 0, 0, settings);
    socket.write_all(&[&preface[..], &settings].concat()).unwrap();
    socket
}

/// The next frame; `None` at the end of the connection.
pub fn next(socket: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    socket.read_exact(&mut payload).ok()?;
    Some(Frame { kind: head[3], payload })
}

/// The end of the first stream.
pub fn outcome(socket: &mut TcpStream) -> Outcome {
    while let Some(frame) = next(socket) {
        match frame.kind {
            HEADERS => return Outcome::Status(status(&frame.payload)),
            RST_STREAM => return Outcome::Reset,
            GOAWAY => return Outcome::Closed,
            _ => {}
        }
    }
    Outcome::Closed
}

/// The status that begins a header block: an entry of the static table, or digits.
fn status(block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    // A change of the table's size may be first.
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20).unwrap();
    if block[start] & 0x80 != 0 {
        return INDEXED[usize::from(block[start] & 0x7f) - 8];
    }
    let (length, text) = (block[start + 1], &block[start + 2..]);
    if length & 0x80 == 0 {
        return std::str::from_utf8(&text[..3]).unwrap().parse().unwrap();
    }
    // The Huffman code: `0` to `2` have five bits, the other digits six.
    let bits = text.iter().take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << 8;
    let (mut status, mut used) = (0, 0);
    for _ in 0..3 {
        let five = bits << used >> 27;
        let (digit, length) = if five < 3 { (five, 5) } else { ((bits << used >> 26) - 22, 6) };
        status = status * 10 + u16::try_from(digit).unwrap();
        used += length;
    }
    status
}
