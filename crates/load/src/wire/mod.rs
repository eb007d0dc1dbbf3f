//! Connections: how a request gets to the server, and what is understood of the answer.

pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod resp;

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::ask::Answer;

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

/// What a server said, short enough for a line; different numbers in it are different errors, so it should hold none that vary.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 120;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}
