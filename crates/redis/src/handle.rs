//! One handle for all limiters and engines of a process.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "tracing")]
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sluicegate::clock::TimeSource;
use sluicegate::{Builder, CounterStore, Engine, EngineBuilder, LimitError, Limiter};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
#[cfg(feature = "tracing")]
use tracing::{info, warn};

use crate::{Address, Closer, Link, LinkError, LinkOptions, RedisBackend, Store, StoreOptions};

/// How often [`Redis::connected`] checks the connection.
const CONNECTED_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How often an outage is looked for, to report it.
#[cfg(feature = "tracing")]
const OUTAGE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Errors of a server that does not accept the credentials.
const ACCESS_DENIED: [&str; 3] = ["WRONGPASS", "NOAUTH", "NOPERM"];

/// A Redis or Valkey for limiters and engines. All of a process share its connections; so do
/// clones.
///
/// Every process that has a limiter of the same name counts in the same place:
/// `sg:1:{@limiter|NAME=KEY}`. While Redis does not answer, each limiter's `on_store_failure`
/// applies.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
/// use sluicegate_redis::Redis;
///
/// let redis = Redis::connect("redis://127.0.0.1:6379")?;
/// let logins = Limiter::builder()
///     .name("logins")
///     .limit(TokenBucket::per_minute(5))
///     .on(&redis)?;
/// // This process counts by itself until there is a connection.
/// assert!(logins.hit_async("alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    inner: Arc<RedisInner>,
}

struct RedisInner {
    store: Store,
    options: StoreOptions,
    /// The runtime of the background tasks.
    runtime: Handle,
    names: Arc<Mutex<HashSet<Box<str>>>>,
    closers: Mutex<Vec<Closer>>,
}

/// Options of a [`Redis`]: see [`Redis::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is connected yet"]
pub struct RedisBuilder {
    url: String,
    link: LinkOptions,
    store: StoreOptions,
}

/// The name of a limiter, taken until the limiter is dropped.
#[derive(Debug)]
pub(crate) struct NameClaim {
    name: Box<str>,
    names: Arc<Mutex<HashSet<Box<str>>>>,
}

impl Redis {
    /// The Redis at a URL (`redis://`, `rediss://`, `redis-sentinel://`, `redis-cluster://`), which
    /// need not be reachable yet: connections are opened in the background, and again when one is
    /// lost. Must be called within a Tokio runtime.
    ///
    /// It does not wait for an answer: a wrong password is an error of [`Redis::ready`].
    ///
    /// # Errors
    /// When the URL is invalid, or there is no Tokio runtime.
    pub fn connect(url: &str) -> Result<Self, LinkError> {
        Self::builder(url).connect()
    }

    /// Starts a builder, for other options.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use sluicegate_redis::{LinkOptions, Redis};
    ///
    /// let redis = Redis::builder("redis://127.0.0.1:6379")
    ///     .namespace("shop")
    ///     .link(LinkOptions { timeout: Duration::from_millis(50), ..LinkOptions::default() })
    ///     .connect()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        let (link, store) = (LinkOptions::default(), StoreOptions::default());
        RedisBuilder { url: url.into(), link, store }
    }

    /// Waits for the first connection; `false` if there is none in time. Optional: until then, the
    /// failure policies apply.
    pub async fn connected(&self, within: Duration) -> bool {
        self.ready(within).await.is_ok()
    }

    /// Waits for the first connection; the error has the reason of the failure.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), sluicegate_redis::LinkError> {
    /// use std::time::Duration;
    /// use sluicegate_redis::{LinkError, Redis};
    ///
    /// let redis = Redis::connect("redis://127.0.0.1:6379")?;
    /// match redis.ready(Duration::from_secs(5)).await {
    ///     // Connecting goes on in the background; meanwhile, the failure policies apply.
    ///     Err(LinkError::Unreachable(reason)) => eprintln!("no connection yet: {reason}"),
    ///     result => result?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LinkError::AccessDenied`] as soon as the server does not accept the credentials, and
    /// [`LinkError::Unreachable`] when there is no connection in time.
    pub async fn ready(&self, within: Duration) -> Result<(), LinkError> {
        let ready = async {
            while !self.link().is_up() {
                let error = self.last_error();
                let is_denied =
                    |error: &&str| ACCESS_DENIED.iter().any(|code| error.contains(code));
                if let Some(error) = error.as_deref().filter(is_denied) {
                    return Err(LinkError::AccessDenied(error.into()));
                }
                sleep(CONNECTED_POLL_INTERVAL).await;
            }
            Ok(())
        };
        let no_answer = || self.last_error().unwrap_or_else(|| "no answer in time".into());
        match timeout(within, ready).await {
            Ok(result) => result,
            Err(_) => Err(LinkError::Unreachable(no_answer())),
        }
    }

    /// The last error of the system or the servers, while there is one.
    #[must_use]
    pub fn last_error(&self) -> Option<Box<str>> {
        self.link().last_error()
    }

    /// Releases the leased quota of all limiters and engines, and pushes their counts, so that
    /// other processes have them at once. To be called before a process ends; later requests are
    /// decided by the Redis.
    ///
    /// Without it, also when a limiter is dropped, leases expire after two seconds, and the last
    /// counts of eventual limiters are not pushed. Strict limiters have nothing to release.
    pub async fn close(&self) {
        let closers = std::mem::take(&mut *self.inner.closers.lock());
        join_all(closers.into_iter().map(Closer::close)).await;
        self.inner.store.leave().await;
    }

    /// The connections, with their counters.
    #[must_use]
    pub fn link(&self) -> &Link {
        self.inner.store.link()
    }

    /// The store, with its counters.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The store for a clock. One that is not the system's replaces the clock of the Redis, which
    /// takes a store of its own on the same connections.
    fn store_for(&self, clock: &TimeSource) -> Store {
        match clock {
            TimeSource::System(_) => self.inner.store.clone(),
            TimeSource::Custom(clock) => {
                let options = StoreOptions {
                    clock: Some(clock.clone()),
                    node: Some(self.inner.store.node()),
                    ..self.inner.options.clone()
                };
                Store::new(self.link().clone(), options)
            }
        }
    }

    fn register(&self, backend: &RedisBackend) {
        let mut closers = self.inner.closers.lock();
        closers.retain(|closer| !closer.is_dropped());
        closers.push(backend.closer());
    }

    fn claim(&self, name: &str) -> Result<NameClaim, LimitError> {
        if !self.inner.names.lock().insert(name.into()) {
            return Err(LimitError::NameTaken { name: name.to_owned() });
        }
        Ok(NameClaim { name: name.into(), names: self.inner.names.clone() })
    }
}

