//! Operations on one key.

use std::time::Duration;

use sluicegate_core::account::Answer;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, RESERVE_TTL, Refusal};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;

use super::guard::{Permit, Reservation};
use super::{Booking, Limiter, new_holder};
use crate::answer::Denied;
use crate::clock::span;
use crate::engine::MemoryBackend;
use crate::engine::backend::Backend;

/// Operations on one key: options first, then the operation. See [`Limiter::of`].
///
/// ```
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::{Limiter, Op};
///
/// let limiter = Limiter::new(TokenBucket::per_minute(100))?;
/// let upload = limiter.of("alice").cost(30);
/// assert_eq!(upload.peek().remaining, Some(100));
/// assert_eq!(upload.hit().remaining, Some(70));
/// assert_eq!(limiter.of("alice").cost(20).refund()?.remaining, Some(90));
/// assert_eq!(limiter.of("alice").reset()?.remaining, Some(100));
/// assert!(!limiter.of("bob").cost(101).hit().is_allowed());
/// assert!(limiter.of("bob").at(limiter.now()).hit().is_allowed());
/// assert_eq!(limiter.of("carol").cost(150).take()?.0, 100, "as much as there is");
/// assert_eq!(limiter.of("dave").cost(150).charge()?.remaining, Some(-50), "a debt");
/// assert_eq!(limiter.of("erin").cost(20).add()?.remaining, Some(120), "a bonus");
/// assert_eq!(limiter.of("frank").drain()?, 100);
/// assert_eq!(limiter.of("grace").ask(Op::Drain)?.taken, Some(100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "does nothing until an operation is called"]
pub struct KeyedOps<'a, B: ?Sized = MemoryBackend> {
    pub(super) limiter: &'a Limiter<B>,
    pub(super) key: &'a [u8],
    pub(super) cost: u64,
    pub(super) now: Option<Timestamp>,
    pub(super) holder: Option<Holder>,
    pub(super) max_wait: Span,
    pub(super) jitter: Duration,
}

impl<B: ?Sized> Clone for KeyedOps<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for KeyedOps<'_, B> {}

impl<'a, B: ?Sized> KeyedOps<'a, B> {
    pub(super) fn new(limiter: &'a Limiter<B>, key: &'a [u8]) -> Self {
        let max_wait = Span::MAX;
        Self { limiter, key, cost: 1, now: None, holder: None, max_wait, jitter: Duration::ZERO }
    }

    /// Cost of the operation [default: 1].
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The id under which a slot, a booking or a reservation is held, which makes retries
    /// idempotent. The guards ([`KeyedOps::permit`], [`KeyedOps::reserve`]) generate one by
    /// default.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::Concurrency};
    /// let limiter = Limiter::new(Concurrency::at_most(1))?;
    /// assert!(limiter.of("alice").id("request 7").hit().is_allowed());
    /// assert!(limiter.of("alice").id("request 7").hit().is_allowed(), "the same again");
    /// assert!(!limiter.of("alice").id("request 8").hit().is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn id(self, id: impl AsRef<[u8]>) -> Self {
        Self { holder: Some(self.limiter.holder_of(id.as_ref())), ..self }
    }

    /// Maximum wait [default: unlimited].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_hour(1))?;
    /// limiter.hit("alice");
    /// let denied = limiter.of("alice").within(Duration::from_secs(1)).acquire_blocking();
    /// assert!(denied.is_err(), "it would be an hour: no use in waiting a second");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn within(self, max_wait: Duration) -> Self {
        Self { max_wait: span(max_wait), ..self }
    }

    /// Adds a random delay of up to `max` to a wait, so that waiters do not start simultaneously.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_second(100).burst(1))?;
    /// limiter.hit("alice");
    /// limiter.of("alice").jitter(Duration::from_millis(5)).acquire_blocking()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn jitter(self, max: Duration) -> Self {
        Self { jitter: max, ..self }
    }
}

