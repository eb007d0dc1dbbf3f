//! Common parts of the examples: the listening socket and a client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

/// A socket for a server, and whether the example keeps running: `--serve 127.0.0.1:8080`.
///
/// By default it uses a free local port, calls itself and ends.
///
/// # Errors
/// When the address is invalid or in use.
pub async fn listen() -> io::Result<(TcpListener, Lifetime)> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("--serve"), Some(address)) => {
            let listener = TcpListener::bind(&address).await?;
            println!("serving on {}", listener.local_addr()?);
            Ok((listener, Lifetime::Service))
        }
        (None, None) => Ok((TcpListener::bind("127.0.0.1:0").await?, Lifetime::Demo)),
        _ => Err(io::Error::other("usage: [--serve ADDRESS]")),
    }
}

/// Whether a server keeps running for other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It does.
    Service,
    /// It ends after its demonstration.
    Demo,
}

/// Response of a server.
#[derive(Debug)]
pub struct Reply {
    /// Status code, such as 200.
    pub status: u16,
    head: String,
    /// The body.
    pub body: String,
}

/// A minimal client: one GET per connection.
///
/// # Errors
/// When the server cannot be reached or does not speak HTTP.
pub async fn get(server: SocketAddr, path: &str, headers: &[(&str, &str)]) -> io::Result<Reply> {
    get_from(Ipv4Addr::LOCALHOST, server, path, headers).await
}

/// As [`get`], from this address of the local machine.
///
/// # Errors
/// When the address is not a local one, and those of [`get`].
pub async fn get_from(
    source: Ipv4Addr,
    server: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<Reply> {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    let mut connection = socket.connect(server).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await?;

    let no_http = || io::Error::other(format!("not HTTP: `{reply}`"));
    let (head, body) = reply.split_once("\r\n\r\n").ok_or_else(no_http)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(no_http)?;
    Ok(Reply { status, head: head.to_owned(), body: body.to_owned() })
}

impl Reply {
    /// The value of a header; a dash if absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let headers = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = headers.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        found.next().map_or("-", |(_, value)| value)
    }
}

/// The code in the documentation compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/guide/clients.md")]
    pub(super) mod clients {}
    #[doc = include_str!("../../docs/guide/embedding.md")]
    pub(super) mod embedding {}
    #[doc = include_str!("../../README.md")]
    pub(super) mod readme {}
}
