//! Body of a response: it drives its connection, and returns it to the pool at its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::gate::GatePermit;
use super::http1::Http1Body;
use super::http2::StreamGuard;
use super::server::{RequestGuard, Server};
use super::transport::Transport;
use crate::body::BoxError;

/// Body of a response.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    source: Source,
    /// The end of its time, if there is one.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Counts the request as in flight at the server, where that matters.
    guard: Option<RequestGuard>,
    /// Of the limit of the upstream.
    permit: Option<GatePermit>,
}

/// A byte stream behind a switch of protocols.
#[derive(Debug)]
pub(crate) struct UpgradedUpstream {
    pub(crate) stream: Transport,
    /// What was read of it.
    pub(crate) read: Bytes,
    _guard: Option<RequestGuard>,
    _permit: Option<GatePermit>,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// A connection of HTTP/1.1, which this body drives.
    Http1(Http1Body, Option<Reuse>),
    /// A stream of HTTP/2.
    Http2(Incoming, #[expect(dead_code, reason = "counts the stream")] StreamGuard),
    /// A body that was dropped.
    Ended,
}

/// Where a connection goes when it is idle.
#[derive(Debug)]
pub(super) struct Reuse {
    pub(super) server: Arc<Server>,
    pub(super) worker: usize,
}

impl UpstreamBody {
    pub(super) const fn new(
        source: Source,
        deadline: Option<Pin<Box<Sleep>>>,
        guard: Option<RequestGuard>,
    ) -> Self {
        Self { source, deadline, guard, permit: None }
    }

    /// Holds the permit until the end.
    pub(super) fn set_permit(&mut self, permit: Option<GatePermit>) {
        self.permit = permit;
    }

    /// The byte stream of a response that switches protocols.
    pub(crate) fn into_upgraded(mut self) -> Option<UpgradedUpstream> {
        match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Http1(body, _) => {
                let (stream, read) = body.into_upgraded();
                let (_guard, _permit) = (self.guard.take(), self.permit.take());
                Some(UpgradedUpstream { stream, read, _guard, _permit })
            }
            Source::Http2(..) | Source::Ended => None,
        }
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
        match &mut this.source {
            Source::Http1(body, _) => body.poll_frame(cx),
            Source::Http2(body, _) => Pin::new(body).poll_frame(cx).map_err(BoxError::from),
            Source::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Http1(body, _) => body.is_end_stream(),
            Source::Http2(body, _) => body.is_end_stream(),
            Source::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http1(body, _) => body.size_hint(),
            Source::Http2(body, _) => body.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Ended);
        if let Source::Http1(body, Some(Reuse { server, worker })) = source
            && let Some(connection) = body.into_connection()
        {
            server.put_idle(worker, connection);
        }
    }
}
