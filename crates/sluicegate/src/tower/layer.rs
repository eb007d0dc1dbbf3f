//! The layer and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::Response;
use ::http::request::Parts;
use bytes::Bytes;
use tower_layer::Layer;

use super::RateLimit;
use super::denial::Denial;
use super::key::Identify;
use crate::Limiter;
use crate::backend::Backend;
use crate::http::Style;

/// The longest wait of a request for its turn, unless [`RateLimitLayer::within`] sets another: most
/// clients and proxies give up after half a minute.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Limits a service: see the [module](super).
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use sluicegate::Limiter;
/// use sluicegate::limit::FixedWindow;
/// use sluicegate::tower::RateLimitLayer;
/// use sluicegate::tower::key::header;
/// use tower::{Layer, ServiceExt, service_fn};
/// # type Body = http_body_util::Empty<bytes::Bytes>;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::new(FixedWindow::per_hour(1))?;
/// let layer = RateLimitLayer::new(limiter, header("x-user"));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(Body::new()))
/// }));
///
/// let alice = || Request::builder().header("x-user", "alice").body(());
/// let first = service.clone().oneshot(alice()?).await?;
/// assert_eq!(first.headers()["x-ratelimit-remaining"], "0");
/// let second = service.clone().oneshot(alice()?).await?;
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is limited until it is applied to a service"]
pub struct RateLimitLayer {
    config: Arc<Config>,
}

/// Settings shared by a layer and its services.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) limiters: Vec<KeyedLimiter>,
    cost: Option<RequestFn<u64>>,
    skip: Option<RequestFn<bool>>,
    pub(super) missing: Missing,
    pub(super) style: Style,
    /// `None`: the algorithm of each limit decides whether requests wait.
    pub(super) max_wait: Option<Duration>,
    pub(super) on_denied: Option<DenialFn>,
}

