//! Hands the listening sockets to the next process, so that a restart refuses no connection.
//!
//! ```text
//!   old                                  new
//!   listens on PATH               <────  connects
//!   sends its sockets             ────>  serves on them too
//!   removes PATH, stops accepting <────  `R`: it is ready
//!   drains, ends                  ────>  `D`: listens on PATH itself
//! ```
//!
//! Both processes have the same sockets, so connections that wait to be accepted are never lost.
//! Sockets of `SO_REUSEPORT` alone would lose those in the queue of a socket that is closed. A new
//! process that fails before it is ready changes nothing.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, future};

use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use sluicegate_server::listen::{Listener, Socket};
use sluicegate_server::server::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::{info, warn};

/// A socket follows.
const SOCKET: u8 = b'S';
/// There are no more sockets.
const END: u8 = b'E';
/// The new process is ready.
const READY: u8 = b'R';
/// The old process has removed the path.
const DONE: u8 = b'D';

/// Time for each step but the start of the new process.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the start of the new process.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Sockets of the previous process that have not been used yet.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<TcpListener>,
    predecessor: Option<UnixStream>,
}

/// Copies of the listening sockets, which the next process gets.
#[derive(Debug, Clone)]
pub(crate) struct SharedSockets(Arc<Mutex<Vec<SocketCopy>>>);

/// A socket, and its address unless it is one of operators.
type SocketCopy = (Option<SocketAddr>, Arc<OwnedFd>);

/// The sockets of this process, for the next one.
#[derive(Debug)]
pub(crate) struct Handover {
    path: PathBuf,
    sockets: SharedSockets,
    predecessor: Option<UnixStream>,
}

impl Inherited {
    /// Takes the sockets of the process that listens on a path; none if there is no such process.
    pub(crate) async fn take(path: &Path) -> io::Result<Self> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(Self::default());
            }
            Err(error) => return Err(error),
        };
        let mut sockets = Vec::new();
        let received = async {
            while let Some(socket) = receive(&stream).await? {
                sockets.push(TcpListener::from(socket));
            }
            Ok(())
        };
        timeout(STEP_TIMEOUT, received).await.unwrap_or_else(|_| Err(timed_out()))?;
        Ok(Self { sockets, predecessor: Some(stream) })
    }

    /// The sockets of an address.
    pub(crate) fn take_sockets(&mut self, address: SocketAddr) -> Vec<TcpListener> {
        let is_of =
            |socket: &mut TcpListener| socket.local_addr().is_ok_and(|bound| bound == address);
        self.sockets.extract_if(.., is_of).collect()
    }

    /// Prepares the handover of this process's own sockets.
    pub(crate) fn into_handover(self, path: &Path, sockets: SharedSockets) -> Handover {
        Handover { path: path.to_owned(), sockets, predecessor: self.predecessor }
    }
}

impl SharedSockets {
    /// The sockets of operators.
    pub(crate) fn new(node: &Node) -> io::Result<Self> {
        let sockets = node.operator_sockets()?.into_iter();
        Ok(Self(Arc::new(Mutex::new(sockets.map(|socket| (None, socket.into())).collect()))))
    }

    /// Adds the sockets of an address.
    pub(crate) fn insert(&self, address: SocketAddr, sockets: Vec<OwnedFd>) {
        let sockets = sockets.into_iter().map(|socket| (Some(address), socket.into()));
        self.0.lock().extend(sockets);
    }

    /// Removes the sockets of an address.
    pub(crate) fn remove(&self, address: SocketAddr) {
        self.0.lock().retain(|(of, _)| *of != Some(address));
    }

    /// Removes all, so that they are closed when the workers have stopped accepting.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Handover {
    /// The sockets.
    pub(crate) const fn sockets(&self) -> &SharedSockets {
        &self.sockets
    }

    /// Completes the takeover from the previous process, then waits for the next one, and completes
    /// when it has taken over.
    pub(crate) async fn run(self) {
        let Self { path, sockets, predecessor } = self;
        if let Some(predecessor) = predecessor {
            match timeout(STEP_TIMEOUT, announce(predecessor)).await {
                Ok(Ok(())) => info!("took over from the previous process"),
                _ => warn!("the previous process did not confirm the handover"),
            }
        }
        let listener = Listener::unix(&path).and_then(|listener| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map(|()| listener)
        });
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                warn!(%error, "the next process cannot take over");
                return future::pending().await;
            }
        };
        loop {
            let Ok(Socket::Unix(stream)) = listener.accept().await else {
                warn!("the next process cannot take over: the socket failed");
                return future::pending().await;
            };
            let current: Vec<_> = sockets.0.lock().iter().map(|(_, one)| one.clone()).collect();
            match offer(&path, &stream, &current).await {
                Ok(()) => {
                    drop(listener);
                    info!("handed over to the next process");
                    // It only waits for the path.
                    let _ = { stream }.write_all(&[DONE]).await;
                    return;
                }
                Err(error) => warn!(%error, "the next process did not take over"),
            }
        }
    }
}

/// Tells the previous process that this one is ready, and waits until the path is free.
async fn announce(mut predecessor: UnixStream) -> io::Result<()> {
    predecessor.write_all(&[READY]).await?;
    match predecessor.read_u8().await? {
        DONE => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sends the sockets to the next process, and waits until it is ready.
async fn offer(path: &Path, stream: &UnixStream, sockets: &[Arc<OwnedFd>]) -> io::Result<()> {
    if stream.peer_cred()?.uid() != fs::metadata(path)?.uid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is of another user"));
    }
    let sent = async {
        for socket in sockets {
            send(stream, SOCKET, Some(socket)).await?;
        }
        send(stream, END, None).await
    };
    timeout(STEP_TIMEOUT, sent).await.unwrap_or_else(|_| Err(timed_out()))?;
    let mut byte = [0];
    let ready = async {
        loop {
            stream.readable().await?;
            match stream.try_read(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    };
    match timeout(START_TIMEOUT, ready).await.unwrap_or_else(|_| Err(timed_out()))? {
        1 if byte == [READY] => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn send(stream: &UnixStream, kind: u8, socket: Option<&OwnedFd>) -> io::Result<()> {
    let sent = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = socket.map(|socket| [socket.as_fd()]);
        if let Some(sockets) = &sockets {
            control.push(SendAncillaryMessage::ScmRights(sockets));
        }
        Ok(sendmsg(stream, &[IoSlice::new(&[kind])], &mut control, SendFlags::NOSIGNAL)?)
    };
    stream.async_io(Interest::WRITABLE, sent).await.map(|_| ())
}

/// The next socket; `None` at the end.
async fn receive(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let received = || {
        let mut kind = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut kind)];
        let message = recvmsg(stream, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let socket = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        Ok((kind, socket))
    };
    match stream.async_io(Interest::READABLE, received).await? {
        ([SOCKET], Some(socket)) => Ok(Some(socket)),
        ([END], None) => Ok(None),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn timed_out() -> io::Error {
    io::ErrorKind::TimedOut.into()
}
