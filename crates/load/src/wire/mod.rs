//! Connections of each protocol: encoding of requests and decoding of responses.

pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod resp;

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::request::Answer;

/// A sender of requests: an HTTP/2 stream, an HTTP/1.1 connection, or a pipelined RESP connection.
pub(crate) trait Slot {
    /// Maximum number of requests in flight.
    fn capacity(&self) -> usize;

    /// Sends a request per key and appends the responses in the same order.
    async fn send(&mut self, keys: &[u64], received: &mut Vec<Received>);

    /// Reconnections since the last call.
    fn reconnects(&mut self) -> u64;
}

/// A response and its arrival time.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) at: Instant,
    pub(crate) answer: Result<Answer, String>,
}

impl Received {
    /// A response that arrived just now.
    pub(crate) fn now(answer: Result<Answer, String>) -> Self {
        Self { at: Instant::now(), answer }
    }
}

/// A TCP connection with `TCP_NODELAY`.
pub(crate) async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Server output shortened to one line. Long numbers are elided: they differ from key to key and
/// would make every error distinct.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 120;
    const DIGITS_MAX: usize = 3;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]);
    let mut shown = String::new();
    let mut digits = 0;
    for letter in text.trim().chars() {
        digits = if letter.is_ascii_digit() { digits + 1 } else { 0 };
        match digits {
            0..=DIGITS_MAX => shown.push(if letter.is_control() { ' ' } else { letter }),
            _ if digits == DIGITS_MAX + 1 => {
                shown.truncate(shown.len() - DIGITS_MAX);
                shown.push('…');
            }
            _ => {}
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_left_out() {
        assert_eq!(shown(b" 503 for 'user_00012345' a\r\nb 1234"), "503 for 'user_…' a  b …");
        assert_eq!(shown(&[b'x'; 1_000]).len(), 120);
        assert_eq!(shown(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
}
