//! The state of one step of a plan, and its admission of a cost.

use super::holds::Receipt;
use super::{Account, Moment};
use crate::algorithm::Slot;
use crate::algorithm::concurrency::Holder;
use crate::arithmetic::{clamp_signed, signed};
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::time::{NOW_MAX, Span, Timestamp};
use crate::verdict::{Decision, Outcome};

/// The state of one step: of its limit, and of the boosted limit if it is elastic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StepState {
    pub(super) plain: State,
    pub(super) boost: State,
}

/// The claim of a caller.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) cost: u64,
    /// Maximum wait; `None` for the default of each limit.
    pub(super) max_wait: Option<Span>,
    pub(super) holder: Option<Holder>,
    /// Maximum time that a slot is held.
    pub(super) ttl: Span,
}

/// The admission of a cost by one step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Admitted within the limit, for use at this moment.
    Plain(Timestamp),
    /// Admitted above the plain limit and within the boosted one, for use at this moment.
    Boosted(Timestamp),
    /// Denied until this moment.
    Later(Timestamp),
    /// Denied at any time; the largest cost that could pass.
    Never(u64),
}

impl StepState {
    pub(super) fn open(&mut self, step: &EnforcedLimit, now: Timestamp) {
        self.each(step, |limit, state| limit.open(state, now));
    }

    pub(super) fn close(&mut self, step: &EnforcedLimit, now: Timestamp) {
        self.each(step, |limit, state| limit.close(state, now));
    }

    pub(super) fn each(&mut self, step: &EnforcedLimit, mut act: impl FnMut(&Limit, &mut State)) {
        act(&step.limit, &mut self.plain);
        if let Some(boost) = &step.boost {
            act(boost, &mut self.boost);
        }
    }

    pub(super) fn admission(
        &self,
        step: &EnforcedLimit,
        claim: Claim,
        moment: Moment,
    ) -> Admission {
        let now = moment.now;
        // A cost of 0 passes, except for a limit that counts first.
        if claim.cost == 0 && !step.limit.counts_first() || self.renews(claim) {
            return Admission::Plain(now);
        }
        let plain = evaluate(&step.limit, &self.plain, claim, now);
        let Some(boost) = step.boost.as_ref().filter(|_| moment.spare_capacity) else {
            return plain;
        };
        // While the gate is open the boosted limit decides, and the plain one only marks the
        // result.
        match (plain, evaluate(boost, &self.boost, claim, now)) {
            (Admission::Plain(plain), Admission::Plain(slot)) if plain <= slot => {
                Admission::Plain(slot)
            }
            (_, Admission::Plain(slot)) => Admission::Boosted(slot),
            (_, denied) => denied,
        }
    }

    /// Whether the caller already holds its slot.
    fn renews(&self, claim: Claim) -> bool {
        match (&self.plain, claim.holder) {
            (State::Slots(slots), Some(holder)) => slots.holds(holder),
            _ => false,
        }
    }

    pub(super) fn charge(
        &mut self,
        step: &EnforcedLimit,
        claim: Claim,
        admission: Admission,
        now: Timestamp,
    ) -> Receipt {
        if let (Limit::Concurrency(_), Some(holder)) = (&step.limit, claim.holder) {
            step.limit.hold(&mut self.plain, holder, claim.cost, claim.ttl, now);
            if let Some(boost) = &step.boost {
                boost.hold(&mut self.boost, holder, claim.cost, claim.ttl, now);
            }
            return Receipt::default();
        }
        let (at, cost) = match admission {
            Admission::Plain(slot) => (slot, claim.cost),
            // The part above the plain limit is not charged to it.
            Admission::Boosted(slot) => (slot, step.limit.available(&self.plain, claim.cost, now)),
            Admission::Later(_) | Admission::Never(_) if step.limit.counts_first() => {
                (now, claim.cost)
            }
            Admission::Later(_) | Admission::Never(_) => return Receipt::default(),
        };
        let plain = (cost > 0).then(|| {
            let at = if cost == claim.cost { at } else { now };
            step.limit.spend(&mut self.plain, cost, at, now)
        });
        let boost = step.boost.as_ref().map(|boost| {
            // Behind a closed gate the boosted limit does not decide, but it is charged.
            let at = match boost.slot(&self.boost, claim.cost, now) {
                Slot::At(slot) => slot.min(at),
                Slot::Never { .. } => now,
            };
            boost.spend(&mut self.boost, claim.cost, at, now)
        });
        Receipt { plain, boost }
    }

