//! Commands of RESP, the protocol of Redis, several in a row and with one write.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Heard, Slot, connected, heard, shown};
use crate::request::Answer;
use crate::template::Template;

/// What all connections to a server have in common.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    /// Sent before all else, and answered with `+OK`; may be empty.
    pub(crate) greeting: Vec<u8>,
    pub(crate) template: Template,
    pub(crate) means: Meaning,
    /// Commands in a row.
    pub(crate) pipeline: usize,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    door: Rc<Door>,
    /// None after it broke.
    socket: Option<TcpStream>,
    sent: BytesMut,
    received: BytesMut,
    reconnects: u64,
}

/// What the first number of a reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// 1 is a no: `CL.THROTTLE`, and ours.
    Limited,
    /// 1 is a yes: throttlecrab's `THROTTLE`.
    Allowed,
    /// Nothing. Whatever is no error is a yes.
    Nothing,
}

/// A reply and what is asked for next fit in.
const RECEIVED: usize = 16 << 10;
const REPLY_MAX: usize = 16 << 20;
/// Arrays in arrays.
const DEPTH_MAX: usize = 8;

pub(crate) async fn open(door: &Rc<Door>) -> Result<Connection, String> {
    Ok(Connection {
        socket: Some(door.connect().await?),
        sent: BytesMut::with_capacity(door.template.len() * door.pipeline),
        received: BytesMut::with_capacity(RECEIVED),
        door: door.clone(),
        reconnects: 0,
    })
}

/// How a password is told.
pub(crate) fn greeting(password: &str) -> Vec<u8> {
    format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len()).into_bytes()
}

impl Door {
    /// A connection whose server knows us.
    async fn connect(&self) -> Result<TcpStream, String> {
        let socket = connected(self.address).await;
        let mut socket = socket.map_err(|error| format!("cannot connect: {error}"))?;
        if self.greeting.is_empty() {
            return Ok(socket);
        }
        socket.write_all(&self.greeting).await.map_err(|error| error.to_string())?;
        let mut received = Vec::new();
        loop {
            let read = socket.read_buf(&mut received).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the connection was closed when it was told the password".to_owned());
            }
            if let Some((_, said)) = reply(&received, Meaning::Nothing)? {
                said.map_err(|refused| format!("the password is refused: {refused}"))?;
                return Ok(socket);
            }
        }
    }
}

impl Slot for Connection {
    fn room(&self) -> usize {
        self.door.pipeline
    }

    async fn ask(&mut self, keys: &[u64], out: &mut Vec<Heard>) {
        let all = out.len() + keys.len();
        if let Err(failure) = self.exchange(keys, all, out).await {
            // Nobody knows what is still under way there.
            self.socket = None;
            out.resize_with(all, || heard(Err(failure.clone())));
        }
    }

    fn reconnects(&mut self) -> u64 {
        std::mem::take(&mut self.reconnects)
    }
}

// === impl Connection ===

impl Connection {
    async fn exchange(
        &mut self,
        keys: &[u64],
        all: usize,
        out: &mut Vec<Heard>,
    ) -> Result<(), String> {
        if self.socket.is_none() {
            self.reconnects += 1;
        }
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(self.door.connect().await?),
        };
        self.sent.clear();
        keys.iter().for_each(|key| self.door.template.write(*key, &mut self.sent));
        socket.write_all(&self.sent).await.map_err(|error| error.to_string())?;
        self.received.clear();
        let mut from = 0;
        while out.len() < all {
            let read = socket.read_buf(&mut self.received).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the connection was closed before the answer".to_owned());
            }
            // One look at the clock for all that came together.
            let at = Instant::now();
            while let Some((length, said)) = reply(&self.received[from..], self.door.means)? {
                out.push(Heard { at, said });
                from += length;
            }
            if self.received.len() - from > REPLY_MAX {
                return Err(format!("an answer of more than {REPLY_MAX} bytes"));
            }
        }
        let surplus = out.len() > all || from < self.received.len();
        out.truncate(all);
        if surplus { Err("more answers than commands".to_owned()) } else { Ok(()) }
    }
}

/// How long it is, and what it says.
type Reply = (usize, Result<Answer, String>);

