//! Where clients knock.

pub(crate) mod http2;
mod socket;
#[cfg(unix)]
mod unix;

use std::io;
#[cfg(unix)]
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::time::sleep;

pub(crate) use self::socket::Socket;
#[cfg(unix)]
pub use self::unix::SocketFile;

/// Where clients knock.
#[derive(Debug)]
pub enum Listener {
    /// At a port.
    Tcp(TcpListener),
    /// At a file that somebody else looks after.
    #[cfg(unix)]
    Unix(UnixListener),
    /// At a file that goes when the listener does.
    #[cfg(unix)]
    UnixFile(SocketFile),
}

/// How long to wait for something that the machine has run out of.
const RECOVERY: Duration = Duration::from_millis(100);

impl Listener {
    /// Listens at a file. One that nobody answers on any more is replaced; it is removed when the listener is dropped.
    ///
    /// # Errors
    /// When there is something else than a socket, when somebody answers on it, or when it cannot be made.
    #[cfg(unix)]
    pub fn unix(path: impl AsRef<Path>) -> io::Result<Self> {
        SocketFile::bind(path.as_ref()).map(Self::UnixFile)
    }

    /// The next client.
    ///
    /// # Errors
    /// When the listener is broken, and not merely one client or the hour.
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        loop {
            match self.accept_one().await {
                Ok(socket) => return Ok(socket),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) if is_of_the_hour(&error) => sleep(RECOVERY).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn accept_one(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (socket, _) = listener.accept().await?;
                // An answer is small and complete: nothing is gained by waiting for more.
                let _ = socket.set_nodelay(true);
                Ok(Socket::Tcp(socket))
            }
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
            #[cfg(unix)]
            Self::UnixFile(file) => Ok(Socket::Unix(file.listener().accept().await?.0)),
        }
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

/// What went wrong with one client before it was accepted.
fn is_of_the_client(error: &io::Error) -> bool {
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

/// Whether the machine has run out of something that others will give back: files, memory, buffers; or whether the network of one client had a trouble that
/// Linux tells whoever accepts. The standard library has names for few of them, so they are known by their numbers: ENOMEM, ENFILE, EMFILE, ENOBUFS
/// (of BSD and of Linux); ENONET, EPROTO, ENOPROTOOPT, EOPNOTSUPP, EHOSTDOWN.
fn is_of_the_hour(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 55 | 105 | 64 | 71 | 92 | 95 | 112))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_listener_ends_the_service() {
        let too_many_files = io::Error::from_raw_os_error(24);
        assert!(is_of_the_hour(&too_many_files) && !is_of_the_client(&too_many_files));
        assert!(is_of_the_client(&io::ErrorKind::ConnectionAborted.into()));
        assert!(is_of_the_hour(&io::Error::from_raw_os_error(71)), "a firewall said so");
        let no_socket = io::Error::from_raw_os_error(22);
        assert!(!is_of_the_hour(&no_socket) && !is_of_the_client(&no_socket));
    }
}
