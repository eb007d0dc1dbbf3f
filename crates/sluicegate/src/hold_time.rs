//! Estimates when a slot of a concurrency limit is released.
//!
//! A denial by a concurrency limit has the end of a lease, which is the latest time at which a slot
//! is free. Most slots are released long before. What this process observed of a rule gives an
//! estimate:
//!
//! ```text
//!   taken            now             mean                     end of the lease
//!   |----- age ------|----- wait ----|
//!   |                                |--- overdue ---|- wait -|    as long again
//! ```
//!
//! - The age of the slot that is free first follows from the end of its lease and the lifetime
//!   that slots were last taken for. Renewing a lease restarts its age.
//! - A slot that is overdue is expected to take as long again, but no longer than nothing was
//!   released: others may go on to be released while one hangs.
//! - The wait is at least [`WAIT_MIN`], so that clients do not poll, and ends with the lease.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::algorithm::concurrency::Concurrency;
use sluicegate_core::limit::Limit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::limit::LimitConfig;

/// Weight of the mean so far against a new observation.
const MEAN_WEIGHT: u64 = 7;
/// The shortest estimate.
const WAIT_MIN: Span = Span::from_millis(100);

/// How long slots of a rule are held, as observed by this process. In microseconds.
#[derive(Debug, Default)]
pub(crate) struct HoldTime {
    /// Exponentially weighted; 0 before the first observation.
    mean: AtomicU64,
    /// What slots were last taken for; 0 if that is the whole lease.
    lifetime: AtomicU64,
    /// When a slot was last released.
    released_at: AtomicU64,
}

impl HoldTime {
    /// A slot was released.
    pub(crate) fn observe(&self, held: Span, now: Timestamp) {
        let held = held.as_micros().max(1);
        let next = |mean: u64| match mean {
            0 => Some(held),
            _ => {
                let sum = mean.saturating_mul(MEAN_WEIGHT).saturating_add(held);
                Some((sum / (MEAN_WEIGHT + 1)).max(1))
            }
        };
        let _ = self.mean.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        self.released_at.store(now.as_micros(), Ordering::Relaxed);
    }

    /// A slot is taken for a lifetime, or for the whole lease.
    pub(crate) fn take(&self, lifetime: Option<Span>) {
        let lifetime = lifetime.map_or(0, Span::as_micros);
        // Nearly always the same: no write that other threads have to see.
        if self.lifetime.load(Ordering::Relaxed) != lifetime {
            self.lifetime.store(lifetime, Ordering::Relaxed);
        }
    }

    /// Replaces the end of a lease, where a denial by one of these limits has it, by an estimate.
    pub(crate) fn estimate_wait(
        &self,
        limits: &[LimitConfig],
        verdict: &mut Verdict,
        now: Timestamp,
    ) {
        let (Outcome::Deny { retry_after }, Some(index)) = (verdict.outcome, verdict.decided_by)
        else {
            return;
        };
        if let Some(limit) = limits.get(index) {
            let retry_after = self.wait_for(limit, retry_after, now);
            verdict.outcome = Outcome::Deny { retry_after };
        }
    }

    /// The wait for a limit whose next lease ends after `lease_end`: of other limits than slots,
    /// and before the first observation, as it is.
    pub(crate) fn wait_for(&self, limit: &LimitConfig, lease_end: Span, now: Timestamp) -> Span {
        match limit.at(now) {
            Limit::Concurrency(slots) => self.wait_for_slot(&slots, lease_end, now),
            _ => lease_end,
        }
    }

    fn wait_for_slot(&self, slots: &Concurrency, lease_end: Span, now: Timestamp) -> Span {
        let mean = self.mean.load(Ordering::Relaxed);
        if mean == 0 {
            return lease_end;
        }
        let lifetime = match self.lifetime.load(Ordering::Relaxed) {
            0 => slots.lease(),
            lifetime => slots.lease().min(Span::from_micros(lifetime)),
        };
        let age = lifetime.less(lease_end).as_micros();
        let wait = match mean.checked_sub(age) {
            Some(rest) => rest,
            None => {
                let released_at = self.released_at.load(Ordering::Relaxed);
                (age - mean).min(now.since(Timestamp::from_micros(released_at)).as_micros())
            }
        };
        Span::from_micros(wait).max(WAIT_MIN).min(lease_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000).after(Span::from_secs(seconds))
    }

    /// Seconds to wait for one of `max` slots of a minute, whose first lease ends after so many
    /// milliseconds.
    fn seconds(time: &HoldTime, max: u64, lease_end_ms: u64, now: Timestamp) -> f64 {
        let slots = Concurrency::new(max, Span::from_secs(60)).expect("valid");
        let wait = time.wait_for_slot(&slots, Span::from_millis(lease_end_ms), now);
        wait.as_micros() as f64 / 1e6
    }

    #[test]
    fn a_wait_is_the_mean_less_the_age_within_the_lease() {
        let time = HoldTime::default();
        assert_eq!(seconds(&time, 4, 60_000, at(0)), 60.0, "nothing was observed");
        time.observe(Span::from_secs(8), at(0));
        assert_eq!(seconds(&time, 4, 60_000, at(0)), 8.0, "all slots were taken just now");
        assert_eq!(seconds(&time, 4, 57_000, at(3)), 5.0);
        assert_eq!(seconds(&time, 4, 52_001, at(7)), 0.1, "the shortest wait");
        assert_eq!(seconds(&time, 4, 1_000, at(59)), 1.0, "the lease ends first");
        time.observe(Span::from_secs(24 * 3_600), at(60));
        assert_eq!(seconds(&time, 4, 60_000, at(60)), 60.0);
    }

    #[test]
    fn an_overdue_slot_is_waited_for_as_long_again() {
        let time = HoldTime::default();
        time.observe(Span::from_millis(6), at(0));
        assert_eq!(seconds(&time, 1, 60_000, at(0)), 0.1);
        assert_eq!(seconds(&time, 1, 59_000, at(1)), 0.994);
        assert_eq!(seconds(&time, 1, 50_000, at(10)), 9.994);
        assert_eq!(seconds(&time, 1, 5_000, at(55)), 5.0, "the lease ends first");
        time.observe(Span::from_millis(6), at(29));
        assert_eq!(seconds(&time, 4, 30_000, at(30)), 1.0, "others were released since");
    }

    #[test]
    fn a_lifetime_below_the_lease_counts_for_the_age() {
        let time = HoldTime::default();
        time.observe(Span::from_secs(6), at(0));
        time.take(Some(Span::from_secs(20)));
        assert_eq!(seconds(&time, 1, 20_000, at(100)), 6.0);
        assert_eq!(seconds(&time, 1, 18_000, at(102)), 4.0);
        assert_eq!(seconds(&time, 1, 50_000, at(102)), 6.0, "another lifetime: the age is unknown");
        time.take(None);
        assert_eq!(seconds(&time, 1, 58_000, at(102)), 4.0);
    }

    #[test]
    fn the_mean_follows_what_is_observed() {
        let time = HoldTime::default();
        let mean = || time.mean.load(Ordering::Relaxed);
        time.observe(Span::from_secs(8), at(0));
        assert_eq!(mean(), 8_000_000);
        time.observe(Span::from_secs(16), at(0));
        assert_eq!(mean(), 9_000_000);
        time.observe(Span::ZERO, at(0));
        time.observe(Span::MAX, at(0));
        assert!(mean() > 0);
    }
}
