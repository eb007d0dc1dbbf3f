//! A place in the queue for a slot, of a request that may wait for other things too.
//!
//! A slot that is given back wakes one. Whoever was woken and leaves the slot to others, since it
//! goes, needs more or lacks something else, wakes the next; and so does whoever has taken one, as
//! there may be more. So the first who can use a slot gets it, and where nobody can, everybody has
//! looked once.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_core::account::Moment;
use sluicegate_core::time::Timestamp;

use super::Inner;
use super::wait::QueuePosition;

/// A place in the queue of those who wait for a slot of one identity; left when this is dropped.
#[derive(Debug)]
pub(crate) struct Queued {
    inner: Arc<Inner>,
    position: QueuePosition,
    is_in: bool,
    /// Whether a slot was given back that nobody else was told of.
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

    /// From now on `waker` is woken when a slot is given back, once. Whoever was woken is where it
    /// was before.
    pub(crate) fn enter(&mut self, waker: &Waker) {
        let waited = self.inner.waiters.add(self.position, waker);
        self.was_woken |= std::mem::replace(&mut self.is_in, true) && !waited;
    }

    /// It had no use for what it was told of, and waits on: is it of use to somebody behind it?
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
        // Whoever has waited longer than this one has looked since, or will.
        self.pass_on(self.inner.now());
    }
}