impl KeyedOps<'_> {
    /// Time of the operation [default: the limiter's clock].
    pub const fn at(self, now: Timestamp) -> Self {
        Self { now: Some(now), ..self }
    }

    /// Charges the cost if the limits admit it.
    ///
    /// On a concurrency limit without an [`KeyedOps::id`] the slot is held until its lease ends;
    /// [`KeyedOps::permit`] releases it earlier.
    #[inline]
    pub fn hit(&self) -> Verdict {
        self.hit_in_memory()
    }

    /// The verdict that a hit would get now; changes nothing.
    #[must_use]
    pub fn peek(&self) -> Verdict {
        self.peek_in_memory()
    }

    /// Charges as much as possible, up to the cost; returns the charged amount.
    ///
    /// # Errors
    /// When a limit does not support the operation.
    pub fn take(&self) -> Result<(u64, Verdict), Refusal> {
        let answer = self.ask(Op::Take { cost: self.cost })?;
        Ok((answer.taken.unwrap_or(0), answer.verdict))
    }

    /// Consumes the cost, into debt if necessary. The wait in the verdict is the time until the
    /// debt is repaid.
    ///
    /// # Errors
    /// When a limit does not support the operation.
    pub fn charge(&self) -> Result<Verdict, Refusal> {
        Ok(self.ask(Op::Charge { cost: self.cost })?.verdict)
    }

    /// Refunds the cost, at most until full.
    ///
    /// # Errors
    /// When a limit does not support the operation.
    pub fn refund(&self) -> Result<Verdict, Refusal> {
        Ok(self.ask(Op::Refund { cost: self.cost })?.verdict)
    }

    /// Adds the cost, even beyond the capacity: a bonus.
    ///
    /// # Errors
    /// When a limit does not support the operation.
    pub fn add(&self) -> Result<Verdict, Refusal> {
        Ok(self.ask(Op::Add { cost: self.cost, force: true })?.verdict)
    }

    /// Consumes the remaining quota and returns it.
    ///
    /// # Errors
    /// When a limit does not support the operation.
    pub fn drain(&self) -> Result<u64, Refusal> {
        Ok(self.ask(Op::Drain)?.taken.unwrap_or(0))
    }

    /// Resets the limits to full.
    ///
    /// # Errors
    /// When a limit does not support the operation.
    pub fn reset(&self) -> Result<Verdict, Refusal> {
        Ok(self.ask(Op::Reset)?.verdict)
    }

    /// Applies any operation of the core and returns the complete answer.
    ///
    /// # Errors
    /// When a limit does not support the operation, or the id is missing, unknown or in use.
    pub fn ask(&self, op: Op) -> Result<Answer, Refusal> {
        self.ask_in_memory(op, self.when())
    }

    /// Acquires a slot of a concurrency limit and releases it when the guard is dropped. Other
    /// limits of the plan are charged as by a hit, without a refund.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::Concurrency};
    /// let limiter = Limiter::new(Concurrency::at_most(1))?;
    /// let permit = limiter.of("alice").permit()?;
    /// assert!(limiter.of("alice").permit().is_err());
    /// drop(permit);
    /// assert!(limiter.of("alice").permit().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the limits deny the request.
    pub fn permit(&self) -> Result<Permit, Denied> {
        let estimate = |denied| self.with_estimate(denied);
        self.permit_in_memory().map_err(estimate)
    }

    /// Charges an estimate, which [`Reservation::commit`] settles within a minute.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(1_000))?;
    /// let reservation = limiter.of("alice").cost(500).reserve()?;
    /// assert_eq!(reservation.commit(120)?.remaining, Some(880));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the limits deny the request.
    pub fn reserve(&self) -> Result<Reservation, Denied> {
        self.reserve_for(RESERVE_TTL.to_duration())
    }

    /// Charges an estimate that expires after `ttl`; an expired estimate is refunded.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(1_000))?;
    /// let reservation = limiter.of("alice").cost(500).reserve_for(Duration::from_secs(5))?;
    /// drop(reservation);
    /// assert_eq!(limiter.of("alice").peek().remaining, Some(1_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the limits deny the request.
    pub fn reserve_for(&self, ttl: Duration) -> Result<Reservation, Denied> {
        self.reserve_in_memory(span(ttl))
    }

    /// Books a turn ahead: see [`Booking`].
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(60).burst(1))?;
    /// limiter.hit("alice");
    /// let booking = limiter.of("alice").book()?;
    /// assert!(booking.wait_time().as_millis() > 900);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When its turn would not come within [`KeyedOps::within`].
    pub fn book(&self) -> Result<Booking, Denied> {
        let holder = self.holder.unwrap_or_else(new_holder);
        let now = self.when();
        let op = Op::Acquire { cost: self.cost, max_wait: self.max_wait, holder: Some(holder) };
        let verdict = self.ask_in_memory(op, now)?.verdict;
        Denied::unless_allowed(verdict)?;
        Ok(Booking::new(self, holder, verdict, now))
    }
}

