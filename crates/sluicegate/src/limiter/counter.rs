//! The limiter of a rule, and counters of single identities under it. Each request carries the
//! limits, since rules are replaced while requests are in flight.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use sluicegate_core::account::Account;
use sluicegate_core::account::{Answer, Moment};
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Span;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Decision, Verdict};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::Overflow;

#[cfg(feature = "tokio")]
use super::Queued;
use super::{Holder, Limiter, new_holder};
use crate::answer::Policy;
use crate::hold_time::HoldTime;
use crate::memory::{
    Answered, Target, UNCOUNTED, apply_together, apply_together_to_each,
    apply_together_with_returned,
};
use crate::plan::Rule;

/// Counter of one identity under a rule, in this node's memory.
#[derive(Debug, Clone, Copy)]
pub struct CounterRef<'a> {
    pub(crate) limiter: &'a Limiter,
    /// The limits to decide by; `None` where they never change.
    pub rule: Option<&'a Arc<Rule>>,
    /// The identity.
    pub key: &'a [u8],
}

impl Limiter {
    /// While the guard is held, the limits do not change and no snapshot of them is written.
    pub(crate) fn hold_changes(&self) -> MutexGuard<'_, ()> {
        self.inner.changing.lock()
    }

    /// Moves all identities to the limits of a newer rule. The caller must hold `hold_changes`.
    pub(crate) fn follow(&self, rule: &Arc<Rule>, overflow: Overflow, now: Timestamp) {
        self.inner.shards.set_overflow(overflow);
        self.inner.shards.change(rule, CarryOver::Used, now);
        *self.inner.rule.write() = rule.clone();
        self.inner.waiters.wake_all();
    }

    /// The same for a limiter that a request created under an older rule, after the newer one was
    /// loaded.
    pub(crate) fn catch_up(&self, rule: &Arc<Rule>, overflow: Overflow) {
        let is_older = || self.inner.rule.read().generation < rule.generation;
        if is_older() {
            // No request uses the newer rule before, so no state of it is saved as one of the
            // older.
            let _changing = self.hold_changes();
            if is_older() {
                self.follow(rule, overflow, self.now());
            }
        }
    }

    /// Excludes the limiter from snapshots, since a new rule may reuse its name, and wakes all
    /// waiters.
    pub(crate) fn retire(&self) {
        self.inner.retired.store(true, Ordering::Release);
        self.inner.waiters.wake_all();
    }

    /// How long its slots are held.
    pub(crate) fn hold_time(&self) -> &HoldTime {
        &self.inner.hold_time
    }

    /// Feeds a load sample to the gate, if the limits are elastic.
    pub(crate) fn observe_load(&self, load: u64, at: Timestamp) {
        let mode = self.inner.rule.read().mode;
        if let Mode::Elastic { gate: levels, .. } = mode {
            let mut gate = self.inner.gate.lock();
            *gate = gate.observe(&levels, load, at);
        }
    }

    /// Releases unused memory of the next shard.
    pub(crate) fn sweep_next(&self) {
        self.inner.shards.sweep_next(self.now());
    }
}

