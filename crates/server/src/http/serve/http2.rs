//! A connection of HTTP/2, with hyper and h2.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2::{self, Builder};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::liveness::HttpObserver;
use super::service::{ConnectionService, ResponseFuture};
use super::{Connection, Handler, HttpLimits};
use crate::listen::Observed;

/// Flow control windows.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

/// Streams that a client may reset before they are served; more end the connection (rapid reset).
const RESET_STREAMS_MAX: usize = 20;
/// Streams that may be reset for errors of the client; more end the connection.
const LOCAL_RESETS_MAX: usize = 256;

/// A connection.
pub(super) type Http2<H, I> = http2::Connection<
    TokioIo<Observed<Rewound<I>, HttpObserver<<H as Handler>::Context>>>,
    StreamService<H>,
    TokioExecutor,
>;

/// Serves a connection of which these bytes were read.
pub(super) fn serve<H, I>(
    read: Bytes,
    io: I,
    service: ConnectionService<H>,
    connection: Arc<Connection<H::Context>>,
    limits: &HttpLimits,
) -> Http2<H, I>
where
    H: Handler,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = Observed::new(Rewound { read, io }, HttpObserver::new(connection));
    Builder::new(TokioExecutor::new())
        .max_concurrent_streams(limits.streams())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .serve_connection(TokioIo::new(io), StreamService(service))
}

/// Answers the requests of streams.
pub(super) struct StreamService<H: Handler>(ConnectionService<H>);

pin_project! {
    /// Future of a response, or of the reset of its stream.
    pub(super) struct StreamFuture<H: Handler> {
        #[pin]
        response: ResponseFuture<H>,
    }
}

impl<H: Handler> Service<Request<Incoming>> for StreamService<H> {
    type Response = Response<H::Body>;
    type Error = h2::Error;
    type Future = StreamFuture<H>;

    fn call(&self, request: Request<Incoming>) -> StreamFuture<H> {
        StreamFuture { response: self.0.respond(request.map(Into::into)) }
    }
}

impl<H: Handler> Future for StreamFuture<H> {
    type Output = Result<Response<H::Body>, h2::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = self.project().response.poll(cx);
        response.map(|response| response.ok_or_else(|| h2::Reason::REFUSED_STREAM.into()))
    }
}

/// A connection whose beginning was read before.
#[derive(Debug)]
pub(super) struct Rewound<I> {
    read: Bytes,
    io: I,
}

impl<I: AsyncRead + Unpin> AsyncRead for Rewound<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let count = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..count]);
        self.read.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Rewound<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
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
