//! Requests that wait for their turn.
//!
//! A turn is booked first and waited for then, so requests are served in the order of their
//! bookings, and the limits hold even if a client gives up. A slot of a concurrency limit cannot be
//! booked: a request waits in a queue until one is released on this node, and tries again when the
//! lease that is in its way ends, or at the backend's poll interval.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::Request;
use tokio::sync::Notify;

use super::admission::{Operation, repeat};
use super::backend::{ApplyError, Backend, BoundStep, DENIED_WITHOUT_STORE};
use super::pools::AllPools;
use super::{Checked, Engine, HoldError, Snapshot, Status};
use crate::answer::Policy;
use crate::limiter::Queued;

/// Result of waiting.
#[derive(Debug)]
pub struct Waited<'a> {
    /// The rules that the request was decided by. Others may be active by now.
    pub rules: Snapshot<'a>,
    /// The last decision. The statuses of an admitted request still have the wait that is over now;
    /// those of a denied one are what [`Engine::check_async`] would decide.
    pub checked: Checked,
    /// The time that the figures of the statuses refer to: that of the decision, or of the turn of
    /// a request that waited.
    pub decided_at: Timestamp,
    /// How long it took.
    pub waited: Span,
    /// Whether a slot is held, which is released by [`Engine::cancel`] or at the end of its lease.
    pub has_slot: bool,
}