impl CounterRef<'_> {
    /// Applies a hit.
    #[inline]
    pub(crate) fn hit(&self, cost: u64, now: Timestamp) -> Verdict {
        let inner = &self.limiter.inner;
        let mut verdict = UNCOUNTED;
        let hash = inner.shards.hash(self.key);
        match inner.shards.hit(self.rule, hash, cost, now, &mut verdict) {
            Some(_) => verdict,
            None => self.apply(Op::Hit { cost, holder: Some(new_holder()) }, now),
        }
    }

    /// Applies an operation. One that a limit of the rule refuses changes nothing and is admitted.
    pub fn apply(&self, op: Op, now: Timestamp) -> Verdict {
        self.try_apply(op, now).map_or(UNCOUNTED, |answer| answer.verdict)
    }

    /// Resets the limits. An identity in the overflow state is reset together with all that share
    /// it.
    pub(crate) fn reset(&self, now: Timestamp) -> Verdict {
        let answer = self.apply_to(self.target(None, now), Op::Reset, now);
        answer.map_or(UNCOUNTED, |answer| answer.verdict)
    }

    /// Applies an operation.
    ///
    /// # Errors
    /// When a limit of the rule refuses it.
    pub fn try_apply(&self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        self.apply_to(self.target(Some(op.cost()), now), op, now)
    }

    /// The same, with what each limit got back: see core's
    /// [`Details::returned`](sluicegate_core::account::Details::returned).
    pub(crate) fn apply_with_returned(
        &self,
        op: Op,
        now: Timestamp,
        returned: &mut Vec<Option<u64>>,
    ) -> Result<Answer, Refusal> {
        let target = self.target(Some(op.cost()), now);
        let hash = target.hash;
        let answered = apply_together_with_returned(&[target], op, now, returned)?;
        Ok(self.finish(hash, op, answered))
    }

    fn apply_to(&self, target: Target<'_>, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        let hash = target.hash;
        Ok(self.finish(hash, op, apply_together(&[target], op, now)?))
    }

    /// Wakes those that wait for what an operation freed.
    fn finish(&self, hash: u64, op: Op, Answered { answer, overflowed }: Answered) -> Answer {
        if matches!(op, Op::Cancel { .. } | Op::Commit { .. } | Op::Reset) {
            self.limiter.inner.waiters.freed(hash, overflowed);
        }
        answer
    }

    /// Replaces the state of the identity.
    pub fn replace(&self, account: Account, now: Timestamp) {
        let Target { shards, hash, rule, .. } = self.target(None, now);
        shards.replace(rule, hash, account, now);
    }

    /// Decision of each limit on a cost, and the rule of the limits. Changes nothing.
    pub(crate) fn decisions(&self, cost: u64, now: Timestamp) -> (Arc<Rule>, Vec<Decision>) {
        let Target { shards, hash, spare_capacity, rule, .. } = self.target(Some(cost), now);
        shards.evaluate(rule, hash, cost, Moment { now, spare_capacity })
    }

    /// Whether all of its limits are concurrency limits.
    #[must_use]
    pub fn has_slots_only(&self) -> bool {
        self.rule.is_some_and(|rule| rule.policies.iter().all(Policy::has_slots))
    }

    /// Whether one of its limits is a concurrency limit.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.rule.is_some_and(|rule| rule.policies.iter().any(Policy::has_slots))
    }

    /// Whether its elastic limits are open.
    #[must_use]
    pub fn has_spare_capacity(&self, now: Timestamp) -> bool {
        self.limiter.inner.gate.lock().is_open(now)
    }

    /// The shortest lease of a slot of its limits.
    #[must_use]
    pub fn lease(&self, now: Timestamp) -> Option<Span> {
        let lease = |limit: &LimitConfig| match limit.at(now) {
            Limit::Concurrency(slots) => Some(slots.lease()),
            _ => None,
        };
        self.rule?.limits.iter().filter_map(lease).min()
    }

    /// Restarts the lease of a slot held under an id. Returns whether there is one.
    pub(crate) fn renew(&self, holder: Holder, now: Timestamp) -> bool {
        let shards = &self.limiter.inner.shards;
        self.has_slots() && shards.renew(shards.hash(self.key), holder, now)
    }

    /// Drops a booking whose turn has come and starts the lease of its slot. Returns whether it
    /// holds one.
    pub(crate) fn forget(&self, holder: Holder, now: Timestamp) -> bool {
        let shards = &self.limiter.inner.shards;
        shards.forget(shards.hash(self.key), holder, now);
        self.renew(holder, now)
    }

    /// Its position in the queue for a slot: one of `known`, or the last.
    #[cfg(feature = "tokio")]
    pub(crate) fn queued(&self, known: &mut Vec<Queued>) -> Queued {
        let inner = &self.limiter.inner;
        let hash = inner.shards.hash(self.key);
        match known.iter().position(|queued| queued.is_for(inner, hash)) {
            Some(at) => known.swap_remove(at),
            None => Queued::behind_all(inner.clone(), hash),
        }
    }

    fn target(&self, cost: Option<u64>, now: Timestamp) -> Target<'_> {
        let inner = &self.limiter.inner;
        Target {
            shards: &inner.shards,
            hash: inner.shards.hash(self.key),
            spare_capacity: inner.gate.lock().is_open(now),
            rule: self.rule,
            cost,
        }
    }
}

/// Applies an operation to several counters, each with its own cost: all or nothing. `op` builds
/// the operation from the largest cost; the verdicts are written to `verdicts`.
///
/// # Errors
/// When a limit refuses the operation. Then nothing has changed, and all verdicts admit.
pub fn apply_each(
    counters: &[(CounterRef<'_>, u64)],
    op: &dyn Fn(u64) -> Op,
    now: Timestamp,
    verdicts: &mut Vec<Verdict>,
) -> Result<Answer, Refusal> {
    verdicts.clear();
    let cost = counters.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
    let targets: Vec<Target<'_>> =
        counters.iter().map(|(counter, cost)| counter.target(Some(*cost), now)).collect();
    let answered = apply_together_to_each(&targets, op(cost), now, verdicts);
    verdicts.resize(counters.len(), UNCOUNTED);
    answered.map(|answered| answered.answer)
}
