//! Waiting for a request's turn.
//!
//! A turn is booked first and waited for then: who waits comes in the order in which they asked, and the limits hold whatever becomes of
//! them. A slot of a concurrency limit cannot be booked, since nobody knows when it will be free: whoever waits for one is told when one is given back,
//! and looks again at the end of the lease that is in the way.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Outcome;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::Request;
use tokio::sync::Notify;

use super::check::{Manner, Want, first_alike};
use super::{Checked, Engine, HoldError, Snapshot};
use crate::clock::sleep_until;
use crate::limiter::Queued;
use crate::policy::Policy;

/// What became of somebody who waited.
#[derive(Debug, Clone)]
pub struct Waited {
    /// What was said at last; the statuses of an admitted request still carry the wait that is over now.
    pub checked: Checked,
    /// How long it took.
    pub waited: Span,
    /// Whether it holds a slot, which is given back by [`Snapshot::cancel`] or at the end of its lease.
    pub has_slot: bool,
}

// === impl Engine ===

impl Engine {
    /// Waits until a request may go, for `patience` at most. Denied is who would have to wait for longer: at once, where that can be known.
    ///
    /// Whoever drops the future before gives the turn back, as far as it can be.
    ///
    /// ```
    /// # #[cfg(feature = "config")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, Span, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: shop
    /// descriptors:
    ///   - key: printer
    ///     limits: { algorithm: token_bucket, rate: 100/s, burst: 1 }
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("printer", "1st floor")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    /// let mut total = Span::ZERO;
    /// for _ in 0..2 {
    ///     let waited = engine.wait(&request, Engine::new_holder(), Span::from_secs(1)).await?;
    ///     assert!(waited.checked.allowed);
    ///     total = total.max(waited.waited);
    /// }
    /// assert!(total > Span::ZERO);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "config"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// When something that it is under cannot be booked.
    pub async fn wait(
        &self,
        request: &Request<'_>,
        holder: Holder,
        patience: Span,
    ) -> Result<Waited, HoldError> {
        let begun = self.now();
        let deadline = begun.after(patience);
        let mut checked = Checked::default();
        let mut queue = Queue::default();
        loop {
            // In the queue before looking: a slot that is given back in between wakes us.
            queue.enter(&self.snapshot(), request);
            let now = self.now();
            let patience = deadline.since(now);
            let free_at =
                self.snapshot().book_or_wait(request, holder, patience, now, &mut checked)?;
            match free_at.filter(|_| now < deadline) {
                Some(then) => {
                    queue.pass_on(now);
                    let clock = self.inner.store.clock.as_deref();
                    either(queue.nudge.0.notified(), sleep_until(clock, then.min(deadline))).await;
                }
                None => break,
            }
        }
        self.snapshot().count_unless_listed(&checked);
        if !checked.allowed {
            return Ok(Waited { checked, waited: self.now().since(begun), has_slot: false });
        }
        drop(queue);
        let mut turn = Turn { engine: self, request, holder, given: false };
        let until = self.now().max(begun).after(checked.wait());
        self.hold_until(request, holder, until).await;
        turn.given = true;
        let has_slot = self.snapshot().forget(request, holder, self.now().max(until));
        Ok(Waited { checked, waited: self.now().since(begun), has_slot })
    }
}

