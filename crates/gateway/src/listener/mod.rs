//! Listeners: bound sockets, and a connection before its first request.
//!
//! ```text
//!   accept ─ PROXY header ─ access list ─ limits of the address ─ TLS handshake ─ HTTP
//!            only of listed peers         open, new, handshakes
//! ```
//!
//! Without a PROXY header, everything before the handshake is decided before a byte is read. A
//! rejected connection is closed without a response.

pub(crate) mod access;
pub(crate) mod certificate;
pub(crate) mod handover;
pub(crate) mod limits;
mod proxy_protocol;
pub(crate) mod redirect;
pub(crate) mod set;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use sluicegate_config::gateway::listener::{AcmeChallenge, ListenerConfig, TlsConfig, TlsVersion};
use sluicegate_rules::network::Network;
use sluicegate_server::http::HttpServer;
use sluicegate_server::listen::{ConnectionFuture, ConnectionGuard, Socket, Stopped};
use sluicegate_server::telemetry::Event;
use sluicegate_server::tls::{CertificateFiles, CertificateSource, Tls, TlsError, TlsFiles};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use self::access::Access;
use self::certificate::ClientCertificate;
use self::limits::Slot;
use self::redirect::HttpsPort;
use crate::acme::ACME_TLS;
use crate::handler::{ConnectionContext, GatewayHandler};
use crate::identity::ClientHelloRecorder;

/// Connections that wait to be accepted, for each worker.
const BACKLOG_MAX: u32 = 4_096;

/// An address that is listened on, as its workers share it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    tls: Option<Tls>,
    proxies: Vec<Network>,
    redirect: Option<HttpsPort>,
}

/// An admitted client address.
#[derive(Debug)]
struct Admitted {
    peer: Option<IpAddr>,
    is_exempt: bool,
    /// Of its open connections, if their number is limited.
    _slot: Option<Slot>,
}

impl Endpoint {
    /// Reads the certificates of a listener; `https_port` is that of redirects, and `source` has
    /// certificates that are not in files.
    pub(crate) fn new(
        config: &ListenerConfig,
        https_port: u16,
        source: Option<Arc<dyn CertificateSource>>,
    ) -> Result<Self, TlsError> {
        let tls = config.tls.as_ref().map(|tls| Tls::with_source(tls_files(tls), source));
        let tls = tls.transpose()?;
        let redirect = config.redirect_to_https.then_some(HttpsPort(https_port));
        Ok(Self { tls, proxies: config.proxy_protocol.clone(), redirect })
    }

    /// Its TLS, to follow the certificates.
    pub(crate) const fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The future that serves a connection; `None` closes it.
    pub(crate) fn connect(
        self: &Arc<Self>,
        server: &HttpServer<GatewayHandler>,
        socket: Socket,
        stopped: Stopped,
    ) -> Option<ConnectionFuture> {
        let peer = socket.peer();
        let sends_header = peer.is_some_and(|peer| self.is_proxy(peer));
        if sends_header || self.tls.is_some() {
            let admitted =
                if sends_header { None } else { Some(self.admit(server.handler(), peer)?) };
            let (guard, server, endpoint) = (server.admit()?, server.clone(), self.clone());
            return Some(Box::pin(async move {
                endpoint.serve(&server, guard, admitted, socket, stopped).await;
            }));
        }
        let admitted = self.admit(server.handler(), peer)?;
        let (guard, server) = (server.admit()?, server.clone());
        let context = self.context(&admitted);
        Some(Box::pin(async move {
            let _admitted = admitted;
            server.serve_connection(guard, context, socket, stopped.wait()).await;
        }))
    }

