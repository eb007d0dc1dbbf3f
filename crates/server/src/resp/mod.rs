//! The Redis protocol, so that every Redis client is a client.
//!
//! | command | operation | reply |
//! |---|---|---|
//! | `CL.THROTTLE key max_burst count period [quantity]` | charges a token bucket | integers |
//! | `SG.CHECK domain key=value … [COST n]` | decides, and charges if admitted | the same |
//! | the same under a concurrency limit | the same | the same, and a token or null |
//! | `SG.PEEK …`, `SG.REFUND …` | decides without charging; refunds | the same |
//! | `SG.RESERVE … [TTL ms] [TIMEOUT ms]` | charges an estimate | the same, and a token or null |
//! | `SG.WAIT … [TIMEOUT ms]` | waits until admitted | the same, and a token or null |
//! | `SG.COMMIT token n`, `SG.CANCEL token` | settles a reservation | the same, and refunded hits |
//! | `SG.COMMIT token n PARTIAL` | settles a part of it | the same, and the hits still held |
//! | `SG.RENEW token ms` | restarts its lifetime | milliseconds |
//! | `SG.INSPECT …`, `SG.EXPLAIN …` | for operators | JSON, as over HTTP |
//! | `HELLO`, `AUTH`, `CLIENT`, `SELECT 0`, `RESET`, `QUIT` | connection | as Redis |
//! | `PING`, `ECHO`, `INFO`, `COMMAND`, `CONFIG GET` | for tools | as Redis |
//!
//! The integers are limited (0 or 1), limit, remaining, `retry_after` and `reset_after`. Times are
//! whole seconds, rounded up. −1 means none: `retry_after` of an admitted request or of one that
//! can never pass; limit and remaining of a request without a limit.

mod check;
mod commands;
mod connection;
mod dispatch;
pub mod frame;
mod operator;
mod reply;
mod request;
mod session;
#[cfg(test)]
mod tests;
mod throttle;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sluicegate::Timestamp;
use sluicegate::throttle::Throttle;
use tokio::net::TcpListener;

use self::frame::CommandLimits;
pub(crate) use self::reply::Reply;
use crate::app::App;
use crate::listen::{self, Admission, ConnectionFuture, ConnectionGuard, Socket, Stopped};
use crate::memory::Share;
use crate::rls::RefundPolicy;
use crate::token::Token;

/// Memory of an open connection, with the buffers of short commands: measured.
const CONNECTION_BYTES: usize = 24 << 10;

/// Options of the RESP endpoint.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Limits of clients.
    pub limits: RespLimits,
    /// Password that clients send first: `AUTH password`.
    pub password: Option<Token>,
    /// Grants every client the operator role, for refunds without proof: loopback listeners only.
    pub is_open: bool,
    /// Token that grants the operator role.
    pub operator_token: Option<Token>,
}

/// Limits and timeouts of RESP clients.
///
/// ```
/// use sluicegate_server::resp::RespLimits;
///
/// let limits = RespLimits { connections: 100, ..RespLimits::default() };
/// assert_eq!(limits.command.bulk_bytes, 64 << 10);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RespLimits {
    /// Open connections; further ones get an error and are closed.
    pub connections: usize,
    /// Size limits of a command.
    pub command: CommandLimits,
    /// Size limits of a command before authentication.
    pub command_before_auth: CommandLimits,
    /// Bytes of replies that are sent before the next command is executed.
    pub reply_bytes: usize,
    /// Time for a command to arrive, for replies to be read, and for authentication. Connections
    /// are checked twice per timeout, so it may take half as long again.
    pub timeout: Duration,
    /// Time without a command. Clients pool connections, so it is longer than elsewhere.
    pub idle: Duration,
    /// Time for open commands when the server stops.
    pub drain: Duration,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            command: CommandLimits::default(),
            command_before_auth: CommandLimits {
                args: 10,
                bulk_bytes: 4 << 10,
                command_bytes: 16 << 10,
                inline_bytes: 4 << 10,
            },
            reply_bytes: 64 << 10,
            timeout: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            drain: Duration::from_secs(30),
        }
    }
}

/// Serves until `stop` is ready, by the rules of an app and by a throttle on the same memory store;
/// then accepts no more connections and drains the open ones.
///
/// # Errors
/// Fatal errors of the listener.
pub async fn serve(
    listener: TcpListener,
    app: App,
    throttle: Throttle,
    options: Options,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let drain = options.limits.drain;
    let server = Arc::new(RespServer::new(app, throttle, options));
    listen::serve(listener.into(), drain, stop, |socket, stopped| {
        let Some(guard) = server.admission.admit() else {
            refuse(socket);
            return None;
        };
        Some(connect(socket, server.clone(), guard, stopped))
    })
    .await
}

fn connect(
    socket: Socket,
    server: Arc<RespServer>,
    guard: ConnectionGuard,
    stopped: Stopped,
) -> ConnectionFuture {
    let peer = socket.peer();
    Box::pin(connection::serve(socket, server, guard, peer, stopped.wait()))
}

/// Sends the reason of a refusal, if that needs no waiting.
fn refuse(socket: Socket) {
    if let Socket::Tcp(socket) = socket
        && let Ok(mut socket) = socket.into_std()
    {
        let _ = socket.write(b"-ERR max number of clients reached\r\n");
    }
}

/// State that all connections share.
#[derive(Debug)]
struct RespServer {
    app: App,
    limits: RespLimits,
    password: Option<Token>,
    /// Whether every client has the operator role.
    is_open: bool,
    operator_token: Option<Token>,
    throttle: Throttle,
    started_at: Timestamp,
    admission: Arc<Admission>,
    commands: AtomicU64,
    last_id: AtomicI64,
}

impl RespServer {
    fn new(app: App, throttle: Throttle, options: Options) -> Self {
        let Options { limits, password, is_open, operator_token } = options;
        let admission = Admission::new(&app, Share::Clients, limits.connections, CONNECTION_BYTES);
        let started_at = app.engine().now();
        let (commands, last_id) = Default::default();
        Self {
            app,
            limits,
            password,
            is_open,
            operator_token,
            throttle,
            started_at,
            admission,
            commands,
            last_id,
        }
    }

    /// Whether a refund needs no proof.
    fn may_refund(&self) -> bool {
        match self.app.options().refunds {
            RefundPolicy::Open => true,
            RefundPolicy::Proven | RefundPolicy::Operators => self.is_open,
        }
    }

    fn next_id(&self) -> i64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    fn count_commands(&self, commands: u64) {
        self.commands.fetch_add(commands, Relaxed);
    }

    fn commands(&self) -> u64 {
        self.commands.load(Relaxed)
    }

    /// Connections that were ever opened.
    fn connections_ever(&self) -> i64 {
        self.last_id.load(Relaxed)
    }
}
