//! Guards that a request holds while it waits for its turn; dropping one releases it.

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, RESERVE_TTL};
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Outcome, Verdict};

use super::admission::LimiterCheck;
use super::layer::WAIT_MAX;
use crate::backend::Backend;
use crate::limiter::new_holder;
use crate::{Booking, Denied, Limiter, Permit, Together};

/// The guard of one group of limiters.
pub(super) enum Guard {
    Reservation(GroupReservation),
    /// With the turn of a limit beside the slots, if it is in the future.
    Slot(Permit, Option<(Limiter, Timestamp)>),
    Turn(Booking),
}

/// A slot that is held until the response has ended.
#[derive(Debug)]
#[expect(dead_code, reason = "dropped, it releases the slot")]
pub(super) enum HeldSlot {
    Memory(Permit),
    Shared(Permit<dyn Backend>),
}

/// All guards of a request.
#[derive(Default)]
pub(super) struct Guards {
    reserved: Vec<GroupReservation>,
    slots: Vec<Permit>,
    turns: Vec<Booking>,
    turns_of_slots: Vec<(Limiter, Timestamp)>,
    reports: Vec<Report>,
}

/// A decision for the listener of a limiter, sent once the request proceeds or is denied.
pub(super) struct Report {
    pub(super) limiter: Limiter,
    pub(super) key: Vec<u8>,
    pub(super) cost: u64,
    pub(super) verdict: Verdict,
}

impl Report {
    pub(super) fn send(self) {
        self.limiter.report(&self.key, self.cost, &self.verdict);
    }
}

impl Guard {
    /// A slot that was granted just now.
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
            Self::Reservation(reserved) => reserved.verdict(),
            Self::Slot(permit, _) => permit.verdict(),
            Self::Turn(booking) => booking.verdict(),
        }
    }
}

impl Guards {
    pub(super) fn push(&mut self, guard: Guard) {
        match guard {
            Guard::Reservation(reserved) => self.reserved.push(reserved),
            Guard::Slot(permit, turn) => {
                self.slots.push(permit);
                self.turns_of_slots.extend(turn);
            }
            Guard::Turn(booking) => self.turns.push(booking),
        }
    }

    /// Reports these when the request proceeds.
    pub(super) fn report(&mut self, reports: impl Iterator<Item = Report>) {
        self.reports.extend(reports);
    }

    pub(super) fn has_to_wait(&self) -> bool {
        !self.turns_of_slots.is_empty() || self.turns.iter().any(|turn| !turn.wait_time().is_zero())
    }

    /// Commits the reservations and returns the slots, which stay held.
    pub(super) fn start(self) -> Vec<HeldSlot> {
        // A turn that has come cannot be released: dropping it ends it.
        drop(self.turns);
        self.reserved.into_iter().for_each(GroupReservation::commit);
        self.reports.into_iter().for_each(Report::send);
        self.slots.into_iter().map(HeldSlot::Memory).collect()
    }

    /// Waits for the last turn, then starts.
    pub(super) async fn wait(mut self) -> Vec<HeldSlot> {
        for turn in self.turns.drain(..) {
            turn.wait().await;
        }
        for (limiter, turn) in self.turns_of_slots.drain(..) {
            while limiter.now() < turn {
                tokio::time::sleep(turn.since(limiter.now()).to_duration()).await;
            }
        }
        self.start()
    }
}

/// A reservation at several limiters, all or nothing. Dropped without [`GroupReservation::commit`],
/// it is cancelled.
pub(super) struct GroupReservation {
    parts: Vec<(Limiter, Vec<u8>)>,
    cost: u64,
    holder: Holder,
    verdict: Verdict,
    settled: bool,
}

// A reservation outlives the longest wait. A request that is woken even later is charged when it
// starts. (A layer with a custom maximum wait books everything and reserves nothing.)
const _: () = assert!(WAIT_MAX.as_micros() < RESERVE_TTL.as_micros() as u128);

impl GroupReservation {
    /// For a request that starts within [`WAIT_MAX`], or not at all.
    pub(super) fn new(
        parts: &[LimiterCheck<'_>],
        cost: u64,
        now: Timestamp,
    ) -> Result<Self, Denied> {
        let holder = new_holder();
        let op = Op::Reserve { cost, ttl: RESERVE_TTL, holder };
        let all = Together::new();
        let all = parts.iter().fold(all, |all, part| all.and(part.quiet, part.key));
        let verdict = all.cost(cost).at(now).ask(op)?.verdict;
        Denied::unless_allowed(verdict)?;
        let owned = |part: &LimiterCheck<'_>| (part.quiet.clone(), part.key.to_vec());
        let parts = parts.iter().map(owned).collect();
        Ok(Self { parts, cost, holder, verdict, settled: false })
    }

    pub(super) const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Charges all of it.
    pub(super) fn commit(mut self) {
        self.settle(Op::Commit { cost: self.cost, holder: self.holder });
    }

    fn settle(&mut self, op: Op) {
        if !std::mem::replace(&mut self.settled, true) {
            let parts = self.parts.iter();
            let all = parts.fold(Together::new(), |all, (limiter, key)| all.and(limiter, key));
            // Refused only if its identity has expired: then there is nothing to settle.
            let _ = all.cost(self.cost).ask(op);
        }
    }
}

impl Drop for GroupReservation {
    fn drop(&mut self) {
        self.settle(Op::Cancel { holder: self.holder });
    }
}
