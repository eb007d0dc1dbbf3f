//! The whole service: start, endpoints, shutdown.
//!
//! ```text
//!   start     restore the snapshot -> load the rules -> bind the addresses
//!   shutdown  unready -> delay for load balancers -> stop accepting -> finish calls -> save
//! ```

mod endpoints;
mod node;
mod rule_store;
mod rules;
mod snapshot;
mod store;

use std::fmt;
use std::io;
use std::sync::Arc;

use sluicegate::RulesError;
use sluicegate::throttle::Throttle;
use tokio::sync::mpsc;

pub use endpoints::Addresses;
use endpoints::Listeners;
pub use node::{Node, Stopping};

use crate::app::App;
use crate::grpc;
use crate::http;
use crate::logs::events;
use crate::resp;
use crate::settings::Settings;
use crate::tls::{EndpointCertificates, Tls};

/// Service with rules and bound addresses that does not serve yet.
#[derive(Debug)]
pub struct Server {
    node: Node,
    tls: Option<Tls>,
    listeners: Listeners,
    /// Exists without a RESP endpoint too, so that its saved counts are not lost.
    throttle: Throttle,
    addresses: Addresses,
}

/// Reason why the service does not start.
#[derive(Debug)]
pub enum StartError {
    /// The rules are invalid or cannot be read.
    Rules(RulesError),
    /// Another step failed.
    Failed {
        /// The step, as a verb phrase.
        step: String,
        /// Its error.
        reason: String,
    },
}

impl Server {
    /// Restores the snapshot, loads the rules and binds the addresses.
    ///
    /// # Errors
    /// When the rules are invalid, or an address or a file cannot be used.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let mut node = Node::start(settings).await?;
        let tls = node.settings().tls.clone().map(Tls::new).transpose();
        let tls = tls.map_err(|error| failed_to("configure TLS", error))?;
        let (listeners, addresses) = Listeners::bind(&mut node.settings)?;
        let throttle = Throttle::new(node.app().engine().memory());
        events::started(&rules::startup(node.app(), node.settings(), &addresses));
        Ok(Self { node, tls, listeners, throttle, addresses })
    }

    /// Bound addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// State that all endpoints share.
    #[must_use]
    pub const fn app(&self) -> &App {
        self.node.app()
    }

    /// Serves until `stop` is ready, then shuts down gracefully. A message on `reloads` reloads the
    /// rules.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        reloads: mpsc::Receiver<()>,
    ) -> io::Result<()> {
        let Self { node, tls, listeners, throttle, addresses } = self;
        let (settings, app) = (node.settings().clone(), node.app().clone());
        // Held until the last snapshot is saved, which has its counters too.
        let commands = throttle.clone();
        if let Some(tls) = &tls {
            tls.log_events();
            let listener = addresses.grpc.to_string();
            app.add_metrics(Arc::new(EndpointCertificates { listener, tls: tls.clone() }));
        }
        let endpoints = |stopping: &Stopping| {
            let stopping = stopping.clone();
            async move {
                let options = endpoints::grpc_options(&settings, tls);
                let grpc = grpc::serve(listeners.grpc, app.clone(), options, stopping.stopped());
                let router = http::routes(app.clone(), endpoints::http_options(&settings));
                let limits = endpoints::http_limits(&settings);
                let http =
                    http::serve(listeners.http, router, app.clone(), limits, stopping.stopped());
                let resp = async {
                    let Some(listener) = listeners.resp else { return Ok(()) };
                    let options = endpoints::resp_options(&settings);
                    let served =
                        resp::serve(listener, app.clone(), commands, options, stopping.stopped());
                    stopping.with("resp", served).await
                };
                let (grpc, http, resp) =
                    tokio::join!(stopping.with("grpc", grpc), stopping.with("http", http), resp);
                grpc.and(http).and(resp)
            }
        };
        let ended = node.run(endpoints, stop, reloads).await;
        drop(throttle);
        ended
    }
}

fn failed_to(step: &str, reason: impl fmt::Display) -> StartError {
    StartError::Failed { step: step.to_owned(), reason: reason.to_string() }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(error) => error.fmt(f),
            Self::Failed { step, reason } => write!(f, "cannot {step}: {reason}"),
        }
    }
}

impl std::error::Error for StartError {}

#[cfg(test)]
#[cfg(target_os = "linux")] // Elsewhere a listener cannot be made to fail like this.
mod tests {
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::{AsFd, BorrowedFd};

    use super::*;
    use crate::listen::Listener;
    use crate::settings::Vars;

    async fn server() -> Server {
        let free = ["SLUICEGATE_GRPC", "SLUICEGATE_HTTP", "SLUICEGATE_ADMIN", "SLUICEGATE_RESP"];
        let (settings, _) =
            Settings::read(&Vars::new(free.map(|name| (name, "127.0.0.1:0")))).unwrap();
        Server::start(settings).await.unwrap()
    }

    /// Linux shuts down a listener like a connection.
    fn shut_down(listener: BorrowedFd<'_>) {
        let listener = TcpStream::from(listener.try_clone_to_owned().unwrap());
        listener.shutdown(Shutdown::Both).unwrap();
    }

    #[tokio::test]
    async fn a_failed_listener_ends_the_service() {
        let listeners: [fn(&Server); 4] = [
            |server| match &server.listeners.grpc {
                Listener::Tcp(listener) => shut_down(listener.as_fd()),
                _ => panic!("not TCP"),
            },
            |server| shut_down(server.listeners.http.as_fd()),
            |server| shut_down(server.node.admin.as_fd()),
            |server| shut_down(server.listeners.resp.as_ref().unwrap().as_fd()),
        ];
        for shut in listeners {
            let server = server().await;
            shut(&server);
            let health = server.app().health().clone();
            let (_reload, reloads) = mpsc::channel(1);
            let ended = server.run(std::future::pending(), reloads).await;
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!health.state().is_ready());
        }
    }
}
