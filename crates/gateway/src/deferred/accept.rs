//! Stores a request over its limit, and answers 202 with its ticket.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use http_body::Body;
use sluicegate::http::is_grpc;
use sluicegate_config::gateway::deferred::QueueConfig;
use sluicegate_server::app::App;
use tokio::time::timeout;
use tracing::warn;

use super::decide::Deferral;
use super::estimate::estimate;
use super::request::{
    DeferredRequest, DeferredState, StoredBounds, StoredCallback, StoredDelivery, StoredHead,
    millis,
};
use super::store::{DeferredStore, PushError, StoreBounds};
use super::tickets::ticket_json;
use super::{Deferrals, Refusal};
use crate::body::{RequestBody, ResponseBody};
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::forward::{Forwarding, rewrite};
use crate::identity::{BufferedBody, generate_key};
use crate::metrics::RequestVerdict;
use crate::route_state::RouteState;
use crate::upstream::UpstreamRequest;

/// The key with which an upstream recognizes a request that is sent again.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Where the client wants the result.
const CALLBACK: HeaderName = HeaderName::from_static("x-callback-url");
/// Why a request was denied in place of being deferred.
const REFUSED: HeaderName = HeaderName::from_static("x-ratelimit-queue-refused");
/// Time for the whole body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const CALLBACK_BYTES_MAX: usize = 2_048;
/// The longest wait that a client is advised, in seconds.
const RETRY_AFTER_MAX: u64 = 3_600;

/// Where a request would be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) route: &'a RouteState,
    pub(crate) upstream: &'a str,
    pub(crate) forwarding: Forwarding<'a>,
}

/// Why nothing was stored.
enum AcceptError {
    /// It is denied.
    Refused(Refusal),
    /// The client failed.
    Proxy(ProxyError),
}

/// Stores a request: 202, or the denial.
pub(crate) async fn accept(
    deferrals: &Deferrals,
    app: &App,
    destination: Destination<'_>,
    deferral: Deferral,
    request: &mut UpstreamRequest,
    exchange: &mut Exchange,
) -> Result<Response<ResponseBody>, ProxyError> {
    match store(deferrals, app, destination, &deferral, request).await {
        Ok(response) => {
            deferrals.metrics.accepted.fetch_add(1, Relaxed);
            exchange.set_verdict(RequestVerdict::Deferred);
            Ok(response)
        }
        Err(AcceptError::Refused(refusal)) => {
            deferrals.metrics.refuse(refusal);
            let mut denial = deferral.denial;
            denial.headers_mut().insert(REFUSED, HeaderValue::from_static(refusal.name()));
            Ok(denial)
        }
        Err(AcceptError::Proxy(error)) => Err(error),
    }
}

async fn store(
    deferrals: &Deferrals,
    app: &App,
    destination: Destination<'_>,
    deferral: &Deferral,
    request: &mut UpstreamRequest,
) -> Result<Response<ResponseBody>, AcceptError> {
    let Destination { route, upstream, forwarding } = destination;
    let config = &route.config.queue;
    let store = deferrals.store().ok_or(Refusal::StoreUnavailable)?;
    let UpstreamRequest { head, body } = request;
    if head.headers.contains_key(UPGRADE) || is_grpc(&head.headers) {
        return Err(Refusal::NotDeferrable.into());
    }
    // Without a list the header is one like others.
    let callback = match config.callbacks.is_empty() {
        true => None,
        false => head.headers.remove(CALLBACK).map(|url| callback(&url, config)).transpose()?,
    };
    let (length, bytes_max) = (body.size_hint(), config.body_bytes_max);
    if length.lower() > bytes_max as u64 {
        return Err(Refusal::BodyTooLarge.into());
    }
    let bytes = length.exact().unwrap_or(bytes_max as u64);
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
    let _in_memory = deferrals.bodies.try_acquire_many(kib).map_err(|_| Refusal::Busy)?;
    let body = read(body, bytes_max).await?;
    rewrite(head, &forwarding).map_err(AcceptError::Proxy)?;
    let id = generate_key().ok_or(Refusal::StoreUnavailable)?;
    if !head.headers.contains_key(IDEMPOTENCY_KEY)
        && let Ok(key) = HeaderValue::try_from(&id)
    {
        head.headers.insert(IDEMPOTENCY_KEY, key);
    }
    let now = millis(app.engine().now());
    let age_max = u64::try_from(config.age_max.as_millis()).unwrap_or(u64::MAX);
    let new = DeferredRequest {
        id,
        version: 0,
        state: DeferredState::Queued,
        queue: deferral.queue.clone(),
        sequence: 0,
        route: route.config.name.clone(),
        upstream: upstream.to_owned(),
        created_at: now,
        expires_at: now.saturating_add(age_max),
        due_at: 0,
        deleted_at: None,
        attempts: 0,
        error: None,
        head: StoredHead::new(head),
        body_bytes: body.len() as u64,
        charge: deferral.charge.clone(),
        delivery: StoredDelivery {
            key: forwarding.key,
            priority: deferral.priority,
            client: forwarding.client,
        },
        bounds: StoredBounds::new(config),
        response: None,
        callback,
    };
    let ahead = push(deferrals, &**store, &new, body, config).await?;
    let estimated_at = estimate(app, &new, ahead).await;
    let location = format!("{}/{}", deferrals.tickets_path(), new.id);
    let ticket = ticket_json(&new, ahead, estimated_at);
    let mut response = Response::new(ResponseBody::full(Bytes::from(format!("{ticket}\n"))));
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(RETRY_AFTER, retry_after(estimated_at, now));
    if let Ok(location) = HeaderValue::try_from(location) {
        headers.insert(LOCATION, location);
    }
    Ok(response)
}

