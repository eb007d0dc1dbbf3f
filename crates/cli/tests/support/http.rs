//! A client of HTTP/1.1 that shows what really came, header by header.

use std::io::{Read, Write};
use std::net::TcpStream;

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// The value of a header that is there at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "`{name}` came more than once: {self:?}");
        value
    }
}

/// Asks on a connection of its own; header values are bytes, since nothing makes clients send text.
pub fn get(address: &str, path: &str, headers: &[(&str, &[u8])]) -> Answer {
    let mut request =
        format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n").into_bytes();
    for (key, value) in headers {
        request.extend([key.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    asked(address, &request)
}

/// Sends a text.
pub fn post(address: &str, path: &str, body: &str) -> Answer {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    asked(address, request.as_bytes())
}

fn asked(address: &str, request: &[u8]) -> Answer {
    asked_on(TcpStream::connect(address).unwrap(), request)
}

/// Asks on a connection that is there already, and must be closed after the answer.
pub fn asked_on(mut connection: TcpStream, request: &[u8]) -> Answer {
    connection.write_all(request).unwrap();
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).unwrap();
    parsed(&String::from_utf8_lossy(&bytes))
}

fn parsed(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: `{text}`"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        (key.to_owned(), value.to_owned())
    };
    let mut answer = Answer { status, headers: lines.map(header).collect(), body: body.to_owned() };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = unchunked(body);
    }
    answer
}

/// The pieces of a body, each of which comes after its length.
fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        body.push_str(&rest[..length]);
        text = rest[length..].trim_start_matches("\r\n");
    }
    body
}
