//! The peers, each called as its own documentation calls it, and two rows without a limiter.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use governor::clock::DefaultClock;
use governor::state::keyed::DefaultKeyedStateStore;
use limitador::limit::{Context, Expression, Limit, Namespace};
use throttlecrab::{AdaptiveStore, PeriodicStore, Store};

use super::cell::Quota;
use super::contestant::{Contestant, Done};
use super::measure::Picks;

// === governor ===

/// A GCRA per key in a `DashMap`; the clock is read in every check. The answer has no remainder.
pub(crate) struct Governor {
    limiter: governor::RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock>,
}

impl Contestant for Governor {
    fn new(quota: Quota, _ids: usize) -> Self {
        let burst = NonZeroU32::new(quota.burst).expect("a burst of at least one");
        let limit = governor::Quota::with_period(quota.period).expect("a period above zero");
        Self { limiter: governor::RateLimiter::keyed(limit.allow_burst(burst)) }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        self.limiter.check_key(id).is_ok()
    }

    fn audit(&self, done: &Done) -> Result<(), String> {
        let held = self.limiter.len();
        if held == done.ids {
            return Ok(());
        }
        Err(format!("governor holds {held} ids of {}", done.ids))
    }
}

// === limitador ===

/// The variable of the condition.
const USER: &str = "user_id";

/// A fixed window per counter in a `moka` cache, found by evaluating CEL over a context that is
/// built for every check, as a server has to. `default-features = false` leaves the memory store
/// only.
pub(crate) struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

impl Contestant for Limitador {
    fn new(quota: Quota, ids: usize) -> Self {
        // Twice the ids: its cache is bounded, and must not evict what is live.
        let limiter = limitador::RateLimiter::new(2 * ids as u64 + 1_000);
        let user = Expression::parse(USER).expect("a variable's name");
        // A window has no rate; a long one never turns over while it is being measured.
        let window = 60 * quota.period.as_secs();
        limiter.add_limit(Limit::new("bench", u64::from(quota.burst), window, [], [user]));
        Self { limiter, namespace: "bench".into() }
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        let values = HashMap::from([(USER.to_owned(), id.clone())]);
        let context = Context::from(values);
        let answer = self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1);
        let answer = answer.expect("limitador answers");
        black_box(answer.counters.first().and_then(|counter| counter.remaining()));
        // No counter would mean that the limit did not apply at all.
        !answer.limited && !answer.counters.is_empty()
    }
}

// === throttlecrab ===

/// With the adaptive sweeping store.
pub(crate) type Adaptive = Throttlecrab<AdaptiveStore>;

/// With the store that sweeps once a minute.
pub(crate) type Periodic = Throttlecrab<PeriodicStore>;

/// A GCRA over a hash map in a `Mutex`, as its documentation shares it between threads.
///
/// The adaptive store needs its capacity: past three quarters of it every insertion sweeps the
/// whole map. It also sweeps every 100,000 checks, which is timed.
pub(crate) struct Throttlecrab<S: Store> {
    limiter: Mutex<throttlecrab::RateLimiter<S>>,
    burst: i64,
    period_secs: i64,
}

/// A store with a capacity.
pub(crate) trait WithCapacity: Store + Send {
    /// Built as its documentation builds it.
    fn with_capacity(ids: usize) -> Self;
}

impl WithCapacity for AdaptiveStore {
    fn with_capacity(ids: usize) -> Self {
        Self::builder().capacity(ids).build()
    }
}

impl WithCapacity for PeriodicStore {
    fn with_capacity(ids: usize) -> Self {
        Self::builder().capacity(ids).build()
    }
}

impl<S: WithCapacity> Contestant for Throttlecrab<S> {
    fn new(quota: Quota, ids: usize) -> Self {
        Self {
            limiter: Mutex::new(throttlecrab::RateLimiter::new(S::with_capacity(ids))),
            burst: i64::from(quota.burst),
            period_secs: quota.period.as_secs() as i64,
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

// === no limiter: the cost of the benchmark itself ===
//
// A processor reads many ids at once unless a lock or a clock read prevents it: the rows are the
// least and the greatest cost of reading ids.

/// Reads one id after the other, as many at once as the processor likes.
#[derive(Debug)]
pub(crate) struct Overlapping;

/// Reads an id before it knows which is the next.
#[derive(Debug)]
pub(crate) struct InTurn;

impl Contestant for Overlapping {
    fn new(_quota: Quota, _ids: usize) -> Self {
        Self
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        black_box(both_ends(id));
        true
    }
}

impl Contestant for InTurn {
    fn new(_quota: Quota, _ids: usize) -> Self {
        Self
    }

    #[inline]
    fn check(&self, id: &String) -> bool {
        Overlapping.check(id)
    }

    #[inline]
    fn run(&self, picks: &mut Picks<'_>, checks: usize) -> usize {
        for _ in 0..checks {
            let read = both_ends(picks.next());
            // Nothing is added, but neither the compiler nor the processor can know before the
            // read.
            picks.stir(black_box(u64::from(read)) >> 8);
        }
        checks
    }
}

/// First and last byte: seventeen of them may lie on two cache lines, and a hash reads both.
#[inline]
fn both_ends(id: &str) -> u8 {
    let bytes = id.as_bytes();
    bytes.first().copied().unwrap_or(0) ^ bytes.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::library::measure::build_ids;

    fn admits_the_burst_of_each_id_and_no_more<C: Contestant>() {
        let contestant = C::new(Quota { period: Duration::from_secs(60), burst: 3 }, 2);
        for id in &build_ids(2) {
            let answers: Vec<bool> = (0..5).map(|_| contestant.check(id)).collect();
            assert_eq!(answers, [true, true, true, false, false], "{id}");
        }
    }

    #[test]
    fn governor() {
        admits_the_burst_of_each_id_and_no_more::<Governor>();
    }

    #[test]
    fn throttlecrab() {
        admits_the_burst_of_each_id_and_no_more::<Adaptive>();
        admits_the_burst_of_each_id_and_no_more::<Periodic>();
    }

    #[test]
    fn limitador() {
        admits_the_burst_of_each_id_and_no_more::<Limitador>();
    }
}
