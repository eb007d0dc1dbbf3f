//! The addresses of a gateway, as its configuration changes them.
//!
//! A change is prepared as a whole, so that an invalid one has no effect. Addresses that are new
//! are bound, and their sockets sent to the workers. Addresses that stay keep their sockets; new
//! connections see the new options. Removed addresses stop accepting, and drain.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluicegate_config::gateway::listener::ListenerConfig;
use sluicegate_server::metrics::{MetricsSource, Page};
use sluicegate_server::tls::{Tls, put_certificates};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::info;

use super::handover::SharedSockets;
use super::{Endpoint, bind};
use crate::acme::{Acme, ManagedCertificates};

/// The bound addresses.
#[derive(Debug)]
pub(crate) struct ListenerSet {
    bound: Vec<BoundListener>,
    workers: Vec<mpsc::UnboundedSender<WorkerListener>>,
    /// Copies of the sockets for the next process, if there may be one.
    copies: Option<SharedSockets>,
    acme: Arc<Acme>,
}

#[derive(Debug)]
struct BoundListener {
    config: ListenerConfig,
    address: SocketAddr,
    https_port: u16,
    endpoint: Arc<ArcSwap<Endpoint>>,
    /// Dropped when the address is removed.
    removal: watch::Sender<()>,
    /// Follows the certificates.
    followed: JoinSet<()>,
    /// Renews automatic certificates.
    certificates: Option<Arc<ManagedCertificates>>,
}

/// A socket that a worker accepts from.
#[derive(Debug)]
pub(crate) struct WorkerListener {
    pub(crate) endpoint: Arc<ArcSwap<Endpoint>>,
    pub(crate) socket: TcpListener,
    /// Closed when the address is removed.
    pub(crate) removed: watch::Receiver<()>,
}

/// An address of the next configuration.
#[derive(Debug)]
pub(crate) struct PreparedListener {
    config: ListenerConfig,
    address: SocketAddr,
    https_port: u16,
    /// `None` if the address is bound already.
    sockets: Option<NewSockets>,
    /// `None` if it is unchanged.
    endpoint: Option<(Endpoint, Option<Arc<ManagedCertificates>>)>,
}

/// Sockets of a new address.
#[derive(Debug, Default)]
struct NewSockets {
    of_workers: Vec<TcpListener>,
    copies: Vec<OwnedFd>,
}

/// Why an address cannot be used.
#[derive(Debug)]
pub(crate) struct ListenError {
    pub(crate) step: String,
    pub(crate) reason: String,
}

impl ListenerSet {
    /// No addresses, and what each worker gets.
    pub(crate) fn new(
        workers: usize,
        copies: Option<SharedSockets>,
        acme: Arc<Acme>,
    ) -> (Self, Vec<mpsc::UnboundedReceiver<WorkerListener>>) {
        let (workers, listeners) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        (Self { bound: Vec::new(), workers, copies, acme }, listeners)
    }