/// Makes the response to a denied request from the default one.
pub(super) type DenialFn =
    Arc<dyn Fn(&Denial<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

/// A function of the request head.
type RequestFn<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// A limiter and its key.
#[derive(Clone)]
pub(super) struct KeyedLimiter {
    pub(super) limiter: LayerLimiter,
    pub(super) key: Arc<dyn Identify>,
    /// Of its key; `None` for that of the layer.
    pub(super) missing: Option<Missing>,
}

/// A limiter of a layer, which answers at once or has to be awaited.
#[derive(Debug, Clone)]
pub(super) enum LayerLimiter {
    Memory(Reported<Limiter>),
    Shared(Reported<Limiter<dyn Backend>>),
}

/// A limiter, and the same one for operations whose result the layer reports to its listener.
#[derive(Debug, Clone)]
pub(super) struct Reported<L> {
    pub(super) limiter: L,
    pub(super) quiet: L,
}

impl KeyedLimiter {
    fn new(limiter: Limiter<dyn Backend>, key: impl Identify + 'static) -> Self {
        let limiter = match limiter.is_shared() {
            true => LayerLimiter::Shared(Reported { quiet: limiter.quiet(), limiter }),
            false => {
                let limiter = limiter.in_memory();
                LayerLimiter::Memory(Reported { quiet: limiter.quiet(), limiter })
            }
        };
        Self { limiter, missing: key.missing(), key: Arc::new(key) }
    }
}

impl RateLimitLayer {
    /// Limits every request with `limiter`, under the key from [`key`](super::key). The counters
    /// may be in memory or in a store such as Redis.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::http::{Reset, Style};
    /// use sluicegate::limit::{FixedWindow, TokenBucket};
    /// use sluicegate::tower::key::{Everybody, header};
    /// use sluicegate::tower::{Missing, RateLimitLayer, WAIT_MAX};
    ///
    /// let per_user = Limiter::new(FixedWindow::per_day(1_000))?;
    /// let global = Limiter::new(TokenBucket::per_second(10_000))?;
    /// let layer = RateLimitLayer::new(per_user, header("x-user"))
    ///     .and(global, Everybody)
    ///     .cost(|request| if request.method == http::Method::GET { 1 } else { 5 })
    ///     .skip(|request| request.uri.path() == "/health")
    ///     .on_missing(Missing::Reject)
    ///     .within(WAIT_MAX)
    ///     .style(Style { reset: Reset::SecondsToGo, ..Style::default() });
    /// let quiet = layer.without_headers();
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn new(limiter: impl Into<Limiter<dyn Backend>>, key: impl Identify + 'static) -> Self {
        let limiters = vec![KeyedLimiter::new(limiter.into(), key)];
        let config = Config {
            limiters,
            cost: None,
            skip: None,
            missing: Missing::default(),
            style: Style::default(),
            max_wait: None,
            on_denied: None,
        };
        Self { config: Arc::new(config) }
    }

    /// Adds a limiter: all are charged, or none.
    ///
    /// Limiters in memory decide in one step. Those in a store follow, each with a call of its own:
    /// first limiters that deny at once, then slots, then limiters that make requests wait. If a
    /// later one denies, the charges of the earlier ones are refunded and their slots released; the
    /// response lists the limits up to that one. Between the two calls other requests see the
    /// charge, and may be denied by it. It stays charged if the client disconnects or the store
    /// fails in between, and if its turn has come already. Limits of one key are decided in one
    /// call as limits of one limiter ([`Builder::limit`](crate::Builder::limit)), those of several
    /// keys as rules of an [`Engine`](crate::Engine).
    pub fn and(
        self,
        limiter: impl Into<Limiter<dyn Backend>>,
        key: impl Identify + 'static,
    ) -> Self {
        self.with(|config| config.limiters.push(KeyedLimiter::new(limiter.into(), key)))
    }

    /// Makes the response to a request that the layer does not pass on, from the default one.
    /// Status and headers stay unless they are changed: `Retry-After`, and `Content-Type`, which is
    /// JSON.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::header::CONTENT_TYPE;
    /// use http::{HeaderValue, Response};
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::key::header;
    /// use sluicegate::tower::{Denial, DenialReason, RateLimitLayer};
    ///
    /// let limiter = Limiter::new(TokenBucket::per_second(10).named("second"))?;
    /// let layer = RateLimitLayer::new(limiter, header("x-api-key")).on_denied(
    ///     |denial: &Denial<'_>, mut response: Response<Bytes>| match denial.reason {
    ///         DenialReason::Limit { verdict, policies } => {
    ///             let limit = verdict.decided_by.and_then(|index| policies.get(index));
    ///             let name = limit.map_or("", |limit| &limit.name);
    ///             let text = HeaderValue::from_static("text/plain");
    ///             response.headers_mut().insert(CONTENT_TYPE, text);
    ///             response.map(|_| Bytes::from(format!("the limit per {name} is reached\n")))
    ///         }
    ///         _ => response,
    ///     },
    /// );
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// With axum, a JSON body is `serde_json::to_vec(&value)`; the response keeps its content type:
    ///
    /// ```
    /// # use bytes::Bytes;
    /// # use sluicegate::Limiter;
    /// # use sluicegate::limit::TokenBucket;
    /// # use sluicegate::tower::RateLimitLayer;
    /// # use sluicegate::tower::key::header;
    /// # let limiter = Limiter::new(TokenBucket::per_second(10))?;
    /// let layer = RateLimitLayer::new(limiter, header("x-api-key")).on_denied(|denial, response| {
    ///     let path = denial.request.uri.path();
    ///     let body = serde_json::json!({ "path": path, "code": "slow_down" });
    ///     response.map(|_| Bytes::from(body.to_string()))
    /// });
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn on_denied(
        self,
        respond: impl Fn(&Denial<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|config| config.on_denied = Some(Arc::new(respond)))
    }

    /// The cost of a request; 1 by default. It applies to all limiters of the layer, and a request
    /// of cost 3 takes three slots of a concurrency limit. Cost 0 always passes.
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|config| config.cost = Some(Arc::new(cost)))
    }

    /// Exempts requests: they pass uncounted, and their responses stay unchanged.
    pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.skip = Some(Arc::new(skip)))
    }

    /// The treatment of requests without a key; by default they share one budget. It applies to
    /// every limiter of the layer whose key does not set its own
    /// ([`Identify::on_missing`](super::key::Identify::on_missing)).
    ///
    /// Set [`Missing::Pass`] on single keys: on the layer, it also disables a limit by address when
    /// the server does not provide the address.
    pub fn on_missing(self, missing: Missing) -> Self {
        self.with(|config| config.missing = missing)
    }

    /// Makes every limit delay a request instead of denying it, if its turn comes within
    /// `max_wait`. The request also waits for slots of concurrency limits.
    ///
    /// By default, traffic-shaping limits (`leaky_bucket`, `smooth_bursty`, `warm_up`) make
    /// requests wait for up to [`WAIT_MAX`], and all others deny at once. With `Duration::ZERO` no
    /// request waits.
    pub fn within(self, max_wait: Duration) -> Self {
        self.with(|config| config.max_wait = Some(max_wait))
    }

    /// The headers of responses, and the status of a denial.
    pub fn style(self, style: Style) -> Self {
        self.with(|config| config.style = style)
    }

    /// Leaves admitted responses unchanged; a denial contains only the time to retry.
    pub fn without_headers(self) -> Self {
        self.with(|config| {
            config.style = Style { x_headers: false, ietf_fields: false, ..config.style };
        })
    }

    fn with(self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        change(&mut config);
        Self { config: Arc::new(config) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, config: self.config.clone() }
    }
}

impl Config {
    pub(super) fn skips(&self, request: &Parts) -> bool {
        self.skip.as_ref().is_some_and(|skip| skip(request))
    }

    pub(super) fn cost_of(&self, request: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(request))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limiters: Vec<_> = self.limiters.iter().map(|gate| &gate.limiter).collect();
        f.debug_struct("RateLimit")
            .field("limiters", &limiters)
            .field("missing", &self.missing)
            .field("style", &self.style)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

/// The key of requests without one under [`Missing::Shared`].
///
/// No header value and no address equals these bytes, so a client cannot send them.
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

/// The treatment of a request without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// All of them share one budget, under [`MISSING_KEY`]. The default: a server without a
    /// configured peer address limits too much, which is noticed, rather than not at all.
    #[default]
    Shared,
    /// The limiter ignores the request. Others on the same layer apply, unless their keys are
    /// missing too: on a layer, this can leave a request without any limit. Prefer it on
    /// [one key](super::key::Identify::on_missing).
    Pass,
    /// The response is 400, or `INVALID_ARGUMENT` in gRPC, and no limit is charged.
    Reject,
}
