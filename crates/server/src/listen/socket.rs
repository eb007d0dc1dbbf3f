//! TCP and UNIX sockets as one type, UNIX socket files, and connections whose bytes are observed.

#[cfg(unix)]
use std::fs;
use std::io::{self, IoSlice};
use std::net::IpAddr;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, MetadataExt};
#[cfg(unix)]
use std::os::unix::net::UnixStream as StdUnixStream;
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

/// An accepted connection.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A UNIX socket.
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Delegates to the socket.
macro_rules! delegate {
    ($self:ident, $socket:ident => $call:expr) => {
        match $self.get_mut() {
            Socket::Tcp($socket) => $call,
            #[cfg(unix)]
            Socket::Unix($socket) => $call,
        }
    };
}

impl Socket {
    /// A TCP connection.
    pub(super) fn new(socket: TcpStream) -> Self {
        // Responses are small and complete: Nagle's algorithm would only delay them.
        let _ = socket.set_nodelay(true);
        Self::Tcp(socket)
    }

    /// The address of the client; `None` on a UNIX socket.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok().map(|address| address.ip()),
            #[cfg(unix)]
            Self::Unix(_) => None,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, socket => Pin::new(socket).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, socket => Pin::new(socket).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            #[cfg(unix)]
            Self::Unix(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, socket => Pin::new(socket).poll_shutdown(cx))
    }
}

// === UNIX socket files ===

/// UNIX listener that removes its file when dropped.
#[cfg(unix)]
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: another process may have replaced the file at the path.
    id: (u64, u64),
}

#[cfg(unix)]
impl SocketFile {
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let listener = UnixListener::bind(path)
            .map_err(|error| error_at(path, &error.to_string(), error.kind()))?;
        let id = id_of(&fs::symlink_metadata(path)?);
        Ok(Self { listener, path: path.to_owned(), id })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| id_of(&found) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a stale socket file: one that no process listens on.
#[cfg(unix)]
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error_at(path, &error.to_string(), error.kind())),
    };
    if !found.file_type().is_socket() {
        let why = "is not a socket; remove it, or choose another path";
        return Err(error_at(path, why, io::ErrorKind::AlreadyExists));
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| error_at(path, &error.to_string(), error.kind()))
        }
        Ok(_) => {
            let why = "another process listens there; stop it, or choose another path";
            Err(error_at(path, why, io::ErrorKind::AddrInUse))
        }
        Err(error) => Err(error_at(path, &error.to_string(), error.kind())),
    }
}

#[cfg(unix)]
fn error_at(path: &Path, why: &str, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {why}", path.display()))
}

#[cfg(unix)]
fn id_of(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

// === observed connections ===

/// Observes the bytes of a connection.
pub(crate) trait Observer {
    /// Bytes were read; none at the end of the stream. An error ends the connection.
    fn read(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// A write was attempted.
    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>);
}

/// A connection and its observer.
#[derive(Debug)]
pub(crate) struct Observed<I, O> {
    io: I,
    observer: O,
}

impl<I, O> Observed<I, O> {
    pub(crate) const fn new(io: I, observer: O) -> Self {
        Self { io, observer }
    }
}

impl<I: AsyncRead + Unpin, O: Observer + Unpin> AsyncRead for Observed<I, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        Poll::Ready(self.observer.read(buf.filled().get(before..).unwrap_or_default()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, O: Observer + Unpin> AsyncWrite for Observed<I, O> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.observer.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.observer.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
