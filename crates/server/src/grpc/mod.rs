//! gRPC over HTTP/2, for the one method that is called all the time.
//!
//! One task accepts connections, each connection has a task, and so has each call on it. Everything has a bound: connections, calls at once, bytes of
//! headers and of a message, and the time that a client may take to say what it wants. What goes beyond is answered or closed, never queued.

mod call;
mod frame;
mod status;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use h2::server::{Builder, Connection};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::rls::service::Service;

/// What a client may ask of the server, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at a time; who comes beyond waits to be accepted.
    pub connections: usize,
    /// Calls at a time on one connection.
    pub calls: u32,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Bytes of all headers of a call.
    pub header_bytes: u32,
    /// For the first words of a connection, and for the message of a call.
    pub patience: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            calls: 1_024,
            message_bytes: 1 << 20,
            header_bytes: 16 << 10,
            patience: Duration::from_secs(10),
        }
    }
}

/// Serves until `stop` is ready; then no more is accepted, and what has begun is brought to its end.
///
/// # Errors
/// When the listener is broken.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(bounds.connections));
    let stopping = tokio::sync::watch::Sender::new(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        let next = async {
            // First a seat, then a guest.
            let seat = room.clone().acquire_owned().await;
            (seat, listener.accept().await)
        };
        let (seat, socket) = tokio::select! {
            () = &mut stop => break,
            (seat, accepted) = next => match accepted {
                Ok((socket, _)) => (seat, socket),
                // Of this connection, not of the listener: the next may be better.
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            },
        };
        let (service, mut stopped) = (service.clone(), stopping.subscribe());
        tokio::spawn(async move {
            let gone = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            connection(socket, service, bounds, gone).await;
            drop(seat);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    // All seats are free again when the last connection has ended.
    let all = u32::try_from(bounds.connections).unwrap_or(u32::MAX);
    let _ = room.acquire_many(all).await;
    Ok(())
}

/// What went wrong with one connection before it was accepted.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};

    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

async fn connection(
    socket: TcpStream,
    service: Service,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    // An answer is small and complete: nothing is gained by waiting for more.
    let _ = socket.set_nodelay(true);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.calls)
        .max_header_list_size(bounds.header_bytes)
        .max_concurrent_reset_streams(bounds.calls as usize)
        .max_send_buffer_size(1 << 20);
    let Ok(Ok(connection)) = timeout(bounds.patience, builder.handshake(socket)).await else {
        return;
    };
    calls(connection, service, bounds, stop).await;
}

async fn calls(
    mut connection: Connection<TcpStream, bytes::Bytes>,
    service: Service,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let service = Arc::new(service);
    let mut stop = std::pin::pin!(stop);
    let mut stopping = false;
    loop {
        let accepted = tokio::select! {
            () = &mut stop, if !stopping => {
                stopping = true;
                connection.graceful_shutdown();
                continue;
            }
            accepted = connection.accept() => accepted,
        };
        // Whoever breaks the protocol, or leaves, has no more calls.
        let Some(Ok((request, respond))) = accepted else { return };
        tokio::spawn(call::answer(request, respond, service.clone(), bounds));
    }
}
