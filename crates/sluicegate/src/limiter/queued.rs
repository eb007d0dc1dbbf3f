//! Position in the queue for a slot, for a request that may also wait for other limits.
//!
//! A released slot wakes one waiter. A woken waiter that leaves, needs more slots or is denied by
//! another limit wakes the next. A waiter that takes a slot does so too, as more may be free. So
//! the first waiter that can use a slot gets it; if none can, each has checked once.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_core::account::Moment;
use sluicegate_core::time::Timestamp;

use super::Inner;
use super::wait::QueuePosition;

/// Position in the queue for a slot of one identity; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Queued {
    inner: Arc<Inner>,
    position: QueuePosition,
    is_in: bool,
    /// Whether it consumed the wakeup of a released slot.
    was_woken: bool,
}

impl Queued {
    pub(super) fn behind_all(inner: Arc<Inner>, hash: u64) -> Self {
        let position = inner.waiters.position(hash);
        Self { inner, position, is_in: false, was_woken: false }
    }

    /// Whether it is in the queue for a slot of this identity.
    pub(super) fn is_for(&self, inner: &Arc<Inner>, hash: u64) -> bool {
        Arc::ptr_eq(&self.inner, inner) && self.position.0 == hash
    }

    /// Registers `waker` for one wakeup by a released slot. A woken waiter keeps its position.
    pub(crate) fn enter(&mut self, waker: &Waker) {
        let waited = self.inner.waiters.add(self.position, waker);
        self.was_woken |= std::mem::replace(&mut self.is_in, true) && !waited;
    }

    /// Passes an unused wakeup to the next waiter if a slot is free.
    pub(crate) fn pass_on(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.was_woken) && self.is_slot_free(now) {
            self.inner.waiters.wake_behind(self.position);
        }
    }

    fn is_slot_free(&self, now: Timestamp) -> bool {
        let moment = Moment { now, spare_capacity: self.inner.gate.lock().is_open(now) };
        let (rule, checks) = self.inner.shards.evaluate(None, self.position.0, 1, moment);
        let mut checks = rule.policies.iter().zip(checks);
        checks
            .all(|(policy, check)| policy.algorithm != "concurrency" || check.outcome.is_allowed())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let waited = self.inner.waiters.remove(self.position);
        self.was_woken |= self.is_in && !waited;
        // Waiters ahead of this one have checked since, or will.
        self.pass_on(self.inner.now());
    }
}
