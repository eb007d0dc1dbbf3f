//! Settling: the actual cost of a reservation is charged, and the rest returned.

use sluicegate::backend::{Backend, Call};
use sluicegate::{Checked, Engine, HoldError, Operation, Snapshot, Timestamp};

use super::settled::{Settlement, clear_waits};
use super::ticket::TicketDescriptors;
use super::{ReservationError, Reservations, Ticket, is_reservable, peek};

/// How a descriptor of a reservation is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorUsage {
    /// So many hits were used.
    Hits(u64),
    /// Nothing was used, and its limits are reset.
    Reset,
}

impl Reservations {
    /// Commits what was used, or cancels; returns how much every limit got back at least.
    /// [`Checked::returned`] has that of each.
    ///
    /// # Errors
    /// When there is no such reservation.
    pub async fn settle(
        &self,
        engine: &Engine<dyn Backend>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        used: Option<u64>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, ReservationError> {
        let entries = ticket.entries();
        let descriptors = ticket.descriptors(&entries);
        let request = ticket.request(used.unwrap_or(0), &descriptors);
        let call = Call::new(rules, &request, now);
        if ticket.holder() == Ticket::NO_HOLDER {
            peek(engine, call, checked).await?;
            return Ok(0);
        }
        let settled = match used {
            Some(_) if ticket.is_slot() && !rules.takes_slots_only(&request) => {
                return Err(ReservationError::SlotOnly);
            }
            Some(_) => engine.commit(call, ticket.holder(), checked).await,
            None => engine.cancel(call, ticket.holder(), checked).await,
        };
        if settled.is_ok() {
            let settlement =
                if used.is_some() { Settlement::Committed } else { Settlement::Cancelled };
            self.record(ticket, settlement, rules, now, checked);
        }
        settled.map_err(|error| self.error(ticket, error))
    }

    /// Commits the usage of each descriptor, in the order of the ticket. Limits are reset after
    /// the commit, so that the reservation of the request itself is none of theirs any more.
    ///
    /// # Errors
    /// When there is no such reservation.
    pub async fn settle_each(
        &self,
        engine: &Engine<dyn Backend>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        usage: &[DescriptorUsage],
        now: Timestamp,
    ) -> Result<(), ReservationError> {
        let entries = ticket.entries();
        let mut descriptors = ticket.descriptors(&entries);
        for (descriptor, usage) in descriptors.iter_mut().zip(usage) {
            descriptor.hits = Some(match usage {
                DescriptorUsage::Hits(hits) => *hits,
                DescriptorUsage::Reset => 0,
            });
        }
        let request = ticket.request(0, &descriptors);
        let mut checked = Checked::default();
        let call = Call::new(rules, &request, now);
        let settled = engine.commit(call, ticket.holder(), &mut checked).await;
        settled.map_err(|error| self.error(ticket, error))?;
        self.record(ticket, Settlement::Committed, rules, now, &mut checked);
        let is_reset = |(_, usage): &(_, &DescriptorUsage)| **usage == DescriptorUsage::Reset;
        let reset = descriptors.iter().zip(usage).filter(is_reset);
        let reset: TicketDescriptors<'_> = reset.map(|(descriptor, _)| *descriptor).collect();
        if reset.is_empty() {
            return Ok(());
        }
        let request = ticket.request(0, &reset);
        let call = Call::new(rules, &request, now);
        let done = engine.apply(Operation::Reset, call, &mut Checked::default()).await;
        done.map_err(|error| ReservationError::Hold(error.into()))
    }

    /// Commits a part of each descriptor of a reservation, in the order of the ticket; the statuses
    /// have the remaining quota.
    ///
    /// # Errors
    /// When there is no such reservation.
    pub async fn commit_parts(
        &self,
        engine: &Engine<dyn Backend>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        used: &[u64],
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), ReservationError> {
        let entries = ticket.entries();
        let mut descriptors = ticket.descriptors(&entries);
        for (descriptor, used) in descriptors.iter_mut().zip(used) {
            descriptor.hits = Some(*used);
        }
        let request = ticket.request(0, &descriptors);
        let call = Call::new(rules, &request, now);
        let committed = engine.commit_parts(call, ticket.holder(), checked).await;
        clear_waits(checked);
        committed.map_err(|error| self.error(ticket, error))
    }

    /// Records a reservation that was settled.
    fn record(
        &self,
        ticket: &Ticket,
        settlement: Settlement,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) {
        self.settled.add(ticket.holder(), settlement);
        clear_waits(checked);
        if let Some(issued_at) = ticket.issued_at() {
            rules.observe_hold(checked, now.since(issued_at), now);
        }
        if is_reservable(rules, checked) && !ticket.is_slot() {
            self.pending.settled(ticket);
        }
    }

    /// The error of a ticket, with its settlement if this node knows it.
    pub(super) fn error(&self, ticket: &Ticket, error: HoldError) -> ReservationError {
        let settlement = self.settled.find(ticket.holder());
        match settlement.filter(|_| error == HoldError::Unknown) {
            Some(settlement) => ReservationError::Settled(settlement),
            None => ReservationError::Hold(error),
        }
    }

    /// Commits a part of a reservation; returns how much stays reserved.
    ///
    /// # Errors
    /// When there is no such reservation.
    pub async fn commit_part(
        &self,
        engine: &Engine<dyn Backend>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        used: u64,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, ReservationError> {
        let entries = ticket.entries();
        let descriptors = ticket.descriptors(&entries);
        let request = ticket.request(used, &descriptors);
        let call = Call::new(rules, &request, now);
        if ticket.holder() == Ticket::NO_HOLDER {
            peek(engine, call, checked).await?;
            return Ok(0);
        }
        if ticket.is_slot() {
            return Err(ReservationError::SlotOnly);
        }
        let held = engine.commit_part(call, ticket.holder(), checked).await;
        clear_waits(checked);
        held.map_err(|error| self.error(ticket, error))
    }
}
