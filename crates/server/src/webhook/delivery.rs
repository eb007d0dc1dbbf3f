//! Delivers events, one after the other: a failed request is repeated with backoff and jitter.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::uri::Scheme;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use rustls::RootCertStore;
use sluicegate::clock::TimeSource;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{DeliveryCounts, WebhookEvent, WebhookOptions};
use crate::https_client::{HttpsClient, describe, https_client, native_roots};
use crate::logs::events;

/// Of one event.
const ATTEMPTS_MAX: u32 = 6;
/// Of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Before the first repetition; doubled for each further one.
const BACKOFF: Duration = Duration::from_millis(500);
/// For the queued events when the process ends.
const FLUSH: Duration = Duration::from_secs(3);

/// The receiving end of the queue of a webhook.
#[derive(Debug)]
pub struct Delivery {
    options: WebhookOptions,
    client: HttpsClient<Full<Bytes>>,
    queue: mpsc::Receiver<WebhookEvent>,
    counts: Arc<DeliveryCounts>,
}

/// A request that was not accepted.
struct Rejection {
    reason: String,
    /// Whether a later request may be.
    is_transient: bool,
}

impl Delivery {
    pub(super) fn new(
        options: WebhookOptions,
        queue: mpsc::Receiver<WebhookEvent>,
        counts: Arc<DeliveryCounts>,
    ) -> Result<Self, String> {
        let is_https = options.url.scheme() == Some(&Scheme::HTTPS);
        let roots = if is_https { native_roots() } else { RootCertStore::empty() };
        Ok(Self { client: https_client(roots)?, options, queue, counts })
    }

    /// Delivers events until `stop` is ready, then the queued ones, once and within 3 s.
    pub async fn run(mut self, clock: TimeSource, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut unsent = None;
        loop {
            let event = tokio::select! {
                biased;
                () = &mut stop => break,
                event = self.queue.recv() => event,
            };
            let Some(event) = event else { return };
            let delivered = tokio::select! {
                biased;
                () = self.deliver(&event, &clock) => true,
                () = &mut stop => false,
            };
            if !delivered {
                unsent = Some(event);
                break;
            }
        }
        self.queue.close();
        let flush = async {
            while let Some(event) = unsent.take().or_else(|| self.queue.try_recv().ok()) {
                match self.post(&event, &clock).await {
                    Ok(()) => self.counts.delivered.fetch_add(1, Ordering::Relaxed),
                    Err(_) => self.counts.failed.fetch_add(1, Ordering::Relaxed),
                };
            }
        };
        // The rest is lost with the process, and its counts too.
        let _ = timeout(FLUSH, flush).await;
    }

    async fn deliver(&self, event: &WebhookEvent, clock: &TimeSource) {
        let mut backoff = BACKOFF;
        for attempt in 1..=ATTEMPTS_MAX {
            let Err(rejection) = self.post(event, clock).await else {
                self.counts.delivered.fetch_add(1, Ordering::Relaxed);
                return;
            };
            if !rejection.is_transient || attempt == ATTEMPTS_MAX {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                events::webhook_failed(&self.options, attempt, &rejection.reason);
                return;
            }
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
            sleep(backoff.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            backoff *= 2;
        }
    }

    async fn post(&self, event: &WebhookEvent, clock: &TimeSource) -> Result<(), Rejection> {
        let transient = |reason: String| Rejection { reason, is_transient: true };
        // Of each attempt: receivers refuse old ones.
        let seconds = clock.now().as_micros() / 1_000_000;
        let request = self.request(event, seconds).map_err(|error| transient(error.to_string()))?;
        let response = timeout(TIMEOUT, self.client.request(request)).await;
        let response = response.map_err(|_| transient("request timed out".to_owned()))?;
        let status = response.map_err(|error| transient(describe(&error)))?.status();
        if status.is_success() {
            return Ok(());
        }
        let is_transient = status.is_server_error()
            || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        Err(Rejection { reason: format!("status {}", status.as_u16()), is_transient })
    }

    fn request(&self, event: &WebhookEvent, timestamp: u64) -> http::Result<Request<Full<Bytes>>> {
        let WebhookEvent { id, body } = event;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.options.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("sluicegate/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp);
        if let Some(secret) = &self.options.secret {
            request = request.header("webhook-signature", secret.sign(id, timestamp, body));
        }
        request.body(Full::new(Bytes::from(body.clone())))
    }
}