/// The operations on the counters in memory.
impl<B: ?Sized> KeyedOps<'_, B> {
    #[inline]
    pub(super) fn hit_in_memory(&self) -> Verdict {
        let now = self.when();
        match self.holder {
            None => {
                let mut verdict = crate::memory::UNCOUNTED;
                self.limiter.inner.hit(self.hash(), self.key, self.cost, now, &mut verdict);
                verdict
            }
            Some(_) => {
                let op = Op::Hit { cost: self.cost, holder: self.holder };
                self.ask_in_memory(op, now)
                    .map_or_else(|_| self.peek_in_memory(), |answer| answer.verdict)
            }
        }
    }

    pub(super) fn peek_in_memory(&self) -> Verdict {
        // No algorithm refuses a peek.
        let peeked = self.ask_in_memory(Op::Peek { cost: self.cost }, self.when());
        peeked.map_or(crate::memory::UNCOUNTED, |answer| answer.verdict)
    }

    /// The same denial, with an estimate of when a slot is released where a slot is lacking.
    pub(super) fn with_estimate(&self, denied: Denied) -> Denied {
        match denied {
            Denied::NotNow(verdict) => {
                Denied::NotNow(self.limiter.inner.with_estimate(verdict, self.when()))
            }
            denied => denied,
        }
    }

    pub(super) fn when(&self) -> Timestamp {
        self.now.unwrap_or_else(|| self.limiter.now())
    }

    pub(super) fn hash(&self) -> u64 {
        self.limiter.inner.shards.hash(self.key)
    }

    pub(super) fn ask_in_memory(&self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        let answer = self.ask_at(op, now)?;
        Ok(Answer { verdict: self.limiter.inner.with_estimate(answer.verdict, now), ..answer })
    }

    /// The same with the end of a lease in place of an estimate.
    fn ask_at(&self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        self.limiter.apply(self.hash(), Some(self.key), op, now)
    }
}

impl<B: Backend + ?Sized> KeyedOps<'_, B> {
    /// A denial has the end of a lease: a waiter is woken then.
    pub(super) fn permit_in_memory(&self) -> Result<Permit<B>, Denied> {
        self.limiter.inner.hold_time.take(None);
        let holder = self.holder.unwrap_or_else(new_holder);
        let op = Op::Hit { cost: self.cost, holder: Some(holder) };
        let verdict = self.ask_at(op, self.when())?.verdict;
        Denied::unless_allowed(verdict)?;
        Ok(Permit::new(self, holder, verdict))
    }

    pub(super) fn reserve_in_memory(&self, ttl: Span) -> Result<Reservation<B>, Denied> {
        self.limiter.inner.hold_time.take(Some(ttl));
        let holder = self.holder.unwrap_or_else(new_holder);
        let op = Op::Reserve { cost: self.cost, ttl, holder };
        let verdict = self.ask_in_memory(op, self.when())?.verdict;
        Denied::unless_allowed(verdict)?;
        Ok(Reservation::new(self, holder, verdict))
    }
}
