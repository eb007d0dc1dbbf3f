//! HTTP/1.1 requests on persistent connections.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Received, Slot, connect_tcp, shown};
use crate::request::Answer;
use crate::request::Template;

/// A connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    address: SocketAddr,
    /// `None` after the server closed it.
    socket: Option<TcpStream>,
    template: Rc<Template>,
    /// Statuses that mean denied.
    denied: Rc<[u16]>,
    sent: BytesMut,
    received: Vec<u8>,
    reconnects: u64,
}

/// Bound of a response.
const RESPONSE_MAX: usize = 16 << 20;
const HEADERS_MAX: usize = 64;

pub(crate) async fn open(
    address: SocketAddr,
    template: &Rc<Template>,
    denied: &Rc<[u16]>,
) -> Result<HttpConnection, String> {
    let socket = connect_tcp(address).await.map_err(|error| format!("cannot connect: {error}"))?;
    Ok(HttpConnection {
        address,
        socket: Some(socket),
        template: template.clone(),
        denied: denied.clone(),
        sent: BytesMut::with_capacity(template.len()),
        received: Vec::with_capacity(4 << 10),
        reconnects: 0,
    })
}

impl Slot for HttpConnection {
    fn capacity(&self) -> usize {
        1
    }

    async fn send(&mut self, keys: &[u64], out: &mut Vec<Received>) {
        for key in keys {
            let answer = self.exchange(*key).await;
            if answer.is_err() {
                // The connection may still deliver the lost response.
                self.socket = None;
            }
            out.push(Received::now(answer.flatten()));
        }
    }

    fn reconnects(&mut self) -> u64 {
        std::mem::take(&mut self.reconnects)
    }
}

impl HttpConnection {
    /// The outer error is of the connection, the inner one of a complete response.
    async fn exchange(&mut self, key: u64) -> Result<Result<Answer, String>, String> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                self.reconnects += 1;
                let made = connect_tcp(self.address).await;
                made.map_err(|error| format!("cannot connect: {error}"))?
            }
        };
        self.sent.clear();
        self.template.write(key, &mut self.sent);
        socket.write_all(&self.sent).await.map_err(|error| error.to_string())?;
        self.received.clear();
        let mut ended = false;
        loop {
            if let Some(response) = Response::read(&self.received, ended)? {
                let judged = response.answer(&self.denied);
                if response.keep_alive && !ended {
                    self.socket = Some(socket);
                }
                return Ok(judged);
            }
            if ended {
                return Err("the connection was closed before the answer".to_owned());
            }
            if self.received.len() > RESPONSE_MAX {
                return Err(format!("a response of more than {RESPONSE_MAX} bytes"));
            }
            let read = socket.read_buf(&mut self.received).await;
            ended = read.map_err(|error| error.to_string())? == 0;
        }
    }
}

/// The decoded parts of a response.
#[derive(Debug, PartialEq, Eq)]
struct Response<'a> {
    status: u16,
    body: &'a [u8],
    /// Whether the connection can be reused.
    keep_alive: bool,
}

/// Framing of a body.
enum Length {
    Bytes(usize),
    Chunked,
    UntilClosed,
}

