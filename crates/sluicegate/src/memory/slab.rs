//! States that do not fit into a lane.

use sluicegate_core::account::Account;
use sluicegate_core::limit::State;

use super::word::Word;

/// A state or an account that is not packed.
#[derive(Debug)]
pub(crate) enum Whole {
    /// The state of one limit.
    State(State),
    /// A whole identity, with bookings or reservations pending.
    Account(Box<Account>),
}

/// Slots for whole states, reused once free.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    slots: Vec<Option<Whole>>,
    free: Vec<u32>,
}

impl Slab {
    /// Stores `whole`; its index.
    pub(crate) fn insert(&mut self, whole: Whole) -> u32 {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            *slot = Some(whole);
            return index;
        }
        if self.slots.len() == self.slots.capacity() {
            // By a quarter: doubling would leave half of it unused.
            self.slots.reserve_exact((self.slots.len() / 4).max(4));
        }
        self.slots.push(Some(whole));
        // The cap on entries is far lower.
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Whole> {
        self.slots.get(index as usize).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Whole> {
        self.slots.get_mut(index as usize).and_then(Option::as_mut)
    }

    /// Removes the state at `index`.
    pub(crate) fn take(&mut self, index: u32) -> Option<Whole> {
        let whole = self.slots.get_mut(index as usize).and_then(Option::take)?;
        self.free.push(index);
        if self.free.len() == self.slots.len() {
            *self = Self::default();
        }
        Some(whole)
    }

    /// Drops the state that a word refers to, if any.
    #[inline]
    pub(crate) fn drop_state(&mut self, word: Word) {
        if let Some(index) = word.index() {
            self.take(index);
        }
    }

    /// Number of states.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether most slots are free, so that compacting releases memory.
    pub(crate) fn is_sparse(&self) -> bool {
        self.slots.len() > 16 && self.slots.len() > 2 * self.len()
    }
}

#[cfg(test)]
mod tests;
