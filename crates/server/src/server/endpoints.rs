//! Endpoints of the service: listeners, addresses, and options by the settings.

use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};

use super::{StartError, failed_to};
use crate::grpc;
use crate::http::{self, ErrorFormat, KeysAccess};
use crate::listen::Listener;
use crate::memory::Share;
use crate::resp;
use crate::settings::{GrpcAddress, Settings};
use crate::tls::Tls;

/// Limit of connections that wait to be accepted; the system may allow fewer. Clients beyond it
/// retry after a second, so with the usual 128 a burst of clients would be slow.
const BACKLOG_MAX: u32 = 4_096;

/// Addresses of the service, with the ports that the system assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC endpoint.
    pub grpc: GrpcAddress,
    /// HTTP endpoint.
    pub http: SocketAddr,
    /// Admin endpoint.
    pub admin: SocketAddr,
    /// RESP endpoint, if it is enabled.
    pub resp: Option<SocketAddr>,
    /// Endpoint of metrics alone, if it is enabled.
    pub metrics: Option<SocketAddr>,
}

/// Bound sockets of all endpoints.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) grpc: Listener,
    pub(super) http: TcpListener,
    pub(super) resp: Option<TcpListener>,
}

impl Addresses {
    /// JSON object of all addresses.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut all = json!({
            "grpc": self.grpc.to_string(),
            "http": self.http.to_string(),
            "admin": self.admin.to_string(),
        });
        for (name, address) in [("resp", self.resp), ("metrics", self.metrics)] {
            if let Some(address) = address {
                all[name] = address.to_string().into();
            }
        }
        all
    }
}

impl Listeners {
    /// Binds the addresses of the settings, and replaces them there by those that were bound.
    pub(super) fn bind(settings: &mut Settings) -> Result<(Self, Addresses), StartError> {
        let grpc = listen_grpc(&settings.grpc)?;
        if let Listener::Tcp(listener) = &grpc {
            settings.grpc = GrpcAddress::Tcp(address_of(listener)?);
        }
        let (http, address) = listen(settings.http)?;
        settings.http = address;
        let (resp, address) = settings.resp.map(listen).transpose()?.unzip();
        settings.resp = address;
        let addresses = Addresses {
            grpc: settings.grpc.clone(),
            http: settings.http,
            admin: settings.admin,
            resp: settings.resp,
            metrics: settings.metrics.as_ref().map(|metrics| metrics.address),
        };
        Ok((Self { grpc, http, resp }, addresses))
    }
}

/// Listens on an address; returns the one that was bound, with the port that the system assigned.
pub(super) fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener =
        bind(address).map_err(|error| failed_to(&format!("listen on `{address}`"), error))?;
    let address = address_of(&listener)?;
    Ok((listener, address))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|error| failed_to("read a bound address", error))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As tokio does: closed connections do not block the address. On Windows the option would let
    // other processes share it.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_MAX)
}

fn listen_grpc(address: &GrpcAddress) -> Result<Listener, StartError> {
    match address {
        GrpcAddress::Tcp(address) => Ok(Listener::Tcp(listen(*address)?.0)),
        #[cfg(unix)]
        GrpcAddress::Unix(path) => Listener::unix(path)
            .map_err(|error| failed_to(&format!("listen on `{}`", path.display()), error)),
        #[cfg(not(unix))]
        GrpcAddress::Unix(path) => Err(failed_to(
            &format!("listen on `{}`", path.display()),
            "Unix sockets are not supported on this system",
        )),
    }
}

pub(super) fn grpc_options(settings: &Settings, tls: Option<Tls>) -> grpc::Options {
    let (age, age_grace) = settings.connection_age;
    let limits = grpc::GrpcLimits {
        connections: settings.connections_max,
        in_flight: settings.in_flight_max,
        age: (!age.is_zero()).then_some(age),
        age_grace,
        drain: settings.drain.1,
        ..grpc::GrpcLimits::default()
    };
    grpc::Options { limits, tls }
}

pub(super) fn http_options(settings: &Settings) -> http::Options {
    let keys = match &settings.admin_token {
        Some(token) => KeysAccess::Token(token.clone()),
        None if settings.http.ip().is_loopback() => KeysAccess::Open,
        None => KeysAccess::Off,
    };
    let error_format =
        if settings.problem_json { ErrorFormat::Problem } else { ErrorFormat::Envelope };
    http::Options { style: settings.style, error_format, keys, ..http::Options::default() }
}

pub(super) fn http_limits(settings: &Settings) -> http::HttpLimits {
    http::HttpLimits {
        connections: settings.connections_max,
        in_flight: settings.in_flight_max,
        drain: settings.drain.1,
        ..http::HttpLimits::default()
    }
}

pub(super) fn admin_limits(settings: &Settings) -> http::HttpLimits {
    http::HttpLimits { memory: Share::Operators, ..http_limits(settings) }
}

pub(super) fn resp_options(settings: &Settings) -> resp::Options {
    let limits = resp::RespLimits {
        connections: settings.connections_max,
        drain: settings.drain.1,
        ..resp::RespLimits::default()
    };
    // As on the HTTP address: without a token, local clients have the operator role.
    let is_local = settings.resp.is_some_and(|resp| resp.ip().is_loopback());
    let is_open = settings.admin_token.is_none() && is_local;
    let operator_token = settings.admin_token.clone();
    resp::Options { limits, password: settings.resp_password.clone(), is_open, operator_token }
}