    pub(super) fn available(&self, step: &EnforcedLimit, max: u64, moment: Moment) -> u64 {
        let plain = step.limit.available(&self.plain, max, moment.now);
        match step.boost.as_ref().filter(|_| moment.spare_capacity) {
            Some(boost) => boost.available(&self.boost, max, moment.now),
            None => plain,
        }
    }

    pub(super) fn decision(
        &self,
        step: &EnforcedLimit,
        admission: Admission,
        charged: bool,
        now: Timestamp,
    ) -> Decision {
        let remaining = step.remaining(&self.plain, now);
        let above = remaining.is_some_and(|left| left < 0);
        // A tally beyond its limit is not in debt.
        let min = if step.limit.counts_first() { 0 } else { i64::MIN };
        Decision {
            outcome: admission.outcome(now),
            enforced: step.enforced,
            remaining: remaining.map(|left| left.max(min)),
            reset_after: step.limit.full_after(&self.plain, now),
            beyond: step.beyond(&self.plain),
            soft: charged && admission.is_admitted() && step.plain.is_some() && above,
            elastic: charged && matches!(admission, Admission::Boosted(_)),
        }
    }
}

fn evaluate(limit: &Limit, state: &State, claim: Claim, now: Timestamp) -> Admission {
    let max_wait = claim.max_wait.unwrap_or_else(|| limit.hit_max_wait());
    match limit.ready(state, claim.cost, max_wait, now) {
        Slot::Never { max_cost } => Admission::Never(max_cost),
        Slot::At(ready) if ready > now => Admission::Later(ready),
        Slot::At(_) => match limit.slot(state, claim.cost, now) {
            Slot::At(slot) => Admission::Plain(slot),
            Slot::Never { max_cost } => Admission::Never(max_cost),
        },
    }
}

impl Admission {
    pub(super) const fn is_admitted(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Boosted(_))
    }

    pub(super) fn outcome(&self, now: Timestamp) -> Outcome {
        match self {
            Self::Plain(slot) | Self::Boosted(slot) => Outcome::Allow { wait: slot.since(now) },
            Self::Later(at) => Outcome::Deny { retry_after: at.since(now) },
            Self::Never(max_cost) => Outcome::Never { max_cost: *max_cost },
        }
    }

    /// The moment of use, if admitted.
    pub(super) const fn turn(&self) -> Option<Timestamp> {
        match self {
            Self::Plain(slot) | Self::Boosted(slot) => Some(*slot),
            Self::Later(_) | Self::Never(_) => None,
        }
    }
}

/// A plan of one step can be hit without an account.
impl EnforcedLimit {
    /// Whether [`EnforcedLimit::hit_single`] serves hits of this cost: one hard limit without ids.
    #[must_use]
    pub fn supports_single_hit(&self, cost: u64) -> bool {
        let hard = self.enforced && self.plain.is_none() && self.boost.is_none();
        hard && cost > 0 && !self.has_slots() && !self.limit.can_lapse(cost)
    }

    /// A hit on the state of this step, with the result of a [`super::Account`] of one step.
    pub fn hit_single(&self, state: &mut State, cost: u64, now: Timestamp) -> Decision {
        let now = now.min(NOW_MAX);
        self.limit.open(state, now);
        let claim = Claim { cost, max_wait: None, holder: None, ttl: Span::MAX };
        let mut admission = evaluate(&self.limit, state, claim, now);
        if let Some(slot) = admission.turn() {
            self.limit.spend(state, cost, slot, now);
        } else if self.limit.counts_first() {
            self.limit.spend(state, cost, now, now);
        } else if self.counts_denied() && !matches!(admission, Admission::Never(_)) {
            self.limit.log_denied(state, cost, now);
            admission = evaluate(&self.limit, state, claim, now);
        }
        let decision = Decision {
            outcome: admission.outcome(now),
            enforced: true,
            remaining: self.limit.remaining(state, now),
            reset_after: self.limit.full_after(state, now),
            beyond: self.limit.beyond(state),
            soft: false,
            elastic: false,
        };
        self.limit.close(state, now);
        decision
    }
}

impl EnforcedLimit {
    /// Whether this step is charged when the request passes: always if enforced, a shadow only if
    /// its whole rule would have passed.
    pub(super) fn is_charged(&self, admissions: &[(&Self, Admission)]) -> bool {
        let mut siblings = admissions.iter().filter(|(step, _)| step.rule == self.rule);
        self.enforced || siblings.all(|(_, admission)| admission.is_admitted())
    }

