//! Records the ClientHello of a connection while TLS reads it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ja4::{ClientHelloState, fingerprint};

/// A socket whose first bytes are recorded.
#[derive(Debug)]
pub(crate) struct ClientHelloRecorder<S> {
    socket: S,
    state: State,
}

#[derive(Debug)]
enum State {
    Off,
    Recording(Vec<u8>),
    Complete(Box<str>),
}

impl<S> ClientHelloRecorder<S> {
    /// Records if it is wanted; otherwise each read costs one branch.
    pub(crate) const fn new(socket: S, is_wanted: bool) -> Self {
        let state = if is_wanted { State::Recording(Vec::new()) } else { State::Off };
        Self { socket, state }
    }

    /// JA4 of the client, after the handshake.
    pub(crate) fn take_ja4(&mut self) -> Option<Box<str>> {
        match std::mem::replace(&mut self.state, State::Off) {
            State::Complete(ja4) => Some(ja4),
            State::Off | State::Recording(_) => None,
        }
    }

    fn record(&mut self, read: &[u8]) {
        let State::Recording(bytes) = &mut self.state else { return };
        bytes.extend_from_slice(read);
        match fingerprint(bytes) {
            ClientHelloState::Incomplete => {}
            ClientHelloState::Invalid => self.state = State::Off,
            ClientHelloState::Complete(ja4) => self.state = State::Complete(ja4.into()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientHelloRecorder<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        if matches!(self.state, State::Recording(_)) {
            self.record(buf.filled().get(before..).unwrap_or_default());
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientHelloRecorder<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