/// The first reply, if it is whole.
fn reply(bytes: &[u8], means: Meaning) -> Result<Option<Reply>, String> {
    let Some(length) = length(bytes, 0)? else { return Ok(None) };
    let said = match (bytes[0], means) {
        (b'-' | b'!', _) => Err(shown(&bytes[1..length])),
        (_, Meaning::Nothing) => Ok(Answer::Allowed),
        (b'*', _) => {
            // The head of an array is the number of its elements; the first of them is a number.
            let elements = bytes[1..length].split(|byte| *byte == b'\n').nth(1);
            match (elements, means) {
                (Some(b":0\r"), Meaning::Limited) | (Some(b":1\r"), Meaning::Allowed) => {
                    Ok(Answer::Allowed)
                }
                (Some(b":1\r"), _) | (Some(b":0\r"), _) => Ok(Answer::Denied),
                _ => Err(format!("no answer of a limiter: `{}`", shown(&bytes[..length]))),
            }
        }
        _ => Err(format!("no answer of a limiter: `{}`", shown(&bytes[..length]))),
    };
    Ok(Some((length, said)))
}

/// How long the first value is, if it is whole.
fn length(bytes: &[u8], depth: usize) -> Result<Option<usize>, String> {
    let Some(kind) = bytes.first() else { return Ok(None) };
    let Some(line) = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1) else {
        return Ok(None);
    };
    let number = || {
        let digits = bytes.get(1..line.saturating_sub(2)).unwrap_or_default();
        let number = str::from_utf8(digits).ok().and_then(|text| text.parse::<i64>().ok());
        let number = number.filter(|number| *number <= REPLY_MAX as i64);
        number.ok_or_else(|| format!("no RESP there: `{}`", shown(&bytes[..line])))
    };
    match kind {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => Ok(Some(line)),
        b'$' | b'!' | b'=' => match usize::try_from(number()?) {
            // A null has no text, and no end of it.
            Err(_) => Ok(Some(line)),
            Ok(length) => Ok(Some(line + length + 2).filter(|end| *end <= bytes.len())),
        },
        b'*' | b'~' | b'>' | b'%' => {
            if depth == DEPTH_MAX {
                return Err("an answer with arrays within arrays within arrays".to_owned());
            }
            let count = number()?.max(0) * if *kind == b'%' { 2 } else { 1 };
            let mut end = line;
            for _ in 0..count {
                let Some(length) = length(&bytes[end..], depth + 1)? else { return Ok(None) };
                end += length;
            }
            Ok(Some(end))
        }
        _ => Err(format!("no RESP there: `{}`", shown(&bytes[..line]))),
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
                    reply(&text.as_bytes()[..end], Meaning::Nothing),
                    Ok(None),
                    "{text} {end}"
                );
            }
            let twice = text.repeat(2);
            let whole = reply(twice.as_bytes(), Meaning::Nothing);
            assert_eq!(whole, Ok(Some((text.len(), Ok(Answer::Allowed)))), "{text}");
        }
    }

    #[test]
    fn yes_and_no_depend_on_the_command() {
        let said = |text: &str, means| reply(text.as_bytes(), means).unwrap().unwrap().1;
        let (zero, one) =
            ("*5\r\n:0\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
        assert_eq!(said(zero, Meaning::Limited), Ok(Answer::Allowed));
        assert_eq!(said(one, Meaning::Limited), Ok(Answer::Denied));
        assert_eq!(said(zero, Meaning::Allowed), Ok(Answer::Denied));
        assert_eq!(said(one, Meaning::Allowed), Ok(Answer::Allowed));
        assert_eq!(said(one, Meaning::Nothing), Ok(Answer::Allowed));
        assert_eq!(said("-ERR no\r\n", Meaning::Nothing), Err("ERR no".to_owned()));
        assert!(said("+OK\r\n", Meaning::Limited).is_err());
        assert!(said("*1\r\n:7\r\n", Meaning::Limited).is_err());
    }

    #[test]
    fn nonsense_is_told() {
        let deep = "*1\r\n".repeat(100_000);
        for text in ["HTTP/1.1 400\r\n", "$x\r\n", "*99999999999\r\n", "$\r\n", "\r\n", &deep] {
            assert!(
                reply(text.as_bytes(), Meaning::Nothing).is_err(),
                "{}",
                shown(text.as_bytes())
            );
        }
    }
}
