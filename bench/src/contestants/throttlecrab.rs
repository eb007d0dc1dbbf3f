//! throttlecrab: a GCRA over a hash map of its own, in a `Mutex`, since that is how its documentation
//! shares it between threads.
//!
//! Both stores are told the number of ids to come. The adaptive one has to be: past three quarters of its
//! capacity it sweeps the whole map on every insertion, so that to grow takes quadratic time. It also
//! sweeps every 100,000 checks; that is its default, and it is timed.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use throttlecrab::{AdaptiveStore, PeriodicStore, RateLimiter, Store};

use crate::cell::Rule;
use crate::contestant::Contestant;

/// With the store that decides by itself when to sweep.
pub(crate) type Adaptive = Throttlecrab<AdaptiveStore>;

/// With the store that sweeps once a minute.
pub(crate) type Periodic = Throttlecrab<PeriodicStore>;

/// throttlecrab over one of its stores.
pub(crate) struct Throttlecrab<S: Store> {
    limiter: Mutex<RateLimiter<S>>,
    burst: i64,
    period_secs: i64,
}

/// A store with room for so many ids.
pub(crate) trait Roomy: Store + Send {
    /// Built as its documentation builds it.
    fn with_room(ids: usize) -> Self;
}

impl Roomy for AdaptiveStore {
    fn with_room(ids: usize) -> Self {
        Self::builder().capacity(ids).build()
    }
}

impl Roomy for PeriodicStore {
    fn with_room(ids: usize) -> Self {
        Self::builder().capacity(ids).build()
    }
}

impl<S: Roomy> Contestant for Throttlecrab<S> {
    fn new(rule: Rule, ids: usize) -> Self {
        Self {
            limiter: Mutex::new(RateLimiter::new(S::with_room(ids))),
            burst: i64::from(rule.burst),
            period_secs: rule.period.as_secs() as i64,
        }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        let now = SystemTime::now();
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = limiter.rate_limit(id, self.burst, 1, self.period_secs, 1, now);
        let (admitted, result) = answer.expect("throttlecrab answers");
        black_box(result.remaining);
        admitted
    }
}
