//! Whether the service is fit to be asked, and who wants to know when that changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate::WithheldDomain;
use tokio::sync::watch;

/// Whether the service is fit to be asked. Clones are the same.
///
/// ```
/// use sluicegate_server::health::Health;
///
/// let health = Health::default();
/// assert_eq!(health.state().why_not_ready(), Some("no rules are loaded"));
/// health.rules_loaded(3);
/// assert!(health.state().is_ready());
/// health.drain();
/// assert!(!health.state().is_ready());
/// ```
#[derive(Debug, Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: watch::Sender<State>,
    /// The one thing that every request asks for, apart from the lock of the others.
    has_rules: AtomicBool,
    /// Domains whose last rules stay in force though the files have none.
    withheld: Mutex<Vec<WithheldDomain>>,
}

/// What there is to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// How many domains have rules; nothing until rules were loaded for the first time.
    pub domains: Option<usize>,
    /// Whether it is about to end.
    pub draining: bool,
    /// Whether it is of no use without a domain.
    needs_a_domain: bool,
    /// Whether the store that its counters are in can be asked; nothing if they are its own.
    pub store: Option<StoreState>,
    /// Whether it is of no use without the store, also after it has had it.
    needs_store: bool,
}

/// Whether the store can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// It never could.
    NotYet,
    /// It can.
    Up,
    /// It could; until it can again, each rule says what happens (`on_store_failure`).
    Down,
}

// === impl Health ===

impl Health {
    /// A service that is of use only if at least one domain has rules.
    #[must_use]
    pub fn with_a_domain() -> Self {
        Self::of(true)
    }

    fn of(needs_a_domain: bool) -> Self {
        let state = State {
            domains: None,
            draining: false,
            needs_a_domain,
            store: None,
            needs_store: false,
        };
        let (state, has_rules) = (watch::Sender::new(state), AtomicBool::new(false));
        Self { inner: Arc::new(Inner { state, has_rules, withheld: Mutex::default() }) }
    }

    /// Rules were loaded.
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

    /// Whether rules were ever loaded.
    #[inline]
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.inner.has_rules.load(Ordering::Acquire)
    }

    /// Its counters are in a store, which could not be asked yet. Whether it is of no use without it, also later.
    ///
    /// ```
    /// use sluicegate_server::health::Health;
    ///
    /// let health = Health::default();
    /// health.rules_loaded(3);
    /// health.has_store(false);
    /// assert_eq!(health.state().why_not_ready(), Some("the store cannot be reached"));
    /// health.store_is(true);
    /// assert!(health.state().is_ready());
    /// health.store_is(false);
    /// assert!(health.state().is_ready(), "each rule says what happens without it");
    /// ```
    pub fn has_store(&self, needs_store: bool) {
        self.inner.state.send_modify(|state| {
            state.store = Some(StoreState::NotYet);
            state.needs_store = needs_store;
        });
    }

    /// Whether the store can be asked now.
    pub fn store_is(&self, up: bool) {
        self.inner.state.send_modify(|state| {
            state.store = match (state.store, up) {
                (_, true) => Some(StoreState::Up),
                (Some(StoreState::Up), false) => Some(StoreState::Down),
                (was, false) => was,
            };
        });
    }

    /// It is about to end: whoever can should go elsewhere.
    pub fn drain(&self) {
        self.inner.state.send_modify(|state| state.draining = true);
    }

    /// How it is now.
    #[must_use]
    pub fn state(&self) -> State {
        *self.inner.state.borrow()
    }

    /// Tells of every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<State> {
        self.inner.state.subscribe()
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::of(false)
    }
}

// === impl State ===

impl State {
    /// As envoyproxy/ratelimit sees it, for which a service without rules is in good health.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let lacks_a_domain = self.needs_a_domain && self.domains.unwrap_or(0) == 0;
        !self.draining && !lacks_a_domain && !self.lacks_store()
    }

    /// Whether it is of no use for want of the store.
    const fn lacks_store(&self) -> bool {
        match self.store {
            None | Some(StoreState::Up) => false,
            Some(StoreState::NotYet) => true,
            Some(StoreState::Down) => self.needs_store,
        }
    }

    /// Whether whoever asks gets an answer by rules.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.why_not_ready().is_none()
    }

    /// Why whoever asks should ask elsewhere.
    #[must_use]
    pub fn why_not_ready(&self) -> Option<&'static str> {
        match self.domains {
            _ if self.draining => Some("shutting down"),
            None => Some("no rules are loaded"),
            Some(0) if self.needs_a_domain => Some("no domain has rules"),
            Some(_) if self.lacks_store() => Some("the store cannot be reached"),
            Some(_) => None,
        }
    }
}
