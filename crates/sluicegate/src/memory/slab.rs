//! Whole states, for what does not fit into a lane.

use sluicegate_core::account::Account;
use sluicegate_core::limit::State;

/// A state, or an account, kept whole.
#[derive(Debug)]
pub(crate) enum Whole {
    /// The state of one limit.
    State(State),
    /// All of an identity: it has bookings or reservations pending.
    Account(Box<Account>),
}

/// Places for whole states; those given up are used again.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    places: Vec<Option<Whole>>,
    free: Vec<u32>,
}

// === impl Slab ===

impl Slab {
    /// Keeps `whole`; where.
    pub(crate) fn keep(&mut self, whole: Whole) -> u32 {
        if let Some(place) = self.free.pop()
            && let Some(slot) = self.places.get_mut(place as usize)
        {
            *slot = Some(whole);
            return place;
        }
        if self.places.len() == self.places.capacity() {
            // By a quarter: doubling would leave half of it unused.
            self.places.reserve_exact((self.places.len() / 4).max(4));
        }
        self.places.push(Some(whole));
        // The cap on entries lies far below.
        u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Whole> {
        self.places.get(place as usize).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Whole> {
        self.places.get_mut(place as usize).and_then(Option::as_mut)
    }

    /// Gives up a place.
    pub(crate) fn take(&mut self, place: u32) -> Option<Whole> {
        let whole = self.places.get_mut(place as usize).and_then(Option::take)?;
        self.free.push(place);
        if self.free.len() == self.places.len() {
            *self = Self::default();
        }
        Some(whole)
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether most places are free, so that moving the rest together gives memory back.
    pub(crate) fn is_sparse(&self) -> bool {
        self.places.len() > 16 && self.places.len() > 2 * self.len()
    }
}

#[cfg(test)]
mod tests;
