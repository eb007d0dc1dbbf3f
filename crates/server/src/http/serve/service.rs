//! A request, from its head to its response.

use sluicegate::backend::ready;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use http::header::AUTHORIZATION;
use http::{Method, Request, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tower_service::Service as _;

use super::ServerState;
use super::body::{RequestBody, ResponseBody, TooLarge};
use super::liveness::Liveness;
use crate::http::body::BodyReader;
use crate::http::check::CheckOperation;
use crate::http::error::ApiError;
use crate::http::idempotency::IdempotencyHeader;
use crate::http::{Api, Peer, forward_auth};
use crate::memory::{Account, Charge};
use crate::telemetry::Endpoint;
use crate::traces::Span;

/// Memory of h2 and hyper for a stream: measured, 4.4 KiB.
const STREAM_BYTES: usize = 5 << 10;
/// Memory that h2 keeps for the peak number of streams of a connection.
const STREAM_BYTES_RETAINED: usize = 1_536;
/// Memory of a header beside its name and value.
const HEADER_BYTES: usize = 64;

/// The service of one connection.
pub(super) struct ConnectionService {
    shared: Arc<ServerState>,
    liveness: Arc<Liveness>,
    account: Arc<Account>,
    peer: Option<Peer>,
    /// Peak of concurrent HTTP/2 streams, and the charge for what they have left in h2.
    streams_peak: AtomicUsize,
    peak_charge: Mutex<Option<Charge>>,
}

/// A request in flight, counted until dropped.
struct InFlight {
    shared: Arc<ServerState>,
    liveness: Arc<Liveness>,
    account: Arc<Account>,
    /// Charge of an HTTP/2 stream, until its response is received.
    stream: Option<Charge>,
}

pin_project! {
    /// Future of a response.
    pub(super) struct ResponseFuture {
        #[pin]
        source: ResponseSource,
        in_flight: InFlight,
    }
}

pin_project! {
    #[project = ResponseSourceProjection]
    enum ResponseSource {
        /// The router.
        Routed { #[pin] routed: RouteFuture<Infallible> },
        /// The fast path of `POST /v1/check`.
        Checked { check: Option<PendingCheck> },
        /// An error.
        Refused { response: Option<Response> },
        /// The memory budget does not allow the stream.
        Reset,
    }
}

/// A check whose body is being received.
struct PendingCheck {
    api: Arc<Api>,
    reader: BodyReader<RequestBody>,
    key: IdempotencyHeader,
    span: Option<Span>,
}

impl ConnectionService {
    pub(super) fn new(
        shared: Arc<ServerState>,
        liveness: Arc<Liveness>,
        account: Arc<Account>,
        peer: Option<Peer>,
    ) -> Self {
        let (streams_peak, peak_charge) = (AtomicUsize::new(0), Mutex::new(None));
        Self { shared, liveness, account, peer, streams_peak, peak_charge }
    }

    /// Charges for an HTTP/2 stream. A client that does not read gets no further streams.
    fn charge_stream<B>(&self, request: &Request<B>) -> Option<Charge> {
        let streams = self.liveness.requests_in_flight() + self.account.unsent_responses();
        if streams > self.streams_peak.load(Relaxed) && !self.charge_peak(streams) {
            return None;
        }
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
        let charge = self.account.charge(STREAM_BYTES + headers.sum::<usize>());
        charge.filter(|_| !self.liveness.is_write_blocked())
    }

    fn charge_peak(&self, streams: usize) -> bool {
        let (mut peak_charge, bytes) = (self.peak_charge.lock(), streams * STREAM_BYTES_RETAINED);
        let fits = match &mut *peak_charge {
            Some(charge) => charge.resize(bytes),
            charge => {
                *charge = self.account.charge(bytes);
                charge.is_some()
            }
        };
        if fits {
            self.streams_peak.store(streams, Relaxed);
        }
        fits
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = http::Response<ResponseBody>;
    type Error = h2::Error;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        let (shared, liveness) = (self.shared.clone(), self.liveness.clone());
        let account = self.account.clone();
        liveness.request_begun();
        let others = shared.in_flight.fetch_add(1, Relaxed);
        let mut in_flight = InFlight { shared, liveness, account, stream: None };
        if request.version() == Version::HTTP_2 {
            in_flight.stream = self.charge_stream(&request);
            if in_flight.stream.is_none() {
                return ResponseFuture { source: ResponseSource::Reset, in_flight };
            }
        }
        if others >= self.shared.limits.in_flight {
            let error = ApiError::overload();
            if let Some(endpoint) = endpoint_of(request.uri().path()) {
                self.shared.app.telemetry().record_failure(endpoint, error.fault);
            }
            let body = self.shared.routes.checks.as_ref().map(|api| api.options.error_format);
            let response = Some(error.response(body.unwrap_or_default()));
            return ResponseFuture { source: ResponseSource::Refused { response }, in_flight };
        }
        let timeout = self.shared.limits.body_timeout;
        let source = match &self.shared.routes.checks {
            Some(api) if is_check(&request) && api.app.is_local() => {
                let app = &api.app;
                let span = app.begin_span(CheckOperation::Check.span_name(), request.headers());
                let key = IdempotencyHeader::of(request.headers());
                let body = RequestBody::new(request.into_body(), self.account.clone(), timeout);
                let reader = BodyReader::new(body);
                let check = PendingCheck { api: api.clone(), reader, key, span };
                ResponseSource::Checked { check: Some(check) }
            }
            _ => {
                let account = self.account.clone();
                let mut request =
                    request.map(|body| Body::new(RequestBody::new(body, account, timeout)));
                // Only where needed: an extension allocates.
                let is_wanted = wants_peer(&request) || self.shared.routes.checks.is_none();
                if let Some(peer) = self.peer.filter(|_| is_wanted) {
                    request.extensions_mut().insert(peer);
                }
                ResponseSource::Routed { routed: self.shared.routes.router.clone().call(request) }
            }
        };
        ResponseFuture { source, in_flight }
    }
}

/// Whether the fast path applies; everything else goes to the router.
fn is_check<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == "/v1/check"
}

/// Requests that need the peer address: forward auth, and secrets, which are rate limited by
/// address.
fn wants_peer<B>(request: &Request<B>) -> bool {
    is_forward_auth(request.uri().path()) || request.headers().contains_key(AUTHORIZATION)
}

fn is_forward_auth(path: &str) -> bool {
    path.starts_with(forward_auth::PATH)
}

/// The endpoint that a refused request counts for.
fn endpoint_of(path: &str) -> Option<Endpoint> {
    Some(match path {
        "/v1/check" => Endpoint::Check,
        "/v1/peek" => Endpoint::Peek,
        "/v1/refund" => Endpoint::Refund,
        "/v1/reserve" => Endpoint::Reserve,
        "/v1/commit" => Endpoint::Commit,
        "/v1/cancel" => Endpoint::Cancel,
        "/v1/wait" => Endpoint::Wait,
        "/v1/explain" => Endpoint::Explain,
        "/v1/keys/inspect" | "/v1/keys/reset" => Endpoint::Keys,
        "/json" => Endpoint::Json,
        path if is_forward_auth(path) => Endpoint::ForwardAuth,
        _ => return None,
    })
}

impl Future for ResponseFuture {
    type Output = Result<http::Response<ResponseBody>, h2::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.source.project() {
            ResponseSourceProjection::Routed { routed } => match ready!(routed.poll(cx)) {
                Ok(response) => Some(response),
                Err(never) => match never {},
            },
            ResponseSourceProjection::Checked { check } => match check.as_mut() {
                Some(checking) => {
                    let received = ready!(checking.reader.poll(cx));
                    check.take().map(|checking| {
                        let PendingCheck { api, key, span, .. } = checking;
                        // With counters in memory the future is ready.
                        ready(api.respond_to(CheckOperation::Check, key, received, span))
                            .unwrap_or_else(|| {
                                ApiError::overload().response(api.options.error_format)
                            })
                    })
                }
                None => None,
            },
            ResponseSourceProjection::Refused { response } => response.take(),
            ResponseSourceProjection::Reset => {
                return Poll::Ready(Err(h2::Reason::REFUSED_STREAM.into()));
            }
        };
        Poll::Ready(Ok(this.in_flight.charged(response.unwrap_or_default())))
    }
}

impl InFlight {
    /// The response, charged to the connection; an error if the budget does not allow it.
    fn charged(&mut self, response: Response) -> http::Response<ResponseBody> {
        let (head, body) = response.into_parts();
        match ResponseBody::new(body, self.stream.take(), &self.account) {
            Ok(body) => http::Response::from_parts(head, body),
            Err(TooLarge(stream)) => {
                let checks = self.shared.routes.checks.as_ref();
                let body = checks.map(|api| api.options.error_format).unwrap_or_default();
                let error = ApiError::overload().response(body);
                error.map(|body| ResponseBody::charged(body, stream))
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Relaxed);
        self.liveness.request_ended();
    }
}
