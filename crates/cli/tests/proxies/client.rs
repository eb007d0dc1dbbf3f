//! A client with an address of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use tokio::net::TcpSocket;

use crate::support::http::{Answer, asked_on};

/// Somebody who comes from this address, which must be one of this machine.
pub struct Client(pub Ipv4Addr);

/// Whom proxies take for themselves.
pub const HERE: Client = Client(Ipv4Addr::LOCALHOST);
/// Some others.
pub const ALICE: Client = Client(Ipv4Addr::new(127, 0, 0, 3));
pub const BOB: Client = Client(Ipv4Addr::new(127, 0, 0, 4));

impl Client {
    pub fn get(&self, address: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(address, "GET", path, headers, "")
    }

    pub fn send(
        &self,
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        asked_on(self.connected(address), request.as_bytes())
    }

    /// Asks the same several times; the statuses.
    pub fn statuses<const N: usize>(&self, address: &str, path: &str) -> [u16; N] {
        [(); N].map(|()| self.get(address, path, &[]).status)
    }

    fn connected(&self, address: &str) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let connected = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from((self.0, 0))).unwrap();
            socket.connect(address.parse().unwrap()).await.unwrap().into_std().unwrap()
        });
        connected.set_nonblocking(false).unwrap();
        connected
    }
}
