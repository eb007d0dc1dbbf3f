//! Pipelined RESP commands, one write per batch.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Received, Slot, connect_tcp, shown};
use crate::request::Answer;
use crate::request::Template;

/// Server and request of all connections.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// `AUTH` command; may be empty.
    pub(crate) auth: Vec<u8>,
    pub(crate) template: Template,
    pub(crate) format: ReplyFormat,
    /// Commands per write.
    pub(crate) pipeline: usize,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct RespConnection {
    endpoint: Rc<Endpoint>,
    /// `None` after a failure.
    socket: Option<TcpStream>,
    sent: BytesMut,
    received: BytesMut,
    reconnects: u64,
}

/// Meaning of the first number of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    /// 1 means denied: `CL.THROTTLE` and `SG.*`.
    Limited,
    /// 1 means allowed: throttlecrab's `THROTTLE`.
    Allowed,
    /// None: every reply that is not an error means allowed.
    Any,
}

/// Initial size of the receive buffer.
const RECEIVED: usize = 16 << 10;
const REPLY_MAX: usize = 16 << 20;
/// Bound of nested arrays.
const DEPTH_MAX: usize = 8;

pub(crate) async fn open(endpoint: &Rc<Endpoint>) -> Result<RespConnection, String> {
    Ok(RespConnection {
        socket: Some(endpoint.connect().await?),
        sent: BytesMut::with_capacity(endpoint.template.len() * endpoint.pipeline),
        received: BytesMut::with_capacity(RECEIVED),
        endpoint: endpoint.clone(),
        reconnects: 0,
    })
}

/// The `AUTH` command.
pub(crate) fn auth(password: &str) -> Vec<u8> {
    format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len()).into_bytes()
}

impl Endpoint {
    /// Connects and authenticates.
    async fn connect(&self) -> Result<TcpStream, String> {
        let socket = connect_tcp(self.address).await;
        let mut socket = socket.map_err(|error| format!("cannot connect: {error}"))?;
        if self.auth.is_empty() {
            return Ok(socket);
        }
        socket.write_all(&self.auth).await.map_err(|error| error.to_string())?;
        let mut received = Vec::new();
        loop {
            let read = socket.read_buf(&mut received).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the connection was closed during AUTH".to_owned());
            }
            if let Some((_, answer)) = reply(&received, ReplyFormat::Any)? {
                answer.map_err(|error| format!("the password is refused: {error}"))?;
                return Ok(socket);
            }
        }
    }
}

impl Slot for RespConnection {
    fn capacity(&self) -> usize {
        self.endpoint.pipeline
    }

    async fn send(&mut self, keys: &[u64], out: &mut Vec<Received>) {
        let all = out.len() + keys.len();
        if let Err(failure) = self.exchange(keys, all, out).await {
            // The connection may still deliver lost replies.
            self.socket = None;
            out.resize_with(all, || Received::now(Err(failure.clone())));
        }
    }

    fn reconnects(&mut self) -> u64 {
        std::mem::take(&mut self.reconnects)
    }
}

impl RespConnection {
    async fn exchange(
        &mut self,
        keys: &[u64],
        all: usize,
        out: &mut Vec<Received>,
    ) -> Result<(), String> {
        if self.socket.is_none() {
            self.reconnects += 1;
        }
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(self.endpoint.connect().await?),
        };
        self.sent.clear();
        keys.iter().for_each(|key| self.endpoint.template.write(*key, &mut self.sent));
        socket.write_all(&self.sent).await.map_err(|error| error.to_string())?;
        self.received.clear();
        let mut from = 0;
        while out.len() < all {
            let read = socket.read_buf(&mut self.received).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the connection was closed before the answer".to_owned());
            }
            // One clock read per received chunk.
            let at = Instant::now();
            while let Some((length, answer)) = reply(&self.received[from..], self.endpoint.format)?
            {
                out.push(Received { at, answer });
                from += length;
            }
            if self.received.len() - from > REPLY_MAX {
                return Err(format!("a response of more than {REPLY_MAX} bytes"));
            }
        }
        let surplus = out.len() > all || from < self.received.len();
        out.truncate(all);
        if surplus { Err("more answers than commands".to_owned()) } else { Ok(()) }
    }
}

/// Length and decoded answer.
type Reply = (usize, Result<Answer, String>);

