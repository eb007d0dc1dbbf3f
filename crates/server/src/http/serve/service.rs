//! A request, from its head to its response: counted in flight, and charged on HTTP/2.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use http::{Request, Response, Version};
use parking_lot::Mutex;
use pin_project_lite::pin_project;

use super::body::IncomingBody;
use super::{Connection, Handler, ServerState};
use crate::memory::{Account, Charge};

/// Memory of h2 and hyper for a stream: measured, 4.4 KiB.
const STREAM_BYTES: usize = 5 << 10;
/// Memory that h2 keeps for the peak number of streams of a connection.
const STREAM_BYTES_RETAINED: usize = 1_536;
/// Memory of a header beside its name and value.
const HEADER_BYTES: usize = 64;

/// The service of one connection.
pub(super) struct ConnectionService<H: Handler> {
    shared: Arc<ServerState<H>>,
    connection: Arc<Connection<H::Context>>,
    /// Peak of concurrent HTTP/2 streams, and the charge for what they have left in h2.
    streams_peak: AtomicUsize,
    peak_charge: Mutex<Option<Charge>>,
}

/// A request in flight, counted until dropped.
pub struct InFlight<C> {
    connection: Arc<Connection<C>>,
    /// Charge of an HTTP/2 stream, until its response is received.
    stream: Option<Charge>,
    /// Whether its response waits for the client, and in which slot.
    waiting: Option<usize>,
}

pin_project! {
    /// Future of a response.
    pub(super) struct ResponseFuture<H: Handler> {
        #[pin]
        source: ResponseSource<H::Future, H::Response>,
        shared: Arc<ServerState<H>>,
        in_flight: Option<InFlight<H::Context>>,
    }
}

pin_project! {
    #[project = ResponseSourceProjection]
    enum ResponseSource<F, R> {
        /// The handler.
        Handled { #[pin] handled: F },
        /// Too many requests are in flight.
        Refused { response: Option<R> },
        /// The memory budget does not allow the stream.
        Reset,
    }
}

impl<H: Handler> ConnectionService<H> {
    pub(super) fn new(
        shared: Arc<ServerState<H>>,
        connection: Arc<Connection<H::Context>>,
    ) -> Self {
        let (streams_peak, peak_charge) = (AtomicUsize::new(0), Mutex::new(None));
        Self { shared, connection, streams_peak, peak_charge }
    }

    /// Charges for an HTTP/2 stream. A client that does not read gets no further streams.
    fn charge_stream<B>(&self, request: &Request<B>) -> Option<Charge> {
        let Connection { liveness, guard, .. } = &*self.connection;
        let streams = liveness.requests_in_flight() + guard.account().unsent_responses();
        if streams > self.streams_peak.load(Relaxed) && !self.charge_peak(streams) {
            return None;
        }
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
        let charge = guard.account().charge(STREAM_BYTES + headers.sum::<usize>());
        charge.filter(|_| !liveness.is_write_blocked())
    }

    fn charge_peak(&self, streams: usize) -> bool {
        let (mut peak_charge, bytes) = (self.peak_charge.lock(), streams * STREAM_BYTES_RETAINED);
        let fits = match &mut *peak_charge {
            Some(charge) => charge.resize(bytes),
            charge => {
                *charge = self.connection.guard.account().charge(bytes);
                charge.is_some()
            }
        };
        if fits {
            self.streams_peak.store(streams, Relaxed);
        }
        fits
    }
}

impl<H: Handler> ConnectionService<H> {
    /// Answers a request; `None` resets its stream of HTTP/2.
    pub(super) fn respond(&self, request: Request<IncomingBody>) -> ResponseFuture<H> {
        let Self { shared, connection, .. } = self;
        let (mut in_flight, others) = InFlight::begin(connection.clone());
        let is_http2 = request.version() == Version::HTTP_2;
        if is_http2 {
            in_flight.stream = self.charge_stream(&request);
        }
        let source = if is_http2 && in_flight.stream.is_none() {
            ResponseSource::Reset
        } else if others >= shared.limits.in_flight {
            let response = shared.handler.overloaded(&request, connection, &shared.app);
            ResponseSource::Refused { response: Some(response) }
        } else {
            ResponseSource::Handled { handled: shared.handler.call(request, connection) }
        };
        ResponseFuture { source, shared: shared.clone(), in_flight: Some(in_flight) }
    }
}

impl<H: Handler> Future for ResponseFuture<H> {
    type Output = Option<Response<H::Body>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.source.project() {
            ResponseSourceProjection::Handled { handled } => Some(ready!(handled.poll(cx))),
            ResponseSourceProjection::Refused { response } => response.take(),
            ResponseSourceProjection::Reset => None,
        };
        let response = response.zip(this.in_flight.take());
        Poll::Ready(
            response.map(|(response, in_flight)| this.shared.handler.send(response, in_flight)),
        )
    }
}

impl<C> InFlight<C> {
    /// Counts a request; also returns the number of others.
    pub(super) fn begin(connection: Arc<Connection<C>>) -> (Self, usize) {
        connection.liveness.request_begun();
        let others = connection.in_flight.fetch_add(1, Relaxed);
        (Self { connection, stream: None, waiting: None }, others)
    }

    /// There is data of the response: until more is read of the body, the client is waited for. On
    /// HTTP/2, for the idle time at most.
    pub fn wait_for_client(&mut self) {
        self.stop_waiting();
        self.waiting = self.connection.liveness.wait_for_client();
    }

    /// More is read of the body.
    pub fn stop_waiting(&mut self) {
        if let Some(slot) = self.waiting.take() {
            self.connection.liveness.stop_waiting(slot);
        }
    }

    /// The connection of the request.
    #[must_use]
    pub fn connection(&self) -> &Arc<Connection<C>> {
        &self.connection
    }

    /// Takes the charge of an HTTP/2 stream.
    pub(in crate::http) fn take_stream(&mut self) -> Option<Charge> {
        self.stream.take()
    }

    /// The memory account of the connection.
    pub(in crate::http) fn account(&self) -> &Arc<Account> {
        self.connection.guard.account()
    }
}

impl<C> fmt::Debug for InFlight<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").finish_non_exhaustive()
    }
}

impl<C> Drop for InFlight<C> {
    fn drop(&mut self) {
        self.stop_waiting();
        self.connection.in_flight.fetch_sub(1, Relaxed);
        self.connection.liveness.request_ended();
    }
}
