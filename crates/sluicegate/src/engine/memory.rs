//! Decisions on counters in this process, which answer at once.

use std::sync::atomic::Ordering;

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::plan::Plan;

use super::admission::{Admission, ChargeMode, ChargedLimits, Group, Operation, override_verdict};
use super::backend::{
    Applied, ApplyError, Backend, BoundStep, Call, Deferred, SlotWaiting, StoreError, StoreFailure,
};
use super::{Checked, LimitState, Returned, Snapshot};
use crate::limiter::{CounterRef, apply_each, new_holder};
use crate::memory::UNCOUNTED;

/// Counters in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryBackend;

/// Requests sweep memory once in so many microseconds, if one comes just then.
const SWEEP_EVERY_MICROS: u64 = 1_024;

impl MemoryBackend {
    /// Applies an operation to every limit of a request, in this node's memory.
    #[inline]
    pub fn apply_now(operation: Operation, call: &Call<'_>, checked: &mut Checked) {
        match call.rules.rules().has_pools() {
            false => Self::apply_once(operation, call, checked),
            true => Self::apply_pools(operation, call, checked),
        }
    }

    /// The same with one pool of each rule.
    pub(super) fn apply_once(operation: Operation, call: &Call<'_>, checked: &mut Checked) {
        let Call { rules, request, now, holder, retries, .. } = *call;
        if rules.begin(operation, request, checked) {
            return;
        }
        let Checked { allowed, statuses, plan, verdicts, returned } = checked;
        let mut admission = Admission::new(rules, operation, plan);
        while let Some(group) = admission.next(statuses) {
            match group {
                Group::One(index, mode) if operation == Operation::Refund => {
                    let cost = admission.cost(index, mode);
                    statuses[index].verdict = refund_one(
                        rules,
                        mode,
                        (index, identity(plan, index)),
                        cost,
                        now,
                        returned,
                    );
                }
                Group::One(index, mode) => {
                    let (identity, cost) = (identity(plan, index), admission.cost(index, mode));
                    statuses[index].verdict =
                        apply_one(rules, operation, mode, identity, cost, now, holder);
                }
                Group::Together { is_charged } => {
                    let operation = if is_charged { operation } else { Operation::Peek };
                    apply_together(rules, operation, &admission, plan, verdicts, now, holder);
                    for ((index, ..), verdict) in admission.together().zip(verdicts.iter()) {
                        statuses[index].verdict = *verdict;
                    }
                }
            }
        }
        *allowed = rules.admits(statuses);
        if operation == Operation::Hit {
            if *allowed || !retries {
                rules.count(plan, statuses);
            }
            rules.sweep_now_and_then(now);
        }
        if matches!(operation, Operation::Refund | Operation::Reset) {
            rules.observe_statuses(plan, statuses);
        }
        if operation == Operation::Refund {
            rules.meter_refund(plan, statuses);
        }
        if !*allowed {
            rules.estimate_slot_waits(checked, now);
        }
    }
}

impl Backend for MemoryBackend {
    #[inline]
    fn check_now(&self, call: &Call<'_>, checked: &mut Checked) -> bool {
        Self::apply_once(Operation::Hit, call, checked);
        true
    }

    fn apply<'a>(
        &'a self,
        operation: Operation,
        call: Call<'a>,
        checked: &'a mut Checked,
    ) -> Deferred<'a, Result<(), StoreError>> {
        Self::apply_once(operation, &call, checked);
        Deferred::Ready(Ok(()))
    }

    fn apply_to<'a>(
        &'a self,
        steps: &'a [BoundStep<'a>],
        op: Op,
        now: Timestamp,
    ) -> Deferred<'a, Result<Applied, ApplyError>> {
        let applied = match steps {
            [one] => {
                let mut returned = Vec::new();
                let answer = one.counter.apply_with_returned(op, now, &mut returned);
                answer.map(|answer| Applied { verdicts: vec![answer.verdict], answer, returned })
            }
            several => {
                let counters: Vec<_> =
                    several.iter().map(|step| (step.counter, step.cost)).collect();
                let mut verdicts = Vec::new();
                let answer = apply_each(&counters, &|_| op, now, &mut verdicts);
                answer.map(|answer| Applied { answer, verdicts, returned: Vec::new() })
            }
        };
        Deferred::Ready(applied.map_err(ApplyError::Refused))
    }

    fn inspect<'a>(
        &'a self,
        call: Call<'a>,
        _plan: &'a Plan,
        step: BoundStep<'a>,
    ) -> Deferred<'a, Result<Vec<LimitState>, StoreFailure>> {
        Deferred::Ready(Ok(call.rules.inspect_in_memory(&step, call.now)))
    }

    fn renew<'a>(
        &'a self,
        step: BoundStep<'a>,
        holder: Holder,
        now: Timestamp,
    ) -> Deferred<'a, Result<bool, StoreFailure>> {
        Deferred::Ready(Ok(step.counter.renew(holder, now)))
    }

    fn forget<'a>(
        &'a self,
        step: BoundStep<'a>,
        holder: Holder,
        now: Timestamp,
    ) -> Deferred<'a, bool> {
        Deferred::Ready(step.counter.forget(holder, now))
    }

    fn cancel_in_background(&self, steps: &[BoundStep<'_>], holder: Holder, now: Timestamp) {
        for step in steps {
            // A booking that was forgotten has nothing to return.
            let _ = step.counter.try_apply(Op::Cancel { holder }, now);
        }
    }

    fn slot_waiting(&self) -> SlotWaiting {
        // Freed slots wake the first of the queue.
        SlotWaiting { poll_interval: None, renew_interval_min: Span::from_millis(10) }
    }
}

