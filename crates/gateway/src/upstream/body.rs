//! Body of a response: it drives its connection, and returns it to the pool at its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::http1::Http1;
use super::http2::StreamGuard;
use super::server::{RequestGuard, Server};
use crate::body::BoxError;

/// Body of a response.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    body: Incoming,
    source: Source,
    /// The end of its time, if there is one.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Counts the request as in flight at the server, where that matters.
    _guard: Option<RequestGuard>,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// A connection of HTTP/1.1, which this body drives.
    Http1(Http1, Reuse),
    /// A stream of HTTP/2.
    Http2(#[expect(dead_code, reason = "counts the stream")] StreamGuard),
    /// A connection that is not used again.
    Closing,
}

/// Where a connection goes when it is idle.
#[derive(Debug)]
pub(super) struct Reuse {
    pub(super) server: Arc<Server>,
    pub(super) worker: usize,
}

impl UpstreamBody {
    pub(super) fn new(
        body: Incoming,
        source: Source,
        deadline: Option<Pin<Box<Sleep>>>,
        guard: Option<RequestGuard>,
    ) -> Self {
        Self { body, source, deadline, _guard: guard }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err("the response exceeds the total timeout".into())));
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        if let Source::Http1(connection, _) = &mut this.source {
            if !connection.advance(cx) {
                this.source = Source::Closing;
            }
            return Pin::new(&mut this.body).poll_frame(cx).map_err(BoxError::from);
        }
        Poll::Pending
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
        let source = std::mem::replace(&mut self.source, Source::Closing);
        if let Source::Http1(mut connection, Reuse { server, worker }) = source
            && self.body.is_end_stream()
            && connection.is_alive()
        {
            server.put_idle(worker, connection);
        }
    }
}
