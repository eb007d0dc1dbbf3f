//! Requests over HTTP/1.1, one after the other on a connection that stays.

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ask::{Template, Who, Wire};
use super::slot::Answer;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    wire: Wire,
    template: Template,
    received: Vec<u8>,
}

pub(crate) async fn connect(address: SocketAddr, wire: Wire) -> anyhow::Result<Connection> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let template = Template::of(wire);
    Ok(Connection { socket, wire, template, received: Vec::with_capacity(4 << 10) })
}

impl Connection {
    pub(crate) async fn ask(&mut self, who: Who) -> anyhow::Result<Answer> {
        self.socket.write_all(self.template.filled(who)).await?;
        self.received.clear();
        loop {
            let count = self.socket.read_buf(&mut self.received).await?;
            ensure!(count > 0, "the connection was closed");
            if let Some(whole) = Response::read(&self.received)? {
                return whole.answer(self.wire);
            }
        }
    }
}

/// What is needed of a response: nothing else is looked at.
#[derive(Debug, PartialEq, Eq)]
struct Response<'a> {
    status: &'a [u8],
    body: &'a [u8],
}

impl<'a> Response<'a> {
    /// `None` as long as something is missing.
    fn read(bytes: &'a [u8]) -> anyhow::Result<Option<Self>> {
        let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let mut lines = bytes[..head].split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let status = first.get(9..12).context("a response without a status")?;
        let length = lines.find_map(content_length).context("a response without a length")?;
        let (start, end) = (head + 4, head + 4 + length);
        ensure!(bytes.len() <= end, "more than one response");
        Ok((bytes.len() == end).then(|| Self { status, body: &bytes[start..] }))
    }

    fn answer(&self, wire: Wire) -> anyhow::Result<Answer> {
        match (wire, self.status) {
            // It says no with a good conscience.
            (Wire::HttpThrottle, b"200") if self.body.starts_with(br#"{"allowed":false"#) => {
                Ok(Answer::Over)
            }
            (Wire::Check | Wire::HttpThrottle, b"200") => {
                ensure!(self.body.starts_with(br#"{"allowed":true"#), "{}", self.shown());
                Ok(Answer::Ok)
            }
            (Wire::Check, b"429") => Ok(Answer::Over),
            (Wire::Hello, b"200") => Ok(Answer::Ok),
            _ => bail!("{}", self.shown()),
        }
    }

    fn shown(&self) -> String {
        let text = String::from_utf8_lossy;
        format!("it says {} `{}`", text(self.status), text(self.body))
    }
}

fn content_length(line: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let (name, value) = line.split_at_checked(NAME.len())?;
    if !name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_or_not_yet() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ndate: today\r\n\r\nhi";
        for end in 0..whole.len() {
            assert_eq!(Response::read(&whole[..end]).unwrap(), None);
        }
        let read = Response::read(whole).unwrap();
        assert_eq!(read, Some(Response { status: b"200", body: b"hi" }));
    }

    #[test]
    fn what_has_no_length_is_an_error() {
        assert!(Response::read(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
