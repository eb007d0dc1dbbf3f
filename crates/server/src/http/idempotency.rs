//! `Idempotency-Key`, and responses that are stored under it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluicegate::Timestamp;

use super::Api;
use super::error::ApiError;
use crate::idempotency::{KEY_BYTES_MAX, KeyedRequest, Replayable, StoredResponse};
use crate::telemetry::Endpoint;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Set on a stored response.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A response, before it is counted and sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApiResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether every descriptor was charged, so that a refund of the same request is exact.
    pub(crate) is_refundable: bool,
    /// The further pools that were charged, by descriptor; empty without any.
    pub(super) pools: Vec<Option<Box<str>>>,
}

/// The `Idempotency-Key` of a request, if any.
#[derive(Debug)]
pub(super) struct IdempotencyHeader(Option<HeaderValue>);

impl IdempotencyHeader {
    #[inline]
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(KEY).cloned())
    }

    /// The request under its key, scoped by endpoint.
    pub(super) fn keyed<'a>(
        &self,
        endpoint: Endpoint,
        body: &'a [u8],
    ) -> Result<Option<KeyedRequest<'a>>, ApiError> {
        let Some(key) = &self.0 else { return Ok(None) };
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(ApiError::invalid(format!(
                "`Idempotency-Key` has {} bytes, and must have 1 to {KEY_BYTES_MAX}; use a random text, such as a UUID",
                key.len()
            )));
        }
        Ok(Some(KeyedRequest::new(endpoint, key.as_bytes(), body)))
    }
}

impl Api {
    /// The stored response of a repeated request, else that of `respond`.
    #[inline]
    pub(super) async fn idempotent(
        &self,
        endpoint: Endpoint,
        key: &IdempotencyHeader,
        body: &[u8],
        now: Timestamp,
        respond: impl Future<Output = Result<ApiResponse, ApiError>>,
    ) -> Result<ApiResponse, ApiError> {
        let keyed = key.keyed(endpoint, body)?;
        self.app.idempotent(keyed, now, respond).await.map(replayed)
    }
}

/// Marks a stored response.
pub(super) fn replayed((mut response, is_replay): (ApiResponse, bool)) -> ApiResponse {
    if is_replay {
        response.headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

impl Replayable for ApiResponse {
    fn is_charge(&self) -> bool {
        self.status.is_success()
    }

    fn bytes(&self) -> usize {
        /// Memory of a header beside its name and value.
        const HEADER_BYTES: usize = 190;

        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
        self.body.len() + headers.sum::<usize>()
    }

    /// Copies the body, which was written into a larger buffer.
    fn store(&self) -> StoredResponse {
        let body = Bytes::copy_from_slice(&self.body);
        StoredResponse::Http(Self { body, ..self.clone() })
    }

    fn restore(stored: StoredResponse) -> Option<Self> {
        match stored {
            StoredResponse::Http(response) => Some(response),
            StoredResponse::Resp(_) => None,
        }
    }
}
