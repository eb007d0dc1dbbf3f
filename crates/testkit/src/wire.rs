//! Minimal RESP client.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Timeout: the server is paused or hangs.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reply of a server. [`fmt::Display`] formats it for humans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A simple string such as `OK`.
    Status(String),
    /// An error; begins with a code such as `ERR` or `READONLY`.
    Error(String),
    /// A number.
    Integer(i64),
    /// A bulk string.
    Text(String),
    /// Null.
    Nil,
    /// An array.
    Array(Vec<Self>),
}

impl Reply {
    /// The elements of an array; empty for other replies.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

/// Strings as they are, numbers in decimal, `(nil)` for null, and one line per element of an array.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(text) | Self::Error(text) | Self::Text(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Nil => f.write_str("(nil)"),
            Self::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let line = if index == 0 { "" } else { "\n" };
                    write!(f, "{line}{item}")?;
                }
                Ok(())
            }
        }
    }
}

/// Sends one command on a new connection, after an optional `AUTH`.
pub(crate) fn command(
    socket: &Path,
    auth: Option<[&str; 2]>,
    command: &[&str],
) -> io::Result<Reply> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut stream = BufReader::new(stream);
    if let Some([user, password]) = auth {
        send(stream.get_mut(), &["AUTH", user, password])?;
        if let Reply::Error(text) = receive(&mut stream)? {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
    }
    send(stream.get_mut(), command)?;
    receive(&mut stream)
}

fn send(stream: &mut impl Write, command: &[&str]) -> io::Result<()> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        write!(bytes, "${}\r\n{word}\r\n", word.len())?;
    }
    stream.write_all(&bytes)
}

fn receive(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end_matches(['\r', '\n']);
    let strange = || io::Error::new(io::ErrorKind::InvalidData, format!("`{line}` is no reply"));
    let (kind, rest) = line.split_at_checked(1).ok_or_else(strange)?;
    let number = || rest.parse::<i64>().map_err(|_| strange());
    Ok(match kind {
        "+" => Reply::Status(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(length) => Reply::Text(text(stream, length)?),
            Err(_) => Reply::Nil,
        },
        "*" => match usize::try_from(number()?) {
            Ok(count) => {
                Reply::Array((0..count).map(|_| receive(stream)).collect::<io::Result<_>>()?)
            }
            Err(_) => Reply::Nil,
        },
        _ => return Err(strange()),
    })
}

fn text(stream: &mut impl BufRead, length: usize) -> io::Result<String> {
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
