//! The protocol of Redis, so that every client of Redis is a client.
//!
//! | command | what it does | answer |
//! |---|---|---|
//! | `CL.THROTTLE key max_burst count period [quantity]` | takes from a bucket whose limit comes with the command | limited, limit, remaining, retry_after, reset_after |
//! | `SG.CHECK domain key=value … [COST n]` | asks the rules, and charges what may go | the same |
//! | `SG.PEEK …`, `SG.REFUND …` | asks without a charge; gives back | the same |
//! | `SG.RESERVE … [TTL ms]`, `SG.WAIT … [TIMEOUT ms]` | charges an estimate; waits for a turn | the same, and a token or null |
//! | `SG.COMMIT token n`, `SG.CANCEL token` | settles what is held | the same, and how much was given back |
//! | `HELLO`, `AUTH`, `CLIENT`, `SELECT 0`, `RESET`, `QUIT` | what clients begin and end with | as Redis |
//! | `PING`, `ECHO`, `INFO`, `COMMAND`, `CONFIG GET` | what tools ask | as Redis |
//!
//! Times are whole seconds, rounded up. −1 is said of what there is nothing to say of: `retry_after` of what passed, or of what never will; limit and remaining of
//! what is under no limit.
//!
//! One task accepts, each connection has a task. Everything has a bound ([`Bounds`]): what goes beyond is answered or closed, never queued.

mod answer;
mod bounds;
mod check;
mod commands;
mod connection;
mod dispatch;
pub mod frame;
mod holding;
mod info;
mod once;
mod refusal;
mod reply;
mod request;
mod session;
mod shared;
#[cfg(test)]
mod tests;
mod throttle;
mod words;

use std::io::{self, Write};
use std::sync::Arc;

use sluicegate::throttle::Throttle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use self::bounds::Bounds;
use self::shared::{Seat, Shared};
use crate::listen::{Listener, Socket};
use crate::rls::handler::Service;
use crate::token::Token;

/// How to serve.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What a client may ask of the server.
    pub bounds: Bounds,
    /// What clients have to show before anything else: `AUTH password`.
    pub password: Option<Token>,
    /// Grants every client the operator role, for refunds without proof: loopback listeners only.
    pub is_open: bool,
}

/// Serves until `stop` is ready, by the rules of a service and by a throttle on the same store; then no more is accepted, and what has begun is brought to its end, within a bound.
///
/// # Errors
/// When the listener is broken.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    throttle: Throttle,
    options: Options,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let bounds = options.bounds;
    let listener = Listener::from(listener);
    let shared = Arc::new(Shared::new(service, throttle, options));
    let stopping = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let socket = tokio::select! {
            biased;
            () = &mut stop => break,
            // One that has ended makes room; that it panicked is no reason for the others to end.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted?,
        };
        let Some(seat) = Seat::take(&shared, socket.peer()) else {
            refuse(socket);
            continue;
        };
        let mut stopped = stopping.subscribe();
        connections.spawn(async move {
            let stopped = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            connection::serve(socket, seat, stopped).await;
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // Who takes longer is cut off.
    let _ = timeout(bounds.drain, all).await;
    Ok(())
}

/// Says why to whoever finds no seat, if that takes no waiting.
fn refuse(socket: Socket) {
    if let Socket::Tcp(socket) = socket
        && let Ok(mut socket) = socket.into_std()
    {
        let _ = socket.write(b"-ERR max number of clients reached\r\n");
    }
}
