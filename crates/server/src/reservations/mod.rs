//! Reservations and waiting requests of all protocols.
//!
//! A reservation is named by a [`Ticket`] that contains the request: the service stores nothing
//! beside its counters, and any node that shares them can settle it. Only the number of pending
//! reservations is tracked ([`PendingReservations`]), since each takes memory until it is
//! forgotten.

mod pending;
mod settle;
mod settled;
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
pub use self::settle::DescriptorUsage;
use self::settled::RecentlySettled;
pub use self::settled::Settlement;
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
    settled: RecentlySettled,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Why nothing was reserved or settled. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationError {
    /// The engine refused.
    Hold(HoldError),
    /// This node has settled it before.
    Settled(Settlement),
    /// The ticket is invalid, or would be too long.
    Ticket(TicketError),
    /// The ticket names a slot of a request whose hits are charged already.
    SlotOnly,
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
        let settled = RecentlySettled::default();
        Self { pending, settled, waiting: AtomicUsize::new(0), waiting_max }
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
        let ttl = ttl.min(TTL_MAX);
        let (ticket, mut entry) = self.add_pending(request, now.after(ttl), now)?;
        // Counted before the outcome is known, also if the client goes away meanwhile.
        entry.reverts = false;
        let reserved = engine.reserve(call, ticket.holder(), ttl, checked).await;
        entry.finish(&ticket, reserved.is_ok() && is_held(rules, checked));
        reserved.map_err(ReservationError::Hold)?;
        Ok(checked.allowed.then_some(ticket))
    }

    /// Waits until the request is admitted, and reserves what was waited for. Dropping the future
    /// gives the turn up.
    ///
    /// # Errors
    /// When it cannot be reserved.
    pub async fn reserve_waiting<'a>(
        &self,
        engine: &'a Engine<dyn Backend>,
        request: &Request<'_>,
        ttl: Span,
        timeout: Span,
    ) -> Result<(Waited<'a>, Option<Ticket>), ReservationError> {
        let now = engine.now();
        self.drop_expired(engine, &engine.snapshot(), now).await;
        let (ttl, timeout) = (ttl.min(TTL_MAX), timeout.min(WAIT_TIMEOUT_MAX));
        let (ticket, entry) = self.add_pending(request, now.after(timeout).after(ttl), now)?;
        let _permit = self.wait_permit()?;
        let waited = engine.reserve_waiting(request, ticket.holder(), ttl, timeout).await;
        let waited = waited.map_err(ReservationError::Hold)?;
        // Held from now on, not since it began to wait.
        let held = Ticket::new(request, ticket.holder(), engine.now(), ticket.forgotten_at());
        let ticket = held.unwrap_or(ticket);
        entry.finish(&ticket, is_held(&waited.rules, &waited.checked));
        let ticket = waited.checked.allowed.then_some(ticket);
        Ok((waited, ticket))
    }

    /// Counts a reservation that may be made now.
    fn add_pending(
        &self,
        request: &Request<'_>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<(Ticket, PendingEntry<'_>), ReservationError> {
        let usual = PendingReservations::forgotten_at(expires_at);
        let ticket = Ticket::new(request, new_holder(), now, usual)?;
        let forgotten_at = self.pending.add(expires_at, ticket.bytes(), now);
        let too_many = || ReservationError::TooManyReservations { max: self.pending.max() };
        let forgotten_at = forgotten_at.ok_or_else(too_many)?;
        let entry =
            PendingEntry { pending: &self.pending, expires_at, forgotten_at, reverts: true };
        match forgotten_at == usual {
            true => Ok((ticket, entry)),
            // A brief one.
            false => Ok((Ticket::new(request, ticket.holder(), now, forgotten_at)?, entry)),
        }
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
        Ok(Ticket::slot(request, Ticket::NO_HOLDER, Timestamp::EPOCH)?)
    }

    /// Restarts the lifetime of a reservation, or the lease of a slot; returns the time until it
    /// expires.
    ///
    /// # Errors
    /// When there is no such reservation.
    pub async fn renew(
        &self,
        engine: &Engine<dyn Backend>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        ttl: Span,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<Span, ReservationError> {
        let entries = ticket.entries();
        let descriptors = ticket.descriptors(&entries);
        let request = ticket.request(0, &descriptors);
        let call = Call::new(rules, &request, now);
        let ttl = ttl.min(TTL_MAX);
        if ticket.holder() == Ticket::NO_HOLDER {
            peek(engine, call, checked).await?;
            return Ok(ttl);
        }
        let renewed = engine.renew(call, ticket.holder(), ttl, checked).await;
        let expires_after = renewed.map_err(|error| self.error(ticket, error))?;
        if is_reservable(rules, checked) && !ticket.is_slot() {
            self.pending.renewed(ticket, now.after(ttl), now);
        }
        Ok(expires_after)
    }

    /// Waits until the request is admitted. The ticket releases a concurrency slot, if one was
    /// acquired. Dropping the future gives the turn up.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn wait<'a>(
        &self,
        engine: &'a Engine<dyn Backend>,
        request: &Request<'_>,
        timeout: Span,
    ) -> Result<(Waited<'a>, Option<Ticket>), ReservationError> {
        // The rule limits how long a slot is held, so it does not count as a reservation.
        let ticket = Ticket::slot(request, new_holder(), engine.now())?;
        let _permit = self.wait_permit()?;
        let waited = engine.wait(request, ticket.holder(), timeout.min(WAIT_TIMEOUT_MAX)).await;
        let waited = waited.map_err(ReservationError::Hold)?;
        // Held from now on, not since it began to wait.
        let held = || Ticket::slot(request, ticket.holder(), engine.now());
        let ticket = waited.has_slot.then(held).transpose()?;
        Ok((waited, ticket))
    }

    /// Decides a request, and charges it if admitted. The ticket releases a concurrency slot, if
    /// one was taken.
    ///
    /// # Errors
    /// When its slot could not be named, or the store does not answer.
    pub async fn check(
        engine: &Engine<dyn Backend>,
        call: Call<'_>,
        checked: &mut Checked,
    ) -> Result<Option<Ticket>, ReservationError> {
        let Call { rules, request, now, .. } = call;
        let mut ticket = None;
        if rules.slot_descriptor(request).is_some() {
            ticket = Some(Ticket::slot(request, new_holder(), now)?);
        }
        let call = Call { holder: ticket.as_ref().map(Ticket::holder), ..call };
        let decided = engine.apply(Operation::Hit, call, checked).await;
        decided.map_err(|error| ReservationError::Hold(error.into()))?;
        rules.take_slots(&checked.plan, None);
        Ok(ticket.filter(|_| rules.holds_slot(checked)))
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

/// Whether a request is admitted and holds something that is counted.
fn is_held(rules: &Snapshot<'_>, checked: &Checked) -> bool {
    checked.allowed && is_reservable(rules, checked)
}

/// State of the limits of a request.
async fn peek(
    engine: &Engine<dyn Backend>,
    call: Call<'_>,
    checked: &mut Checked,
) -> Result<(), ReservationError> {
    let nothing = Request { hits: 0, ..*call.request };
    let call = Call { request: &nothing, ..call };
    let peeked = engine.apply(Operation::Peek, call, checked).await;
    peeked.map_err(|error| ReservationError::Hold(error.into()))
}

/// A reservation that is counted. Reverted when dropped, unless it was made.
struct PendingEntry<'a> {
    pending: &'a PendingReservations,
    expires_at: Timestamp,
    forgotten_at: Timestamp,
    reverts: bool,
}

impl PendingEntry<'_> {
    /// The outcome is known.
    fn finish(mut self, ticket: &Ticket, is_held: bool) {
        self.reverts = !is_held;
        if is_held {
            self.pending.reserved(ticket, self.expires_at);
        }
    }
}

impl Drop for PendingEntry<'_> {
    fn drop(&mut self) {
        if self.reverts {
            self.pending.revert(self.expires_at, self.forgotten_at);
        }
    }
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
            Self::Hold(HoldError::Unknown) => f.write_str(
                "nothing is held under this reservation any more: it was settled at another node, its \
                 counters were lost, or it expired long ago; reserve again if there is more to do",
            ),
            Self::Hold(HoldError::Expired) => f.write_str(
                "the reservation expired, and what it held was released; commit what was used, which \
                 is charged in full, or reserve again",
            ),
            Self::Hold(error) => error.fmt(f),
            Self::Settled(settlement) => settlement.fmt(f),
            Self::Ticket(error) => error.fmt(f),
            Self::SlotOnly => f.write_str(
                "this token holds a slot, and the hits of its request were charged when it was admitted; \
                 cancel it to release the slot, and reserve (with a timeout) to commit hits later",
            ),
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
