//! Reconciliation of two records of one identity.
//!
//! A shared store can be unavailable for a while and lose data. Nodes know part of what it missed:
//! what they admitted without it ([`Account::record_admission`]) is charged to it too
//! ([`Account::absorb`]), and what they observed in it is not undone ([`Account::reassert`]). None
//! of these ever increases the remaining quota.

use super::Account;
use super::step_state::StepState;
use crate::algorithm::concurrency::Holder;
use crate::algorithm::sliding_log::{Entry, LogState};
use crate::arithmetic::signed;
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::time::{NOW_MAX, Span, Timestamp};

impl Account {
    /// Records that `cost` was admitted, whatever the limits decide: a bucket or window may go into
    /// debt, and slots are held under `holder` for their lease.
    ///
    /// ```
    /// use sluicegate_core::account::{Account, Moment};
    /// use sluicegate_core::algorithm::concurrency::{Concurrency, Holder};
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::op::Op;
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let slots = Concurrency::new(2, Span::from_secs(9)).unwrap();
    /// let plan = [EnforcedLimit::hard(Limit::Concurrency(slots))];
    /// let mut account = Account::default();
    /// account.record_admission(&plan, 1, Some(Holder(7)), Timestamp::EPOCH);
    /// let now = Moment::at(Timestamp::EPOCH);
    /// let peek = account.apply(&plan, Op::Peek { cost: 1 }, now).unwrap();
    /// assert_eq!(peek.verdict.remaining, Some(1));
    /// ```
    pub fn record_admission(
        &mut self,
        plan: &[EnforcedLimit],
        cost: u64,
        holder: Option<Holder>,
        now: Timestamp,
    ) {
        let now = now.min(NOW_MAX);
        self.open(plan, now);
        self.each(plan, |limit, state| match (limit, holder) {
            (Limit::Concurrency(_), Some(holder)) => {
                limit.hold(state, holder, cost, Span::MAX, now);
            }
            // A slot without an id cannot be held.
            (Limit::Concurrency(_), None) => {}
            _ => {
                limit.spend(state, cost, now, now);
            }
        });
        self.close(plan, now);
    }

    /// The largest usage of any limit of a plan. Slots do not count: they are held under their ids.
    #[must_use]
    pub fn used(&self, plan: &[EnforcedLimit], now: Timestamp) -> u64 {
        let mut copy = self.clone();
        copy.open(plan, now.min(NOW_MAX));
        let steps = plan.iter().zip(&copy.states);
        let counted = steps.filter(|(step, _)| !step.has_slots());
        counted.map(|(step, state)| used_of(&step.limit, &state.plain, now)).max().unwrap_or(0)
    }

    /// Charges the usage of another account of the same identity to this one, limit by limit, into
    /// debt if need be. Slots are held under their ids. Holds stay as they are.
    ///
    /// ```
    /// use sluicegate_core::account::{Account, Moment};
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::op::Op;
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let tally = Tally::new(10, Span::from_secs(60)).unwrap();
    /// let plan = [EnforcedLimit::hard(Limit::Tally(tally))];
    /// let hit = |cost| Op::Hit { cost, holder: None };
    /// let now = Moment::at(Timestamp::EPOCH);
    /// let (mut here, mut there) = (Account::default(), Account::default());
    /// here.apply(&plan, hit(3), now).unwrap();
    /// there.apply(&plan, hit(4), now).unwrap();
    /// here.absorb(&plan, &there, now.now);
    /// let peek = here.apply(&plan, Op::Peek { cost: 1 }, now).unwrap();
    /// assert_eq!(peek.verdict.remaining, Some(3));
    /// ```
    pub fn absorb(&mut self, plan: &[EnforcedLimit], other: &Self, now: Timestamp) {
        let now = now.min(NOW_MAX);
        self.open(plan, now);
        let mut other = Self { states: other.states.clone(), ..Self::default() };
        other.open(plan, now);
        for ((step, own), theirs) in plan.iter().zip(&mut self.states).zip(&other.states) {
            charge_usage(&step.limit, &mut own.plain, &theirs.plain, now);
            if let Some(boost) = &step.boost {
                charge_usage(boost, &mut own.boost, &theirs.boost, now);
            }
        }
        self.close(plan, now);
    }

