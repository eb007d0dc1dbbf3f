//! Taking accounts apart, for stores that keep states in a layout of their own.
//!
//! Most identities have nothing pending, and are no more than the states of their steps.

use super::Account;
use super::step_state::StepState;
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::time::Timestamp;

impl Account {
    /// An account of these states, with nothing pending: for each step that of its limit, and of the
    /// boosted one beside it if it is elastic.
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
    /// While a booking, a reservation or a lease is remembered, which has no place in a state: then this is the account
    /// as it was.
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

    /// From when and until when nothing that is pending changes by itself; `None` where nothing is.
    pub(crate) fn holds_stable_during(&self) -> Option<(Timestamp, Timestamp)> {
        self.holds.stable_during()
    }

    /// From when on nothing of this account is needed, if nobody comes until then: a new one gives the
    /// same answers. The epoch if that is so already.
    ///
    /// A moment after [`NOW_MAX`](crate::time::NOW_MAX) never comes.
    #[must_use]
    pub fn expires_at(&self, plan: &[EnforcedLimit]) -> Timestamp {
        let forgotten = self.holds.forgotten_at().max(self.leased_until(plan));
        let Some(deadline) = self.holds.last_deadline() else {
            return self.states_expire_at(plan).max(forgotten);
        };
        // A reservation that runs out is given back, and that is a use: states may last longer for it. Of each limit the last one does, since
        // those before it only leave less; so this is no earlier than it has to be, and takes one look at each that is pending.
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
