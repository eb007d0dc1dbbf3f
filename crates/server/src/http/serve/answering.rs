//! A request, from its head to its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use http::Request;
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use pin_project_lite::pin_project;
use tower_service::Service as _;

use super::Shared;
use super::patient::Patient;
use super::watched::Watch;
use crate::http::options;
use crate::http::refusal::Refusal;
use crate::telemetry::Door;

/// What is asked on one connection.
pub(super) struct Asked {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
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
        routed: Option<RouteFuture<Infallible>>,
        refused: Option<Response>,
        in_hand: InHand,
    }
}

impl Asked {
    pub(super) const fn new(shared: Arc<Shared>, watch: Arc<Watch>) -> Self {
        Self { shared, watch }
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
            let refused = Some(refusal.response(options::Body::Envelope));
            return Answer { routed: None, refused, in_hand };
        }
        let patience = self.shared.bounds.body_patience;
        let request = request.map(|body| Body::new(Patient::new(body, patience)));
        let routed = Some(self.shared.router.clone().call(request));
        Answer { routed, refused: None, in_hand }
    }
}

/// Where a request would have come in.
fn door_of(path: &str) -> Option<Door> {
    Some(match path {
        "/v1/check" => Door::Check,
        "/v1/peek" => Door::Peek,
        "/v1/refund" => Door::Refund,
        "/v1/explain" => Door::Explain,
        "/v1/keys/inspect" | "/v1/keys/reset" => Door::Keys,
        "/json" => Door::Json,
        _ => return None,
    })
}

impl Future for Answer {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.routed.as_pin_mut() {
            Some(routed) => ready!(routed.poll(cx)),
            // Once: nobody polls what is ready.
            None => Ok(this.refused.take().unwrap_or_default()),
        };
        Poll::Ready(response)
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Relaxed);
        self.watch.request_ended();
    }
}
