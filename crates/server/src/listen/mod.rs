//! Listeners of all protocols: accept loop, connection limits, drain.
//!
//! One task accepts, and each connection has a task. Connections beyond the limits of their number
//! or of the memory budget are refused, never queued.

pub(crate) mod http2;
mod socket;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use self::socket::Socket;
#[cfg(unix)]
pub use self::socket::SocketFile;
pub(crate) use self::socket::{Observed, Observer};
use crate::app::App;
use crate::logs::events;
use crate::memory::{Account, EndpointBudget, Share};
use crate::telemetry::Event;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A UNIX socket whose file belongs to someone else.
    #[cfg(unix)]
    Unix(UnixListener),
    /// A UNIX socket whose file is removed with the listener.
    #[cfg(unix)]
    UnixFile(SocketFile),
}

/// Limits the connections of one endpoint by number and by memory.
#[derive(Debug)]
pub(crate) struct Admission {
    app: App,
    memory: Arc<EndpointBudget>,
    open: AtomicUsize,
    connections_max: usize,
    /// Fixed memory of a connection.
    connection_bytes: usize,
}

/// An admitted connection, counted as open until dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    admission: Arc<Admission>,
    account: Arc<Account>,
}

/// Serves one connection. Boxed, so that callers do not instantiate the protocols.
pub type ConnectionFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Pause after a transient error, such as too many open files, which would occur again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until `stop` is ready, then waits for those that are open, at most for
/// `drain`.
///
/// `connect` returns the future that serves a connection, or `None` to refuse it. Its second
/// argument is ready when the connection should end.
///
/// # Errors
/// Fatal accept errors.
pub async fn serve(
    listener: Listener,
    drain: Duration,
    stop: impl Future<Output = ()>,
    mut connect: impl FnMut(Socket, Stopped) -> Option<ConnectionFuture>,
) -> io::Result<()> {
    let stopping = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let socket = tokio::select! {
            biased;
            () = &mut stop => break,
            // A connection that panicked does not end the others.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted?,
        };
        if let Some(connection) = connect(socket, Stopped(stopping.subscribe())) {
            connections.spawn(connection);
        }
    }
    // Closing the listener would reset the connections that wait to be accepted.
    for socket in listener.into_waiting() {
        if let Some(connection) = connect(socket, Stopped(stopping.subscribe())) {
            connections.spawn(connection);
        }
    }
    stopping.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(drain, ended).await.is_err() {
        // They are aborted with the set.
        events::drain_timed_out(drain, connections.len());
    }
    Ok(())
}

/// Resolves when the endpoint stops.
#[derive(Debug)]
pub struct Stopped(watch::Receiver<bool>);

impl Stopped {
    /// Completes when the endpoint stops.
    pub async fn wait(mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}

impl Listener {
    /// Listens on a UNIX socket. A stale socket file is replaced; the file is removed when the
    /// listener is dropped.
    ///
    /// # Errors
    /// When the path is no socket, another process listens on it, or it cannot be created.
    #[cfg(unix)]
    pub fn unix(path: impl AsRef<std::path::Path>) -> io::Result<Self> {
        SocketFile::bind(path.as_ref()).map(Self::UnixFile)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// Fatal accept errors. Per-connection and transient errors are handled here.
    pub async fn accept(&self) -> io::Result<Socket> {
        loop {
            match self.accept_one().await {
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) if is_per_connection(&error) => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
                accepted => return accepted,
            }
        }
    }

    async fn accept_one(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => Ok(Socket::new(listener.accept().await?.0)),
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
            #[cfg(unix)]
            Self::UnixFile(file) => Ok(Socket::Unix(file.listener().accept().await?.0)),
        }
    }
}

impl Listener {
    /// Accepts the connections that wait, and closes the listener.
    fn into_waiting(self) -> Vec<Socket> {
        /// More than any backlog: a flood of clients does not keep the listener open.
        const WAITING_MAX: usize = 8_192;

        // The runtime learns of connections by events: only the system knows all that wait.
        let Self::Tcp(listener) = self else { return Vec::new() };
        let Ok(listener) = listener.into_std() else { return Vec::new() };
        let accept = || {
            let (socket, _) = listener.accept().ok()?;
            socket.set_nonblocking(true).ok()?;
            TcpStream::from_std(socket).ok()
        };
        std::iter::from_fn(accept).take(WAITING_MAX).map(Socket::new).collect()
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

#[cfg(unix)]
impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// Whether the listener itself is broken. Unknown errors are taken for transient ones.
fn is_fatal(error: &io::Error) -> bool {
    const EBADF: i32 = 9;
    const ENOTSOCK: i32 = 88;

    error.kind() == io::ErrorKind::InvalidInput
        || matches!(error.raw_os_error(), Some(EBADF | ENOTSOCK))
}

/// Whether the error is of one connection, before it was accepted.
fn is_per_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, PermissionDenied, TimedOut, WouldBlock,
    };

    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | PermissionDenied
            | TimedOut
            | WouldBlock
    )
}

impl Admission {
    pub(crate) fn new(
        app: &App,
        share: Share,
        connections_max: usize,
        connection_bytes: usize,
    ) -> Arc<Self> {
        let memory = app.memory().endpoint(share);
        let open = AtomicUsize::new(0);
        Arc::new(Self { app: app.clone(), memory, open, connections_max, connection_bytes })
    }

    /// Admits a connection, unless the limits are reached. Called by one accept loop only.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionGuard> {
        let telemetry = self.app.telemetry();
        let account = (self.open() < self.connections_max)
            .then(|| Account::open(&self.memory, self.connection_bytes))
            .flatten();
        let Some(account) = account else {
            telemetry.record(Event::ConnectionRefused);
            return None;
        };
        self.open.fetch_add(1, Relaxed);
        telemetry.record(Event::ConnectionOpened);
        Some(ConnectionGuard { admission: self.clone(), account })
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }
}

impl ConnectionGuard {
    /// The memory account of the connection.
    pub(crate) const fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.admission.open.fetch_sub(1, Relaxed);
        self.admission.app.telemetry().record(Event::ConnectionClosed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_listener_ends_the_service() {
        let os = io::Error::from_raw_os_error;
        let (too_many_files, protocol_error, bad_file, not_listening) = (24, 71, 9, 22);
        assert!(!is_fatal(&os(too_many_files)) && !is_per_connection(&os(too_many_files)));
        assert!(is_per_connection(&io::ErrorKind::ConnectionAborted.into()));
        assert!(!is_fatal(&os(protocol_error)), "a firewall rejected one client");
        assert!(is_fatal(&os(bad_file)) && is_fatal(&os(not_listening)));
    }
}
