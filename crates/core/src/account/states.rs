//! Taking accounts apart, for stores that keep states in a layout of their own.
//!
//! Most identities have nothing pending, and are no more than the states of their steps.

use super::Account;
use super::step_state::Cell;
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::time::Timestamp;

impl Account {
    /// An account of these states, with nothing pending: for each step that of its limit, and of the
    /// boosted one beside it if it is elastic.
    #[must_use]
    pub fn from_states(states: impl IntoIterator<Item = (State, State)>) -> Self {
        let cells = states.into_iter().map(|(plain, boost)| Cell { plain, boost }).collect();
        Self { cells, ..Self::default() }
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
        Ok(self.cells.into_iter().map(|cell| (cell.plain, cell.boost)).collect())
    }

    /// The state of each step, and of the boosted limit beside it.
    pub(crate) fn both_states(&self) -> impl Iterator<Item = (&State, &State)> {
        self.cells.iter().map(|cell| (&cell.plain, &cell.boost))
    }

    /// From when and until when nothing that is pending changes by itself; `None` where nothing is.
    pub(crate) fn holds_stay(&self) -> Option<(Timestamp, Timestamp)> {
        self.holds.stays()
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
        let mut then = Self { cells: self.cells.clone(), ..Self::default() };
        then.cells.resize_with(plan.len(), Cell::default);
        for (place, (step, cell)) in plan.iter().zip(&mut then.cells).enumerate() {
            if let Some((at, receipt)) = self.holds.last_to_run_out(place) {
                cell.open(step, at);
                receipt.give_back(step, (&mut cell.plain, &mut cell.boost), 0, at);
                cell.close(step, at);
            }
            cell.open(step, deadline);
            cell.close(step, deadline);
        }
        then.states_expire_at(plan).max(forgotten)
    }

    fn states_expire_at(&self, plan: &[EnforcedLimit]) -> Timestamp {
        let expire = |(step, cell): (&EnforcedLimit, &Cell)| {
            let boost = step.boost.as_ref().map(|boost| boost.expires_at(&cell.boost));
            step.limit.expires_at(&cell.plain).max(boost.unwrap_or_default())
        };
        plan.iter().zip(&self.cells).map(expire).max().unwrap_or_default()
    }
}
