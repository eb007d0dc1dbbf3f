//! A connection of HTTP/1.1, driven by the task of the request that uses it.
//!
//! hyper separates a connection from the handle that sends requests, and expects a task for it.
//! Here both are polled in the task of the request: two tasks would wake each other for every
//! request.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Reuse;
use crate::body::RequestBody;

/// A connection that has no request.
pub(super) struct Http1(Box<Parts>);

/// Large, so it is moved as a pointer.
struct Parts {
    sender: SendRequest<RequestBody>,
    connection: Connection<TokioIo<TcpStream>, RequestBody>,
}

/// Why a request got no response.
#[derive(Debug)]
pub(super) enum SendError {
    /// The connection was closed before the request was sent.
    Unsent(Box<Request<RequestBody>>),
    /// The connection was closed without a byte of the response.
    Closed,
    /// The response did not arrive in time.
    Timeout,
    /// Anything else.
    Failed,
}

impl Http1 {
    pub(super) async fn handshake(socket: TcpStream) -> hyper::Result<Self> {
        // Requests are small: copied behind their heads, they are one write.
        let handshake = http1::Builder::new().writev(false).handshake(TokioIo::new(socket));
        let (sender, connection) = handshake.await?;
        Ok(Self(Box::new(Parts { sender, connection })))
    }

    /// Whether the server has not closed it, as far as is known.
    pub(super) fn is_alive(&mut self) -> bool {
        self.advance(&mut Context::from_waker(Waker::noop())) && self.0.sender.is_ready()
    }

    /// Whether it is still open.
    fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.0.connection).poll(cx).is_pending()
    }

    pub(super) async fn send(
        mut self,
        request: Request<RequestBody>,
        reuse: Reuse,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let mut response = pin!(self.0.sender.try_send_request(request));
        let mut is_open = true;
        let response = poll_fn(|cx| {
            is_open = is_open && Pin::new(&mut self.0.connection).poll(cx).is_pending();
            response.as_mut().poll(cx)
        });
        let response = response.await.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None if error.error().is_incomplete_message() => SendError::Closed,
            None => SendError::Failed,
        })?;
        let (head, body) = response.into_parts();
        let connection = is_open.then_some((self, reuse));
        Ok(Response::from_parts(head, UpstreamBody { body, connection }))
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1").finish_non_exhaustive()
    }
}

/// Body of a response, which drives its connection, and returns it when it ends.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    body: Incoming,
    connection: Option<(Http1, Reuse)>,
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if let Some((connection, _)) = &mut this.connection
            && !connection.advance(cx)
        {
            this.connection = None;
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        if let Some((mut connection, reuse)) = self.connection.take()
            && self.body.is_end_stream()
            && connection.is_alive()
        {
            reuse.idle(connection);
        }
    }
}
