//! Reservations and waiting requests of all protocols.
//!
//! A reservation is named by a [`Ticket`] that contains the request: the service stores nothing
//! beside its counters, and any node that shares them can settle it. Only the number of pending
//! reservations is tracked ([`PendingReservations`]), since each takes memory until it is
//! forgotten.

mod pending;
mod ticket;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate::backend::{Backend, Call};
use sluicegate::rules::plan::Target;
use sluicegate::rules::request::Request;
use sluicegate::rules::rule::Limits;
use sluicegate::{
    Checked, Engine, HoldError, Operation, Snapshot, Span, Timestamp, Waited, new_holder,
};

pub use self::pending::PendingReservations;
pub use self::ticket::{TICKET_BYTES_MAX, Ticket, TicketError};

/// Default lifetime of a reservation.
pub const TTL: Span = Span::from_secs(60);
/// Longest lifetime.
pub const TTL_MAX: Span = Span::from_secs(24 * 3_600);
/// Default timeout of a waiting request.
pub const WAIT_TIMEOUT: Span = Span::from_secs(30);
/// Longest timeout.
pub const WAIT_TIMEOUT_MAX: Span = Span::from_secs(600);
/// Expired brief reservations dropped per new reservation.
const DROPPED_WITH_EACH: usize = 2;

/// Reserves, settles and waits, within limits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::backend::Backend;
/// use sluicegate::{Checked, Engine, rules_of};
/// use sluicegate_server::reservations::{Reservations, TTL};
///
/// let rules = "domain: llm\ndescriptors:
///   - { key: user, limits: { algorithm: fixed_window, rate: 1000/day } }";
/// let engine: Engine<dyn Backend> = Engine::new(rules_of(rules)?)?.into();
/// let entries = [Entry::new("user", "42")];
/// let descriptors = [Descriptor::of(&entries)];
/// let request = Request { domain: "llm", descriptors: &descriptors, hits: 800 };
///
/// let (reservations, rules, mut checked) =
///     (Reservations::default(), engine.snapshot(), Checked::default());
/// let call = engine.call(&rules, &request);
/// let ticket = reservations.reserve(&engine, call, TTL, &mut checked).await?;
/// let ticket = ticket.expect("there are 1000");
/// let committed =
///     reservations.settle(&engine, &rules, &ticket, Some(300), engine.now(), &mut checked).await?;
/// assert_eq!(committed, 500);
/// assert_eq!(checked.statuses[0].verdict.remaining, Some(700));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reservations {
    pending: PendingReservations,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Why nothing was reserved or settled. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationError {
    /// The engine refused.
    Hold(HoldError),
    /// The ticket is invalid, or would be too long.
    Ticket(TicketError),
    /// Too many pending reservations.
    TooManyReservations {
        /// The limit.
        max: u64,
    },
    /// Too many waiting requests.
    TooManyWaiting {
        /// The limit.
        max: usize,
    },
}

impl Reservations {
    /// Limits of pending reservations and of waiting requests.
    #[must_use]
    pub fn new(reservations_max: u64, waiting_max: usize) -> Self {
        let pending = PendingReservations::new(reservations_max);
        Self { pending, waiting: AtomicUsize::new(0), waiting_max }
    }

    /// Reserves; the ticket if the request is admitted.
    ///
    /// # Errors
    /// When it cannot be reserved.
    pub async fn reserve(
        &self,
        engine: &Engine<dyn Backend>,
        call: Call<'_>,
        ttl: Span,
        checked: &mut Checked,
    ) -> Result<Option<Ticket>, ReservationError> {
        let Call { rules, request, now, .. } = call;
        self.drop_expired(engine, rules, now).await;
        let expires_at = now.after(ttl.min(TTL_MAX));
        let usual = PendingReservations::forgotten_at(expires_at);
        let mut ticket = Ticket::new(request, new_holder(), usual)?;
        let forgotten_at = self.pending.add(expires_at, ticket.bytes(), now);
        let too_many = || ReservationError::TooManyReservations { max: self.pending.max() };
        let forgotten_at = forgotten_at.ok_or_else(too_many)?;
        let revert = || self.pending.revert(expires_at, forgotten_at);
        if forgotten_at != usual {
            let brief = Ticket::new(request, ticket.holder(), forgotten_at);
            ticket = brief.inspect_err(|_| revert())?;
        }
        // Counted before the outcome is known, also if the client goes away meanwhile.
        let reserved = engine.reserve(call, ticket.holder(), ttl.min(TTL_MAX), checked).await;
        if reserved.is_err() || !checked.allowed || !is_reservable(rules, checked) {
            revert();
        } else {
            self.pending.reserved(&ticket, expires_at);
        }
        reserved.map_err(ReservationError::Hold)?;
        Ok(checked.allowed.then_some(ticket))
    }

