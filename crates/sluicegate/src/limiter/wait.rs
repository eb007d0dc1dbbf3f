//! Waiting for a turn.
//!
//! A turn is booked before it is waited for. So waiters start in booking order, and the limit holds
//! even if a waiter fails. Dropping the future or the [`Booking`] before the turn releases the
//! booking as far as the algorithm can.
//!
//! A slot of a concurrency limit cannot be booked, since the time of its release is unknown. A
//! waiter is woken when a [`Permit`] is dropped, or when the blocking lease ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::guard::Held;
use super::{Inner, KeyedOps, Permit};
use crate::answer::Denied;
use crate::clock::span;
use crate::engine::backend::Backend;

/// A turn booked ahead: see [`KeyedOps::book`].
///
/// Dropping it before its turn releases it.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::Limiter;
/// use sluicegate::clock::ManualClock;
/// use sluicegate::limit::LeakyBucket;
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder()
///     .limit(LeakyBucket::per_second(1).queue(5))
///     .clock(clock.clone())
///     .build()?;
/// let waits: Vec<_> = (0..3).map(|_| limiter.of("printer").book()).collect::<Result<_, _>>()?;
/// assert_eq!(waits[2].wait_time(), Duration::from_secs(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the turn is given back when this is dropped"]
pub struct Booking {
    held: Held,
    verdict: Verdict,
    turn: Timestamp,
    jitter: Duration,
}

/// Waiters for a slot, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<BTreeMap<QueuePosition, Waker>>,
    count: AtomicUsize,
    next: AtomicU64,
}

/// Position in the queue for a slot of one identity: its hash, and a sequence number.
pub(super) type QueuePosition = (u64, u64);

impl KeyedOps<'_> {
    /// Books a turn and blocks this thread until it comes.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_second(100).burst(1))?;
    /// limiter.hit("alice");
    /// let verdict = limiter.of("alice").acquire_blocking()?;
    /// assert!(verdict.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// At once, when its turn would not come within [`KeyedOps::within`].
    pub fn acquire_blocking(&self) -> Result<Verdict, Denied> {
        self.book().map(Booking::wait_blocking)
    }

    /// Waits for a slot, blocking this thread.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use sluicegate::{Limiter, limit::Concurrency};
    /// let limiter = Limiter::new(Concurrency::at_most(1))?;
    /// let permit = limiter.of("alice").permit()?;
    /// std::thread::scope(|scope| {
    ///     let second = scope.spawn(|| limiter.of("alice").permit_blocking().is_ok());
    ///     drop(permit);
    ///     assert!(second.join().unwrap());
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When none was free within [`KeyedOps::within`].
    pub fn permit_blocking(&self) -> Result<Permit, Denied> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut waiting = SlotWait::new(self);
        loop {
            match waiting.try_acquire(self, &waker) {
                Ok(result) => return result,
                Err(until) => park_until(&self.limiter.inner, until, &waker),
            }
        }
    }
}

