//! Tower layer that paces calls to third-party APIs.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::hints::ServerHints;
use super::queue::{Permit, QueueBounds, Queues, WouldWait};
use super::state::Pace;
use crate::retry::jitter;

/// Delays calls until the rate-limit headers of the API allow them.
///
/// Calls to one origin (`https://api.example.org`) share a FIFO queue. All services of a layer and
/// their clones share its state.
///
/// ```
/// use http::{Request, Response};
/// use sluicegate_client::pace::PacedLayer;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // An API that admits one call every ten seconds, and reports it in a header.
/// let api = service_fn(|_: Request<()>| async {
///     Response::builder().header("ratelimit", r#""calls";r=0;t=10"#).body(())
/// });
/// let client = PacedLayer::new().wait_max(Duration::from_secs(60)).layer(api);
///
/// let begun = tokio::time::Instant::now();
/// for _ in 0..3 {
///     client.clone().oneshot(Request::get("https://api.example.org/").body(())?).await?;
/// }
/// assert_eq!(begun.elapsed().as_secs(), 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is paced until it is applied to a client"]
pub struct PacedLayer<A = NoRetry> {
    config: PaceConfig,
    queues: Arc<Queues>,
    retry: A,
}

/// A client with paced calls: see [`PacedLayer`].
#[derive(Debug, Clone)]
pub struct Paced<S, A = NoRetry> {
    inner: S,
    config: Arc<PaceConfig>,
    queues: Arc<Queues>,
    retry: A,
}

/// Error of a paced call.
#[derive(Debug)]
pub enum PacedError<E> {
    /// The call was not sent.
    WouldWait(WouldWait),
    /// The call was sent and failed.
    Inner(E),
}

/// Retry policy for calls rejected with 429.
pub trait RetryPolicy<B> {
    /// Maximum number of retries.
    fn retries_max(&self) -> u32;
    /// Clones the request; `None` without retries.
    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>>;
}

/// No retries: the caller receives the 429.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRetry;

/// Retries this many times if the request can be cloned.
#[derive(Debug, Clone, Copy)]
pub struct Retries(u32);

#[derive(Clone)]
struct PaceConfig {
    bounds: QueueBounds,
    spread_below_percent: Option<u32>,
    key: Option<Key>,
}

type Key = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// Bound of all waits, so that deadlines do not overflow.
const WAIT_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Jitter, in percent of the wait.
const LATER_PERCENT: u32 = 10;

impl PacedLayer {
    /// Paces by origin; a call waits for at most 30 s, behind at most 1,000 calls, and the caller
    /// receives a 429.
    pub fn new() -> Self {
        let bounds =
            QueueBounds { wait_max: Duration::from_secs(30), waiting_max: 1_000, keys_max: 1_000 };
        let config = PaceConfig { bounds, spread_below_percent: None, key: None };
        Self { config, queues: Arc::default(), retry: NoRetry }
    }
}

impl Default for PacedLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> PacedLayer<A> {
    /// Sets the queue key of a call, such as its API key. At most 1,000 keys
    /// ([`keys_max`](Self::keys_max)) have their own queue; further keys share one.
    ///
    /// ```
    /// use sluicegate_client::pace::PacedLayer;
    ///
    /// let layer = PacedLayer::new().by(|call| {
    ///     let account = call.headers.get("x-account").and_then(|name| name.to_str().ok());
    ///     account.unwrap_or_default().to_owned()
    /// });
    /// ```
    pub fn by(mut self, key: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.config.key = Some(Arc::new(key));
        self
    }

    /// Maximum wait; a call that would wait longer fails with [`WouldWait`].
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.config.bounds.wait_max = wait_max.min(WAIT_MAX);
        self
    }

    /// Maximum calls that wait per queue; further calls fail with [`WouldWait`].
    pub const fn waiting_max(mut self, waiting_max: usize) -> Self {
        self.config.bounds.waiting_max = waiting_max;
        self
    }

    /// Maximum number of queues.
    pub const fn keys_max(mut self, keys_max: usize) -> Self {
        self.config.bounds.keys_max = keys_max;
        self
    }

    /// Spreads the remaining quota evenly until the reset once it is at most this percentage of the
    /// quota. 100 always spreads it.
    pub const fn spreading_below(mut self, percent: u32) -> Self {
        self.config.spread_below_percent = Some(percent);
        self
    }

    /// Retries calls rejected with 429 up to this many times, within [`wait_max`](Self::wait_max)
    /// in total. The caller receives the 429 if no retry fits. Bodies must be `Clone`.
    pub fn retrying(self, times: u32) -> PacedLayer<Retries> {
        PacedLayer { config: self.config, queues: self.queues, retry: Retries(times) }
    }
}

