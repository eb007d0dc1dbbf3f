//! How much each place in the program may say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sluicegate::clock::Clock;
use sluicegate::limit::{TokenBucket, Unlimited};
use sluicegate::{LimitError, Limiter, Memory, Timestamp};
use tracing::callsite::Identifier;

/// More places than the program has; whatever comes beyond shares one.
const PLACES_MAX: usize = 1_024;

/// A bucket for each place, filled for one second.
#[derive(Debug)]
pub(super) struct Places {
    limiter: Limiter,
    known: RwLock<HashMap<Identifier, Arc<Place>>>,
    others: Arc<Place>,
}

#[derive(Debug, Default)]
struct Place {
    key: usize,
    suppressed: AtomicU64,
}

impl Places {
    pub(super) fn new(per_second: u32, clock: impl Clock + 'static) -> Result<Self, LimitError> {
        // One more for those who share.
        let memory = Memory::with_entries(PLACES_MAX + 1);
        let limiter = Limiter::builder().name("logs").memory(&memory).clock(clock);
        let limiter = match per_second {
            0 => limiter.limit(Unlimited),
            lines => limiter.limit(TokenBucket::per_second(lines.into())),
        };
        let others = Arc::new(Place { key: usize::MAX, ..Place::default() });
        Ok(Self { limiter: limiter.build()?, known: RwLock::default(), others })
    }

    /// What time it is, by the limiter's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.limiter.now()
    }

    /// Whether a place may write a line now, and if so, how many lines it was not allowed to write since its last one.
    pub(super) fn may_speak(&self, place: Identifier, now: Timestamp) -> Option<u64> {
        let place = self.place(place);
        if self.limiter.hit_at(place.key.to_ne_bytes(), now).is_allowed() {
            Some(place.suppressed.swap(0, Ordering::Relaxed))
        } else {
            place.suppressed.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    /// A place was allowed to write, and could not.
    pub(super) fn not_heard(&self, place: Identifier, lines: u64) {
        self.place(place).suppressed.fetch_add(lines, Ordering::Relaxed);
    }

    fn place(&self, id: Identifier) -> Arc<Place> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = known.get(&id) {
            return Arc::clone(place);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let key = known.len();
        if key >= PLACES_MAX && !known.contains_key(&id) {
            return Arc::clone(&self.others);
        }
        let new = || Arc::new(Place { key, ..Place::default() });
        Arc::clone(known.entry(id).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::clock::ManualClock;
    use tracing::subscriber::Interest;
    use tracing::{Callsite, Metadata};

    use super::*;

    /// It has a size, so that each has an address of its own.
    struct Site(#[expect(dead_code, reason = "only its address counts")] u8);

    impl Callsite for Site {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nobody asks what is said here")
        }
    }

    fn new_place() -> Identifier {
        Identifier(Box::leak(Box::new(Site(0))))
    }

    #[test]
    fn places_beyond_the_last_share_one() {
        let places = Places::new(1, ManualClock::new()).unwrap();
        let now = places.now();
        let known: Vec<Identifier> = (0..PLACES_MAX).map(|_| new_place()).collect();
        assert!(known.iter().all(|place| places.may_speak(place.clone(), now) == Some(0)));
        let [one, other] = [new_place(), new_place()];
        assert_eq!(places.may_speak(one.clone(), now), Some(0));
        assert_eq!(places.may_speak(other, now), None);
        let later = now.after(sluicegate::Span::from_secs(1));
        assert_eq!(places.may_speak(one, later), Some(1));
        assert_eq!(places.may_speak(known[0].clone(), later), Some(0), "it is as it was");
    }
}
