//! What the tests of the layer have in common: a service that counts its calls, and futures polled by hand.

#![allow(dead_code)] // Each test uses some of it.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate::limit::IntoLimit;
use sluicegate::tower::{RateLimit, RateLimitLayer, ResponseBody};
use tower::{Layer, Service, ServiceExt};

pub(crate) type Answer = Response<ResponseBody<Full<Bytes>>>;

/// A limiter of one limit on this clock.
pub(crate) fn limiter(limit: impl IntoLimit, clock: &ManualClock) -> Limiter {
    Limiter::builder().limit(limit).clock(clock.clone()).build().unwrap()
}

/// A request of this user.
pub(crate) fn from(user: &str) -> Request<()> {
    Request::builder().header("x-user", user).body(()).unwrap()
}

/// What the layer answers at once.
pub(crate) fn ask(service: &RateLimit<Upstream>, request: Request<()>) -> Answer {
    Polled::new(service.clone().oneshot(request)).now().unwrap()
}

/// The statuses of as many requests of this user.
pub(crate) fn statuses(service: &RateLimit<Upstream>, user: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| ask(service, from(user)).status().as_u16()).collect()
}

pub(crate) fn text(response: Answer) -> String {
    let body = Polled::new(response.into_body().collect()).now().unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

// === a service ===

/// Answers `ok`, and counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upstream {
    calls: Arc<AtomicUsize>,
    busy: Arc<AtomicBool>,
}

impl Upstream {
    pub(crate) fn behind(layer: &RateLimitLayer) -> (Self, RateLimit<Self>) {
        let upstream = Self::default();
        (upstream.clone(), layer.layer(upstream))
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::SeqCst);
    }
}

impl Service<Request<()>> for Upstream {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.busy.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Full::from("ok"))))
    }
}

// === polling by hand ===

/// A future that is polled by hand, and knows whether it was woken.
pub(crate) struct Polled<F> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<F: Future> Polled<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Box::pin(future), woken: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls it for the first time, or again.
    pub(crate) fn waits(&mut self) -> bool {
        self.poll().is_pending()
    }

    /// Whether somebody has asked for it to be polled again since the last time.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.swap(false, Ordering::SeqCst)
    }

    /// What it has to say without waiting.
    pub(crate) fn now(mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it waits"),
        }
    }
}
