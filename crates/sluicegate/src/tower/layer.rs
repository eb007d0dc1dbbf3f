//! What there is to say about a layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use tower_layer::Layer;

use super::key::Identify;
use super::{Missing, RateLimit};
use crate::Limiter;
use crate::http::Style;

/// How long a request is made to wait for its turn at most, unless [`RateLimitLayer::within`] tells otherwise: most clients
/// and proxies have given up after half a minute.
///
/// ```
/// assert_eq!(sluicegate::tower::WAIT_MAX.as_secs(), 30);
/// ```
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

/// What a layer and its services share.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) gates: Vec<Gate>,
    cost: Option<Of<u64>>,
    skip: Option<Of<bool>>,
    pub(super) missing: Missing,
    pub(super) style: Style,
    /// `None` leaves it to each limit whether it makes anybody wait.
    pub(super) patience: Option<Duration>,
}

/// Something that is told by a request.
type Of<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// A limiter that has a say, and on whom.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) limiter: Limiter,
    pub(super) key: Arc<dyn Identify>,
}

// === impl RateLimitLayer ===

impl RateLimitLayer {
    /// `limiter` has a say on every request, under the key that [`key`](super::key) finds.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::header;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-user"));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn new(limiter: Limiter, key: impl Identify + 'static) -> Self {
        let gates = vec![Gate { limiter, key: Arc::new(key) }];
        let config = Config {
            gates,
            cost: None,
            skip: None,
            missing: Missing::default(),
            style: Style::default(),
            patience: None,
        };
        Self { config: Arc::new(config) }
    }

    /// Another limiter has a say too: all agree, or nobody charges the request.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::{FixedWindow, TokenBucket};
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::{Everybody, header};
    ///
    /// let per_user = Limiter::new(FixedWindow::per_day(1_000))?;
    /// let global = Limiter::new(TokenBucket::per_second(10_000))?;
    /// let layer = RateLimitLayer::new(per_user, header("x-user")).and(global, Everybody);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn and(self, limiter: Limiter, key: impl Identify + 'static) -> Self {
        self.with(|config| config.gates.push(Gate { limiter, key: Arc::new(key) }))
    }

    /// What a request weighs; 1 unless told. It counts for all limiters of the layer, and a request of cost 3 takes three
    /// slots of a concurrency limit. Cost 0 always passes.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::header;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-user"))
    ///     .cost(|request| if request.method == http::Method::GET { 1 } else { 5 });
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|config| config.cost = Some(Arc::new(cost)))
    }

    /// Which requests are nobody's business: they pass uncounted, and their responses stay as they are.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::header;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-user"))
    ///     .skip(|request| request.uri.path() == "/health");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.skip = Some(Arc::new(skip)))
    }

    /// What happens to a request without a key; all such share one budget unless told.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::key::header;
    /// use sluicegate::tower::{Missing, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-user"))
    ///     .on_missing(Missing::Pass);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn on_missing(self, missing: Missing) -> Self {
        self.with(|config| config.missing = missing)
    }

    /// Every limit makes a request wait instead of denying it, as long as its turn comes within `patience`; and a
    /// slot of a concurrency limit is waited for.
    ///
    /// Unless told, limits that are there to make requests wait do so for up to [`WAIT_MAX`] (`leaky_bucket`,
    /// `smooth_bursty`, `warm_up`), and all others deny at once. `Duration::ZERO`: nobody waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::Concurrency;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::Everybody;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(Concurrency::at_most(10))?, Everybody)
    ///     .within(Duration::from_secs(2));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn within(self, patience: Duration) -> Self {
        self.with(|config| config.patience = Some(patience))
    }

    /// Which headers are written, and which status a denial has.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::http::{Reset, Style};
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::header;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-user"))
    ///     .style(Style { reset: Reset::SecondsToGo, ..Style::default() });
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn style(self, style: Style) -> Self {
        self.with(|config| config.style = style)
    }

    /// Admitted responses stay as they are, and a denial tells only when to come back.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use sluicegate::limit::TokenBucket;
    /// use sluicegate::tower::RateLimitLayer;
    /// use sluicegate::tower::key::header;
    ///
    /// let layer = RateLimitLayer::new(Limiter::new(TokenBucket::per_second(10))?, header("x-user"))
    ///     .without_headers();
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
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

// === impl Config ===

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
        let limiters: Vec<_> = self.gates.iter().map(|gate| &gate.limiter).collect();
        f.debug_struct("RateLimit")
            .field("limiters", &limiters)
            .field("missing", &self.missing)
            .field("style", &self.style)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
