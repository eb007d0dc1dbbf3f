//! Waiting for a turn.
//!
//! A turn is booked first and waited for then, so that those who wait come in the order they asked, and the limit
//! holds whatever happens to them. Who gives up (drops the future, or the [`Booking`]) before the turn gives back what
//! can be given back.
//!
//! A slot of a concurrency limit cannot be booked, since nobody knows when it will be free. Who waits for one is
//! woken when a [`Permit`] is dropped, or at the end of the lease that is in the way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::guard::Held;
use super::{Ask, Inner, Permit, Time};
use crate::clock::{duration, span};
use crate::denied::Denied;

/// A turn that was booked ahead: see [`Ask::book`].
///
/// Dropped before its turn, it is given back.
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

/// Those who wait for a slot to be given back.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<VecDeque<Waiting>>,
    count: AtomicUsize,
}

#[derive(Debug)]
struct Waiting {
    hash: u64,
    holder: Holder,
    waker: Waker,
}

// === impl Ask ===

impl Ask<'_> {
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
    /// At once, when its turn would not come within [`Ask::within`].
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
    /// When none was free within [`Ask::within`].
    pub fn permit_blocking(&self) -> Result<Permit, Denied> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut waiting = SlotWait::new(self);
        loop {
            match waiting.look(self, &waker) {
                Ok(result) => return result,
                Err(until) => park_until(&self.limiter.inner, until, &waker),
            }
        }
    }

    /// Books a turn and waits until it comes. Dropping the future gives the turn back.
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
    /// At once, when its turn would not come within [`Ask::within`].
    #[cfg(feature = "tokio")]
    pub async fn acquire(&self) -> Result<Verdict, Denied> {
        Ok(self.book()?.wait().await)
    }

    /// Waits for a slot. Dropping the future takes nothing with it.
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
    /// When none was free within [`Ask::within`].
    #[cfg(feature = "tokio")]
    pub async fn permit_async(&self) -> Result<Permit, Denied> {
        use std::future::{Future, poll_fn};
        use std::task::Poll;

        let mut waiting = SlotWait::new(self);
        let mut timer = None;
        poll_fn(|cx| {
            loop {
                let until = match waiting.look(self, cx.waker()) {
                    Ok(result) => return Poll::Ready(result),
                    Err(until) => until,
                };
                let new = || Box::pin(sleep_until(self.limiter.inner.clone(), until));
                if timer.insert(new()).as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

// === impl Booking ===

impl Booking {
    pub(super) fn new(ask: &Ask<'_>, holder: Holder, verdict: Verdict, now: Timestamp) -> Self {
        let wait = match verdict.outcome {
            Outcome::Allow { wait } => wait,
            Outcome::Deny { .. } | Outcome::Never { .. } => Span::ZERO,
        };
        let held = Held::new(ask.limiter.clone(), ask.hash(), holder, ask.cost);
        Self { held, verdict, turn: now.after(wait), jitter: ask.jitter }
    }

    /// What the limiter said.
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

    /// How long it is from now until its turn.
    ///
    /// ```
    /// # use sluicegate::{Limiter, limit::TokenBucket};
    /// let limiter = Limiter::new(TokenBucket::per_minute(60))?;
    /// assert!(limiter.of("alice").book()?.wait_time().is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_time(&self) -> Duration {
        duration(self.turn.since(self.held.limiter.now()))
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

    /// Waits until the turn comes. Dropping the future gives the turn back.
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
        sleep_until(self.held.limiter.inner.clone(), self.start()).await;
        self.used()
    }

    /// When to start: the turn, and a little more at random if that was asked for.
    fn start(&self) -> Timestamp {
        let most = span(self.jitter).as_micros();
        if most == 0 {
            return self.turn;
        }
        let random = self.held.limiter.inner.shards.hash(&self.held.holder.0.to_le_bytes());
        self.turn.after(Span::from_micros(random % most.saturating_add(1)))
    }

    /// The turn has come: it cannot be given back any more, and need not be remembered.
    fn used(&mut self) -> Verdict {
        let now = self.held.limiter.now().max(self.turn);
        self.held.cancel_at(now);
        self.verdict
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.held.cancel();
    }
}

// === impl Waiters ===

impl Waiters {
    /// Wakes whoever has waited longest for a slot of this identity.
    pub(super) fn wake_one(&self, hash: u64) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let first = waiting.iter().position(|one| one.hash == hash);
        let woken = first.and_then(|place| waiting.remove(place));
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        if let Some(one) = woken {
            one.waker.wake();
        }
    }

    fn add(&self, hash: u64, holder: Holder, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        match waiting.iter_mut().find(|one| one.holder == holder) {
            Some(one) => one.waker.clone_from(waker),
            None => waiting.push_back(Waiting { hash, holder, waker: waker.clone() }),
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Whether it was still waiting; if not, it had been woken.
    fn remove(&self, holder: Holder) -> bool {
        let mut waiting = self.waiting.lock();
        let before = waiting.len();
        waiting.retain(|one| one.holder != holder);
        self.count.store(waiting.len(), Ordering::SeqCst);
        waiting.len() < before
    }
}

// === a slot waited for ===

/// Somebody who waits for a slot.
struct SlotWait<'a> {
    inner: &'a Inner,
    hash: u64,
    holder: Holder,
    deadline: Timestamp,
    queued: bool,
}

impl<'a> SlotWait<'a> {
    fn new(ask: &Ask<'a>) -> Self {
        Self {
            inner: &ask.limiter.inner,
            hash: ask.hash(),
            holder: ask.holder.unwrap_or_else(super::new_holder),
            deadline: ask.when().after(ask.patience),
            queued: false,
        }
    }

    /// The permit, or that there will be none in time; else until when to wait before looking again.
    fn look(&mut self, ask: &Ask<'_>, waker: &Waker) -> Result<Result<Permit, Denied>, Timestamp> {
        let ask = Ask { holder: Some(self.holder), now: None, ..*ask };
        // In the queue before looking: a slot that is given back in between wakes us.
        self.inner.waiters.add(self.hash, self.holder, waker);
        self.queued = true;
        let denied = match ask.permit() {
            Ok(permit) => {
                self.leave();
                return Ok(Ok(permit));
            }
            Err(denied) => denied,
        };
        let now = self.inner.now();
        match denied.retry_after() {
            Some(after) if now < self.deadline => Err(now.after(after).min(self.deadline)),
            _ => Ok(Err(denied)),
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.queued) {
            self.inner.waiters.remove(self.holder);
        }
    }
}

impl Drop for SlotWait<'_> {
    fn drop(&mut self) {
        // Woken, but gone before it looked: the next in the queue has to be.
        if self.queued && !self.inner.waiters.remove(self.holder) {
            self.inner.waiters.wake_one(self.hash);
        }
    }
}

// === letting time pass ===

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until it is unparked, or about until `until`.
fn park_until(inner: &Inner, until: Timestamp, waker: &Waker) {
    match &inner.time {
        Time::Other(clock) if clock.wakes(until, waker) => std::thread::park(),
        _ => std::thread::park_timeout(duration(until.since(inner.now()))),
    }
}

/// Waits until `until`, by the limiter's clock.
#[cfg(feature = "tokio")]
async fn sleep_until(inner: Arc<Inner>, until: Timestamp) {
    use std::future::poll_fn;
    use std::task::Poll;

    while inner.now() < until {
        let by_hand = poll_fn(|cx| match &inner.time {
            Time::Other(clock) if inner.now() < until => {
                if !clock.wakes(until, cx.waker()) {
                    return Poll::Ready(false);
                }
                if inner.now() < until { Poll::Pending } else { Poll::Ready(true) }
            }
            Time::Other(_) => Poll::Ready(true),
            Time::System(_) => Poll::Ready(false),
        });
        if !by_hand.await {
            tokio::time::sleep(duration(until.since(inner.now()))).await;
        }
    }
}
