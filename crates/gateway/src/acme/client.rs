//! HTTP client of the authority: bounded in time and size.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use rustls::RootCertStore;
use tokio::time::timeout;

use super::schedule::wall_clock;
use sluicegate_server::https_client::{HttpsClient, describe, https_client};

/// Of one request.
const TIMEOUT: Duration = Duration::from_secs(30);
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Sends requests, and records when the authority asks for a pause.
#[derive(Debug, Clone)]
pub(super) struct AcmeClient {
    client: HttpsClient<BodyWrapper<Bytes>>,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl AcmeClient {
    pub(super) fn new(roots: RootCertStore) -> Result<Self, String> {
        Ok(Self { client: https_client(roots)?, retry_after: Arc::default() })
    }

    /// The pause that the authority demands since the last call, because of too many requests.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        self.retry_after.lock().take()
    }
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (sent, pause) = (self.client.request(request), self.retry_after.clone());
        let exchange = async move {
            let response = sent.await.map_err(|error| other(describe(&error)))?;
            let (head, body) = response.into_parts();
            // Of renewal information, the header of an error is the time of the next request.
            if matches!(
                head.status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            ) {
                *pause.lock() = retry_after(&head.headers, wall_clock());
            }
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let body = Full::new(body.map_err(|error| other(error.to_string()))?.to_bytes());
            Ok(BytesResponse::from(Response::from_parts(head, body)))
        };
        Box::pin(async move {
            let exchanged = timeout(TIMEOUT, exchange).await;
            exchanged.unwrap_or_else(|_| Err(other("no response in time".to_owned())))
        })
    }
}

fn other(reason: String) -> Error {
    Error::Other(reason.into())
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Mon, 16 Nov 2026 10:00:00 GMT").unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            ("Mon, 16 Nov 2026 10:01:00 GMT", Some(60)),
            ("Mon, 16 Nov 2026 09:00:00 GMT", None),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