impl<B: Backend + ?Sized> Engine<B> {
    /// Waits until a request is admitted, for `max_wait` at most. A request that would have to wait
    /// longer is denied, at once where that is known. Dropping the future cancels the turn.
    ///
    /// ```
    /// # #[cfg(feature = "config")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Engine, Span, new_holder, rules_of};
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
    ///     let waited = engine.wait(&request, new_holder(), Span::from_secs(1)).await?;
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
    /// When a limit cannot be booked, or the store does not answer.
    pub async fn wait(
        &self,
        request: &Request<'_>,
        holder: Holder,
        max_wait: Span,
    ) -> Result<Waited<'_>, HoldError> {
        self.wait_and_hold(request, holder, max_wait, None).await
    }

    /// The same, and reserves what was waited for: from its turn on it is a reservation, as that of
    /// [`Engine::reserve`].
    ///
    /// # Errors
    /// As [`Engine::wait`].
    pub async fn reserve_waiting(
        &self,
        request: &Request<'_>,
        holder: Holder,
        ttl: Span,
        max_wait: Span,
    ) -> Result<Waited<'_>, HoldError> {
        self.wait_and_hold(request, holder, max_wait, Some(ttl)).await
    }

    async fn wait_and_hold(
        &self,
        request: &Request<'_>,
        holder: Holder,
        max_wait: Span,
        ttl: Option<Span>,
    ) -> Result<Waited<'_>, HoldError> {
        let started = self.now();
        let deadline = started.after(max_wait);
        let poll_interval = self.backend().slot_waiting().poll_interval;
        let mut checked = Checked::default();
        let mut turn = Turn { engine: self, request, holder, is_booked: false, is_counted: false };
        let mut queue = SlotQueue::default();
        let (decided_by, decided_at, max_wait) = loop {
            let rules = self.snapshot();
            if poll_interval.is_none() {
                // Queued before trying: a slot that is released in between wakes this request.
                queue.enter(&rules, request);
            }
            let call = self.call(&rules, request);
            let (now, max_wait) = (call.now, deadline.since(call.now));
            let op = move |cost| Op::Acquire { cost, max_wait, holder: Some(holder) };
            turn.is_booked = true;
            self.hold(&op, call, holder, &mut checked).await?;
            turn.is_booked = checked.allowed;
            let retry_at = match checked.allowed {
                true => None,
                false => rules.slot_free_at(&checked, now).filter(|_| now < deadline),
            };
            let Some(retry_at) = retry_at else {
                rules.take_slots(&checked.plan, ttl);
                match ttl {
                    Some(_) => rules.finish_reserved(&mut checked, &call),
                    None => rules.finish_held(&mut checked, &call),
                }
                turn.is_counted = ttl.is_none();
                break (rules.owned(), now, max_wait);
            };
            drop(rules);
            queue.pass_on(now);
            let retry_at = poll_interval.map_or(retry_at, |every| retry_at.min(now.after(every)));
            let sleep = self.clock().sleep_until(retry_at.min(deadline));
            either(queue.waker.0.notified(), sleep).await;
        };
        drop(queue);
        if !checked.allowed {
            let waited = self.now().since(started);
            let (rules, has_slot) = (decided_by, false);
            let mut denied = Waited { rules, checked, decided_at, waited, has_slot };
            if !max_wait.is_zero() {
                self.write_plain_denial(request, &mut denied).await;
            }
            return Ok(denied);
        }
        let has_waited = !checked.wait().is_zero();
        let turn_at = self.now().max(started).after(checked.wait());
        self.hold_until(request, holder, turn_at).await;
        let (rules, now, mut has_slot) = (self.snapshot(), self.now().max(turn_at), false);
        let mut plan = Plan::default();
        let drawn = decided_by.with_pools(request, &checked.statuses);
        let drawn = Request { descriptors: &drawn, ..*request };
        for step in booked_steps(&rules, &drawn, &mut plan) {
            // The turn has come, and leases may have changed.
            let current = match ttl {
                // What cannot be cancelled any more need not be remembered.
                None => {
                    has_slot |= self.backend().forget(step, holder, now).await;
                    if !has_waited {
                        continue;
                    }
                    self.backend().apply_to(&[step], Op::Peek { cost: 0 }, now).await
                }
                Some(ttl) => {
                    has_slot |= step.counter.has_slots();
                    let op = Op::Renew { ttl, holder };
                    self.backend().apply_to(&[step], op, now).await
                }
            };
            match (current, checked.statuses.get_mut(step.index)) {
                // By other rules, the step may be of another limit.
                (Ok(current), Some(status)) if rules.is_same(&decided_by) => {
                    status.verdict = with_figures(status.verdict, current.answer.verdict);
                }
                (Err(ApplyError::Store(failure)), _) if ttl.is_some() => {
                    return Err(HoldError::Store(failure));
                }
                // A step whose rule was changed meanwhile may hold nothing.
                _ => {}
            }
        }
        if rules.is_same(&decided_by) {
            plan.truncate(checked.statuses.len());
            repeat(&rules, Operation::Hit, &plan, &mut checked.statuses);
        }
        turn.is_booked = false;
        if has_waited && !rules.is_same(&decided_by) {
            // What is left of the figures of the decision.
            let elapsed = now.since(decided_at).as_micros();
            for Status { verdict, .. } in &mut checked.statuses {
                let left = verdict.reset_after.as_micros().saturating_sub(elapsed);
                verdict.reset_after = Span::from_micros(left);
            }
        }
        let decided_at = if has_waited || ttl.is_some() { now } else { decided_at };
        let (rules, waited) = (decided_by, self.now().since(started));
        Ok(Waited { rules, checked, decided_at, waited, has_slot })
    }

    /// The turn that [`Engine::book`] has booked has come. It cannot be cancelled any more, and the
    /// leases of slots begin. Returns whether a slot is held.
    pub async fn begin_turn(&self, request: &Request<'_>, holder: Holder) -> bool {
        let (rules, now, mut has_slot) = (self.snapshot(), self.now(), false);
        let mut plan = Plan::default();
        for step in booked_steps(&rules, request, &mut plan) {
            has_slot |= self.backend().forget(step, holder, now).await;
        }
        has_slot
    }

    /// Cancels a turn that [`Engine::book`] has booked, without waiting for the store.
    pub fn cancel_turn(&self, request: &Request<'_>, holder: Holder) {
        self.cancel_booked(request, holder, true);
    }

    /// The same for a turn that may not have been counted.
    fn cancel_booked(&self, request: &Request<'_>, holder: Holder, is_counted: bool) {
        let (rules, mut plan) = (self.snapshot(), Plan::default());
        let steps = booked_steps(&rules, request, &mut plan);
        self.backend().cancel_in_background(&steps, holder, self.now());
        if is_counted {
            // By the first pool of each descriptor, whichever has booked it.
            let first = steps.iter().filter(|step| step.index < request.descriptors.len());
            let first: Vec<_> = first.map(|step| (step.index, step.cost)).collect();
            rules.meter_cancelled(&plan, &first);
        }
    }

    /// Replaces a denial after the longest wait by that of a plain check: when a client may retry
    /// without waiting here.
    async fn write_plain_denial<'a>(&'a self, request: &Request<'_>, denied: &mut Waited<'a>) {
        let verdicts = || denied.checked.statuses.iter().map(|status| status.verdict);
        // The store would have to be waited for again.
        if verdicts().any(|verdict| verdict == DENIED_WITHOUT_STORE) {
            return;
        }
        let (rules, mut checked) = (self.snapshot(), Checked::default());
        let call = self.call(&rules, request);
        let peeked = self.apply(Operation::Peek, call, &mut checked).await;
        // A request that would pass just now was denied all the same.
        let now = call.now;
        if peeked.is_ok() && !checked.allowed {
            (denied.rules, denied.checked, denied.decided_at) = (rules.owned(), checked, now);
        }
    }

    /// Sleeps until the turn. The leases of slots that were taken with it are renewed meanwhile.
    async fn hold_until(&self, request: &Request<'_>, holder: Holder, turn_at: Timestamp) {
        let interval_min = self.backend().slot_waiting().renew_interval_min;
        loop {
            let now = self.now();
            if now >= turn_at {
                return;
            }
            let mut lease: Option<Span> = None;
            {
                let (rules, mut plan) = (self.snapshot(), Plan::default());
                for step in booked_steps(&rules, request, &mut plan) {
                    if let Some(of_step) = step.counter.lease(now) {
                        // If that fails, the lease may end, and the slot goes to another request.
                        let _ = self.backend().renew(step, holder, now).await;
                        lease = Some(lease.map_or(of_step, |lease| lease.min(of_step)));
                    }
                }
            }
            let next = lease.map_or(turn_at, |lease| {
                let half = Span::from_micros(lease.as_micros() / 2);
                now.after(half.max(interval_min)).min(turn_at)
            });
            self.clock().sleep_until(next).await;
        }
    }
}