impl<'a> Response<'a> {
    /// `None` while incomplete. `ended`: the connection is closed.
    fn read(bytes: &'a [u8], ended: bool) -> Result<Option<Self>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed =
            head.parse(bytes).map_err(|error| format!("not an HTTP/1.1 server: {error}"))?;
        let httparse::Status::Complete(begins) = parsed else { return Ok(None) };
        let status = head.code.unwrap_or_default();
        let mut keep_alive = head.version == Some(1);
        let mut length = match status {
            204 | 304 => Length::Bytes(0),
            _ => Length::UntilClosed,
        };
        for header in head.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let number =
                    str::from_utf8(header.value).ok().and_then(|text| text.trim().parse().ok());
                let number = number.filter(|number| *number <= RESPONSE_MAX);
                length = Length::Bytes(
                    number
                        .ok_or_else(|| format!("a content-length of `{}`", shown(header.value)))?,
                );
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                length = Length::Chunked;
            } else if header.name.eq_ignore_ascii_case("connection") {
                keep_alive &= !header.value.eq_ignore_ascii_case(b"close");
            }
        }
        let rest = &bytes[begins..];
        let body = match length {
            Length::Bytes(length) => rest.get(..length),
            Length::Chunked => chunks(rest)?.map(|end| &rest[..end]),
            Length::UntilClosed => ended.then_some(rest),
        };
        keep_alive &= !matches!(length, Length::UntilClosed);
        let Some(body) = body else { return Ok(None) };
        if body.len() < rest.len() {
            return Err("more than one answer to one request".to_owned());
        }
        Ok(Some(Self { status, body, keep_alive }))
    }

    fn answer(&self, denied: &[u16]) -> Result<Answer, String> {
        match self.status {
            status if denied.contains(&status) => Ok(Answer::Denied),
            // Some servers deny with status 200.
            200..400 if self.body.starts_with(br#"{"allowed":false"#) => Ok(Answer::Denied),
            200..400 => Ok(Answer::Allowed),
            status => Err(format!("HTTP status {status}: {}", shown(self.body))),
        }
    }
}

/// End of a chunked body, if complete.
fn chunks(bytes: &[u8]) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        match httparse::parse_chunk_size(rest) {
            Err(_) => return Err("a chunk without a size".to_owned()),
            Ok(httparse::Status::Partial) => return Ok(None),
            // The last chunk; trailers are not supported.
            Ok(httparse::Status::Complete((head, 0))) => {
                return Ok((rest.len() >= head + 2).then_some(at + head + 2));
            }
            Ok(httparse::Status::Complete((head, size))) => {
                let size = usize::try_from(size).ok().filter(|size| *size <= RESPONSE_MAX);
                at += head + size.ok_or("a chunk that is too large")? + 2;
                if at > bytes.len() {
                    return Ok(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Response<'_> {
        Response::read(bytes, false).unwrap().unwrap()
    }

    #[test]
    fn a_response_is_whole_or_not_yet() {
        let sized: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ndate: today\r\n\r\nhi";
        let chunked: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n3;x=y\r\nyou\r\n0\r\n\r\n";
        for bytes in [sized, chunked] {
            for end in 0..bytes.len() {
                assert_eq!(Response::read(&bytes[..end], false), Ok(None), "{end}");
            }
            assert_eq!(whole(bytes).status, 200);
            assert!(whole(bytes).keep_alive);
        }
        assert_eq!(whole(sized).body, b"hi");
    }

    #[test]
    fn without_a_length_it_lasts_until_the_end() {
        let bytes = b"HTTP/1.1 200 OK\r\n\r\nhi";
        assert_eq!(Response::read(bytes, false), Ok(None));
        let response = Response::read(bytes, true).unwrap().unwrap();
        assert_eq!(response, Response { status: 200, body: b"hi", keep_alive: false });
    }

    #[test]
    fn who_closes_is_connected_to_again() {
        assert!(
            !whole(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: close\r\n\r\n").keep_alive
        );
        assert!(!whole(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n").keep_alive);
        assert!(whole(b"HTTP/1.1 204 No Content\r\n\r\n").keep_alive);
    }

    #[test]
    fn a_no_is_no_error() {
        let said = |bytes| whole(bytes).answer(&[429]);
        assert_eq!(said(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), Ok(Answer::Allowed));
        assert_eq!(said(b"HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n"), Ok(Answer::Denied));
        let no = b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"allowed\":false}";
        assert_eq!(said(no), Ok(Answer::Denied));
        let broken = b"HTTP/1.1 503 Oh\r\ncontent-length: 4\r\n\r\ngone";
        assert_eq!(said(broken), Err("HTTP status 503: gone".to_owned()));
    }

    #[test]
    fn nonsense_is_told() {
        let wrong: [&[u8]; 5] = [
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ];
        for bytes in wrong {
            assert!(Response::read(bytes, false).is_err(), "{}", shown(bytes));
        }
    }
}