    /// Raises usage and leases to those observed earlier. Holds stay as they are. Slots whose
    /// holders are no longer known are held until the last of their leases ends.
    ///
    /// ```
    /// use sluicegate_core::account::{Account, Moment};
    /// use sluicegate_core::algorithm::tally::Tally;
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::op::Op;
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let tally = Tally::new(10, Span::from_secs(60)).unwrap();
    /// let plan = [EnforcedLimit::hard(Limit::Tally(tally))];
    /// let hit = |cost| Op::Hit { cost, holder: None };
    /// let now = Moment::at(Timestamp::EPOCH);
    /// let (mut account, mut seen) = (Account::default(), Account::default());
    /// account.apply(&plan, hit(3), now).unwrap();
    /// seen.apply(&plan, hit(7), now).unwrap();
    /// account.reassert(&plan, &seen, now.now);
    /// assert_eq!(account, seen);
    /// ```
    pub fn reassert(&mut self, plan: &[EnforcedLimit], seen: &Self, now: Timestamp) {
        let now = now.min(NOW_MAX);
        self.leases.join(&seen.leases);
        self.open(plan, now);
        let mut seen = Self { states: seen.states.clone(), ..Self::default() };
        seen.open(plan, now);
        for ((step, own), seen) in plan.iter().zip(&mut self.states).zip(seen.states) {
            let StepState { plain, boost } = seen;
            merge_usage(&mut own.plain, plain);
            if step.boost.is_some() {
                merge_usage(&mut own.boost, boost);
            }
        }
        self.close(plan, now);
    }
}

/// Charges the usage of another state.
fn charge_usage(limit: &Limit, own: &mut State, theirs: &State, now: Timestamp) {
    if let (State::Slots(own), State::Slots(theirs)) = (&mut *own, theirs) {
        own.merge(theirs);
        return;
    }
    let used = used_of(limit, theirs, now);
    if used > 0 {
        limit.spend(own, used, now, now);
    }
}

/// The usage of a limit, including debt.
fn used_of(limit: &Limit, state: &State, now: Timestamp) -> u64 {
    let (Some(capacity), Some(left)) = (limit.capacity(), limit.remaining(state, now)) else {
        return 0;
    };
    let used = signed(capacity).saturating_sub(left).saturating_add(signed(limit.beyond(state)));
    u64::try_from(used).unwrap_or(0)
}

/// Raises the usage of a state to that of another; both are at the same time.
fn merge_usage(own: &mut State, seen: State) {
    match (own, seen) {
        (State::Gcra(own), State::Gcra(seen)) => {
            own.tat = own.tat.max(seen.tat);
            own.extra = own.extra.min(seen.extra);
            own.seen = own.seen.max(seen.seen);
            own.hole_until = own.hole_until.max(seen.hole_until);
        }
        // The lower level wins; of equal levels the later period.
        (State::Periodic(own), State::Periodic(seen))
            if seen.level < own.level || seen.level == own.level && seen.anchor > own.anchor =>
        {
            *own = seen;
        }
        (State::Counter(own), State::Counter(seen)) if seen.start > own.start => *own = seen,
        (State::Counter(own), State::Counter(seen)) if seen.start == own.start => {
            own.previous = own.previous.max(seen.previous);
            own.current = own.current.max(seen.current);
            own.next = own.next.max(seen.next);
            own.seen = own.seen.max(seen.seen);
        }
        (State::Log(own), State::Log(seen)) => merge_log(own, &seen),
        (State::WarmUp(own), State::WarmUp(seen)) => {
            own.free = own.free.max(seen.free);
            own.cool = own.cool.min(seen.cool);
            own.seen = own.seen.max(seen.seen);
        }
        (State::Tally(own), State::Tally(seen)) if seen.start > own.start => *own = seen,
        (State::Tally(own), State::Tally(seen)) if seen.start == own.start => {
            own.count = own.count.max(seen.count);
        }
        (State::Spent(own), State::Spent(seen)) => *own = (*own).max(seen),
        (State::Slots(own), State::Slots(seen)) => own.raise_to(&seen),
        _ => {}
    }
}

/// Adds missing weight at the time of the last observed entry: the missing entries are not known.
fn merge_log(own: &mut LogState, seen: &LogState) {
    own.seen = own.seen.max(seen.seen);
    let Some(at) = seen.entries.last() else { return };
    let admitted = |log: &LogState| log.entries.sum().saturating_sub(log.entries.denied_sum());
    let weight = admitted(seen).saturating_sub(admitted(own));
    own.entries.add(Entry { at, weight, denied: false });
    let weight = seen.entries.denied_sum().saturating_sub(own.entries.denied_sum());
    own.entries.add(Entry { at, weight, denied: true });
}
