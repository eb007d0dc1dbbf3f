//! limitador: a fixed window per counter in a `moka` cache, found by evaluating CEL over a context.
//!
//! The context is built for every check, as a server has to; with `default-features = false` there is only the
//! memory store.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::RateLimiter;
use limitador::limit::{Context, Expression, Limit, Namespace};

use crate::cell::Rule;
use crate::contestant::Contestant;

/// The variable that tells one user from another.
const USER: &str = "user_id";

/// The blocking limiter on its memory store.
pub(crate) struct Limitador {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl Contestant for Limitador {
    fn new(rule: Rule, ids: usize) -> Self {
        // Twice the ids: its cache is bounded, and must not evict what is live.
        let limiter = RateLimiter::new(2 * ids as u64 + 1_000);
        let user = Expression::parse(USER).expect("a variable's name");
        // A window has no rate; a long one never turns over while it is being measured.
        let window = 60 * rule.period.as_secs();
        limiter.add_limit(Limit::new("bench", u64::from(rule.burst), window, [], [user]));
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
