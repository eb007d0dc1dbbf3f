//! Requests of which nobody knows who sent them.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;

/// Whose budget a request uses under [`Missing::Shared`].
///
/// No header holds these bytes, and no address does. Nothing is gained by sending them.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::MISSING_KEY;
///
/// // What is left for those who do not say who they are?
/// let limiter = Limiter::new(TokenBucket::per_second(10))?;
/// assert_eq!(limiter.of(MISSING_KEY).peek().remaining, Some(10));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub const MISSING_KEY: &[u8] = b"\0nobody";

/// What happens to a request that has no key.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::tower::key::header;
/// use sluicegate::tower::{Missing, RateLimitLayer};
///
/// let limiter = Limiter::new(TokenBucket::per_second(10))?;
/// let layer = RateLimitLayer::new(limiter, header("x-api-key")).on_missing(Missing::Reject);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// All of them share one budget, under [`MISSING_KEY`]. The default: a server that forgot to say where its peers
    /// come from limits too much, and somebody notices, rather than not at all.
    #[default]
    Shared,
    /// The limiter has no say. Others on the same layer still do.
    Pass,
    /// It is answered with 400, or `INVALID_ARGUMENT` in gRPC, and charged to nobody.
    Reject,
}

const MESSAGE: &str = "Request does not say who sends it. Add what identifies you and try again.";
const BODY: &str = concat!(
    r#"{"error":{"code":"identity_missing","message":""#,
    "Request does not say who sends it. Add what identifies you and try again.",
    r#"","context":{}}}"#,
);
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// `INVALID_ARGUMENT`.
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");

/// The answer of [`Missing::Reject`].
pub(super) fn rejection(grpc: bool) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    if grpc {
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, INVALID_ARGUMENT);
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static(MESSAGE));
        return response;
    }
    *response.status_mut() = StatusCode::BAD_REQUEST;
    *response.body_mut() = Bytes::from_static(BODY.as_bytes());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