    /// Whether a peer sends a PROXY header.
    fn is_proxy(&self, peer: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(peer))
    }

    /// Serves a connection with a PROXY header, with TLS, or with both.
    async fn serve(
        &self,
        server: &HttpServer<GatewayHandler>,
        guard: ConnectionGuard,
        admitted: Option<Admitted>,
        mut socket: Socket,
        stopped: Stopped,
    ) {
        let telemetry = server.handler().app.telemetry();
        let timeouts = server.handler().active.load().timeouts;
        let admitted = match admitted {
            Some(admitted) => admitted,
            None => {
                let header = proxy_protocol::read(&mut socket);
                let header = match timeout(timeouts.header, header).await {
                    Ok(header) => header,
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                };
                let peer = match header {
                    Ok(named) => named.or(socket.peer()),
                    Err(error) => {
                        debug!(peer = ?socket.peer(), %error, "no valid PROXY header");
                        return telemetry.record(Event::ProxyHeaderFailed);
                    }
                };
                let Some(admitted) = self.admit(server.handler(), peer) else { return };
                admitted
            }
        };
        let mut context = self.context(&admitted);
        let Some(tls) = &self.tls else {
            return server.serve_connection(guard, context, socket, stopped.wait()).await;
        };
        let uses_ja4 = server.handler().active.load().identities.uses_ja4();
        let socket = ClientHelloRecorder::new(socket, uses_ja4);
        let handshake = timeout(timeouts.tls_handshake, tls.accept(socket)).await;
        match handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            // Only the handshake of a challenge matters.
            Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(ACME_TLS) => {}
            Ok(mut stream) => {
                context.ja4 = stream.get_mut().0.take_ja4().map(Arc::from);
                let certificates = stream.get_ref().1.peer_certificates();
                context.certificate = certificates
                    .and_then(|chain| ClientCertificate::new(chain.first()?))
                    .map(Arc::new);
                // Boxed: the state of TLS would make the futures of other connections larger.
                Box::pin(server.serve_connection(guard, context, stream, stopped.wait())).await;
            }
            Err(error) => {
                debug!(peer = ?context.peer, %error, "TLS handshake failed");
                telemetry.record(Event::TlsHandshakeFailed);
            }
        }
    }

    /// Admits a client address by access list and limits.
    fn admit(&self, handler: &GatewayHandler, peer: Option<IpAddr>) -> Option<Admitted> {
        let Some(address) = peer else {
            return Some(Admitted { peer, is_exempt: false, _slot: None });
        };
        let active = handler.active.load();
        let rejected = match active.access.find(address) {
            Some(Access::Allowed) => {
                return Some(Admitted { peer, is_exempt: true, _slot: None });
            }
            Some(Access::Denied) => Event::ClientDenied,
            None => match active.connection_limits.admit(address, self.tls.is_some()) {
                Ok(slot) => return Some(Admitted { peer, is_exempt: false, _slot: slot }),
                Err(event) => event,
            },
        };
        // At most some lines a second: the rate limit of log lines is by call site.
        info!(client = %address, reason = rejected.rejection(), "connection rejected");
        handler.app.telemetry().record(rejected);
        None
    }

    const fn context(&self, admitted: &Admitted) -> ConnectionContext {
        ConnectionContext {
            peer: admitted.peer,
            is_exempt: admitted.is_exempt,
            is_tls: self.tls.is_some(),
            redirect: self.redirect,
            certificate: None,
            ja4: None,
        }
    }
}

/// The files of a listener, and what it requires of clients.
pub(crate) fn tls_files(config: &TlsConfig) -> TlsFiles {
    let pair = |files: &sluicegate_config::gateway::listener::CertificateFiles| CertificateFiles {
        cert: files.cert.clone(),
        key: files.key.clone(),
    };
    TlsFiles {
        certificates: config.certificates.iter().map(pair).collect(),
        client_ca: config.client_ca.clone(),
        client_san: None,
        only_tls13: config.min_version == TlsVersion::V13,
        alpn: match config.acme.as_ref().map(|acme| acme.challenge) {
            Some(AcmeChallenge::TlsAlpn01) => &[b"h2", b"http/1.1", ACME_TLS],
            _ => &[b"h2", b"http/1.1"],
        },
    }
}

/// Whether a socket of another process is bound to an address that sockets may share.
fn is_shared(address: SocketAddr) -> bool {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        #[cfg(not(windows))]
        socket.set_reuseaddr(true)?;
        socket.bind(address)
    });
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Binds an address once for each worker: the system distributes connections. All inherited sockets
/// of the address are used, since connections may wait in each.
fn bind(
    address: SocketAddr,
    workers: usize,
    inherited: Vec<TcpListener>,
) -> io::Result<(Vec<TcpListener>, SocketAddr)> {
    let mut sockets = inherited;
    let mut bound = address;
    if sockets.is_empty() && is_shared(address) {
        warn!(%address, "another process listens here too: each gets some of the connections, and \
              counts for itself unless both use one store; end it, or listen elsewhere");
    }
    while sockets.len() < workers {
        let socket = if bound.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        #[cfg(not(windows))]
        socket.set_reuseaddr(true)?;
        #[cfg(unix)]
        socket.set_reuseport(true)?;
        socket.bind(bound)?;
        let socket = socket.listen(BACKLOG_MAX)?;
        bound = socket.local_addr()?;
        sockets.push(socket.into_std()?);
    }
    Ok((sockets, bound))
}
