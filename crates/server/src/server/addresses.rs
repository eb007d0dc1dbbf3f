//! Where the service listens, as it is told to whoever started it.

use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::listen::Listener;
use crate::settings::GrpcAddress;

/// Where the service listens: with the ports that it really got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// For Envoy.
    pub grpc: GrpcAddress,
    /// For people and scripts.
    pub http: SocketAddr,
    /// For operators.
    pub admin: SocketAddr,
    /// For clients of Redis, if they may ask.
    pub resp: Option<SocketAddr>,
}

impl Addresses {
    pub(super) fn of(
        wanted: &GrpcAddress,
        grpc: &Listener,
        http: &TcpListener,
        admin: &TcpListener,
        resp: Option<&TcpListener>,
    ) -> io::Result<Self> {
        let grpc = match grpc {
            Listener::Tcp(listener) => GrpcAddress::Tcp(listener.local_addr()?),
            _ => wanted.clone(),
        };
        let resp = resp.map(TcpListener::local_addr).transpose()?;
        Ok(Self { grpc, http: http.local_addr()?, admin: admin.local_addr()?, resp })
    }

    /// As one object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut all = json!({
            "grpc": self.grpc.to_string(),
            "http": self.http.to_string(),
            "admin": self.admin.to_string(),
        });
        if let Some(resp) = self.resp {
            all["resp"] = resp.to_string().into();
        }
        all
    }
}
