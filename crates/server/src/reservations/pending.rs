//! Bounds on reservations that are not settled.
//!
//! Two counters share one bound. *Active* reservations have not expired; beyond the bound a new one
//! is refused. *Remembered* reservations include expired ones, for another 24 hours, so that a late
//! commit is charged; beyond the bound a new reservation is *brief* and is dropped from the
//! counters when it expires. Expired reservations therefore never block new ones, and memory is
//! bounded.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use sluicegate::{Holder, Span, Timestamp};

use super::Ticket;

/// Tickets of brief reservations, together; beyond, none is admitted.
const BRIEF_BYTES_MAX: usize = 64 << 20;
/// Renewed reservations from which forgotten ones are dropped.
const SWEEP_MIN: usize = 1_024;
/// Retention of expired reservations, for late commits.
const REMEMBERED: Span = Span::from_secs(24 * 3_600);

/// Counts reservations by when they expire and when they are forgotten.
///
/// ```
/// use sluicegate::{Span, Timestamp};
/// use sluicegate_server::reservations::PendingReservations;
///
/// let (pending, now) = (PendingReservations::new(1), Timestamp::EPOCH);
/// let then = now.after(Span::from_secs(60));
/// assert!(pending.add(then, 100, now).is_some());
/// assert!(pending.add(then, 100, now).is_none(), "one is the limit");
/// let later = then.after(Span::from_secs(60));
/// assert!(pending.add(later, 100, then).is_some(), "the first has expired by then");
/// ```
#[derive(Debug)]
pub struct PendingReservations {
    max: u64,
    counts: Mutex<PendingCounts>,
}

#[derive(Debug, Default)]
struct PendingCounts {
    active: ByTime<MILLI>,
    remembered: ByTime<SECOND>,
    /// Brief reservations by expiry and holder.
    brief: BTreeMap<(u64, u64), Ticket>,
    brief_bytes: usize,
    /// Current expiry of renewed reservations, by holder.
    renewed: HashMap<Holder, Timestamp>,
    /// Size of `renewed` at which the forgotten ones are dropped.
    sweep_at: usize,
}

/// Counts per time slot of `UNIT` microseconds.
#[derive(Debug, Default)]
struct ByTime<const UNIT: u64> {
    counts: BTreeMap<u64, u64>,
    total: u64,
}

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