impl CounterStore for Redis {
    type Backend = RedisBackend;

    fn limiter(&self, builder: Builder) -> Result<Limiter<RedisBackend>, LimitError> {
        // Limiters may be built outside of the runtime.
        let _runtime = self.inner.runtime.enter();
        builder.build_on(|name, clock| {
            let claim = self.claim(name)?;
            let backend = RedisBackend::new(self.store_for(clock), clock).with_claim(claim);
            self.register(&backend);
            Ok(backend)
        })
    }

    fn engine(&self, builder: EngineBuilder) -> Result<Engine<RedisBackend>, LimitError> {
        let _runtime = self.inner.runtime.enter();
        let engine = builder.build()?;
        let backend = RedisBackend::new(self.store_for(engine.clock()), engine.clock());
        self.register(&backend);
        Ok(engine.with_backend(backend))
    }
}

impl RedisBuilder {
    /// Prefix of all keys, so that one Redis serves several deployments; `sg` by default.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.store.namespace = namespace.into();
        self
    }

    /// Timeouts, connections, credentials, TLS and the circuit breaker.
    pub fn link(self, link: LinkOptions) -> Self {
        Self { link, ..self }
    }

    /// Connects in the background: see [`Redis::connect`].
    ///
    /// # Errors
    /// When the URL or an option is invalid, a file cannot be read, or there is no Tokio runtime.
    pub fn connect(self) -> Result<Redis, LinkError> {
        let address = Address::parse(&self.url)?;
        #[cfg(feature = "tracing")]
        let text = address.to_string();
        let link = Link::open(address, self.link)?;
        let runtime = Handle::try_current().map_err(|_| LinkError::NoRuntime)?;
        let store = Store::new(link, self.store.clone());
        let (names, closers) = Default::default();
        let inner = Arc::new(RedisInner { store, options: self.store, runtime, names, closers });
        #[cfg(feature = "tracing")]
        inner.runtime.spawn(report_outages(Arc::downgrade(&inner), text));
        Ok(Redis { inner })
    }
}

/// Reports when the Redis is lost, and when it answers.
#[cfg(feature = "tracing")]
async fn report_outages(redis: Weak<RedisInner>, address: String) {
    let (mut ticks, mut was_up) = (tokio::time::interval(OUTAGE_POLL_INTERVAL), None);
    loop {
        ticks.tick().await;
        let Some(redis) = redis.upgrade() else { return };
        let link = redis.store.link();
        let is_up = link.is_up();
        // No alarm before the first attempt has failed.
        if was_up == Some(is_up) || (!is_up && link.is_connecting()) {
            continue;
        }
        if is_up {
            info!(address, "the store answers");
        } else {
            let error = link.last_error();
            warn!(
                address,
                error = error.as_deref().unwrap_or("no connection"),
                "the store cannot be reached: `on_store_failure` of each limiter applies"
            );
        }
        was_up = Some(is_up);
    }
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        self.names.lock().remove(&self.name);
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("link", self.link()).finish_non_exhaustive()
    }
}
