//! Bytes on both sides of the gateway: a client that sends anything, and a server that records what
//! it gets and reads it as strictly as the standard allows.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Far more than anything takes; a test that hangs fails.
pub const HANG: Duration = Duration::from_secs(60);

/// A request as the server has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// First line and headers in order of their names, without those of the proxy, separated by
    /// `|`.
    pub head: String,
    pub body: String,
}

/// A server that answers every request with 200, and ends a connection with bytes that are none.
pub struct Recorder {
    pub address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<Recorded>>,
    errors: Mutex<Vec<String>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

impl Recorder {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (state, socket) = (shared.clone(), socket.unwrap());
                let connection = thread::spawn(move || state.serve(socket));
                shared.connections.lock().unwrap().push(connection);
            }
        });
        Self { address, state }
    }

    /// The requests so far. Without errors: a byte that belongs to no request is one.
    pub fn requests(&self) -> Vec<Recorded> {
        let errors = self.state.errors.lock().unwrap();
        assert!(errors.is_empty(), "the server cannot read {errors:?}");
        self.state.requests.lock().unwrap().clone()
    }

    /// All requests, once the gateway is gone and every connection has been read to its end.
    pub fn finish(self) -> Vec<Recorded> {
        let connections = std::mem::take(&mut *self.state.connections.lock().unwrap());
        for connection in connections {
            connection.join().unwrap();
        }
        self.requests()
    }
}

impl State {
    fn serve(&self, mut socket: TcpStream) {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
            loop {
                match parsed(&bytes) {
                    Ok(Some((request, length))) => {
                        bytes.drain(..length);
                        self.requests.lock().unwrap().push(request);
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        let _ = socket.write_all(answer);
                    }
                    Ok(None) => break,
                    Err(error) => return self.errors.lock().unwrap().push(error),
                }
            }
        }
    }
}

/// A request at the beginning of these bytes, and its length; `None` if it is incomplete.
fn parsed(bytes: &[u8]) -> Result<Option<(Recorded, usize)>, String> {
    let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let refuse = |reason: &str| Err(format!("{reason} in {head:?}"));
    if head.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return refuse("a bare control character");
    }
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap();
    if first.split(' ').count() != 3 || !first.ends_with(" HTTP/1.1") {
        return refuse("no request line");
    }
    let (mut shown, mut hosts) = (vec![first.to_owned()], 0);
    let (mut length, mut is_chunked) = (None, false);
    for line in lines {
        let Some((name, value)) = line.split_once(": ") else { return refuse("no header") };
        match name {
            "content-length" if length.is_some() || is_chunked => return refuse("two lengths"),
            "content-length" => length = Some(value.parse::<usize>().map_err(|_| line.to_owned())?),
            "transfer-encoding" if length.is_some() || is_chunked => return refuse("two lengths"),
            "transfer-encoding" if value != "chunked" => return refuse("an encoding"),
            "transfer-encoding" => is_chunked = true,
            "host" => hosts += 1,
            "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" => continue,
            _ => {}
        }
        shown.push(line.to_owned());
    }
    if hosts != 1 {
        return refuse("not one host");
    }
    shown[1..].sort_unstable();
    let rest = &bytes[end + 4..];
    let body = match is_chunked {
        true => unchunked(rest)?,
        false => rest.get(..length.unwrap_or(0)).map(|body| (body.to_vec(), body.len())),
    };
    Ok(body.map(|(body, length)| {
        let body = String::from_utf8_lossy(&body).into_owned();
        (Recorded { head: shown.join("|"), body }, end + 4 + length)
    }))
}

/// The pieces of a body, each after its length; the trailers are in it as they came.
fn unchunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let size = String::from_utf8_lossy(&bytes[at..at + end]).into_owned();
        let length = usize::from_str_radix(&size, 16).map_err(|_| format!("the size {size:?}"))?;
        at += end + 2;
        if length == 0 {
            let Some(end) = find(&bytes[at - 2..], b"\r\n\r\n") else { return Ok(None) };
            body.extend_from_slice(&bytes[at..at + end.saturating_sub(2)]);
            return Ok(Some((body, at + end + 2)));
        }
        let Some(piece) = bytes.get(at..at + length + 2) else { return Ok(None) };
        if !piece.ends_with(b"\r\n") {
            return Err(format!("a piece that does not end: {piece:?}"));
        }
        body.extend_from_slice(&piece[..length]);
        at += length + 2;
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

pub fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket
}

/// What comes back until the gateway closes the connection.
pub fn exchange(address: &str, bytes: &[u8]) -> String {
    let mut socket = connect(address);
    // It may be closed before all is sent.
    let _ = socket.write_all(bytes);
    read_to_end(&mut socket)
}

pub fn read_to_end(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// Reads a head, byte by byte, so that nothing behind it is taken.
pub fn read_head(socket: &mut TcpStream) -> String {
    read_head_or_end(socket).expect("a head")
}

/// The same; `None` at the end of the connection.
pub fn read_head_or_end(socket: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}

/// Statuses of the responses in these bytes.
pub fn statuses(answer: &str) -> Vec<u16> {
    let status = |(at, _): (usize, &str)| answer.get(at + 9..at + 12)?.parse().ok();
    answer.match_indices("HTTP/1.").filter_map(status).collect()
}