/// When a client should look again: at the estimate, or in a second.
pub(super) fn retry_after(estimated_at: Option<u64>, now: u64) -> HeaderValue {
    let wait = estimated_at.map_or(0, |at| at.saturating_sub(now).div_ceil(1_000));
    HeaderValue::from(wait.clamp(1, RETRY_AFTER_MAX))
}

async fn push(
    deferrals: &Deferrals,
    store: &dyn DeferredStore,
    request: &DeferredRequest,
    body: Bytes,
    config: &QueueConfig,
) -> Result<u64, AcceptError> {
    let bounds = StoreBounds {
        count: config.count_max,
        queue_count: config.identity_count_max,
        queue_bytes: config.identity_bytes_max,
        bytes: deferrals.config.bytes_max,
    };
    match store.push(request, body, bounds).await {
        Ok(ahead) => Ok(ahead),
        Err(PushError::Exceeded(exceeded)) => Err(Refusal::from(exceeded).into()),
        Err(PushError::Store(error)) => {
            warn!(%error, "a request was not deferred: the store failed");
            Err(Refusal::StoreUnavailable.into())
        }
    }
}

/// The callback of a request, if it is on the list.
fn callback(url: &HeaderValue, config: &QueueConfig) -> Result<StoredCallback, Refusal> {
    let url = url.to_str().ok().filter(|url| url.len() <= CALLBACK_BYTES_MAX);
    let url = url.filter(|url| config.callbacks.iter().any(|pattern| pattern.matches(url)));
    let url = url.ok_or(Refusal::CallbackNotAllowed)?.to_owned();
    Ok(StoredCallback { url, attempts: 0, due_at: None, is_delivered: false })
}

/// The whole body, which is bounded in size and time.
async fn read(body: &mut RequestBody, bytes_max: usize) -> Result<Bytes, AcceptError> {
    let outcome = body.outcome();
    let mut buffered = BufferedBody::new(std::mem::take(body));
    match timeout(READ_TIMEOUT, buffered.read_up_to(bytes_max)).await {
        Ok(Ok(has_ended)) => {
            let bytes = buffered.bytes();
            match has_ended && bytes.len() <= bytes_max {
                true => Ok(Bytes::from(bytes)),
                false => Err(Refusal::BodyTooLarge.into()),
            }
        }
        Ok(Err(_)) => {
            let incomplete = ProxyError::BadRequest("The body of the request is incomplete.");
            let error = outcome.and_then(|outcome| outcome.error());
            Err(AcceptError::Proxy(error.unwrap_or(incomplete)))
        }
        Err(_) => Err(AcceptError::Proxy(ProxyError::BodyTimeout)),
    }
}

impl From<Refusal> for AcceptError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