impl<S, A: Clone> Layer<S> for PacedLayer<A> {
    type Service = Paced<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        let (config, queues) = (Arc::new(self.config.clone()), self.queues.clone());
        Paced { inner, config, queues, retry: self.retry.clone() }
    }
}

impl<S, A, B, R> Service<Request<B>> for Paced<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    A: RetryPolicy<B> + Clone + Send + 'static,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = PacedError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, PacedError<S::Error>>> + Send>>;

    /// Always ready: the inner client is polled when the call is sent, so that waiting calls do not
    /// occupy its capacity.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { inner, config, queues, retry } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let (key, now) = (config.key(&parts), Instant::now());
            let mut request = Request::from_parts(parts, body);
            let queue = queues.queue(&key, config.bounds.keys_max, || config.pace(), now);
            let deadline = now + config.bounds.wait_max;
            let mut permit =
                queue.enter(config.bounds, deadline).await.map_err(PacedError::WouldWait)?;
            let mut times = retry.retries_max();
            loop {
                let copy =
                    Some(&request).filter(|_| times > 0).and_then(|call| retry.clone_request(call));
                let response = called(inner.clone(), request, permit).await?;
                if response.status() != StatusCode::TOO_MANY_REQUESTS {
                    return Ok(response);
                }
                let Some(copy) = copy else { return Ok(response) };
                let Ok(next) = queue.enter(config.bounds, deadline).await else {
                    return Ok(response);
                };
                (request, permit, times) = (copy, next, times - 1);
            }
        })
    }
}

/// Sends a permitted call.
async fn called<S, B, R>(
    mut inner: S,
    request: Request<B>,
    permit: Permit,
) -> Result<Response<R>, PacedError<S::Error>>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    poll_fn(|context| inner.poll_ready(context)).await.map_err(PacedError::Inner)?;
    let response = inner.call(request).await.map_err(PacedError::Inner)?;
    let mut hints = ServerHints::of(response.status(), response.headers());
    // Never earlier than the announced time.
    hints.retry_after = hints.retry_after.map(|wait| {
        let later = wait.saturating_mul(LATER_PERCENT) / 100;
        wait.saturating_add(jitter(later, fastrand::u64(..)))
    });
    permit.answered(&hints);
    Ok(response)
}

impl PaceConfig {
    fn key(&self, call: &Parts) -> String {
        if let Some(key) = &self.key {
            return key(call);
        }
        let host = || call.headers.get(HOST).and_then(|host| host.to_str().ok());
        let authority = call.uri.authority().map(|authority| authority.as_str()).or_else(host);
        format!("{}://{}", call.uri.scheme_str().unwrap_or_default(), authority.unwrap_or_default())
    }

    fn pace(&self) -> Pace {
        self.spread_below_percent.map_or_else(Pace::new, Pace::spreading_below)
    }
}

impl fmt::Debug for PaceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bounds, spread_below_percent, .. } = self;
        f.debug_struct("Config")
            .field("bounds", bounds)
            .field("spread_below_percent", spread_below_percent)
            .finish_non_exhaustive()
    }
}

impl<B> RetryPolicy<B> for NoRetry {
    fn retries_max(&self) -> u32 {
        0
    }

    fn clone_request(&self, _: &Request<B>) -> Option<Request<B>> {
        None
    }
}

impl<B: Clone> RetryPolicy<B> for Retries {
    fn retries_max(&self) -> u32 {
        self.0
    }

    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

impl<E: fmt::Display> fmt::Display for PacedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldWait(would_wait) => would_wait.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PacedError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::WouldWait(would_wait) => Some(would_wait),
            Self::Inner(error) => error.source(),
        }
    }
}
