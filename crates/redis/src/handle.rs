//! One handle for all limiters and engines of a process.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate::clock::TimeSource;
use sluicegate::{Builder, CounterStore, Engine, EngineBuilder, LimitError, Limiter};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::{Address, Link, LinkError, LinkOptions, RedisBackend, Store, StoreOptions};

/// How often [`Redis::connected`] checks the connection.
const CONNECTED_POLL_INTERVAL: Duration = Duration::from_millis(5);

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
        let connected = async {
            while !self.link().is_up() {
                sleep(CONNECTED_POLL_INTERVAL).await;
            }
        };
        timeout(within, connected).await.is_ok()
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
            Ok(RedisBackend::new(self.store_for(clock), clock).with_claim(claim))
        })
    }

    fn engine(&self, builder: EngineBuilder) -> Result<Engine<RedisBackend>, LimitError> {
        let _runtime = self.inner.runtime.enter();
        let engine = builder.build()?;
        let store = self.store_for(engine.clock());
        Ok(RedisBackend::attach(engine, store))
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
        let link = Link::open(Address::parse(&self.url)?, self.link)?;
        let runtime = Handle::try_current().map_err(|_| LinkError::NoRuntime)?;
        let store = Store::new(link, self.store.clone());
        let names = Arc::default();
        let inner = RedisInner { store, options: self.store, runtime, names };
        Ok(Redis { inner: Arc::new(inner) })
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