impl Engine {
    /// Waits until the turn comes. A slot that was taken with it may have a shorter lease, so it is renewed meanwhile.
    async fn hold_until(&self, request: &Request<'_>, holder: Holder, until: Timestamp) {
        /// A shorter lease would keep the processor busy.
        const RENEWED_AFTER_MIN: Span = Span::from_millis(10);

        let clock = self.inner.store.clock.as_deref();
        loop {
            let now = self.now();
            if now >= until {
                return;
            }
            let lease = self.snapshot().renew(request, holder, now);
            let next = lease.map_or(until, |lease| {
                let half = Span::from_micros(lease.as_micros() / 2);
                now.after(half.max(RENEWED_AFTER_MIN)).min(until)
            });
            sleep_until(clock, next).await;
        }
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// Renews the slots that are held under an id; the shortest of their leases.
    fn renew(&self, request: &Request<'_>, holder: Holder, now: Timestamp) -> Option<Span> {
        let mut plan = Plan::default();
        self.live.rules.plan(request, &mut plan);
        let asked = plan.steps().iter().filter_map(|step| match self.manner(Want::Hit, step) {
            Manner::Once(no) | Manner::Together(no) => Some(self.asked(no, plan.identity(step))),
            _ => None,
        });
        asked.filter(|asked| asked.renew(holder, now)).filter_map(|asked| asked.lease(now)).min()
    }

    /// Books a turn; when to look again if it is denied for want of a slot.
    fn book_or_wait(
        &self,
        request: &Request<'_>,
        holder: Holder,
        patience: Span,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<Option<Timestamp>, HoldError> {
        let op = |cost| Op::Acquire { cost, max_wait: patience, holder: Some(holder) };
        self.hold(&op, request, holder, now, checked)?;
        Ok(if checked.allowed { None } else { self.slot_free_at(checked, now) })
    }

    /// When a slot that a denied request lacks will be free at the latest; `None` where no slot is what it lacks.
    #[must_use]
    pub fn slot_free_at(&self, checked: &Checked, now: Timestamp) -> Option<Timestamp> {
        let mut free_at = None;
        for status in checked.statuses.iter().filter(|status| !status.verdict.is_allowed()) {
            let (Target::Rule(no), Outcome::Deny { retry_after }) =
                (status.target, status.verdict.outcome)
            else {
                return None;
            };
            let by = status.verdict.decided_by.and_then(|place| self.policies(no).get(place));
            if !by.is_some_and(Policy::has_slots) {
                return None;
            }
            free_at = free_at.max(Some(now.after(retry_after)));
        }
        free_at
    }

    /// The turn has come, and is not to be remembered; whether a slot came with it, which is held on.
    fn forget(&self, request: &Request<'_>, holder: Holder, now: Timestamp) -> bool {
        let mut plan = Plan::default();
        self.live.rules.plan(request, &mut plan);
        let mut has_slot = false;
        for step in plan.steps() {
            if let Manner::Once(no) | Manner::Together(no) = self.manner(Want::Hit, step) {
                let asked = self.asked(no, plan.identity(step));
                has_slot |= asked.forget(holder, now);
            }
        }
        has_slot
    }
}

/// A turn that is waited for; given back unless it was used.
struct Turn<'a> {
    engine: &'a Engine,
    request: &'a Request<'a>,
    holder: Holder,
    given: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.given {
            let (rules, now) = (self.engine.snapshot(), self.engine.now());
            // Where it was forgotten meanwhile there is nothing to give back.
            let _ = rules.cancel(self.request, self.holder, now, &mut Checked::default());
        }
    }
}

/// Until one of two is ready.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}

// === waiting for slots ===

/// The places of one who waits, at every limiter with slots; left when this is dropped.
#[derive(Default)]
struct Queue {
    nudge: Arc<Nudge>,
    places: Vec<Queued>,
}

#[derive(Default)]
struct Nudge(Notify);

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Queue {
    /// Takes its places, or takes them again: whoever was woken has left the queue, and is still the first of it. Where the rules have changed it is behind all others.
    fn enter(&mut self, rules: &Snapshot<'_>, request: &Request<'_>) {
        let waker = Waker::from(self.nudge.clone());
        let mut before = std::mem::take(&mut self.places);
        let mut plan = Plan::default();
        rules.live.rules.plan(request, &mut plan);
        for (at, step) in plan.steps().iter().enumerate() {
            if let Manner::Once(no) | Manner::Together(no) = rules.manner(Want::Hit, step)
                && first_alike(&plan, at) == at
            {
                let asked = rules.asked(no, plan.identity(step));
                if asked.has_slots() {
                    let mut place = asked.queued(&mut before);
                    place.enter(&waker);
                    self.places.push(place);
                }
            }
        }
    }

    /// It was woken in vain.
    fn pass_on(&mut self, now: Timestamp) {
        self.places.iter_mut().for_each(|place| place.pass_on(now));
    }
}
