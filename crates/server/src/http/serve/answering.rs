//! A request, from its head to its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use http::header::AUTHORIZATION;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use pin_project_lite::pin_project;
use tower_service::Service as _;

use super::Shared;
use super::patient::Patient;
use super::watched::Watch;
use crate::counters::at_once;
use crate::http::check::Want;
use crate::http::receive::Receiving;
use crate::http::refusal::Refusal;
use crate::http::retried::RetryKey;
use crate::http::{Answering, Peer, forward_auth};
use crate::telemetry::Door;
use crate::traces::Span;

/// What is asked on one connection.
pub(super) struct Asked {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
    peer: Option<Peer>,
}

/// A request that is in hand, however it ends.
struct InHand {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
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
    }
}

/// A check whose body is coming in.
struct Checking {
    answering: Arc<Answering>,
    receiving: Receiving<Patient>,
    key: RetryKey,
    span: Option<Span>,
}

impl Asked {
    pub(super) const fn new(shared: Arc<Shared>, watch: Arc<Watch>, peer: Option<Peer>) -> Self {
        Self { shared, watch, peer }
    }
}

impl HyperService<Request<Incoming>> for Asked {
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let (shared, watch) = (self.shared.clone(), self.watch.clone());
        watch.request_begun();
        let others = shared.in_flight.fetch_add(1, Relaxed);
        let in_hand = InHand { shared, watch };
        if others >= self.shared.bounds.in_flight {
            let refusal = Refusal::overload();
            if let Some(door) = door_of(request.uri().path()) {
                self.shared.service.telemetry().failed(door, refusal.fault);
            }
            let body = self.shared.routes.checks.as_ref().map(|answering| answering.options.body);
            let response = Some(refusal.response(body.unwrap_or_default()));
            return Answer { making: Making::Refused { response }, in_hand };
        }
        let patience = self.shared.bounds.body_patience;
        let making = match &self.shared.routes.checks {
            Some(answering) if is_check(&request) && answering.service.is_alone() => {
                let service = &answering.service;
                let span = service.begin_span(Want::Check.span_name(), request.headers());
                let key = RetryKey::of(request.headers());
                let receiving = Receiving::new(Patient::new(request.into_body(), patience));
                let check = Checking { answering: answering.clone(), receiving, key, span };
                Making::Checked { check: Some(check) }
            }
            _ => {
                let mut request = request.map(|body| Body::new(Patient::new(body, patience)));
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

/// Requests that need the peer address: forward auth, and secrets, which are rate limited by address.
fn wants_peer<B>(request: &Request<B>) -> bool {
    is_forward_auth(request.uri().path()) || request.headers().contains_key(AUTHORIZATION)
}

fn is_forward_auth(path: &str) -> bool {
    path.starts_with(forward_auth::PATH)
}

/// Where a request would have come in.
fn door_of(path: &str) -> Option<Door> {
    Some(match path {
        "/v1/check" => Door::Check,
        "/v1/peek" => Door::Peek,
        "/v1/refund" => Door::Refund,
        "/v1/reserve" => Door::Reserve,
        "/v1/commit" => Door::Commit,
        "/v1/cancel" => Door::Cancel,
        "/v1/wait" => Door::Wait,
        "/v1/explain" => Door::Explain,
        "/v1/keys/inspect" | "/v1/keys/reset" => Door::Keys,
        "/json" => Door::Json,
        path if is_forward_auth(path) => Door::ForwardAuth,
        _ => return None,
    })
}

impl Future for Answer {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Once it is ready nobody polls it again.
        let response = match self.project().making.project() {
            MakingNow::Routed { routed } => return routed.poll(cx),
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
        };
        Poll::Ready(Ok(response.unwrap_or_default()))
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Relaxed);
        self.watch.request_ended();
    }
}
