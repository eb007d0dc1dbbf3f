//! Connection whose reads and writes are observed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Observes the bytes of a connection.
pub(crate) trait Observer {
    /// Bytes were read; none at the end of the stream. An error ends the connection.
    fn read(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// A write was attempted.
    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>);

    /// Bytes to read and discard after shutdown.
    fn linger_bytes(&self) -> usize {
        0
    }
}

/// A connection and its observer.
#[derive(Debug)]
pub(crate) struct Observed<I, O> {
    io: I,
    observer: O,
    /// Bytes that are still discarded, once the write side is shut down.
    linger: Option<usize>,
}

impl<I, O> Observed<I, O> {
    pub(crate) const fn new(io: I, observer: O) -> Self {
        Self { io, observer, linger: None }
    }
}

impl<I: AsyncRead + Unpin, O> Observed<I, O> {
    /// Discards what still arrives, up to a limit. Closing a socket with unread bytes resets the
    /// connection, and the peer takes the response in flight for a failure: a proxy that fails open
    /// would let requests pass that are large enough.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 8 << 10];
        while let Some(left) = self.linger.filter(|left| *left > 0) {
            let mut buf = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf));
            let count = buf.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            self.linger = Some(left.saturating_sub(count));
        }
        self.linger = Some(0);
        Poll::Ready(())
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
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.linger = Some(self.observer.linger_bytes());
        }
        self.poll_linger(cx).map(Ok)
    }
}