impl PendingReservations {
    /// A limit on pending reservations.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max, counts: Mutex::default() }
    }

    /// Admits a reservation with a ticket of this size and returns when it is forgotten; `None` at
    /// the bound.
    pub fn add(&self, expires_at: Timestamp, bytes: usize, now: Timestamp) -> Option<Timestamp> {
        let mut counts = self.counts.lock();
        counts.expire(now);
        let is_brief = counts.remembered.total >= self.max;
        let is_full = is_brief && counts.brief_bytes.saturating_add(bytes) > BRIEF_BYTES_MAX;
        if counts.active.total >= self.max || is_full {
            return None;
        }
        counts.active.add(expires_at);
        if is_brief {
            return Some(expires_at);
        }
        let forgotten_at = Self::forgotten_at(expires_at);
        counts.remembered.add(forgotten_at);
        Some(forgotten_at)
    }

    /// When a reservation is forgotten that is not brief.
    pub(super) const fn forgotten_at(expires_at: Timestamp) -> Timestamp {
        expires_at.after(REMEMBERED)
    }

    /// Reverts [`PendingReservations::add`] after a denial or an error.
    pub(super) fn revert(&self, expires_at: Timestamp, forgotten_at: Timestamp) {
        let mut counts = self.counts.lock();
        counts.active.remove(expires_at);
        if forgotten_at != expires_at {
            counts.remembered.remove(forgotten_at);
        }
    }

    /// Records the ticket of a brief reservation.
    pub(super) fn reserved(&self, ticket: &Ticket, expires_at: Timestamp) {
        if ticket.forgotten_at() == expires_at {
            let mut counts = self.counts.lock();
            counts.brief_bytes += ticket.bytes();
            counts.brief.insert(brief_key(ticket, expires_at), ticket.clone());
        }
    }

    /// Removes a settled reservation. Tickets from before a restart are not counted.
    pub(super) fn settled(&self, ticket: &Ticket) {
        let mut counts = self.counts.lock();
        let expires_at = counts.expires_at(ticket);
        counts.renewed.remove(&ticket.holder());
        counts.remove(ticket, expires_at);
    }

    /// Moves a reservation to its new expiry, if it is counted here.
    pub(super) fn renewed(&self, ticket: &Ticket, expires_at: Timestamp, now: Timestamp) {
        let mut counts = self.counts.lock();
        let old = counts.expires_at(ticket);
        let brief = counts.brief.contains_key(&brief_key(ticket, old));
        if !counts.remove(ticket, old) {
            return;
        }
        counts.active.add(expires_at);
        if brief {
            counts.brief_bytes += ticket.bytes();
            counts.brief.insert(brief_key(ticket, expires_at), ticket.clone());
        } else {
            counts.remembered.add(Self::forgotten_at(expires_at));
        }
        counts.renewed.insert(ticket.holder(), expires_at);
        if counts.renewed.len() >= counts.sweep_at.max(SWEEP_MIN) {
            counts.renewed.retain(|_, expires_at| Self::forgotten_at(*expires_at) > now);
            counts.sweep_at = counts.renewed.len() * 2;
        }
    }

    /// Next expired brief reservation, for the caller to drop from the counters.
    pub(super) fn take_expired(&self, now: Timestamp) -> Option<Ticket> {
        let mut counts = self.counts.lock();
        let now = now.as_micros() / MILLI;
        let first = counts.brief.first_entry().filter(|first| first.key().0 <= now);
        let ticket = first?.remove();
        counts.brief_bytes -= ticket.bytes();
        counts.renewed.remove(&ticket.holder());
        Some(ticket)
    }

    /// Number of reservations that are neither settled nor expired.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> u64 {
        let mut counts = self.counts.lock();
        counts.expire(now);
        counts.active.total
    }

    /// The limit.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }
}

impl PendingCounts {
    fn expire(&mut self, now: Timestamp) {
        self.active.expire(now);
        self.remembered.expire(now);
    }

    /// When a reservation expires: by its ticket, unless it was renewed.
    fn expires_at(&self, ticket: &Ticket) -> Timestamp {
        let by_ticket = || {
            let forgotten_at = ticket.forgotten_at();
            let is_brief = self.brief.contains_key(&brief_key(ticket, forgotten_at));
            if is_brief { forgotten_at } else { forgotten_at.before(REMEMBERED) }
        };
        self.renewed.get(&ticket.holder()).copied().unwrap_or_else(by_ticket)
    }

    /// Removes a reservation that expires at this time; whether it was counted.
    fn remove(&mut self, ticket: &Ticket, expires_at: Timestamp) -> bool {
        if let Some(brief) = self.brief.remove(&brief_key(ticket, expires_at)) {
            self.brief_bytes -= brief.bytes();
        } else {
            self.remembered.remove(PendingReservations::forgotten_at(expires_at));
        }
        self.active.remove(expires_at)
    }
}

impl<const UNIT: u64> ByTime<UNIT> {
    fn add(&mut self, at: Timestamp) {
        *self.counts.entry(rounded_up(at, UNIT)).or_default() += 1;
        self.total += 1;
    }

    /// Removes one; whether there was any.
    fn remove(&mut self, at: Timestamp) -> bool {
        let moment = rounded_up(at, UNIT);
        let Some(count) = self.counts.get_mut(&moment) else { return false };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&moment);
        }
        self.total -= 1;
        true
    }

    fn expire(&mut self, now: Timestamp) {
        let now = now.as_micros() / UNIT;
        while let Some(first) = self.counts.first_entry().filter(|first| *first.key() <= now) {
            self.total -= first.remove();
        }
    }
}

fn brief_key(ticket: &Ticket, expires_at: Timestamp) -> (u64, u64) {
    (rounded_up(expires_at, MILLI), ticket.holder().0)
}

/// Rounds up, so that a slot never ends before the reservation itself.
fn rounded_up(at: Timestamp, unit: u64) -> u64 {
    at.as_micros().div_ceil(unit)
}
