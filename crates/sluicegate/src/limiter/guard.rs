//! Guards that release on drop.

use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::Limiter;

/// A slot of a concurrency limit, released on drop: see
/// [`KeyedOps::permit`](crate::KeyedOps::permit).
///
/// A process that ends without dropping it leaks nothing: the slot is free when its lease ends.
/// Work that may outlast the lease calls [`Permit::renew`] in between.
#[derive(Debug)]
#[must_use = "the slot is given back when this is dropped"]
pub struct Permit {
    held: Held,
    verdict: Verdict,
}

/// A charged estimate, settled later: see [`KeyedOps::reserve`](crate::KeyedOps::reserve).
///
/// Dropping it without [`Reservation::commit`] refunds it: the work was not done.
#[derive(Debug)]
#[must_use = "the reservation is given back when this is dropped"]
pub struct Reservation {
    held: Held,
    verdict: Verdict,
}

/// The charge or slot held under an id, until it is released.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) limiter: Limiter,
    pub(super) hash: u64,
    pub(super) holder: Holder,
    is_settled: bool,
}

impl Permit {
    pub(super) fn new(limiter: Limiter, hash: u64, holder: Holder, verdict: Verdict) -> Self {
        Self { held: Held::new(limiter, hash, holder), verdict }
    }

    /// The verdict.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::Concurrency};
    /// let limiter = Limiter::new(Concurrency::at_most(3))?;
    /// assert_eq!(limiter.of("alice").permit()?.verdict().remaining, Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Starts the lease anew.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::Limiter;
    /// use sluicegate::clock::ManualClock;
    /// use sluicegate::limit::Concurrency;
    ///
    /// let clock = ManualClock::new();
    /// let lease = Duration::from_secs(30);
    /// let limiter = Limiter::builder()
    ///     .limit(Concurrency::at_most(1).lease(lease))
    ///     .clock(clock.clone())
    ///     .build()?;
    /// let permit = limiter.of("alice").permit()?;
    /// clock.advance(lease / 2);
    /// permit.renew()?;
    /// clock.advance(lease / 2);
    /// assert!(limiter.of("alice").permit().is_err(), "still held");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the lease has ended: another holder may have the slot.
    pub fn renew(&self) -> Result<(), Refusal> {
        let Held { limiter, hash, holder, .. } = &self.held;
        let renewed = limiter.inner.shards.renew(*hash, *holder, limiter.now());
        if renewed { Ok(()) } else { Err(Refusal::UnknownHolder) }
    }
}

impl Reservation {
    pub(super) fn new(limiter: Limiter, hash: u64, holder: Holder, verdict: Verdict) -> Self {
        Self { held: Held::new(limiter, hash, holder), verdict }
    }

    /// The verdict.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(1_000))?;
    /// assert_eq!(limiter.of("alice").cost(400).reserve()?.verdict().remaining, Some(600));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Settles with the actual cost: the difference is refunded, or charged, into debt if
    /// necessary.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(1_000))?;
    /// let reservation = limiter.of("alice").cost(400).reserve()?;
    /// assert_eq!(reservation.commit(1_100)?.remaining, Some(-100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the reservation expired more than a day ago and was removed.
    pub fn commit(mut self, used: u64) -> Result<Verdict, Refusal> {
        self.held.is_settled = true;
        let op = Op::Commit { cost: used, holder: self.held.holder };
        Ok(self.held.ask(op, self.held.limiter.now())?.verdict)
    }
}

impl Held {
    pub(super) const fn new(limiter: Limiter, hash: u64, holder: Holder) -> Self {
        Self { limiter, hash, holder, is_settled: false }
    }

    pub(super) fn ask(&self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        self.limiter.inner.apply(self.hash, None, op, now)
    }

    /// Consumes the charge: nothing is refunded, and its slot stays held.
    pub(super) fn forget_at(&mut self, now: Timestamp) {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.limiter.inner.shards.forget(self.hash, self.holder, now);
        }
    }
}

impl Drop for Held {
    /// Refunds the charge and releases the slot.
    fn drop(&mut self) {
        if !self.is_settled {
            // An expired id has nothing to release.
            let _ = self.ask(Op::Cancel { holder: self.holder }, self.limiter.now());
        }
    }
}
