//! Conversion between accounts and plain states, for stores with their own state layout.
//!
//! Most identities have no holds and consist of the states of their steps only.

use super::Account;
use super::step_state::StepState;
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::time::Timestamp;

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
    /// A moment after [`NOW_MAX`](crate::time::NOW_MAX) means never.
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
            if let Some((at, receipt)) = self.holds.last_expiring(index) {
                state.open(step, at);
                receipt.release(step, (&mut state.plain, &mut state.boost), 0, at);
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
