//! A client of `/v1/check` that keeps its connection, as those of a busy service do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A service that says nothing for so long is taken for dead. Far more than any answer needs, on
/// any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Allowed,
    Denied,
    /// The store gave no answer, and the rule says that this is to be told. It may have been
    /// charged.
    Failed,
    /// The service went away. It may have been charged.
    Lost,
}

pub struct Client {
    connection: BufReader<TcpStream>,
}

impl Client {
    pub fn of(address: &str) -> io::Result<Self> {
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { connection: BufReader::new(connection) })
    }

    /// Asks whether one more may go under these descriptors, such as `{"user":"ada"}`.
    pub fn check(&mut self, descriptors: &str) -> Answer {
        self.told(descriptors).0
    }

    /// The same, and what was said about it.
    pub fn told(&mut self, descriptors: &str) -> (Answer, String) {
        let answer = match self.posted(descriptors) {
            Ok((200, body)) => (Answer::Allowed, body),
            Ok((429, body)) => (Answer::Denied, body),
            Ok((503, body)) => (Answer::Failed, body),
            Ok((status, _)) => panic!("nobody expects {status} for {descriptors}"),
            Err(_) => return (Answer::Lost, String::new()),
        };
        (answer.0, String::from_utf8(answer.1).unwrap())
    }

    fn posted(&mut self, descriptors: &str) -> io::Result<(u16, Vec<u8>)> {
        let body = format!(r#"{{"domain":"shop","descriptors":[{descriptors}]}}"#);
        let length = body.len();
        let head = format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {length}");
        self.connection.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<(u16, Vec<u8>)> {
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            if self.connection.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if status.is_none() {
                status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.connection.read_exact(&mut body)?;
        Ok((status.ok_or(io::ErrorKind::InvalidData)?, body))
    }
}
