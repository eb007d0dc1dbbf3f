//! The concurrency limit: a maximum number of requests in flight.
//!
//! A slot is held under an id until it is freed or its lease expires, so a crashed caller does not
//! leak it. The same id again renews the lease and takes no second slot, so a retry is harmless.
//!
//! A denial promises the end of a lease, which is the latest time at which a slot becomes free; for
//! the same reason a slot cannot be booked ahead.

use std::num::NonZeroU64;

use super::{Algorithm, Slot, Ticket, Trace, clock_slack};
use crate::arithmetic::{clamp_signed, signed};
use crate::change::CarryOver;
use crate::quota::{QuotaError, length};
use crate::time::{Span, Timestamp};

/// Maximum number of slots of a concurrency limit.
pub const SLOTS_MAX: u64 = 1_000_000;

/// A concurrency limit.
///
/// ```
/// use sluicegate_core::algorithm::concurrency::Concurrency;
/// use sluicegate_core::time::Span;
///
/// let limit = Concurrency::new(10, Span::from_secs(30)).unwrap();
/// assert_eq!(limit.max(), 10);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    max: NonZeroU64,
    lease: NonZeroU64,
}

/// The holder of a slot: a number that stands for an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

/// The slots in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotsState {
    leases: Vec<SlotLease>,
    /// The latest time at which a slot was taken or renewed.
    seen: Timestamp,
}

/// The slots held under one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLease {
    /// Its holder.
    pub holder: Holder,
    /// Number of slots.
    pub slots: u64,
    /// When it expires.
    pub until: Timestamp,
}

impl Concurrency {
    /// At most `max` slots, each held for at most `lease` unless renewed.
    ///
    /// # Errors
    /// When `max` is 0 or above [`SLOTS_MAX`], or the lease is empty.
    pub fn new(max: u64, lease: Span) -> Result<Self, QuotaError> {
        let what = "the number of slots";
        if max > SLOTS_MAX {
            return Err(QuotaError::TooMuch { what, amount: max, max: SLOTS_MAX });
        }
        let max = crate::quota::amount(what, max)?;
        Ok(Self { max, lease: length("the lease", lease)? })
    }

    /// The number of slots.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max.get()
    }

    /// Maximum time that a slot is held.
    #[must_use]
    pub const fn lease(&self) -> Span {
        Span::from_micros(self.lease.get())
    }

    /// Takes `slots` for `holder`, or renews its lease: for `ttl`, at most the lease time.
    pub(crate) fn hold(
        &self,
        state: &mut SlotsState,
        holder: Holder,
        slots: u64,
        ttl: Span,
        now: Timestamp,
    ) {
        // A clock that steps back does not shorten a lease.
        state.seen = state.seen.max(now);
        let until = state.seen.after(self.lease().min(ttl));
        match state.leases.iter_mut().find(|lease| lease.holder == holder) {
            Some(lease) => lease.until = lease.until.max(until),
            None => state.leases.push(SlotLease { holder, slots, until }),
        }
    }
}

impl Algorithm for Concurrency {
    type State = SlotsState;

    fn fresh(&self, _now: Timestamp) -> SlotsState {
        SlotsState::default()
    }

    fn advance(&self, state: &mut SlotsState, now: Timestamp) {
        if state.seen > now.after(clock_slack(self.lease())) {
            let back = state.seen.since(now);
            for lease in &mut state.leases {
                lease.until = lease.until.before(back);
            }
            state.seen = now;
        }
        state.leases.retain(|lease| lease.until > now);
    }

    fn expires_at(&self, state: &SlotsState) -> Timestamp {
        state.leases.iter().map(|lease| lease.until).max().unwrap_or(Timestamp::EPOCH)
    }

    fn slot(&self, state: &SlotsState, cost: u64, now: Timestamp) -> Slot {
        let max = self.max();
        if cost > max {
            return Slot::Never { max_cost: max };
        }
        let mut held = state.held();
        if held.saturating_add(cost) <= max {
            return Slot::At(now);
        }
        let mut by_end = state.leases.clone();
        by_end.sort_unstable_by_key(|lease| lease.until);
        for lease in by_end {
            held = held.saturating_sub(lease.slots);
            if held.saturating_add(cost) <= max {
                return Slot::At(lease.until.max(now));
            }
        }
        Slot::At(now)
    }

