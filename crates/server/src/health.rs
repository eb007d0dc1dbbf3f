//! Health of the service: rules, store and shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate::{Timestamp, WithheldDomain};
use tokio::sync::watch;

/// Health of the service. Clones share it.
///
/// ```
/// use sluicegate_server::health::Health;
///
/// let health = Health::default();
/// assert_eq!(health.state().unready_reason(), Some("no rules are loaded"));
/// health.rules_loaded(3);
/// assert!(health.state().is_ready());
/// health.drain();
/// assert!(!health.state().is_ready());
/// ```
#[derive(Debug, Clone)]
pub struct Health {
    inner: Arc<HealthInner>,
}

#[derive(Debug)]
struct HealthInner {
    state: watch::Sender<HealthState>,
    /// Read by every request, hence outside the lock of `state`.
    has_rules: AtomicBool,
    /// Domains whose last rules stay in force though the files have none.
    withheld: Mutex<Vec<WithheldDomain>>,
    last_load: Mutex<LastLoad>,
    rejected: Mutex<Option<RejectedLoad>>,
}

/// A load of the rules that was rejected, and after which none succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedLoad {
    /// When it was rejected.
    pub at: Timestamp,
    /// The first of its errors.
    pub error: String,
}

/// Last load of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastLoad {
    /// Whether it loaded all that the files configure: no error, and no withheld domain.
    pub is_successful: bool,
    /// When rules were last loaded successfully.
    pub succeeded_at: Option<Timestamp>,
}

/// State of the service at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthState {
    /// Number of domains with rules; `None` until rules are loaded.
    pub domains: Option<usize>,
    /// Whether the service shuts down.
    pub draining: bool,
    /// Whether the service is unhealthy without a domain.
    needs_domain: bool,
    /// Connection to the store; `None` with a memory backend.
    pub store: Option<StoreState>,
    /// Whether a lost connection to the store makes the service unhealthy.
    needs_store: bool,
}

/// Connection to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// Never established.
    Connecting,
    /// Established.
    Up,
    /// Lost; `on_store_failure` of each rule applies.
    Down,
}

impl Health {
    /// Health of a service that needs at least one domain with rules.
    #[must_use]
    pub fn requiring_domain() -> Self {
        Self::new(true)
    }

    fn new(needs_domain: bool) -> Self {
        let state = HealthState {
            domains: None,
            draining: false,
            needs_domain,
            store: None,
            needs_store: false,
        };
        let (state, has_rules) = (watch::Sender::new(state), AtomicBool::new(false));
        let (withheld, last_load, rejected) = Default::default();
        Self { inner: Arc::new(HealthInner { state, has_rules, withheld, last_load, rejected }) }
    }

    /// Records that rules were loaded.
    pub fn rules_loaded(&self, domains: usize) {
        self.inner.state.send_modify(|state| state.domains = Some(domains));
        self.inner.has_rules.store(true, Ordering::Release);
    }

    /// Replaces the list of domains whose removal is withheld; returns the previous one. Their
    /// limits are enforced, so the service stays ready.
    pub fn set_withheld(&self, domains: Vec<WithheldDomain>) -> Vec<WithheldDomain> {
        let mut withheld = self.inner.withheld.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut withheld, domains)
    }

    /// The domains whose removal is withheld.
    #[must_use]
    pub fn withheld(&self) -> Vec<WithheldDomain> {
        self.inner.withheld.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a load of the rules at a time, or an incomplete one.
    ///
    /// ```
    /// use sluicegate::Timestamp;
    /// use sluicegate_server::health::Health;
    ///
    /// let (health, noon) = (Health::default(), Timestamp::from_micros(1_794_744_000_000_000));
    /// health.record_load(noon, true);
    /// health.record_load(noon.after(sluicegate::Span::from_secs(9)), false);
    /// let load = health.last_load();
    /// assert_eq!((load.is_successful, load.succeeded_at), (false, Some(noon)));
    /// ```
    pub fn record_load(&self, now: Timestamp, is_successful: bool) {
        let mut last = self.inner.last_load.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_successful = is_successful;
        if is_successful {
            last.succeeded_at = Some(now);
        }
    }

    /// Records whether the last load was rejected: the rules of the one before stay in force.
    pub fn set_rejected(&self, load: Option<RejectedLoad>) {
        *self.inner.rejected.lock().unwrap_or_else(PoisonError::into_inner) = load;
    }

    /// The last load, if it was rejected.
    #[must_use]
    pub fn rejected(&self) -> Option<RejectedLoad> {
        self.inner.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last load of the rules.
    #[must_use]
    pub fn last_load(&self) -> LastLoad {
        *self.inner.last_load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether rules were ever loaded.
    #[inline]
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.inner.has_rules.load(Ordering::Acquire)
    }

    /// Adds a store that is not connected yet. With `needs_store` the service is also unhealthy
    /// whenever the connection is lost later.
    ///
    /// ```
    /// use sluicegate_server::health::Health;
    ///
    /// let health = Health::default();
    /// health.rules_loaded(3);
    /// health.add_store(false);
    /// assert_eq!(health.state().unready_reason(), Some("the store cannot be reached"));
    /// health.set_store_up(true);
    /// assert!(health.state().is_ready());
    /// health.set_store_up(false);
    /// assert!(health.state().is_ready(), "`on_store_failure` applies");
    /// ```
    pub fn add_store(&self, needs_store: bool) {
        self.inner.state.send_modify(|state| {
            state.store = Some(StoreState::Connecting);
            state.needs_store = needs_store;
        });
    }

    /// Records whether the store is connected.
    pub fn set_store_up(&self, up: bool) {
        self.inner.state.send_modify(|state| {
            state.store = match (state.store, up) {
                (_, true) => Some(StoreState::Up),
                (Some(StoreState::Up), false) => Some(StoreState::Down),
                (unchanged, false) => unchanged,
            };
        });
    }

    /// Records that the service shuts down, so that load balancers stop sending requests.
    pub fn drain(&self) {
        self.inner.state.send_modify(|state| state.draining = true);
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> HealthState {
        *self.inner.state.borrow()
    }

    /// Subscribes to changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<HealthState> {
        self.inner.state.subscribe()
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new(false)
    }
}

impl HealthState {
    /// Health as in envoyproxy/ratelimit, where a service without rules is healthy.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let lacks_domain = self.needs_domain && self.domains.unwrap_or(0) == 0;
        !self.draining && !lacks_domain && !self.lacks_store()
    }

    /// Whether the store is needed and not connected.
    const fn lacks_store(&self) -> bool {
        match self.store {
            None | Some(StoreState::Up) => false,
            Some(StoreState::Connecting) => true,
            Some(StoreState::Down) => self.needs_store,
        }
    }

    /// Whether requests can be decided by rules.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unready_reason().is_none()
    }

    /// Reason why requests should go to another node, if there is one.
    #[must_use]
    pub fn unready_reason(&self) -> Option<&'static str> {
        match self.domains {
            _ if self.draining => Some("shutting down"),
            None => Some("no rules are loaded"),
            Some(0) if self.needs_domain => Some("no domain has rules"),
            Some(_) if self.lacks_store() => Some("the store cannot be reached"),
            Some(_) => None,
        }
    }
}