#[cfg(feature = "tokio")]
impl<B: Backend + ?Sized> KeyedOps<'_, B> {
    /// Books a turn and waits for it. Dropping the future releases the turn.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(TokenBucket::per_second(100).burst(1))?;
    /// limiter.hit("alice");
    /// let verdict = limiter.of("alice").acquire().await?;
    /// assert!(verdict.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// At once, when its turn would not come within [`KeyedOps::within`]; or when the store does
    /// not answer.
    pub async fn acquire(&self) -> Result<Verdict, Denied> {
        match &self.limiter.shared {
            None => {
                let limiter = self.limiter.in_memory();
                let Self { key, cost, now, holder, max_wait, jitter, .. } = *self;
                let ops = KeyedOps { limiter: &limiter, key, cost, now, holder, max_wait, jitter };
                Ok(ops.book()?.wait().await)
            }
            Some(shared) => Box::pin(shared.acquire(self)).await,
        }
    }

    /// Waits for a slot. Dropping the future acquires nothing.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::Concurrency};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Concurrency::at_most(1))?;
    /// let permit = limiter.of("alice").permit_async().await?;
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When none was free within [`KeyedOps::within`], or the store does not answer.
    pub async fn permit_async(&self) -> Result<Permit<B>, Denied> {
        use std::future::{Future, poll_fn};
        use std::task::Poll;

        if let Some(shared) = &self.limiter.shared {
            return Box::pin(shared.permit(self)).await;
        }
        let mut waiting = SlotWait::new(self);
        let mut timer = None;
        poll_fn(|cx| {
            loop {
                let until = match waiting.try_acquire(self, cx.waker()) {
                    Ok(result) => return Poll::Ready(result),
                    Err(until) => until,
                };
                let new = || Box::pin(self.limiter.inner.time.sleep_until(until));
                if timer.insert(new()).as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

impl Booking {
    pub(super) fn new(
        ops: &KeyedOps<'_>,
        holder: Holder,
        verdict: Verdict,
        now: Timestamp,
    ) -> Self {
        let wait = match verdict.outcome {
            Outcome::Allow { wait } => wait,
            Outcome::Deny { .. } | Outcome::Never { .. } => Span::ZERO,
        };
        let held = Held::new(ops, holder);
        let turn = now.after(wait);
        Self { held, verdict, turn, jitter: ops.jitter }
    }

    /// The verdict.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(60))?;
    /// assert_eq!(limiter.of("alice").book()?.verdict().remaining, Some(59));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Time from now until its turn.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(60))?;
    /// assert!(limiter.of("alice").book()?.wait_time().is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_time(&self) -> Duration {
        self.turn.since(self.held.limiter.now()).to_duration()
    }

    /// Blocks this thread until the turn comes.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(60))?;
    /// assert!(limiter.of("alice").book()?.wait_blocking().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_blocking(mut self) -> Verdict {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let until = self.start();
        while self.held.limiter.now() < until {
            park_until(&self.held.limiter.inner, until, &waker);
        }
        self.used()
    }

    /// Waits for the turn. Dropping the future releases the turn.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(TokenBucket::per_minute(60))?;
    /// assert!(limiter.of("alice").book()?.wait().await.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tokio")]
    pub async fn wait(mut self) -> Verdict {
        self.held.limiter.inner.time.sleep_until(self.start()).await;
        self.used()
    }

    /// The start time: the turn plus the jitter.
    fn start(&self) -> Timestamp {
        let max = span(self.jitter).as_micros();
        if max == 0 {
            return self.turn;
        }
        let random = self.held.limiter.inner.shards.hash(&self.held.holder.0.to_le_bytes());
        self.turn.after(Span::from_micros(random % max.saturating_add(1)))
    }

    /// Consumes the turn: it can no longer be released. Its slot stays held, as after a hit.
    fn used(&mut self) -> Verdict {
        let now = self.held.limiter.now().max(self.turn);
        self.held.forget_at(now);
        self.verdict
    }
}

impl Waiters {
    /// Wakes all waiters: there may be more slots than before.
    pub(super) fn wake_all(&self) {
        let mut waiting = self.waiting.lock();
        let all = std::mem::take(&mut *waiting);
        self.count.store(0, Ordering::SeqCst);
        drop(waiting);
        // A waiter that gets no slot takes its position again.
        all.into_values().for_each(Waker::wake);
    }

    /// Wakes the first waiter for a slot of this identity, which wakes the next if more are free;
    /// wakes all if the slot was in the shared overflow state.
    pub(super) fn freed(&self, hash: u64, shared: bool) {
        match shared {
            true => self.wake_all(),
            false => self.wake(hash, 1),
        }
    }

    /// Wakes the first `slots` waiters of this identity.
    pub(super) fn wake(&self, hash: u64, slots: u64) {
        for _ in 0..slots {
            if !self.wake_from((hash, 0)) {
                return;
            }
        }
    }

    /// Wakes the next waiter behind this position.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_behind(&self, (hash, number): QueuePosition) {
        self.wake_from((hash, number.saturating_add(1)));
    }

    /// Wakes the first waiter at or after this position; returns whether there was one.
    fn wake_from(&self, from: QueuePosition) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut waiting = self.waiting.lock();
        let first = waiting.range(from..=(from.0, u64::MAX)).next().map(|(position, _)| *position);
        let woken = first.and_then(|position| waiting.remove(&position));
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        let Some(waker) = woken else { return false };
        waker.wake();
        true
    }

    /// A position behind all others.
    pub(super) fn position(&self, hash: u64) -> QueuePosition {
        (hash, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether it was waiting already.
    pub(super) fn add(&self, position: QueuePosition, waker: &Waker) -> bool {
        let mut waiting = self.waiting.lock();
        let before = waiting.insert(position, waker.clone());
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        // `before` is dropped without the lock: it may be the last reference to another waiter.
        before.is_some()
    }

    /// Whether it was still waiting; if not, it had been woken.
    pub(super) fn remove(&self, position: QueuePosition) -> bool {
        let mut waiting = self.waiting.lock();
        let before = waiting.remove(&position);
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        before.is_some()
    }
}

// === waiting for a slot ===

/// A waiter for a slot.
struct SlotWait<'a> {
    inner: &'a Inner,
    position: QueuePosition,
    holder: Holder,
    deadline: Timestamp,
    queued: bool,
    /// Number of consumed wakeups, each for one released slot.
    wakeups: u64,
}

impl<'a> SlotWait<'a> {
    fn new<B: ?Sized>(ops: &KeyedOps<'a, B>) -> Self {
        let inner = &*ops.limiter.inner;
        Self {
            inner,
            position: inner.waiters.position(ops.hash()),
            holder: ops.holder.unwrap_or_else(super::new_holder),
            deadline: ops.when().after(ops.max_wait),
            queued: false,
            wakeups: 0,
        }
    }

    /// The permit, or a denial if there is none in time; the error is the time of the next check.
    fn try_acquire<B: Backend + ?Sized>(
        &mut self,
        ops: &KeyedOps<'_, B>,
        waker: &Waker,
    ) -> Result<Result<Permit<B>, Denied>, Timestamp> {
        let ops = KeyedOps { holder: Some(self.holder), now: None, ..*ops };
        // Enqueued before the check, so that a release in between wakes this waiter; at its old
        // position, so that a woken waiter that came too late stays first.
        let waited = self.inner.waiters.add(self.position, waker);
        if std::mem::replace(&mut self.queued, true) && !waited {
            self.wakeups = self.wakeups.saturating_add(1);
        }
        let denied = match ops.permit_in_memory() {
            Ok(permit) => {
                self.leave(ops.cost);
                return Ok(Ok(permit));
            }
            Err(denied) => denied,
        };
        let now = self.inner.now();
        match denied.retry_after() {
            Some(after) if now < self.deadline => Err(now.after(after).min(self.deadline)),
            _ => Ok(Err(ops.with_estimate(denied))),
        }
    }

    /// Leaves the queue with `with` slots and passes the other wakeups on.
    fn leave(&mut self, with: u64) {
        if std::mem::take(&mut self.queued) {
            if !self.inner.waiters.remove(self.position) {
                self.wakeups = self.wakeups.saturating_add(1);
            }
            self.inner.waiters.wake(self.position.0, self.wakeups.saturating_sub(with));
        }
    }
}

impl Drop for SlotWait<'_> {
    fn drop(&mut self) {
        self.leave(0);
    }
}

// === timers ===

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until it is unparked, or until about `until`.
fn park_until(inner: &Inner, until: Timestamp, waker: &Waker) {
    match inner.time.wakes(until, waker) {
        true => std::thread::park(),
        false => std::thread::park_timeout(until.since(inner.now()).to_duration()),
    }
}
