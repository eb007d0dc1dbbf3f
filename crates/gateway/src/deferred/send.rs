//! One attempt to send a deferred request, and what follows from its outcome.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use sluicegate::Timestamp;
use tokio::time::timeout;

use super::request::{DeferredRequest, Millis, StoredResponse, millis, stored_headers};
use crate::active::Active;
use crate::body::{RequestBody, ResponseBody};
use crate::error::ProxyError;
use crate::forward::rewrite_response;
use crate::upstream::{Delivery, UpstreamRequest};

/// Time for the body of a response, if its upstream has no `total`.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);
/// The first pause after a failure; each further one is twice as long.
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// The longest pause that an upstream can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// Outcome of an attempt.
#[derive(Debug)]
pub(super) enum Sent {
    /// The upstream has answered.
    Answered(StoredResponse, Option<Bytes>),
    /// It is tried again.
    Failed(SendFailure),
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendFailure {
    pub(super) reason: String,
    /// How long the upstream wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// Whether the upstream may have got it.
    pub(super) is_attempt: bool,
}

impl SendFailure {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry_after: None, is_attempt: true }
    }

    /// It was not sent.
    fn unsent(reason: &str) -> Self {
        Self { is_attempt: false, ..Self::new(reason) }
    }
}

/// Sends a request.
pub(super) async fn send(
    active: &Active,
    worker: usize,
    request: &DeferredRequest,
    body: Bytes,
    now: Timestamp,
) -> Sent {
    let upstream = active.upstreams.iter().find(|one| one.name() == request.upstream);
    let Some(upstream) = upstream else {
        return Sent::Failed(SendFailure::unsent("the configuration has no such upstream"));
    };
    let Some(head) = request.head.to_parts() else {
        return Sent::Failed(SendFailure::new("the stored request is damaged"));
    };
    let delivery = Delivery {
        worker,
        key: request.delivery.key,
        is_upgrade: false,
        priority: request.delivery.priority,
        client: request.delivery.client,
    };
    let mut outgoing = UpstreamRequest { head, body: RequestBody::full(body) };
    let response = match upstream.send(delivery, &mut outgoing, &mut None).await {
        Ok(response) => response,
        Err(error @ ProxyError::UpstreamOverload) => {
            return Sent::Failed(SendFailure::unsent(error.code()));
        }
        Err(error) => return Sent::Failed(SendFailure::new(error.code())),
    };
    if let Some(failure) = failure(response.status(), response.headers(), now) {
        return Sent::Failed(failure);
    }
    let (mut head, body) = response.into_parts();
    rewrite_response(&mut head.headers);
    let bytes_max = usize::try_from(request.bounds.response_bytes_max).unwrap_or(usize::MAX);
    let body = match timeout(BODY_TIMEOUT, read(ResponseBody::upstream(body), bytes_max)).await {
        Ok(Ok(body)) => body,
        Ok(Err(())) => return Sent::Failed(SendFailure::new("the response broke off")),
        Err(_) => return Sent::Failed(SendFailure::new("the response timed out")),
    };
    let stored = StoredResponse {
        status: head.status.as_u16(),
        headers: stored_headers(&head.headers),
        body_bytes: body.as_ref().map(|body| body.len() as u64),
    };
    Sent::Answered(stored, body)
}

/// The failure that a response reports.
fn failure(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<SendFailure> {
    let is_failure = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    is_failure.then(|| SendFailure {
        retry_after: retry_after.and_then(|text| parse_retry_after(text, now)),
        ..SendFailure::new(format!("status {}", status.as_u16()))
    })
}

/// Seconds, or a date (RFC 9110, section 10.2.3).
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            let at = at.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?;
            at.saturating_sub(Duration::from_micros(now.as_micros()))
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// A body; `None` if it is longer than this.
async fn read(mut body: ResponseBody, bytes_max: usize) -> Result<Option<Bytes>, ()> {
    let mut read = BytesMut::new();
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(Some(read.freeze())) };
        // Trailers are not stored.
        let Ok(data) = frame.map_err(|_| ())?.into_data() else { continue };
        if read.len().saturating_add(data.len()) > bytes_max {
            return Ok(None);
        }
        read.extend_from_slice(&data);
    }
}

/// When a request is sent again after so many failures: exponential, with jitter, and not before
/// the upstream wants it.
pub(super) fn due_at(now: Timestamp, attempts: u32, retry_after: Option<Duration>) -> Millis {
    let doublings = attempts.saturating_sub(1).min(16);
    let backoff = BACKOFF.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    let jitter = backoff.mul_f64(fastrand::f64() / 2.0);
    let wait = (backoff - jitter).max(retry_after.unwrap_or_default());
    millis(now).saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(784_111_777_000_000);

    #[test]
    fn pauses_grow_and_the_upstream_can_ask_for_longer_ones() {
        for (attempts, shortest, longest) in
            [(1, 500, 1_000), (4, 4_000, 8_000), (40, 150_000, 300_000)]
        {
            let wait = due_at(NOW, attempts, None) - millis(NOW);
            assert!((shortest..=longest).contains(&wait), "{attempts}: {wait}");
        }
        let wait = due_at(NOW, 1, Some(Duration::from_secs(60))) - millis(NOW);
        assert_eq!(wait, 60_000);
    }

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        let seconds = |text| parse_retry_after(text, NOW).map(|wait| wait.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(seconds("99999999999"), Some(86_400));
        assert_eq!(seconds("soon"), None);
    }

    #[test]
    fn only_some_statuses_are_failures() {
        let none = HeaderMap::new();
        let fails = |status: u16| failure(StatusCode::from_u16(status).unwrap(), &none, NOW);
        for status in [429, 502, 503, 504] {
            assert!(fails(status).is_some(), "{status}");
        }
        for status in [200, 302, 400, 404, 408, 500, 501] {
            assert_eq!(fails(status), None, "{status}");
        }
    }
}
