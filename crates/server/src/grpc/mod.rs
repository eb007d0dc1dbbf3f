//! gRPC over HTTP/2: Envoy's rate limit service, and the health of the server.
//!
//! One task accepts connections, and each connection has a task, which answers the calls that have come whole; a call that has to
//! wait gets a task of its own. Everything has a bound ([`Bounds`]): what goes beyond is answered or closed, never queued.

mod answer;
mod bounds;
mod call;
mod connection;
mod health;
mod jitter;
mod message;
mod status;

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use self::bounds::Bounds;
use self::call::Shared;
use crate::listen::Listener;
use crate::memory::Account;
use crate::rls::handler::Service;
use crate::telemetry::Happening;
use crate::tls::Tls;

/// What an open connection takes, with its buffers: measured, 38 to 45 KiB.
const CONNECTION_BYTES: usize = 44 << 10;
/// What TLS adds to it.
const TLS_BYTES: usize = 32 << 10;

/// How to serve.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What a client may ask of the server.
    pub bounds: Bounds,
    /// Certificates, if the connections are to be encrypted. They are followed while their files change.
    pub tls: Option<Tls>,
}

/// Serves until `stop` is ready; then no more is accepted, and what has begun is brought to its end, within a bound.
///
/// # Errors
/// When the listener is broken.
pub async fn serve(
    listener: impl Into<Listener>,
    service: Service,
    options: Options,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let Options { bounds, tls } = options;
    let listener = listener.into();
    let shared = Arc::new(Shared::new(service, bounds));
    let stopping = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    let mut following = std::pin::pin!(follow(tls.as_ref()));
    loop {
        let socket = tokio::select! {
            () = &mut stop => break,
            // One that has ended makes room; that it panicked is no reason for the others to end.
            Some(_) = connections.join_next() => continue,
            () = &mut following => continue,
            accepted = listener.accept() => accepted?,
        };
        while connections.try_join_next().is_some() {}
        let Some((seat, account)) = Seat::take(connections.len(), &shared, tls.is_some()) else {
            continue;
        };
        let mut stopped = stopping.subscribe();
        let stopped = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let served = connection::serve(socket, tls.clone(), shared.clone(), account, stopped);
        connections.spawn(async move {
            let _seat = seat;
            served.await;
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is left then is dropped with the set.
    let _ = timeout(bounds.drain, all).await;
    Ok(())
}

/// Follows the certificates for ever.
async fn follow(tls: Option<&Tls>) {
    match tls {
        Some(tls) => tls.follow().await,
        None => std::future::pending().await,
    }
}

/// Counts a connection as long as it lasts, however it ends.
struct Seat {
    shared: Arc<Shared>,
}

impl Seat {
    /// None is free if there are as many connections as there may be, or the memory budget is
    /// exhausted.
    fn take(
        connections: usize,
        shared: &Arc<Shared>,
        is_encrypted: bool,
    ) -> Option<(Self, Arc<Account>)> {
        let telemetry = shared.service.telemetry();
        let bytes = CONNECTION_BYTES + if is_encrypted { TLS_BYTES } else { 0 };
        let account = (connections < shared.bounds.connections)
            .then(|| Account::open(&shared.memory, bytes))
            .flatten();
        if account.is_none() {
            telemetry.record(Event::ConnectionRefused);
        }
        let account = account?;
        telemetry.record(Event::ConnectionOpened);
        Some((Self { shared: shared.clone() }, account))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.service.telemetry().record(Event::ConnectionClosed);
    }
}
