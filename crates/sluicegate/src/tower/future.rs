//! A response to come.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::ResponseBody;
use super::admit::{Passed, Waits};
use crate::http::Style;

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit).
    ///
    /// Dropped while it waits, it gives the turn back; dropped later, its slots.
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
        grpc: bool,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        /// Until its turn.
        Waiting { turn: Waits, call: Option<Call<S, B>> },
        /// Until the service is ready.
        Starting { passed: Option<Passed>, call: Option<Call<S, B>> },
        Going { #[pin] response: S::Future, passed: Passed },
        Answered { response: Option<Response<Bytes>> },
    }
}

/// A call to be made.
struct Call<S, B> {
    service: S,
    request: Request<B>,
}

// === impl ResponseFuture ===

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn skipped(response: S::Future) -> Self {
        Self::going(response, Passed { said: None, slots: Vec::new() }, Style::default())
    }

    pub(super) fn going(response: S::Future, passed: Passed, style: Style) -> Self {
        Self { state: State::Going { response, passed }, style, grpc: false }
    }

    pub(super) fn answered(response: Response<Bytes>) -> Self {
        let state = State::Answered { response: Some(response) };
        Self { state, style: Style::default(), grpc: false }
    }

    pub(super) fn waiting(
        turn: Waits,
        request: Request<B>,
        service: S,
        style: Style,
        grpc: bool,
    ) -> Self {
        let call = Some(Call { service, request });
        Self { state: State::Waiting { turn, call }, style, grpc }
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
                StateProjected::Waiting { turn, call } => match ready!(turn.as_mut().poll(cx)) {
                    Ok(passed) => State::Starting { passed: Some(passed), call: call.take() },
                    Err(said) => {
                        let response = Some(said.denial(this.style, *this.grpc));
                        State::Answered { response }
                    }
                },
                StateProjected::Starting { passed, call } => {
                    if let Some(call) = call {
                        ready!(call.service.poll_ready(cx))?;
                    }
                    let (Some(mut call), Some(passed)) = (call.take(), passed.take()) else {
                        return Poll::Pending;
                    };
                    State::Going { response: call.service.call(call.request), passed }
                }
                StateProjected::Going { response, passed } => {
                    let mut response = ready!(response.poll(cx))?;
                    if let Some(said) = &passed.said {
                        said.write_headers(this.style, response.headers_mut());
                    }
                    let slots = std::mem::take(&mut passed.slots);
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