    /// Drops expired brief reservations from the counters.
    async fn drop_expired(
        &self,
        engine: &Engine<dyn Backend>,
        rules: &Snapshot<'_>,
        now: Timestamp,
    ) {
        for _ in 0..DROPPED_WITH_EACH {
            let Some(ticket) = self.pending.take_expired(now) else { return };
            let entries = ticket.entries();
            let descriptors = ticket.descriptors(&entries);
            let request = ticket.request(0, &descriptors);
            let mut checked = Checked::default();
            // On an error the counters drop it by themselves after 24 hours.
            let call = Call::new(rules, &request, now);
            let _ = engine.cancel(call, ticket.holder(), &mut checked).await;
        }
    }

    /// A ticket with nothing to settle, for a request that shadow mode admits.
    ///
    /// # Errors
    /// When it would be too long.
    pub fn reserve_nothing(request: &Request<'_>) -> Result<Ticket, ReservationError> {
        Ok(Ticket::new(request, Ticket::NO_HOLDER, Timestamp::EPOCH)?)
    }

    /// Commits what was used, or cancels; returns how much was refunded.
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
        let holder = ticket.holder();
        let request = ticket.request(used.unwrap_or(0), &descriptors);
        if holder == Ticket::NO_HOLDER {
            let nothing = ticket.request(0, &descriptors);
            let call = Call::new(rules, &nothing, now);
            let peeked = engine.apply(Operation::Peek, call, checked).await;
            peeked.map_err(|error| ReservationError::Hold(error.into()))?;
            return Ok(0);
        }
        let call = Call::new(rules, &request, now);
        let settled = match used {
            Some(_) => engine.commit(call, holder, checked).await,
            None => engine.cancel(call, holder, checked).await,
        };
        if settled.is_ok() && is_reservable(rules, checked) {
            self.pending.settled(ticket);
        }
        settled.map_err(ReservationError::Hold)
    }

    /// Waits until the request is admitted. The ticket releases a concurrency slot, if one was
    /// acquired. Dropping the future gives the turn up.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn wait(
        &self,
        engine: &Engine<dyn Backend>,
        request: &Request<'_>,
        timeout: Span,
    ) -> Result<(Waited, Option<Ticket>), ReservationError> {
        // The rule limits how long a slot is held, so it does not count as a reservation.
        let ticket = Ticket::new(request, new_holder(), Timestamp::EPOCH)?;
        let _permit = self.wait_permit()?;
        let waited = engine.wait(request, ticket.holder(), timeout.min(WAIT_TIMEOUT_MAX)).await;
        let waited = waited.map_err(ReservationError::Hold)?;
        let ticket = waited.has_slot.then_some(ticket);
        Ok((waited, ticket))
    }

    /// Number of reservations that are neither settled nor expired.
    #[must_use]
    pub fn pending(&self, now: Timestamp) -> u64 {
        self.pending.count(now)
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn wait_permit(&self) -> Result<WaitPermit<'_>, ReservationError> {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let permit = WaitPermit(self);
        if others < self.waiting_max {
            return Ok(permit);
        }
        Err(ReservationError::TooManyWaiting { max: self.waiting_max })
    }
}

impl Default for Reservations {
    fn default() -> Self {
        Self::new(1_000_000, 5_000)
    }
}

/// Whether any rule of a request supports reservations. If none does there is nothing to settle,
/// and repeated settlement is no error.
fn is_reservable(rules: &Snapshot<'_>, checked: &Checked) -> bool {
    let may = |target| match target {
        Target::Rule(no) => matches!(rules.rules().rule(no).limits, Limits::Native(_)),
        Target::None(_) | Target::Replaced(_) | Target::Override(_) => false,
    };
    checked.listed().is_none() && checked.statuses.iter().any(|status| may(status.target))
}

/// Counts a waiting request until dropped.
struct WaitPermit<'a>(&'a Reservations);

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<TicketError> for ReservationError {
    fn from(error: TicketError) -> Self {
        Self::Ticket(error)
    }
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold(error) => error.fmt(f),
            Self::Ticket(error) => error.fmt(f),
            Self::TooManyReservations { max } => write!(
                f,
                "too many reservations: `{max}` are neither settled nor expired; commit or cancel them"
            ),
            Self::TooManyWaiting { max } => {
                write!(f, "too many waiting requests: `{max}` already wait; retry later")
            }
        }
    }
}

impl std::error::Error for ReservationError {}
