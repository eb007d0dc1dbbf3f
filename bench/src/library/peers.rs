//! governor: a GCRA per key in a `DashMap`, quanta's clock read in every check.
//!
//! Its answer carries no remainder; the middleware that would add one is not on, as it is not by default.

use std::num::NonZeroU32;

use governor::clock::DefaultClock;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};

use crate::cell::Rule;
use crate::contestant::{Contestant, Done};

/// The keyed limiter with its defaults.
pub(crate) struct Governor {
    limiter: RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock>,
}

impl Contestant for Governor {
    fn new(rule: Rule, _ids: usize) -> Self {
        let burst = NonZeroU32::new(rule.burst).expect("a burst of at least one");
        let quota = Quota::with_period(rule.period).expect("a period above zero");
        Self { limiter: RateLimiter::keyed(quota.allow_burst(burst)) }
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