/// A decision with the present figures of its limits.
const fn with_figures(decided: Verdict, current: Verdict) -> Verdict {
    let Verdict { outcome, soft, elastic, shadow, .. } = decided;
    Verdict { outcome, soft, elastic, shadow, ..current }
}

/// The steps that a request books.
fn booked_steps<'a>(
    rules: &'a Snapshot<'_>,
    request: &Request<'_>,
    plan: &'a mut Plan,
) -> Vec<BoundStep<'a>> {
    // Of the pools of a rule, those that hold nothing change nothing.
    let all = AllPools::new(rules.rules(), request);
    rules.rules().plan(&all.request(), plan);
    rules.bind_all(Operation::Hit, plan).filter(|step| step.mode.is_once).collect()
}

impl Snapshot<'_> {
    /// The latest time at which a slot that a denied request lacks is free; `None` if it lacks
    /// something else.
    fn slot_free_at(&self, checked: &Checked, now: Timestamp) -> Option<Timestamp> {
        let mut free_at = None;
        for status in checked.statuses.iter().filter(|status| !status.verdict.is_allowed()) {
            let (Target::Rule(no), Outcome::Deny { retry_after }) =
                (status.target, status.verdict.outcome)
            else {
                return None;
            };
            let by = status.verdict.decided_by.and_then(|index| self.policies(no).get(index));
            if !by.is_some_and(Policy::has_slots) {
                return None;
            }
            free_at = free_at.max(Some(now.after(retry_after)));
        }
        free_at
    }
}

/// A turn that is waited for; cancelled if it is dropped before.
struct Turn<'a, B: Backend + ?Sized> {
    engine: &'a Engine<B>,
    request: &'a Request<'a>,
    holder: Holder,
    is_booked: bool,
    /// Whether its usage is metered already.
    is_counted: bool,
}

impl<B: Backend + ?Sized> Drop for Turn<'_, B> {
    fn drop(&mut self) {
        if self.is_booked {
            self.engine.cancel_booked(self.request, self.holder, self.is_counted);
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

// === slots ===

/// Positions of one request in the queues of every counter with slots. Dropping it leaves them.
#[derive(Default)]
struct SlotQueue {
    waker: Arc<Notification>,
    positions: Vec<Queued>,
}

#[derive(Default)]
struct Notification(Notify);

impl Wake for Notification {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl SlotQueue {
    /// Enters the queues, or enters them again: a request that was woken has left them, and is
    /// still the first. After a reload it may be the last.
    fn enter(&mut self, rules: &Snapshot<'_>, request: &Request<'_>) {
        let waker = Waker::from(self.waker.clone());
        let mut known = std::mem::take(&mut self.positions);
        let mut plan = Plan::default();
        for step in booked_steps(rules, request, &mut plan) {
            if step.counter.has_slots() {
                let mut position = step.counter.queued(&mut known);
                position.enter(&waker);
                self.positions.push(position);
            }
        }
    }

    /// The request was woken in vain: wakes the next.
    fn pass_on(&mut self, now: Timestamp) {
        self.positions.iter_mut().for_each(|position| position.pass_on(now));
    }
}