    /// Slots cannot be booked: `max_wait` makes no difference.
    fn ready(&self, state: &SlotsState, cost: u64, _max_wait: Span, now: Timestamp) -> Slot {
        self.slot(state, cost, now)
    }

    fn spend(&self, _state: &mut SlotsState, cost: u64, at: Timestamp, _now: Timestamp) -> Ticket {
        // Slots are taken by `hold`.
        Ticket { charged: cost, slot: at, trace: Trace::Untracked }
    }

    fn refund(&self, _state: &mut SlotsState, _amount: u64, _now: Timestamp) {}

    fn cancel_booking(&self, _state: &mut SlotsState, _ticket: &Ticket, _now: Timestamp) -> u64 {
        0
    }

    fn release(&self, _state: &mut SlotsState, _: &Ticket, _amount: u64, _now: Timestamp) -> u64 {
        0
    }

    fn remaining(&self, state: &SlotsState, _now: Timestamp) -> i64 {
        clamp_signed(signed(self.max()).saturating_sub(signed(state.held())))
    }

    fn debt_paid_at(&self, _state: &SlotsState, now: Timestamp) -> Timestamp {
        now
    }

    fn full_at(&self, state: &SlotsState, now: Timestamp) -> Timestamp {
        self.expires_at(state).max(now)
    }

    fn carry(
        &self,
        _old: &Self,
        state: &SlotsState,
        carry: CarryOver,
        now: Timestamp,
    ) -> SlotsState {
        // Requests in flight stay so, whatever the new number; their leases keep their end.
        if carry == CarryOver::Nothing { self.fresh(now) } else { state.clone() }
    }
}

impl SlotsState {
    /// Leases of distinct holders, and when the last of them was taken or renewed.
    pub(crate) const fn new(leases: Vec<SlotLease>, seen: Timestamp) -> Self {
        Self { leases, seen }
    }

    /// The latest time at which a slot was taken or renewed.
    pub(crate) const fn seen(&self) -> Timestamp {
        self.seen
    }

    /// The leases that had not expired when the state was last advanced.
    #[must_use]
    pub fn leases(&self) -> &[SlotLease] {
        &self.leases
    }

    /// Whether `holder` holds a slot.
    #[must_use]
    pub fn holds(&self, holder: Holder) -> bool {
        self.leases.iter().any(|lease| lease.holder == holder)
    }

    /// Frees the slots of `holder`; returns how many.
    pub(crate) fn free(&mut self, holder: Holder) -> u64 {
        let before = self.held();
        self.leases.retain(|lease| lease.holder != holder);
        before.saturating_sub(self.held())
    }

    /// Adds the leases of another state; of two leases of one holder, the later end counts.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.seen = self.seen.max(other.seen);
        for lease in &other.leases {
            match self.leases.iter_mut().find(|own| own.holder == lease.holder) {
                Some(own) => own.until = own.until.max(lease.until),
                None => self.leases.push(*lease),
            }
        }
    }

    /// Holds at least as many slots as another state of the same limit. The missing holders are not
    /// known, so nobody can free these slots: they are held until the last lease of the other state
    /// ends.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        const NOBODY: Holder = Holder(u64::MAX);
        let missing = other.held().saturating_sub(self.held());
        let until = other.leases.iter().map(|lease| lease.until).max();
        let Some(until) = until.filter(|_| missing > 0) else { return };
        self.seen = self.seen.max(other.seen);
        match self.leases.iter_mut().find(|own| own.holder == NOBODY) {
            Some(own) => {
                own.slots = own.slots.saturating_add(missing);
                own.until = own.until.max(until);
            }
            None => self.leases.push(SlotLease { holder: NOBODY, slots: missing, until }),
        }
    }

    fn held(&self) -> u64 {
        self.leases.iter().fold(0, |held, lease| held.saturating_add(lease.slots))
    }
}
