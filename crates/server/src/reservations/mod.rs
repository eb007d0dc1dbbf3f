//! What is held for later, at whatever endpoint it was asked for: reservations, turns that are waited for, answers to whoever asks again.
//!
//! A reservation is named by a [`Ticket`] that says by itself who reserved what: this service remembers nothing beside its counters, and whoever has them
//! can settle it. What is remembered is how many there are ([`Pending`]), since each takes memory until it is forgotten.

mod pending;
mod ticket;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sluicegate::rules::plan::Target;
use sluicegate::rules::request::Request;
use sluicegate::rules::rule::Limits;
use sluicegate::{Checked, HoldError, Snapshot, Span, Timestamp, Waited, new_holder};

use crate::counters::Counters;

pub use self::pending::Pending;
pub use self::ticket::{NoTicket, TICKET_BYTES_MAX, Ticket};
pub use crate::idempotency::{Before, KEY_BYTES_MAX, Once, UnderWay};

/// How long a reservation lasts unless told.
pub const TTL: Span = Span::from_secs(60);
/// How long it may last.
pub const TTL_MAX: Span = Span::from_secs(24 * 3_600);
/// How long somebody waits unless told.
pub const PATIENCE: Span = Span::from_secs(30);
/// How long anybody may wait.
pub const PATIENCE_MAX: Span = Span::from_secs(600);
/// Expired brief reservations dropped per new reservation.
const DROPPED_WITH_EACH: usize = 2;

/// What is held for later.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::{Checked, Engine, rules_of};
/// use sluicegate_server::counters::Counters;
/// use sluicegate_server::reservations::{Holds, TTL};
///
/// let rules = "domain: llm\ndescriptors: [{ key: user, limits: { algorithm: fixed_window, rate: 1000/day } }]";
/// let engine = Engine::new(rules_of(rules)?)?;
/// let entries = [Entry::new("user", "42")];
/// let descriptors = [Descriptor::of(&entries)];
/// let request = Request { domain: "llm", descriptors: &descriptors, hits: 800 };
///
/// let (holds, counters, mut checked) = (Holds::default(), Counters::Own(&engine), Checked::default());
/// let ticket =
///     holds.reserve(counters, &engine.snapshot(), &request, TTL, engine.now(), &mut checked).await?;
/// let ticket = ticket.expect("there are 1000");
/// let committed =
///     holds.commit(counters, &engine.snapshot(), &ticket, 300, engine.now(), &mut checked).await?;
/// assert_eq!(committed, 500);
/// assert_eq!(checked.statuses[0].verdict.remaining, Some(700));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Holds {
    pending: Pending,
    waiting: AtomicUsize,
    waiting_max: usize,
    answers: Once<Kept>,
}

/// An answer that is kept for whoever asks again, as it left.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// The status, over HTTP.
    pub status: StatusCode,
    /// The headers, over HTTP.
    pub headers: HeaderMap,
    /// The rest.
    pub body: Bytes,
    /// Whether every descriptor was charged, so that a refund of the same request is exact.
    pub is_refundable: bool,
}

/// Why nothing is held, or nothing was settled. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotHeld {
    /// What it is under cannot be held, or is not.
    Hold(HoldError),
    /// The ticket is none, or would be too long.
    Ticket(NoTicket),
    /// There are as many reservations as there may be.
    TooManyReservations {
        /// How many.
        most: u64,
    },
    /// There are as many who wait as there may be.
    TooManyWait {
        /// How many.
        most: usize,
    },
}

/// How something held is settled.
#[derive(Clone, Copy)]
enum Settling {
    /// With what was really used.
    Commit(u64),
    /// With nothing.
    Cancel,
}

// === impl Holds ===

impl Holds {
    /// At most so many reservations that are not settled, and so many who wait at a time.
    #[must_use]
    pub fn with(reservations_max: u64, waiting_max: usize) -> Self {
        let pending = Pending::new(reservations_max);
        Self { pending, waiting: AtomicUsize::new(0), waiting_max, answers: Once::default() }
    }

    /// Reserves; the ticket if it may go.
    ///
    /// # Errors
    /// When it cannot be held.
    pub async fn reserve(
        &self,
        counters: Counters<'_>,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        ttl: Span,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<Option<Ticket>, NotHeld> {
        self.drop_expired(counters, rules, now).await;
        let expires_at = now.after(ttl.min(TTL_MAX));
        let usual = Pending::forgotten_at(expires_at);
        let mut ticket = Ticket::new(request, new_holder(), usual)?;
        let forgotten_at = self.pending.add(expires_at, ticket.bytes(), now);
        let too_many = || NotHeld::TooManyReservations { most: self.pending.most() };
        let forgotten_at = forgotten_at.ok_or_else(too_many)?;
        let take_back = || self.pending.take_back(expires_at, forgotten_at);
        if forgotten_at != usual {
            let brief = Ticket::new(request, ticket.holder(), forgotten_at);
            ticket = brief.inspect_err(|_| take_back())?;
        }
        let terms = (ticket.holder(), ttl.min(TTL_MAX));
        // Counted until it is known, also if nobody waits for that.
        let reserved = counters.reserve(rules, request, terms, now, checked).await;
        if reserved.is_err() || !checked.allowed || !may_hold(rules, checked) {
            take_back();
        } else {
            self.pending.reserved(&ticket, expires_at);
        }
        reserved.map_err(NotHeld::Hold)?;
        Ok(checked.allowed.then_some(ticket))
    }

