//! Guards that release on drop.

use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;

use super::{KeyedOps, Limiter};
use crate::engine::MemoryBackend;
use crate::engine::backend::{ApplyError, Backend};

/// A slot of a concurrency limit, released on drop: see
/// [`KeyedOps::permit`](crate::KeyedOps::permit).
///
/// A process that ends without dropping it leaks nothing: the slot is free when its lease ends.
/// Work that may outlast the lease calls [`Permit::renew`] in between.
#[derive(Debug)]
#[must_use = "the slot is given back when this is dropped"]
pub struct Permit<B: Backend + ?Sized = MemoryBackend> {
    held: Held<B>,
    verdict: Verdict,
}

/// A charged estimate, settled later: see [`KeyedOps::reserve`](crate::KeyedOps::reserve).
///
/// Dropping it without [`Reservation::commit`] refunds it: the work was not done.
#[derive(Debug)]
#[must_use = "the reservation is given back when this is dropped"]
pub struct Reservation<B: Backend + ?Sized = MemoryBackend> {
    held: Held<B>,
    verdict: Verdict,
}

/// The charge or slot held under an id, until it is released.
#[derive(Debug)]
pub(super) struct Held<B: Backend + ?Sized = MemoryBackend> {
    pub(super) limiter: Limiter<B>,
    pub(super) hash: u64,
    /// For a backend only; memory needs no more than the hash.
    key: Box<[u8]>,
    pub(super) holder: Holder,
    /// When it was charged or taken; `None` for a turn in the future.
    held_since: Option<Timestamp>,
    is_settled: bool,
}

impl<B: Backend + ?Sized> Permit<B> {
    pub(super) fn new(ops: &KeyedOps<'_, B>, holder: Holder, verdict: Verdict) -> Self {
        Self { held: Held::since_now(ops, holder), verdict }
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

    /// Starts the lease anew, on any backend: see [`Permit::renew`].
    ///
    /// # Errors
    /// When the lease has ended, or the store does not answer.
    pub async fn renew_async(&self) -> Result<(), ApplyError> {
        match &self.held.limiter.shared {
            None => self.held.renew_in_memory().map_err(ApplyError::Refused),
            Some(shared) => shared.renew(&self.held.key, self.held.holder).await,
        }
    }
}

impl Permit {
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
        self.held.renew_in_memory()
    }
}

impl<B: Backend + ?Sized> Reservation<B> {
    pub(super) fn new(ops: &KeyedOps<'_, B>, holder: Holder, verdict: Verdict) -> Self {
        Self { held: Held::since_now(ops, holder), verdict }
    }

    /// A reservation of nothing: the store did not answer, and the limiter allows every request
    /// then.
    pub(super) fn uncounted(ops: &KeyedOps<'_, B>, verdict: Verdict) -> Self {
        let mut this = Self::new(ops, Holder(0), verdict);
        this.held.is_settled = true;
        this
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

    /// Settles with the actual cost, on any backend: see [`Reservation::commit`].
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(TokenBucket::per_minute(1_000))?;
    /// let reservation = limiter.of("alice").cost(400).reserve_async().await?;
    /// assert_eq!(reservation.commit_async(250).await?.remaining, Some(750));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the reservation expired more than a day ago and was removed, or the store does not
    /// answer: then it expires there.
    pub async fn commit_async(mut self, used: u64) -> Result<Verdict, ApplyError> {
        if std::mem::replace(&mut self.held.is_settled, true) {
            return Ok(self.verdict);
        }
        self.held.observe_release();
        let Held { limiter, key, holder, .. } = &self.held;
        let op = Op::Commit { cost: used, holder: *holder };
        match &limiter.shared {
            None => Ok(self.held.ask(op, limiter.now()).map_err(ApplyError::Refused)?.verdict),
            Some(shared) => Ok(shared.apply(key, op).await?.verdict),
        }
    }
}

impl Reservation {
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
        self.held.observe_release();
        let op = Op::Commit { cost: used, holder: self.held.holder };
        Ok(self.held.ask(op, self.held.limiter.now())?.verdict)
    }
}

impl<B: Backend + ?Sized> Held<B> {
    pub(super) fn new(ops: &KeyedOps<'_, B>, holder: Holder) -> Self {
        let (limiter, hash) = (ops.limiter.clone(), ops.hash());
        let key = limiter.shared.as_ref().map_or_else(Box::default, |_| ops.key.into());
        Self { limiter, hash, key, holder, held_since: None, is_settled: false }
    }

    fn since_now(ops: &KeyedOps<'_, B>, holder: Holder) -> Self {
        let mut held = Self::new(ops, holder);
        held.held_since = Some(ops.limiter.now());
        held
    }

    fn observe_release(&self) {
        if let Some(since) = self.held_since {
            let now = self.limiter.now();
            self.limiter.inner.observe_hold(now.since(since), now);
        }
    }

    fn renew_in_memory(&self) -> Result<(), Refusal> {
        let Self { limiter, hash, holder, .. } = self;
        let renewed = limiter.inner.shards.renew(*hash, *holder, limiter.now());
        if renewed { Ok(()) } else { Err(Refusal::UnknownHolder) }
    }

    pub(super) fn ask(&self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        self.limiter.apply(self.hash, None, op, now)
    }

    /// Consumes the charge: nothing is refunded, and its slot stays held.
    pub(super) fn forget_at(&mut self, now: Timestamp) {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.limiter.inner.shards.forget(self.hash, self.holder, now);
        }
    }
}

impl<B: Backend + ?Sized> Drop for Held<B> {
    /// Refunds the charge and releases the slot; at a store in the background.
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        self.observe_release();
        match &self.limiter.shared {
            // An expired id has nothing to release.
            None => {
                let _ = self.ask(Op::Cancel { holder: self.holder }, self.limiter.now());
            }
            Some(shared) => shared.cancel_in_background(&self.key, self.holder),
        }
    }
}
