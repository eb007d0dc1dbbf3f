//! Estimate of the store's clock, for local decisions on records that the store wrote.

use std::sync::atomic::{AtomicI64, Ordering};

use sluicegate::clock::TimeSource;
use sluicegate_core::time::{Span, Timestamp};

/// The store's clock. It is late by at most the time of the last reply: the side on which less is
/// admitted.
#[derive(Debug)]
pub(super) struct StoreClock {
    /// This node's own clock.
    pub(super) own: TimeSource,
    /// Offset of the store's clock to this node's.
    ahead_us: AtomicI64,
}

impl StoreClock {
    pub(super) const fn new(own: TimeSource) -> Self {
        Self { own, ahead_us: AtomicI64::new(0) }
    }

    /// Synchronizes with the time of a reply.
    pub(super) fn observe(&self, store: Timestamp) {
        let own = self.own.now();
        let ahead = micros(store.since(own)) - micros(own.since(store));
        self.ahead_us.store(ahead, Ordering::Relaxed);
    }

    /// The store's time now.
    pub(super) fn now(&self) -> Timestamp {
        let (own, ahead) = (self.own.now(), self.ahead_us.load(Ordering::Relaxed));
        match u64::try_from(ahead) {
            Ok(ahead) => own.after(Span::from_micros(ahead)),
            Err(_) => Timestamp::from_micros(own.as_micros().saturating_sub(ahead.unsigned_abs())),
        }
    }
}

fn micros(span: Span) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate::clock::{Clock, ManualClock};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn it_follows_the_store_whichever_is_ahead() {
        let own = ManualClock::at(Timestamp::from_micros(10_000_000));
        let clock = StoreClock::new(TimeSource::Custom(Arc::new(own.clone())));
        assert_eq!(clock.now(), own.now());
        for store in [9_000_000, 10_000_000, 12_500_000] {
            clock.observe(Timestamp::from_micros(store));
            assert_eq!(clock.now().as_micros(), store);
            own.advance(Duration::from_micros(5));
            assert_eq!(clock.now().as_micros(), store + 5);
        }
    }
}
