//! Requests that the layer answers itself.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use sluicegate_core::verdict::Verdict;

use super::layer::Config;
use super::verdict::OwnedVerdict;
use crate::Policy;
use crate::backend::StoreFailure;
use crate::http::{Style, is_grpc};

/// A request that is not passed on to the service: see
/// [`RateLimitLayer::on_denied`](super::RateLimitLayer::on_denied).
#[derive(Debug)]
#[non_exhaustive]
pub struct Denial<'a> {
    /// Why not.
    pub reason: DenialReason<'a>,
    /// The head of the request.
    pub request: &'a Parts,
    /// Whether the request is a gRPC call, whose response has a `grpc-status`.
    pub is_grpc: bool,
}

/// Why a request is not passed on.
#[derive(Debug)]
#[non_exhaustive]
pub enum DenialReason<'a> {
    /// A limit denies it.
    Limit {
        /// The verdict.
        verdict: &'a Verdict,
        /// The limits; `decided_by` of the verdict is an index into them.
        policies: &'a [Policy],
    },
    /// The store does not answer, and a limiter has
    /// [`OnStoreFailure::Error`](crate::OnStoreFailure::Error); or it has `Local`, the default, and
    /// grants slots or makes requests wait, which a process cannot do by itself.
    Store(StoreFailure),
    /// It has no key, under [`Missing::Reject`](super::Missing::Reject).
    MissingKey,
}

/// The same, owned.
pub(super) enum Rejection {
    Limit(OwnedVerdict),
    Store(StoreFailure),
    MissingKey,
}

impl From<OwnedVerdict> for Rejection {
    fn from(verdict: OwnedVerdict) -> Self {
        Self::Limit(verdict)
    }
}

impl Rejection {
    /// The response to the request.
    pub(super) fn respond(&self, config: &Config, request: &Parts) -> Response<Bytes> {
        let is_grpc = is_grpc(&request.headers);
        let response = self.default_response(&config.style, is_grpc);
        let Some(on_denied) = &config.on_denied else { return response };
        let reason = match self {
            Self::Limit(OwnedVerdict { verdict, policies, .. }) => {
                DenialReason::Limit { verdict, policies }
            }
            Self::Store(failure) => DenialReason::Store(*failure),
            Self::MissingKey => DenialReason::MissingKey,
        };
        on_denied(&Denial { reason, request, is_grpc }, response)
    }

    fn default_response(&self, style: &Style, is_grpc: bool) -> Response<Bytes> {
        match self {
            Self::Limit(verdict) => verdict.denial(style, is_grpc),
            Self::Store(_) => STORE_UNAVAILABLE.response(is_grpc),
            Self::MissingKey => IDENTITY_MISSING.response(is_grpc),
        }
    }
}

/// A response that depends on nothing.
struct ErrorResponse {
    status: StatusCode,
    message: &'static str,
    body: &'static str,
    grpc_status: &'static str,
    retry_after: Option<&'static str>,
}

const IDENTITY_MISSING: ErrorResponse = ErrorResponse {
    status: StatusCode::BAD_REQUEST,
    message: "Request does not say who sends it. Add what identifies you and try again.",
    body: concat!(
        r#"{"error":{"code":"identity_missing","message":""#,
        "Request does not say who sends it. Add what identifies you and try again.",
        r#"","context":{}}}"#,
    ),
    // `INVALID_ARGUMENT`
    grpc_status: "3",
    retry_after: None,
};

const STORE_UNAVAILABLE: ErrorResponse = ErrorResponse {
    status: StatusCode::SERVICE_UNAVAILABLE,
    message: "Request quota cannot be checked at the moment. Try again in a second.",
    body: concat!(
        r#"{"error":{"code":"store_unavailable","message":""#,
        "Request quota cannot be checked at the moment. Try again in a second.",
        r#"","context":{}}}"#,
    ),
    // `UNAVAILABLE`
    grpc_status: "14",
    retry_after: Some("1"),
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

impl ErrorResponse {
    fn response(&self, is_grpc: bool) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        if is_grpc {
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(GRPC_STATUS, HeaderValue::from_static(self.grpc_status));
            headers.insert(GRPC_MESSAGE, HeaderValue::from_static(self.message));
            return response;
        }
        *response.status_mut() = self.status;
        *response.body_mut() = Bytes::from_static(self.body.as_bytes());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}
