//! The limited service, its response future and its response body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admission::{AdmissionOutcome, Admitted, PendingAdmission, RequestKeys, admit};
use super::denial::Rejection;
use super::guards::HeldSlot;
use super::layer::Config;
use crate::http::Style;

/// A limited service: see [`RateLimitLayer`](super::RateLimitLayer).
///
/// Ready when the inner service is: limits depend on the request, which is not known yet.
///
/// ```
/// use sluicegate::tower::RateLimit;
///
/// fn in_a_signature<S>(limited: RateLimit<S>) -> S {
///     limited.into_inner()
/// }
/// ```
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    pub(super) inner: S,
    pub(super) config: Arc<Config>,
}

impl<S> RateLimit<S> {
    /// The inner service.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::Everybody;
    /// use tower::Layer;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(1))?, Everybody);
    /// assert_eq!(layer.layer("any service").into_inner(), "any service");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        if self.config.skips(&head) {
            return ResponseFuture::skipped(self.inner.call(Request::from_parts(head, body)));
        }
        let Ok(keys) = RequestKeys::new(&self.config, &head) else {
            let response = Rejection::MissingKey.respond(&self.config, &head);
            return ResponseFuture::answered(response);
        };
        match admit(&self.config, keys) {
            AdmissionOutcome::Admitted(admitted) => {
                let response = self.inner.call(Request::from_parts(head, body));
                ResponseFuture::going(response, admitted, self.config.style)
            }
            // The inner service is not called and stays ready for the next request.
            AdmissionOutcome::Denied(rejection) => {
                ResponseFuture::answered(rejection.respond(&self.config, &head))
            }
            // A clone waits and is polled for readiness when its turn has come. Keeping the ready
            // service itself would withhold its capacity for up to half a minute.
            AdmissionOutcome::Pending(turn) => {
                let request = Request::from_parts(head, body);
                ResponseFuture::waiting(turn, request, self.inner.clone(), self.config.clone())
            }
        }
    }
}

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit).
    ///
    /// Dropping it releases the turn while it waits, and its slots later.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use sluicegate::tower::{RateLimit, ResponseFuture};
    /// use tower::Service;
    ///
    /// fn start<S, B, R>(limited: &mut RateLimit<S>, request: Request<B>) -> ResponseFuture<S, B>
    /// where
    ///     S: Service<Request<B>, Response = Response<R>> + Clone,
    /// {
    ///     limited.call(request)
    /// }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
        style: Style,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        /// Until its turn.
        Waiting {
            turn: PendingAdmission,
            call: Option<PendingCall<S, B>>,
            config: Arc<Config>,
        },
        /// Until the service is ready.
        Starting { admitted: Option<Admitted>, call: Option<PendingCall<S, B>> },
        Going { #[pin] response: S::Future, admitted: Admitted },
        Answered { response: Option<Response<Bytes>> },
    }
}

/// A call to the inner service, not made yet.
struct PendingCall<S, B> {
    service: S,
    request: Request<B>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn skipped(response: S::Future) -> Self {
        Self::going(response, Admitted { verdict: None, slots: Vec::new() }, Style::default())
    }

    pub(super) fn going(response: S::Future, admitted: Admitted, style: Style) -> Self {
        Self { state: State::Going { response, admitted }, style }
    }

    pub(super) fn answered(response: Response<Bytes>) -> Self {
        let state = State::Answered { response: Some(response) };
        Self { state, style: Style::default() }
    }

    pub(super) fn waiting(
        turn: PendingAdmission,
        request: Request<B>,
        service: S,
        config: Arc<Config>,
    ) -> Self {
        let (style, call) = (config.style, Some(PendingCall { service, request }));
        Self { state: State::Waiting { turn, call, config }, style }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjected::Waiting { turn, call, config } => {
                    match (ready!(turn.as_mut().poll(cx)), call.take()) {
                        (Ok(admitted), call) => State::Starting { admitted: Some(admitted), call },
                        (Err(_), None) => return Poll::Pending,
                        (Err(rejection), Some(call)) => {
                            let (head, _) = call.request.into_parts();
                            State::Answered { response: Some(rejection.respond(config, &head)) }
                        }
                    }
                }
                StateProjected::Starting { admitted, call } => {
                    if let Some(call) = call {
                        ready!(call.service.poll_ready(cx))?;
                    }
                    let (Some(mut call), Some(admitted)) = (call.take(), admitted.take()) else {
                        return Poll::Pending;
                    };
                    State::Going { response: call.service.call(call.request), admitted }
                }
                StateProjected::Going { response, admitted } => {
                    let mut response = ready!(response.poll(cx))?;
                    if let Some(verdict) = &admitted.verdict {
                        verdict.write_headers(this.style, response.headers_mut());
                    }
                    let slots = std::mem::take(&mut admitted.slots);
                    return Poll::Ready(Ok(
                        response.map(|body| ResponseBody::upstream(body, slots))
                    ));
                }
                StateProjected::Answered { response } => {
                    let response = response.take().unwrap_or_default();
                    return Poll::Ready(Ok(response.map(ResponseBody::ours)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S, B> std::fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Waiting { .. } => "waiting",
            State::Starting { .. } => "starting",
            State::Going { .. } => "going",
            State::Answered { .. } => "answered",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}

pin_project! {
    /// The response body of a [`RateLimit`](super::RateLimit): the inner service's, or a denial.
    ///
    /// The request holds its slots of concurrency limits until the body ends, fails or is dropped.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use sluicegate::tower::ResponseBody;
    ///
    /// fn of_a_limited_service(body: ResponseBody<Full<Bytes>>) -> impl http_body::Body<Data = Bytes> {
    ///     body
    /// }
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjected]
    #[derive(Debug)]
    enum Kind<B> {
        Upstream { #[pin] body: B, slots: Vec<HeldSlot> },
        Ours { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    /// The inner service's body, holding these slots.
    pub(super) const fn upstream(body: B, slots: Vec<HeldSlot>) -> Self {
        Self { kind: Kind::Upstream { body, slots } }
    }

    pub(super) const fn ours(bytes: Bytes) -> Self {
        Self { kind: Kind::Ours { bytes } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindProjected::Upstream { mut body, slots } => {
                let polled = body.as_mut().poll_frame(cx);
                // A server need not poll again after the last frame.
                let ended = match &polled {
                    Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
                    Poll::Ready(Some(Err(_)) | None) => true,
                    Poll::Pending => false,
                };
                if ended {
                    slots.clear();
                }
                polled
            }
            KindProjected::Ours { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProjected::Ours { bytes } => {
                let all = std::mem::take(bytes);
                Poll::Ready(Some(Ok(Frame::data(all.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Upstream { body, .. } => body.is_end_stream(),
            Kind::Ours { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Upstream { body, .. } => body.size_hint(),
            Kind::Ours { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
