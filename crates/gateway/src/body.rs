//! Bodies of requests and responses, streamed without a buffer.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sluicegate_server::http::{InFlight, IncomingBody};

use crate::action::files::FileBody;
use crate::client_body::{BodyLimits, BodyOutcome, ClientBody};
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::forward::Tunnel;
use crate::handler::ConnectionContext;
use crate::identity::BufferedBody;
use crate::upstream::UpstreamBody;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Body of a response. The request is in flight until it is sent.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    source: ResponseSource,
    /// Whether events are left out or added, so that its length is not known.
    is_rewritten: bool,
    in_flight: Option<InFlight<ConnectionContext>>,
    exchange: Option<Exchange>,
}

#[derive(Debug)]
enum ResponseSource {
    Empty,
    Full(Bytes),
    Upstream(UpstreamBody),
    File(Box<FileBody>),
    /// The connection is upgraded.
    Tunnel(Option<Box<Tunnel>>),
}

impl ResponseBody {
    const fn new(source: ResponseSource) -> Self {
        Self { source, is_rewritten: false, in_flight: None, exchange: None }
    }

    /// No body.
    pub(crate) const fn empty() -> Self {
        Self::new(ResponseSource::Empty)
    }

    /// A body of the gateway.
    pub(crate) const fn full(bytes: Bytes) -> Self {
        Self::new(ResponseSource::Full(bytes))
    }

    /// A body of an upstream.
    pub(crate) const fn upstream(body: UpstreamBody) -> Self {
        Self::new(ResponseSource::Upstream(body))
    }

    /// A file.
    pub(crate) fn file(body: FileBody) -> Self {
        Self::new(ResponseSource::File(Box::new(body)))
    }

    /// The exchange lasts until the body is sent.
    pub(crate) fn set_exchange(&mut self, exchange: Exchange) {
        self.exchange = Some(exchange);
    }

    /// Its exchange may leave out events, or add some.
    pub(crate) const fn set_rewritten(&mut self) {
        self.is_rewritten = true;
    }

    /// Takes the exchange, which outlasts the body.
    pub(crate) const fn take_exchange(&mut self) -> Option<Exchange> {
        self.exchange.take()
    }

    /// No body: the connection is upgraded.
    pub(crate) fn tunnel(tunnel: Tunnel) -> Self {
        Self::new(ResponseSource::Tunnel(Some(Box::new(tunnel))))
    }

    /// Takes the tunnel of an upgraded connection.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        match &mut self.source {
            ResponseSource::Tunnel(tunnel) => tunnel.take(),
            _ => None,
        }
    }

    /// Keeps a request in flight until the body is sent.
    pub(crate) fn attach(&mut self, mut in_flight: InFlight<ConnectionContext>) {
        in_flight.wait_for_client();
        self.in_flight = Some(in_flight);
    }
}

impl ResponseSource {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Empty | Self::Tunnel(_) => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Upstream(body) => Pin::new(body).poll_frame(cx),
            Self::File(body) => Pin::new(body).poll_frame(cx),
        }
    }
}

impl ResponseBody {
    /// The next frame, as its exchange lets it pass.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let frame = match self.source.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => Some(frame),
                Poll::Ready(None) if self.is_rewritten => None,
                other => return other,
            };
            let Some(exchange) = &mut self.exchange else {
                return Poll::Ready(frame.map(Ok));
            };
            let bytes = match frame.map(Frame::into_data) {
                Some(Ok(data)) => {
                    let piece = exchange.read_body(data);
                    if piece.is_last {
                        // Cancels the request at the upstream.
                        self.source = ResponseSource::Empty;
                    }
                    if piece.bytes.is_empty() && self.is_rewritten {
                        continue;
                    }
                    piece.bytes
                }
                // Data may follow that was held.
                Some(Err(_)) if self.is_rewritten => continue,
                Some(Err(frame)) => return Poll::Ready(Some(Ok(frame))),
                None => {
                    (self.source, self.is_rewritten) = (ResponseSource::Empty, false);
                    match exchange.complete_body() {
                        rest if rest.is_empty() => return Poll::Ready(None),
                        rest => rest,
                    }
                }
            };
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.stop_waiting();
        }
        let polled = self.poll_read(cx);
        if let Some(in_flight) = &mut self.in_flight
            && polled.is_ready()
        {
            in_flight.wait_for_client();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            _ if self.is_rewritten => false,
            ResponseSource::Empty | ResponseSource::Tunnel(_) => true,
            ResponseSource::Full(bytes) => bytes.is_empty(),
            ResponseSource::Upstream(body) => body.is_end_stream(),
            ResponseSource::File(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            _ if self.is_rewritten => SizeHint::default(),
            ResponseSource::Empty | ResponseSource::Tunnel(_) => SizeHint::with_exact(0),
            ResponseSource::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseSource::Upstream(body) => body.size_hint(),
            ResponseSource::File(body) => body.size_hint(),
        }
    }
}

/// Body of a request on its way to an upstream.
#[derive(Debug, Default)]
pub(crate) enum RequestBody {
    #[default]
    Empty,
    Client(ClientBody),
    /// Its beginning was read.
    Buffered(Box<BufferedBody>),
}

impl RequestBody {
    /// A body within these limits.
    pub(crate) fn new(body: IncomingBody, limits: BodyLimits) -> Self {
        match body.is_end_stream() {
            true => Self::Empty,
            false => Self::Client(ClientBody::new(body, limits)),
        }
    }

    /// A body that was read.
    pub(crate) fn full(bytes: Bytes) -> Self {
        match bytes.is_empty() {
            true => Self::Empty,
            false => Self::Buffered(Box::new(BufferedBody::full(bytes))),
        }
    }

    /// Refuses a body whose length is known, and too large.
    pub(crate) fn check_length(&self) -> Result<(), ProxyError> {
        match self {
            Self::Client(body) => body.check_length(),
            Self::Empty | Self::Buffered(_) => Ok(()),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Handle to the outcome of a client's body.
    pub(crate) fn outcome(&self) -> Option<BodyOutcome> {
        match self {
            Self::Empty => None,
            Self::Client(body) => Some(body.outcome()),
            Self::Buffered(body) => body.outcome(),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Client(body) => Pin::new(body).poll_frame(cx),
            Self::Buffered(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body) => body.is_end_stream(),
            Self::Buffered(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => body.size_hint(),
            Self::Buffered(body) => body.size_hint(),
        }
    }
}