    /// The remaining quota of the plain limit, without the slack of a soft mode.
    fn remaining(&self, state: &State, now: Timestamp) -> Option<i64> {
        // The windows of a log have separate slacks.
        if let Some(Limit::SlidingLog(_)) = &self.plain {
            return self.plain.as_ref().and_then(|plain| plain.remaining(state, now));
        }
        let left = self.limit.remaining(state, now);
        left.map(|left| clamp_signed(left.saturating_sub(signed(self.slack))))
    }

    /// How far a limit that counts first is beyond the plain limit.
    fn beyond(&self, state: &State) -> u64 {
        match (&self.plain, &self.limit) {
            (Some(plain), _) | (None, plain) => plain.beyond(state),
        }
    }

    pub(super) const fn has_slots(&self) -> bool {
        matches!(&self.limit, Limit::Concurrency(_))
    }

    pub(super) const fn counts_denied(&self) -> bool {
        matches!(&self.limit, Limit::SlidingLog(log) if log.counts_denied())
    }
}

impl Account {
    /// An account of these states without holds: for each step that of its limit and of its boosted
    /// limit.
    #[must_use]
    pub fn from_states(states: impl IntoIterator<Item = (State, State)>) -> Self {
        let states = states.into_iter().map(|(plain, boost)| StepState { plain, boost }).collect();
        Self { states, ..Self::default() }
    }

    /// The states of the account, as [`Account::from_states`] takes them.
    ///
    /// ```
    /// use sluicegate_core::account::Account;
    /// use sluicegate_core::limit::State;
    ///
    /// let account = Account::from_states([(State::Spent(3), State::New)]);
    /// assert_eq!(account.into_states(), Ok(vec![(State::Spent(3), State::New)]));
    /// ```
    ///
    /// # Errors
    /// The account itself while it has a booking, a reservation or a lease, which a state cannot
    /// hold.
    pub fn into_states(self) -> Result<Vec<(State, State)>, Self> {
        if !self.holds.is_empty() || !self.leases.is_empty() {
            return Err(self);
        }
        Ok(self.states.into_iter().map(|state| (state.plain, state.boost)).collect())
    }

    /// The state of each step, and of the boosted limit beside it.
    pub(crate) fn state_pairs(&self) -> impl Iterator<Item = (&State, &State)> {
        self.states.iter().map(|state| (&state.plain, &state.boost))
    }

    /// The interval in which holds do not change by themselves; `None` without holds.
    pub(crate) fn holds_stable_during(&self) -> Option<(Timestamp, Timestamp)> {
        self.holds.stable_during()
    }

    /// When this account expires: from then on a new one gives the same answers, unless it is used
    /// before. The epoch if it has expired already.
    ///
    /// A moment after [`NOW_MAX`] means never.
    #[must_use]
    pub fn expires_at(&self, plan: &[EnforcedLimit]) -> Timestamp {
        let forgotten = self.holds.forgotten_at().max(self.leased_until(plan));
        let Some(deadline) = self.holds.last_deadline() else {
            return self.states_expire_at(plan).max(forgotten);
        };
        // Expiring reservations refund their limits, which may prolong a state. The last one of
        // each limit decides: those before it only leave less in use.
        let mut then = Self { states: self.states.clone(), ..Self::default() };
        then.states.resize_with(plan.len(), StepState::default);
        for (index, (step, state)) in plan.iter().zip(&mut then.states).enumerate() {
            if let Some((at, receipt, used)) = self.holds.last_expiring(index) {
                state.open(step, at);
                receipt.release(step, (&mut state.plain, &mut state.boost), used, at);
                state.close(step, at);
            }
            state.open(step, deadline);
            state.close(step, deadline);
        }
        then.states_expire_at(plan).max(forgotten)
    }

    fn states_expire_at(&self, plan: &[EnforcedLimit]) -> Timestamp {
        let expire = |(step, state): (&EnforcedLimit, &StepState)| {
            let boost = step.boost.as_ref().map(|boost| boost.expires_at(&state.boost));
            step.limit.expires_at(&state.plain).max(boost.unwrap_or_default())
        };
        plan.iter().zip(&self.states).map(expire).max().unwrap_or_default()
    }
}
