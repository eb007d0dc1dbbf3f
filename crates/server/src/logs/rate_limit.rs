//! Rate limit of log lines: a token bucket per call site, so that a noisy one silences only itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sluicegate::clock::Clock;
use sluicegate::limit::{TokenBucket, Unlimited};
use sluicegate::{LimitError, Limiter, Memory, Timestamp};
use tracing::callsite::Identifier;

/// More call sites than the program has; further ones share a bucket.
const CALL_SITES_MAX: usize = 1_024;

/// The buckets of all call sites, each with a burst of one second.
#[derive(Debug)]
pub(super) struct CallSites {
    limiter: Limiter,
    known: RwLock<HashMap<Identifier, Arc<CallSite>>>,
    shared: Arc<CallSite>,
}

#[derive(Debug, Default)]
struct CallSite {
    key: usize,
    suppressed: AtomicU64,
}

impl CallSites {
    pub(super) fn new(per_second: u32, clock: impl Clock + 'static) -> Result<Self, LimitError> {
        // One more for the shared bucket.
        let memory = Memory::with_entries(CALL_SITES_MAX + 1);
        let limiter = Limiter::builder().name("logs").memory(&memory).clock(clock);
        let limiter = match per_second {
            0 => limiter.limit(Unlimited),
            lines => limiter.limit(TokenBucket::per_second(lines.into())),
        };
        let shared = Arc::new(CallSite { key: usize::MAX, ..CallSite::default() });
        Ok(Self { limiter: limiter.build()?, known: RwLock::default(), shared })
    }

    /// The limiter's time.
    pub(super) fn now(&self) -> Timestamp {
        self.limiter.now()
    }

    /// Admits a line, with the number of lines suppressed since the call site's last one.
    pub(super) fn admit(&self, id: Identifier, now: Timestamp) -> Option<u64> {
        let call_site = self.get(id);
        if self.limiter.hit_at(call_site.key.to_ne_bytes(), now).is_allowed() {
            Some(call_site.suppressed.swap(0, Ordering::Relaxed))
        } else {
            call_site.suppressed.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    /// Counts lines that were admitted and could not be written.
    pub(super) fn suppress(&self, id: Identifier, lines: u64) {
        self.get(id).suppressed.fetch_add(lines, Ordering::Relaxed);
    }

    fn get(&self, id: Identifier) -> Arc<CallSite> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(call_site) = known.get(&id) {
            return Arc::clone(call_site);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let key = known.len();
        if key >= CALL_SITES_MAX && !known.contains_key(&id) {
            return Arc::clone(&self.shared);
        }
        let new = || Arc::new(CallSite { key, ..CallSite::default() });
        Arc::clone(known.entry(id).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::clock::ManualClock;
    use tracing::subscriber::Interest;
    use tracing::{Callsite, Metadata};

    use super::*;

    /// Not zero-sized, so that each has an address of its own.
    struct Site(#[expect(dead_code, reason = "only the address counts")] u8);

    impl Callsite for Site {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("not an event")
        }
    }

    fn new_call_site() -> Identifier {
        Identifier(Box::leak(Box::new(Site(0))))
    }

    #[test]
    fn call_sites_beyond_the_limit_share_a_bucket() {
        let call_sites = CallSites::new(1, ManualClock::new()).unwrap();
        let now = call_sites.now();
        let known: Vec<Identifier> = (0..CALL_SITES_MAX).map(|_| new_call_site()).collect();
        assert!(known.iter().all(|id| call_sites.admit(id.clone(), now) == Some(0)));
        let [one, other] = [new_call_site(), new_call_site()];
        assert_eq!(call_sites.admit(one.clone(), now), Some(0));
        assert_eq!(call_sites.admit(other, now), None);
        let later = now.after(sluicegate::Span::from_secs(1));
        assert_eq!(call_sites.admit(one, later), Some(1));
        assert_eq!(call_sites.admit(known[0].clone(), later), Some(0), "unaffected");
    }
}