/// The first reply, if complete.
fn reply(bytes: &[u8], format: ReplyFormat) -> Result<Option<Reply>, String> {
    let Some(length) = length(bytes, 0)? else { return Ok(None) };
    let answer = match (bytes[0], format) {
        (b'-' | b'!', _) => Err(shown(&bytes[1..length])),
        (_, ReplyFormat::Any) => Ok(Answer::Allowed),
        (b'*', _) => {
            // The header of an array is its number of elements; the first element is a number.
            let elements = bytes[1..length].split(|byte| *byte == b'\n').nth(1);
            match (elements, format) {
                (Some(b":0\r"), ReplyFormat::Limited) | (Some(b":1\r"), ReplyFormat::Allowed) => {
                    Ok(Answer::Allowed)
                }
                (Some(b":1\r"), _) | (Some(b":0\r"), _) => Ok(Answer::Denied),
                _ => Err(format!("not a reply of a rate limiter: `{}`", shown(&bytes[..length]))),
            }
        }
        _ => Err(format!("not a reply of a rate limiter: `{}`", shown(&bytes[..length]))),
    };
    Ok(Some((length, answer)))
}

/// Length of the first value, if complete.
fn length(bytes: &[u8], depth: usize) -> Result<Option<usize>, String> {
    let Some(kind) = bytes.first() else { return Ok(None) };
    let Some(line) = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1) else {
        return Ok(None);
    };
    let number = || {
        let digits = bytes.get(1..line.saturating_sub(2)).unwrap_or_default();
        let number = str::from_utf8(digits).ok().and_then(|text| text.parse::<i64>().ok());
        let number = number.filter(|number| *number <= REPLY_MAX as i64);
        number.ok_or_else(|| format!("not a RESP reply: `{}`", shown(&bytes[..line])))
    };
    match kind {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => Ok(Some(line)),
        b'$' | b'!' | b'=' => match usize::try_from(number()?) {
            // A null has no payload.
            Err(_) => Ok(Some(line)),
            Ok(length) => Ok(Some(line + length + 2).filter(|end| *end <= bytes.len())),
        },
        b'*' | b'~' | b'>' | b'%' => {
            if depth == DEPTH_MAX {
                return Err("a reply with too deeply nested arrays".to_owned());
            }
            let count = number()?.max(0) * if *kind == b'%' { 2 } else { 1 };
            let mut end = line;
            for _ in 0..count {
                let Some(length) = length(&bytes[end..], depth + 1)? else { return Ok(None) };
                end += length;
            }
            Ok(Some(end))
        }
        _ => Err(format!("not a RESP reply: `{}`", shown(&bytes[..line]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_or_not_yet() {
        let replies = [
            "+OK\r\n",
            ":1\r\n",
            "$2\r\nhi\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "_\r\n",
            "#t\r\n",
            "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n",
            "*2\r\n*1\r\n$1\r\na\r\n$0\r\n\r\n",
            "%1\r\n+a\r\n:1\r\n",
        ];
        for text in replies {
            for end in 0..text.len() {
                assert_eq!(
                    reply(&text.as_bytes()[..end], ReplyFormat::Any),
                    Ok(None),
                    "{text} {end}"
                );
            }
            let twice = text.repeat(2);
            let whole = reply(twice.as_bytes(), ReplyFormat::Any);
            assert_eq!(whole, Ok(Some((text.len(), Ok(Answer::Allowed)))), "{text}");
        }
    }

    #[test]
    fn yes_and_no_depend_on_the_command() {
        let said = |text: &str, format| reply(text.as_bytes(), format).unwrap().unwrap().1;
        let (zero, one) =
            ("*5\r\n:0\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
        assert_eq!(said(zero, ReplyFormat::Limited), Ok(Answer::Allowed));
        assert_eq!(said(one, ReplyFormat::Limited), Ok(Answer::Denied));
        assert_eq!(said(zero, ReplyFormat::Allowed), Ok(Answer::Denied));
        assert_eq!(said(one, ReplyFormat::Allowed), Ok(Answer::Allowed));
        assert_eq!(said(one, ReplyFormat::Any), Ok(Answer::Allowed));
        assert_eq!(said("-ERR no\r\n", ReplyFormat::Any), Err("ERR no".to_owned()));
        assert!(said("+OK\r\n", ReplyFormat::Limited).is_err());
        assert!(said("*1\r\n:7\r\n", ReplyFormat::Limited).is_err());
    }

    #[test]
    fn nonsense_is_told() {
        let deep = "*1\r\n".repeat(100_000);
        for text in ["HTTP/1.1 400\r\n", "$x\r\n", "*99999999999\r\n", "$\r\n", "\r\n", &deep] {
            assert!(
                reply(text.as_bytes(), ReplyFormat::Any).is_err(),
                "{}",
                shown(text.as_bytes())
            );
        }
    }
}
