//! Connections: how a request gets to the server, and what is understood of the answer.

pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod resp;

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::request::Answer;

/// A place for requests: a stream of an HTTP/2 connection, an HTTP/1.1 connection, or a RESP connection, which has room for several.
pub(crate) trait Slot {
    /// How many requests it can have under way.
    fn room(&self) -> usize;

    /// Asks for these keys and waits for all answers: one is appended for each key, in their order.
    async fn ask(&mut self, keys: &[u64], heard: &mut Vec<Heard>);

    /// How often it had to connect again since it was last asked.
    fn reconnects(&mut self) -> u64;
}

/// What was heard, and when.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    pub(crate) said: Result<Answer, String>,
}

/// An answer that has come just now.
pub(crate) fn heard(said: Result<Answer, String>) -> Heard {
    Heard { at: Instant::now(), said }
}

/// A connection that sends at once what it is given.
pub(crate) async fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// What a server said, short enough for a line. Long numbers are left out: they differ from key to key, and then every error would be another one.
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
