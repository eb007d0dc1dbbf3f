//! A request, from its head to its answer.

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
use hyper::service::Service as HyperService;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tower_service::Service as _;

use super::Shared;
use super::liveness::Watch;
use super::request_body::RequestBody;
use super::response_body::{ResponseBody, TooLarge};
use crate::counters::at_once;
use crate::http::check::Want;
use crate::http::error::Refusal;
use crate::http::receive::Receiving;
use crate::http::retried::RetryKey;
use crate::http::{Answering, Peer, forward_auth};
use crate::memory::{Account, Charge};
use crate::telemetry::Endpoint;
use crate::traces::Span;

/// What h2 and hyper need for a stream, measured: 4.4 KiB.
const STREAM_BYTES: usize = 5 << 10;
/// What h2 keeps for as many streams as there ever were at a time on the connection.
const STREAM_BYTES_KEPT: usize = 1_536;
/// What a header takes beside its name and value.
const HEADER_BYTES: usize = 64;

/// What is asked on one connection.
pub(super) struct Asked {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
    account: Arc<Account>,
    peer: Option<Peer>,
    /// Most streams of HTTP/2 at a time so far, and the charge for what they have left in h2.
    streams_peak: AtomicUsize,
    kept: Mutex<Option<Charge>>,
}

/// A request that is in hand, however it ends.
struct InHand {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
    account: Arc<Account>,
    /// For a stream of HTTP/2, until its response is received.
    stream: Option<Charge>,
}

pin_project! {
    /// An answer in the making.
    pub(super) struct Answer {
        #[pin]
        making: Making,
        in_hand: InHand,
    }
}

pin_project! {
    #[project = MakingNow]
    enum Making {
        /// By the router.
        Routed { #[pin] routed: RouteFuture<Infallible> },
        /// By the shorter way.
        Checked { check: Option<Checking> },
        /// At once.
        Refused { response: Option<Response> },
        /// Not at all: the memory budget does not allow the stream.
        Reset,
    }
}

/// A check whose body is coming in.
struct Checking {
    answering: Arc<Answering>,
    receiving: Receiving<RequestBody>,
    key: RetryKey,
    span: Option<Span>,
}

impl Asked {
    pub(super) fn new(
        shared: Arc<Shared>,
        watch: Arc<Watch>,
        account: Arc<Account>,
        peer: Option<Peer>,
    ) -> Self {
        let (streams_peak, kept) = (AtomicUsize::new(0), Mutex::new(None));
        Self { shared, watch, account, peer, streams_peak, kept }
    }

    /// Charges for a stream of HTTP/2. A client that does not read gets no further streams.
    fn charge_stream<B>(&self, request: &Request<B>) -> Option<Charge> {
        let streams = self.watch.requests_in_hand() + self.account.unsent_responses();
        if streams > self.streams_peak.load(Relaxed) && !self.keep(streams) {
            return None;
        }
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
        let charge = self.account.charge(STREAM_BYTES + headers.sum::<usize>());
        charge.filter(|_| !self.watch.is_write_blocked())
    }

    fn keep(&self, streams: usize) -> bool {
        let (mut kept, bytes) = (self.kept.lock(), streams * STREAM_BYTES_KEPT);
        let fits = match &mut *kept {
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

impl HyperService<Request<Incoming>> for Asked {
    type Response = http::Response<ResponseBody>;
    type Error = h2::Error;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let (shared, watch) = (self.shared.clone(), self.watch.clone());
        let account = self.account.clone();
        watch.request_begun();
        let others = shared.in_flight.fetch_add(1, Relaxed);
        let mut in_hand = InHand { shared, watch, account, stream: None };
        if request.version() == Version::HTTP_2 {
            in_hand.stream = self.charge_stream(&request);
            if in_hand.stream.is_none() {
                return Answer { making: Making::Reset, in_hand };
            }
        }
        if others >= self.shared.bounds.in_flight {
            let refusal = Refusal::overload();
            if let Some(endpoint) = endpoint_of(request.uri().path()) {
                self.shared.service.telemetry().record_failure(endpoint, refusal.fault);
            }
            let body = self.shared.routes.checks.as_ref().map(|answering| answering.options.body);
            let response = Some(refusal.response(body.unwrap_or_default()));
            return Answer { making: Making::Refused { response }, in_hand };
        }
        let timeout = self.shared.bounds.body_patience;
        let making = match &self.shared.routes.checks {
            Some(answering) if is_check(&request) && answering.service.is_alone() => {
                let service = &answering.service;
                let span = service.begin_span(Want::Check.span_name(), request.headers());
                let key = RetryKey::of(request.headers());
                let body = RequestBody::new(request.into_body(), self.account.clone(), timeout);
                let receiving = Receiving::new(body);
                let check = Checking { answering: answering.clone(), receiving, key, span };
                Making::Checked { check: Some(check) }
            }
            _ => {
                let account = self.account.clone();
                let mut request =
                    request.map(|body| Body::new(RequestBody::new(body, account, timeout)));
                // Nobody else wants to know, and an extension takes memory.
                let is_wanted = wants_peer(&request) || self.shared.routes.checks.is_none();
                if let Some(peer) = self.peer.filter(|_| is_wanted) {
                    request.extensions_mut().insert(peer);
                }
                Making::Routed { routed: self.shared.routes.router.clone().call(request) }
            }
        };
        Answer { making, in_hand }
    }
}

/// What is asked most. Anything that is not quite that is left to the router.
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

/// Where a request would have come in.
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

impl Future for Answer {
    type Output = Result<http::Response<ResponseBody>, h2::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Once it is ready nobody polls it again.
        let response = match this.making.project() {
            MakingNow::Routed { routed } => match ready!(routed.poll(cx)) {
                Ok(response) => Some(response),
                Err(never) => match never {},
            },
            MakingNow::Checked { check } => match check.as_mut() {
                Some(checking) => {
                    let received = ready!(checking.receiving.poll(cx));
                    check.take().map(|checking| {
                        let Checking { answering, key, span, .. } = checking;
                        // Its counters are its own, so it waits for nothing.
                        at_once(answering.conclude(Want::Check, key, received, span))
                            .unwrap_or_else(|| Refusal::overload().response(answering.options.body))
                    })
                }
                None => None,
            },
            MakingNow::Refused { response } => response.take(),
            MakingNow::Reset => return Poll::Ready(Err(h2::Reason::REFUSED_STREAM.into())),
        };
        Poll::Ready(Ok(this.in_hand.charged(response.unwrap_or_default())))
    }
}

impl InHand {
    /// The response, charged to the connection; or a refusal, if that is impossible.
    fn charged(&mut self, response: Response) -> http::Response<ResponseBody> {
        let (head, body) = response.into_parts();
        match ResponseBody::new(body, self.stream.take(), &self.account) {
            Ok(body) => http::Response::from_parts(head, body),
            Err(TooLarge(stream)) => {
                let checks = self.shared.routes.checks.as_ref();
                let body = checks.map(|answering| answering.options.body).unwrap_or_default();
                let refusal = Refusal::overload().response(body);
                refusal.map(|body| ResponseBody::charged(body, stream))
            }
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Relaxed);
        self.watch.request_ended();
    }
}
