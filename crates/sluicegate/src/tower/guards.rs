//! What a request holds while it waits for its turn.

use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Outcome, Verdict};

use super::reserved::Reserved;
use crate::clock::duration;
use crate::{Booking, Limiter, Permit};

/// What one group of limiters has left, to be given back by dropping it.
pub(super) enum Guard {
    Reserved(Reserved),
    /// With the turn of a limit beside the slots, if it has to be waited for.
    Slot(Permit, Option<(Limiter, Timestamp)>),
    Turn(Booking),
}

/// All of them.
#[derive(Default)]
pub(super) struct Held {
    reserved: Vec<Reserved>,
    slots: Vec<Permit>,
    turns: Vec<Booking>,
    turns_of_slots: Vec<(Limiter, Timestamp)>,
}

// === impl Guard ===

impl Guard {
    /// A slot that was given just now.
    pub(super) fn slot(permit: Permit, limiter: &Limiter) -> Self {
        let turn = match permit.verdict().outcome {
            Outcome::Allow { wait } if !wait.is_zero() => {
                Some((limiter.clone(), limiter.now().after(wait)))
            }
            _ => None,
        };
        Self::Slot(permit, turn)
    }

    pub(super) const fn verdict(&self) -> &Verdict {
        match self {
            Self::Reserved(reserved) => reserved.verdict(),
            Self::Slot(permit, _) => permit.verdict(),
            Self::Turn(booking) => booking.verdict(),
        }
    }
}

// === impl Held ===

impl Held {
    pub(super) fn keep(&mut self, guard: Guard) {
        match guard {
            Guard::Reserved(reserved) => self.reserved.push(reserved),
            Guard::Slot(permit, turn) => {
                self.slots.push(permit);
                self.turns_of_slots.extend(turn);
            }
            Guard::Turn(booking) => self.turns.push(booking),
        }
    }

    pub(super) fn has_to_wait(&self) -> bool {
        !self.turns_of_slots.is_empty() || self.turns.iter().any(|turn| !turn.wait_time().is_zero())
    }

    /// The turn has come: what was reserved is used. The slots, which are held further on.
    pub(super) fn start(self) -> Vec<Permit> {
        // A turn that has come cannot be given back: dropping it is to be done with it.
        drop(self.turns);
        self.reserved.into_iter().for_each(Reserved::commit);
        self.slots
    }

    /// Waits until the last turn has come.
    pub(super) async fn wait(mut self) -> Vec<Permit> {
        for turn in self.turns.drain(..) {
            turn.wait().await;
        }
        for (limiter, turn) in self.turns_of_slots.drain(..) {
            while limiter.now() < turn {
                tokio::time::sleep(duration(turn.since(limiter.now()))).await;
            }
        }
        self.start()
    }
}