    /// Number of workers.
    pub(crate) const fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Bound addresses, in the order of the configuration.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.bound.iter().map(|listener| listener.address).collect()
    }

    /// TLS of the bound addresses.
    fn tls(&self) -> Vec<(String, Tls)> {
        let tls = self.bound.iter().filter_map(|listener| {
            Some((listener.address.to_string(), listener.endpoint.load().tls()?.clone()))
        });
        tls.collect()
    }

    /// Binds addresses and reads certificates; nothing changes yet. `inherited` has the sockets of
    /// an address that a previous process has left.
    pub(crate) fn prepare(
        &self,
        listeners: &[ListenerConfig],
        mut inherited: impl FnMut(SocketAddr) -> Vec<TcpListener>,
    ) -> Result<Vec<PreparedListener>, ListenError> {
        let mut free: Vec<&BoundListener> = self.bound.iter().collect();
        let mut bound = Vec::with_capacity(listeners.len());
        for config in listeners {
            let known = free.iter().position(|known| known.config.address == config.address);
            let known = known.map(|index| free.remove(index));
            let (address, sockets) = match known {
                Some(known) => (known.address, None),
                None => {
                    let bound = self.bind(config.address, inherited(config.address));
                    let (address, sockets) = bound.map_err(|error| ListenError {
                        step: format!("listen on `{}`", config.address),
                        reason: error.to_string(),
                    })?;
                    (address, Some(sockets))
                }
            };
            bound.push((config, known, address, sockets));
        }
        // Redirects lead to the first address with TLS.
        let https = bound.iter().find(|(config, ..)| config.tls.is_some());
        let https_port = https.map_or(443, |(_, _, address, _)| address.port());
        let prepared = |(config, known, address, sockets): (&ListenerConfig, Option<&_>, _, _)| {
            let is_same =
                |known: &BoundListener| known.config == *config && known.https_port == https_port;
            let endpoint = (!known.is_some_and(is_same)).then(|| self.endpoint(config, https_port));
            let endpoint = endpoint.transpose()?;
            let config = config.clone();
            Ok(PreparedListener { config, address, https_port, sockets, endpoint })
        };
        bound.into_iter().map(prepared).collect()
    }

    fn endpoint(
        &self,
        config: &ListenerConfig,
        https_port: u16,
    ) -> Result<(Endpoint, Option<Arc<ManagedCertificates>>), ListenError> {
        let failed = |step: &str, reason| ListenError { step: step.to_owned(), reason };
        let acme = config.tls.as_ref().and_then(|tls| tls.acme.as_ref());
        let managed = acme.map(|acme| self.acme.manage(acme)).transpose();
        let managed = managed.map_err(|reason| failed("use automatic certificates", reason))?;
        let source = managed.as_ref().map(|managed| managed.source());
        let endpoint = Endpoint::new(config, https_port, source);
        let endpoint = endpoint.map_err(|error| failed("configure TLS", error.to_string()))?;
        Ok((endpoint, managed))
    }

    fn bind(
        &self,
        address: SocketAddr,
        inherited: Vec<TcpListener>,
    ) -> io::Result<(SocketAddr, NewSockets)> {
        let (of_workers, address) = bind(address, self.workers.len(), inherited)?;
        let copy = |socket: &TcpListener| socket.try_clone().map(OwnedFd::from);
        let copied = self.copies.iter().flat_map(|_| &of_workers);
        let copies = copied.map(copy).collect::<io::Result<_>>()?;
        Ok((address, NewSockets { of_workers, copies }))
    }

    /// Makes these the addresses. Must be called within a Tokio runtime.
    pub(crate) fn apply(&mut self, prepared: Vec<PreparedListener>) {
        let mut previous = std::mem::take(&mut self.bound);
        let is_change = !previous.is_empty();
        for PreparedListener { config, address, https_port, sockets, endpoint } in prepared {
            let known = previous.iter().position(|known| known.address == address);
            let mut listener = match (known, endpoint) {
                (Some(index), endpoint) => {
                    let mut known = previous.remove(index);
                    if let Some((endpoint, certificates)) = endpoint {
                        known.followed = follow(&endpoint, certificates.as_deref());
                        known.endpoint.store(Arc::new(endpoint));
                        known.certificates = certificates;
                    }
                    known
                }
                (None, Some((endpoint, certificates))) => {
                    if is_change {
                        info!(%address, "listening");
                    }
                    BoundListener {
                        config: config.clone(),
                        address,
                        https_port,
                        followed: follow(&endpoint, certificates.as_deref()),
                        certificates,
                        endpoint: Arc::new(ArcSwap::from_pointee(endpoint)),
                        removal: watch::Sender::new(()),
                    }
                }
                // Prepared with an endpoint, unless it was known.
                (None, None) => continue,
            };
            (listener.config, listener.https_port) = (config, https_port);
            let NewSockets { of_workers, copies } = sockets.unwrap_or_default();
            if let Some(all) = &self.copies {
                all.insert(address, copies);
            }
            for (worker, socket) in self.workers.iter().cycle().zip(of_workers) {
                let (endpoint, removed) = (listener.endpoint.clone(), listener.removal.subscribe());
                // Without a receiver the process ends.
                let _ = worker.send(WorkerListener { endpoint, socket, removed });
            }
            self.bound.push(listener);
        }
        for BoundListener { address, .. } in previous {
            if let Some(copies) = &self.copies {
                copies.remove(address);
            }
            info!(%address, "no longer listening");
        }
    }
}

/// Certificates from files, on the metrics page. Does not keep the addresses bound.
#[derive(Debug)]
pub(crate) struct CertificatesPage(pub(crate) Weak<Mutex<ListenerSet>>);

impl MetricsSource for CertificatesPage {
    fn put(&self, page: &mut Page) {
        let listeners = self.0.upgrade();
        put_certificates(page, &listeners.map(|set| set.lock().tls()).unwrap_or_default());
    }
}

fn follow(endpoint: &Endpoint, certificates: Option<&ManagedCertificates>) -> JoinSet<()> {
    if let Some(certificates) = certificates {
        certificates.start();
    }
    let mut followed = JoinSet::new();
    if let Some(tls) = endpoint.tls().cloned() {
        tls.log_events();
        followed.spawn(async move { tls.follow().await });
    }
    followed
}