/// Applies an operation to the counter of one step.
#[inline]
pub(super) fn apply_one(
    rules: &Snapshot<'_>,
    operation: Operation,
    mode: ChargeMode,
    identity: &[u8],
    cost: u64,
    now: Timestamp,
    holder: Option<Holder>,
) -> Verdict {
    let counter = rules.counter(mode.limits, identity);
    let verdict = apply_to_counter(operation, &counter, cost, now, holder);
    match mode.limits {
        ChargedLimits::Rule(_) => verdict,
        ChargedLimits::Override(limit) => override_verdict(operation, limit, cost, verdict),
    }
}

/// Refunds the step of an index and identity; adds what its limits got back.
fn refund_one(
    rules: &Snapshot<'_>,
    mode: ChargeMode,
    (index, identity): (usize, &[u8]),
    cost: u64,
    now: Timestamp,
    returned: &mut Vec<Returned>,
) -> Verdict {
    let (counter, mut each) = (rules.counter(mode.limits, identity), Vec::new());
    let refunded = counter.apply_with_returned(Op::Refund { cost }, now, &mut each);
    returned.extend(Returned::of_limits(index, &each));
    let verdict = refunded.map_or(UNCOUNTED, |answer| answer.verdict);
    match mode.limits {
        ChargedLimits::Rule(_) => verdict,
        ChargedLimits::Override(limit) => override_verdict(Operation::Refund, limit, cost, verdict),
    }
}

/// Applies an operation to the steps that are charged all or nothing.
fn apply_together(
    rules: &Snapshot<'_>,
    operation: Operation,
    admission: &Admission<'_>,
    plan: &Plan,
    verdicts: &mut Vec<Verdict>,
    now: Timestamp,
    holder: Option<Holder>,
) {
    let mut steps = admission.together();
    let (Some(first), second) = (steps.next(), steps.next()) else { return };
    let counter = |(index, mode, cost): (usize, ChargeMode, u64)| {
        (rules.counter(mode.limits, identity(plan, index)), cost)
    };
    let Some(second) = second else {
        // By far the most requests: no list of counters is built.
        let (counter, cost) = counter(first);
        verdicts.clear();
        verdicts.push(apply_to_counter(operation, &counter, cost, now, holder));
        return;
    };
    let counters: Vec<_> = [first, second].into_iter().chain(steps).map(counter).collect();
    // No algorithm refuses a peek, or a hit that brings its own id.
    let _ = apply_each(&counters, &|cost| operation.op(cost, holder), now, verdicts);
}

#[inline]
fn apply_to_counter(
    operation: Operation,
    counter: &CounterRef<'_>,
    cost: u64,
    now: Timestamp,
    holder: Option<Holder>,
) -> Verdict {
    match operation {
        Operation::Hit if holder.is_some() => counter.apply(Op::Hit { cost, holder }, now),
        Operation::Hit => counter.hit(cost, now),
        Operation::Peek => counter.apply(Op::Peek { cost }, now),
        Operation::Refund => counter.apply(Op::Refund { cost }, now),
        Operation::Reset => counter.reset(now),
    }
}

#[inline]
fn identity(plan: &Plan, index: usize) -> &[u8] {
    plan.identity(&plan.steps()[index])
}

impl Operation {
    /// The operation on counters that are decided together. A hit holds slots under an id; by
    /// default a new one.
    #[must_use]
    pub fn op(self, cost: u64, holder: Option<Holder>) -> Op {
        match self {
            Self::Hit => Op::Hit { cost, holder: Some(holder.unwrap_or_else(new_holder)) },
            Self::Peek => Op::Peek { cost },
            Self::Refund => Op::Refund { cost },
            Self::Reset => Op::Reset,
        }
    }
}

impl Snapshot<'_> {
    /// Sweeps the memory of one rule, at some of the requests.
    pub fn sweep_now_and_then(&self, now: Timestamp) {
        // By the time's digits: a counter of all requests would be contended.
        if now.as_micros().is_multiple_of(SWEEP_EVERY_MICROS) {
            let turn = self.engine.next_swept.fetch_add(1, Ordering::Relaxed);
            self.active.sweep_one(&self.engine.overrides, turn);
        }
    }
}
