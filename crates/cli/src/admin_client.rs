//! A client of the admin endpoint: one request on one connection.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// Time for each step.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer responses are no pages of the endpoint.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// The admin endpoint of a process.
#[derive(Debug, Clone)]
pub(crate) struct AdminClient {
    /// Host and port.
    address: String,
    token: Option<String>,
}

/// A response in JSON.
#[derive(Debug)]
pub(crate) struct AdminReply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl AdminClient {
    /// The endpoint at a URL such as `http://127.0.0.1:6070`.
    pub(crate) fn new(url: &str, token: Option<String>) -> anyhow::Result<Self> {
        let address = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        if address.is_empty() || address.contains(['/', ' ', '@']) || !address.contains(':') {
            bail!(
                "--admin: must be host and port, got `{url}`; write it like `http://127.0.0.1:6070`"
            );
        }
        let is_plain = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.as_ref().is_some_and(|token| !is_plain(token)) {
            bail!("SLUICEGATE_ADMIN_TOKEN: must consist of visible ASCII characters");
        }
        Ok(Self { address: address.to_owned(), token })
    }

    /// Sends a request without a body.
    pub(crate) fn send(&self, method: &str, path: &str) -> anyhow::Result<AdminReply> {
        self.send_body(method, path, "")
    }

    /// Sends a request with a body.
    pub(crate) fn send_body(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<AdminReply> {
        let address = &self.address;
        let read = || -> anyhow::Result<Vec<u8>> {
            let addresses: Vec<_> = address.to_socket_addrs()?.collect();
            let mut connected = Err(anyhow::anyhow!("the name has no address"));
            for address in &addresses {
                connected = TcpStream::connect_timeout(address, TIMEOUT).map_err(Into::into);
                if connected.is_ok() {
                    break;
                }
            }
            let mut stream = connected?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            let token =
                self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n"));
            // HTTP/1.0: the body ends with the connection.
            let head = format!(
                "{method} {path} HTTP/1.0\r\nhost: {address}\r\naccept: application/json\r\n\
                 content-length: {}\r\n{}\r\n",
                body.len(),
                token.unwrap_or_default()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(body.as_bytes())?;
            let mut response = Vec::new();
            stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
            Ok(response)
        };
        let response = read().with_context(|| format!("no answer of `{address}`"))?;
        parse(&response).with_context(|| format!("`{address}` is not an admin endpoint"))
    }
}

fn parse(response: &[u8]) -> anyhow::Result<AdminReply> {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP response")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("no HTTP response")?;
    let body = serde_json::from_str(body).context("the response is not JSON")?;
    Ok(AdminReply { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_and_addresses_checked() {
        let reply = parse(b"HTTP/1.0 404 Not Found\r\na: b\r\n\r\n{\"x\":1}").unwrap();
        assert_eq!((reply.status, &reply.body["x"]), (404, &1.into()));
        assert!(parse(b"SSH-2.0\r\n\r\n").is_err());
        assert!(AdminClient::new("http://127.0.0.1:6070/", None).is_ok());
        for url in ["", "http://", "localhost", "http://a:1/b", "a:1 b"] {
            assert!(AdminClient::new(url, None).is_err(), "{url}");
        }
        assert!(AdminClient::new("a:1", Some("x\r\ny".to_owned())).is_err());
    }
}
