//! A limited service.

use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_service::Service;

use super::ResponseBody;
use super::admit::{Admission, Wanted, admit};
use super::future::ResponseFuture;
use super::layer::Config;
use super::missing::rejection;
use crate::http::is_grpc;

/// A limited service: see [`RateLimitLayer`](super::RateLimitLayer).
///
/// It is ready when the service within is; limits are not a matter of readiness, since nobody knows whose request will come.
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

// === impl RateLimit ===

impl<S> RateLimit<S> {
    /// The service within.
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
        let grpc = is_grpc(&head.headers);
        let Ok(wanted) = Wanted::new(&self.config, &head) else {
            return ResponseFuture::answered(rejection(grpc));
        };
        let request = Request::from_parts(head, body);
        let style = self.config.style;
        match admit(&self.config, wanted) {
            Admission::Passed(passed) => {
                ResponseFuture::going(self.inner.call(request), passed, style)
            }
            // Nobody is called, and the service within stays ready for the next request.
            Admission::Denied(said) => ResponseFuture::answered(said.denial(&style, grpc)),
            // A clone waits, which is asked for its readiness when the turn has come. (The usual way, to leave the clone here and let
            // the one that is ready wait, would keep back for half a minute what others could use.)
            Admission::Waits(turn) => {
                ResponseFuture::waiting(turn, request, self.inner.clone(), style, grpc)
            }
        }
    }
}