    /// Drops expired brief reservations from the counters.
    async fn drop_expired(&self, counters: Counters<'_>, rules: &Snapshot<'_>, now: Timestamp) {
        for _ in 0..DROPPED_WITH_EACH {
            let Some(ticket) = self.pending.take_expired(now) else { return };
            let entries = ticket.entries();
            let descriptors = ticket.descriptors(&entries);
            let request = ticket.request(0, &descriptors);
            let mut checked = Checked::default();
            // On an error the counters drop it by themselves after 24 hours.
            let _ = counters.cancel(rules, &request, ticket.holder(), now, &mut checked).await;
        }
    }

    /// A ticket for something that goes though it would be denied, since nothing is enforced: there is nothing to settle.
    ///
    /// # Errors
    /// When it would be too long.
    pub fn reserve_nothing(request: &Request<'_>) -> Result<Ticket, NotHeld> {
        Ok(Ticket::new(request, Ticket::NOBODY, Timestamp::EPOCH)?)
    }

    /// Settles with what was really used; how much was given back.
    ///
    /// # Errors
    /// When nothing is held.
    pub async fn commit(
        &self,
        counters: Counters<'_>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        used: u64,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, NotHeld> {
        self.settle(Settling::Commit(used), counters, rules, ticket, now, checked).await
    }

    /// Gives everything back; how much that was.
    ///
    /// # Errors
    /// When nothing is held.
    pub async fn cancel(
        &self,
        counters: Counters<'_>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, NotHeld> {
        self.settle(Settling::Cancel, counters, rules, ticket, now, checked).await
    }

    async fn settle(
        &self,
        settling: Settling,
        counters: Counters<'_>,
        rules: &Snapshot<'_>,
        ticket: &Ticket,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, NotHeld> {
        let entries = ticket.entries();
        let descriptors = ticket.descriptors(&entries);
        let holder = ticket.holder();
        if holder == Ticket::NOBODY {
            let nothing = ticket.request(0, &descriptors);
            let peeked = counters.peek(rules, &nothing, now, checked).await;
            peeked.map_err(|error| NotHeld::Hold(error.into()))?;
            return Ok(0);
        }
        let settled = match settling {
            Settling::Commit(used) => {
                let request = ticket.request(used, &descriptors);
                counters.commit(rules, &request, holder, now, checked).await
            }
            Settling::Cancel => {
                let request = ticket.request(0, &descriptors);
                counters.cancel(rules, &request, holder, now, checked).await
            }
        };
        if settled.is_ok() && may_hold(rules, checked) {
            self.pending.settled(ticket);
        }
        settled.map_err(NotHeld::Hold)
    }

    /// Waits for a turn; and a ticket where a slot came with it, by which that is given back. Whoever drops the future gives the turn back.
    ///
    /// # Errors
    /// When nobody can wait for it.
    pub async fn wait(
        &self,
        counters: Counters<'_>,
        request: &Request<'_>,
        patience: Span,
    ) -> Result<(Waited, Option<Ticket>), NotHeld> {
        // What a slot is held for is the rule's to say; it is not counted among the reservations.
        let ticket = Ticket::new(request, new_holder(), Timestamp::EPOCH)?;
        let _seat = self.wait_seat()?;
        let waited = counters.wait(request, ticket.holder(), patience.min(PATIENCE_MAX)).await;
        let waited = waited.map_err(NotHeld::Hold)?;
        let ticket = waited.has_slot.then_some(ticket);
        Ok((waited, ticket))
    }

    /// Answers that are kept for whoever asks again.
    #[must_use]
    pub const fn answers(&self) -> &Once<Kept> {
        &self.answers
    }

    /// Number of reservations that are neither settled nor expired.
    #[must_use]
    pub fn reservations(&self, now: Timestamp) -> u64 {
        self.pending.count(now)
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn wait_seat(&self) -> Result<WaitSeat<'_>, NotHeld> {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let seat = WaitSeat(self);
        if others < self.waiting_max {
            return Ok(seat);
        }
        Err(NotHeld::TooManyWait { most: self.waiting_max })
    }
}

impl Default for Holds {
    fn default() -> Self {
        Self::with(1_000_000, 5_000)
    }
}

/// Whether anything can be held of what a request is under. Where nothing can there is nothing to settle, and that is no mistake, however often somebody tries.
fn may_hold(rules: &Snapshot<'_>, checked: &Checked) -> bool {
    let may = |under| match under {
        Target::Rule(no) => matches!(rules.rules().rule(no).limits, Limits::Native(_)),
        Target::None | Target::Replaced(_) | Target::Override(_) => false,
    };
    checked.listed().is_none() && checked.statuses.iter().any(|status| may(status.target))
}

/// One of those who wait.
struct WaitSeat<'a>(&'a Holds);

impl Drop for WaitSeat<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Kept ===

impl Kept {
    /// How many bytes it takes, or a little more.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// A header's place in a map, and how it is found; and what a value takes that is shared with whoever is answered.
        const BESIDE: usize = 190;

        let headers =
            self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + BESIDE);
        self.body.len() + headers.sum::<usize>()
    }

    /// The same without the room that its body was written into.
    #[must_use]
    pub fn for_long(self) -> Self {
        Self { body: Bytes::copy_from_slice(&self.body), ..self }
    }
}

// === impl NotHeld ===

impl From<NoTicket> for NotHeld {
    fn from(no: NoTicket) -> Self {
        Self::Ticket(no)
    }
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold(error) => error.fmt(f),
            Self::Ticket(no) => no.fmt(f),
            Self::TooManyReservations { most } => write!(
                f,
                "`{most}` reservations are neither settled nor expired, the most there may be; commit or cancel what is reserved"
            ),
            Self::TooManyWait { most } => {
                write!(f, "`{most}` wait already, the most there may be; ask again later")
            }
        }
    }
}

impl std::error::Error for NotHeld {}
