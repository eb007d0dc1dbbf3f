//! Lease of one identity: a state machine without clock or I/O. Times are ticks of this node; the
//! methods that return a [`LeaseCall`] expect the caller to send it to the store.
//!
//! ```text
//!   granted |============== spent ==============|......|
//!                                     low water ^      ^ nothing is left: hits go to the store
//!                        a quarter is left: acquire more
//! ```
//!
//! Life of a lease: `acquire`, `apply_grant`, `hit` ..., then `renew_or_release`, or `expire` at
//! `expires_at`. The amount covers the recent demand for [`HORIZON`] and grows by [`GROWTH`] per
//! call. The store grants less near the end of a limit; then hits go to the store.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::demand::Demand;

/// Span of demand that a lease covers.
const HORIZON: Span = Span::from_millis(500);
/// Lifetime of a lease in the store, unless renewed.
pub(super) const TTL: Span = Span::from_secs(2);
/// A lease without hits for this long is released.
const IDLE_TIMEOUT: Span = Span::from_millis(500);
/// Amount of the first call.
const FIRST_AMOUNT: u64 = 8;
/// Fraction of a grant at which more is acquired: an eighth of a second before it is spent.
const LOW_WATER: u64 = 4;
/// Largest factor by which a lease grows per call.
const GROWTH: u64 = 4;
/// Largest amount per call, far above the decisions of a node in [`HORIZON`].
const AMOUNT_MAX: u64 = 1 << 32;
/// Smallest grant that is worth a call: as many hits would take as many calls.
const WORTHWHILE_GRANT: u64 = 4;
/// Backoff after a small grant: first and longest.
const SCARCE_BACKOFF: (Span, Span) = (Span::from_millis(2), Span::from_millis(64));
/// Backoff after a failed call: first and longest.
const FAILURE_BACKOFF: (Span, Span) = (Span::from_millis(50), Span::from_secs(1));
/// Largest relative clock drift between node and store: one part in this many.
const DRIFT: u64 = 1_000;
/// Longest time that a denial is reused, since peers may release quota meanwhile.
const DENIAL_REUSE_MAX: Span = Span::from_millis(100);

/// State of one lease.
#[derive(Debug)]
pub(super) struct QuotaLease {
    unspent: u64,
    /// Spent by requests that may still be undone; counts as held.
    pending: u64,
    /// Nothing may be spent from this tick on.
    expires_at: Timestamp,
    /// Whether it ends with a window, so that it cannot be renewed.
    ends_with_window: bool,
    /// Whether a hit was denied although some quota is held: less than its cost.
    is_insufficient: bool,
    /// At or below this amount more is acquired.
    low_water: u64,
    view: LimitView,
    denial: Option<Denial>,
    demand: Demand,
    /// The call that is in flight, or waits to be retried.
    in_flight: Option<LeaseCall>,
    /// Whether that call got no reply. It may have been executed, so the same call is retried.
    is_unconfirmed: bool,
    not_before: Timestamp,
    backoff: Span,
    /// Expired unspent, not reported yet.
    expired: u64,
}

/// Serial numbers of calls. The store ignores a call older than the last it executed.
#[derive(Debug, Default)]
pub(super) struct Serials(AtomicU64);

/// Amounts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseCall {
    pub(super) serial: u64,
    pub(super) give: u64,
    pub(super) hold: u64,
    pub(super) want: u64,
}

/// Decision of a lease on a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseDecision {
    /// The lease covers it.
    Covered(Verdict),
    /// The store denied the same cost recently.
    Denied(Verdict),
    /// The store has to decide.
    Uncovered,
}

/// Reply of the store to a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) granted: u64,
    /// Time to live by the store's clock, counted from when the call was sent.
    pub(super) ttl: Span,
    /// Whether the amount held before the call is still valid.
    pub(super) is_extended: bool,
    /// Whether it ends with a window.
    pub(super) ends_with_window: bool,
}

/// State of the limit for all nodes as of the last call.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitView {
    /// Verdict as if this node had released everything.
    pub(super) verdict: Verdict,
    /// Increase of `reset_after` per unit spent, in microseconds.
    pub(super) slope: u64,
    /// Tick of the last call.
    pub(super) at: Timestamp,
    /// Amount that this node held at that tick.
    pub(super) held: u64,
}

#[derive(Debug)]
struct Denial {
    verdict: Verdict,
    cost: u64,
    at: Timestamp,
    until: Timestamp,
}

impl QuotaLease {
    /// An empty lease with an estimate of the demand per second.
    pub(super) fn new(per_second: u64, ticks: Timestamp) -> Self {
        let verdict = sluicegate::backend::UNCOUNTED;
        Self {
            unspent: 0,
            pending: 0,
            expires_at: Timestamp::EPOCH,
            ends_with_window: false,
            is_insufficient: false,
            low_water: 0,
            view: LimitView { verdict, slope: 0, at: ticks, held: 0 },
            denial: None,
            demand: Demand::new(per_second, ticks),
            in_flight: None,
            is_unconfirmed: false,
            not_before: Timestamp::EPOCH,
            backoff: SCARCE_BACKOFF.0,
            expired: 0,
        }
    }

    /// Decides a hit. An uncovered one is counted by [`QuotaLease::record_miss`].
    #[inline]
    pub(super) fn hit(&mut self, cost: u64, ticks: Timestamp) -> LeaseDecision {
        let decision = self.peek(cost, ticks);
        match decision {
            LeaseDecision::Covered(_) => {
                self.demand.count(cost, ticks);
                self.unspent -= cost;
                LeaseDecision::Covered(self.view.verdict(self.unspent, ticks))
            }
            LeaseDecision::Denied(_) => {
                self.demand.count(cost, ticks);
                decision
            }
            LeaseDecision::Uncovered => decision,
        }
    }

    /// Counts the demand of a hit that the store decides.
    pub(super) fn record_miss(&mut self, cost: u64, ticks: Timestamp) {
        self.demand.count(cost, ticks);
    }

    /// Decides a hit without spending.
    #[inline]
    pub(super) fn peek(&mut self, cost: u64, ticks: Timestamp) -> LeaseDecision {
        self.expire_if_due(ticks);
        if cost <= self.unspent && self.unspent > 0 {
            return LeaseDecision::Covered(self.view.verdict(self.unspent, ticks));
        }
        match &self.denial {
            // A denial depends on the cost.
            Some(denial) if denial.cost == cost && ticks < denial.until => {
                LeaseDecision::Denied(denial.verdict_at(ticks))
            }
            _ => LeaseDecision::Uncovered,
        }
    }

    /// Decides a hit of a request with further steps, to be followed by [`QuotaLease::commit`] or
    /// [`QuotaLease::undo`].
    pub(super) fn try_hit(&mut self, cost: u64, ticks: Timestamp) -> LeaseDecision {
        let decision = self.hit(cost, ticks);
        if let LeaseDecision::Covered(_) = decision {
            self.pending = self.pending.saturating_add(cost);
        }
        decision
    }

    /// Confirms a covered hit.
    pub(super) fn commit(&mut self, cost: u64) {
        self.pending = self.pending.saturating_sub(cost);
    }

    /// Returns the cost of a covered hit to the lease.
    pub(super) fn undo(&mut self, cost: u64, ticks: Timestamp) {
        self.expire_if_due(ticks);
        // What expired meanwhile is not returned.
        let held = cost.min(self.pending);
        self.pending -= held;
        self.unspent = self.unspent.saturating_add(held);
    }

    /// Records a denial of the store: it is reused for `gap` at least, and until its time has come.
    pub(super) fn record_denial(
        &mut self,
        cost: u64,
        mut verdict: Verdict,
        gap: Span,
        ticks: Timestamp,
    ) {
        let Outcome::Deny { retry_after } = verdict.outcome else { return };
        let retry_after = retry_after.max(gap);
        verdict.outcome = Outcome::Deny { retry_after };
        let until = ticks.after(retry_after.min(DENIAL_REUSE_MAX));
        self.denial = Some(Denial { verdict, cost, at: ticks, until });
        self.is_insufficient = self.unspent > 0;
    }

    /// Drops the recorded denial, after a refund or a change of the limits.
    pub(super) fn clear_denial(&mut self) {
        self.denial = None;
    }

    /// The call that acquires more, if it is time. Called on every hit.
    #[inline]
    pub(super) fn acquire(&mut self, serials: &Serials, ticks: Timestamp) -> Option<LeaseCall> {
        if self.is_unconfirmed {
            return self.retry(ticks);
        }
        // Too little for a hit here, but of use to another node.
        if self.is_insufficient && self.unspent > 0 && self.in_flight.is_none() {
            self.is_insufficient = false;
            self.back_off(ticks, SCARCE_BACKOFF);
            return Some(self.start_call(self.unspent, 0, serials));
        }
        let is_low = self.in_flight.is_none() && self.unspent <= self.low_water;
        if !is_low || ticks < self.not_before {
            return None;
        }
        let want = self.amount_to_acquire();
        Some(self.start_call(0, want, serials))
    }

    /// The call that is due without a hit: releases unneeded quota, or renews a lease that is about
    /// to expire.
    pub(super) fn renew_or_release(
        &mut self,
        serials: &Serials,
        ticks: Timestamp,
    ) -> Option<LeaseCall> {
        self.expire_if_due(ticks);
        self.demand.measure(ticks);
        if self.is_unconfirmed {
            return self.retry(ticks);
        }
        if self.in_flight.is_some() || self.unspent == 0 || ticks < self.not_before {
            return None;
        }
        let (needed, left) = (self.demand.during(HORIZON), self.expires_at.since(ticks));
        if self.is_idle(ticks) {
            return Some(self.start_call(self.unspent, 0, serials));
        }
        if self.unspent > needed.saturating_mul(2).saturating_add(FIRST_AMOUNT) {
            return Some(self.start_call(self.unspent - needed, 0, serials));
        }
        if !self.ends_with_window && left.as_micros() < TTL.as_micros() / 2 {
            return Some(self.start_call(0, 0, serials));
        }
        None
    }

    /// The call that releases an amount.
    pub(super) fn release(&mut self, amount: u64, serials: &Serials) -> LeaseCall {
        self.start_call(amount.min(self.unspent), 0, serials)
    }

    /// The call that releases everything: the node stops, or the limits have changed. The grant
    /// of a call in flight is lost.
    pub(super) fn release_all(&mut self, serials: &Serials, ticks: Timestamp) -> Option<LeaseCall> {
        self.expire_if_due(ticks);
        (self.unspent > 0).then(|| self.start_call(self.unspent, 0, serials))
    }

    /// The call that re-asserts the lease after the store may have lost data.
    pub(super) fn reassert(&mut self, serials: &Serials, ticks: Timestamp) -> Option<LeaseCall> {
        self.expire_if_due(ticks);
        (self.unspent > 0 && self.in_flight.is_none()).then(|| self.start_call(0, 0, serials))
    }

    /// Ends the call of this serial. Returns it if it is the last one.
    pub(super) fn complete_call(&mut self, serial: u64) -> Option<LeaseCall> {
        self.is_unconfirmed = false;
        self.in_flight.take_if(|call| call.serial == serial)
    }

    /// Records that a call got no reply and may have been executed.
    pub(super) fn mark_unconfirmed(&mut self, serial: u64, ticks: Timestamp) {
        if self.in_flight.is_some_and(|call| call.serial == serial) {
            self.is_unconfirmed = true;
            self.back_off(ticks, FAILURE_BACKOFF);
        }
    }

    /// The unconfirmed call, if it is time to retry it: its grant is claimed, or made now.
    fn retry(&mut self, ticks: Timestamp) -> Option<LeaseCall> {
        if ticks < self.not_before {
            return None;
        }
        self.is_unconfirmed = false;
        self.in_flight
    }

    /// Applies the reply of a call.
    pub(super) fn apply_grant(
        &mut self,
        call: LeaseCall,
        grant: Grant,
        sent: Timestamp,
        received: Timestamp,
    ) {
        self.expire_if_due(received);
        if !grant.is_extended {
            self.expire();
        }
        self.unspent = self.unspent.saturating_add(grant.granted);
        let ttl = grant.ttl.as_micros();
        self.expires_at = sent.after(Span::from_micros(ttl - ttl / DRIFT));
        self.ends_with_window = grant.ends_with_window;
        self.low_water = self.unspent / LOW_WATER;
        // The reply may have arrived after the expiry.
        self.expire_if_due(received);
        if call.give > 0 {
            self.denial = None;
        }
        if call.want == 0 {
            return;
        }
        if grant.granted >= WORTHWHILE_GRANT || grant.granted >= call.want / 2 {
            self.backoff = SCARCE_BACKOFF.0;
            self.not_before = Timestamp::EPOCH;
        } else {
            self.back_off(received, SCARCE_BACKOFF);
        }
        if grant.granted > 0 {
            self.denial = None;
        }
    }

    /// Replaces the view of the limit.
    pub(super) fn set_view(&mut self, view: LimitView) {
        self.view = view;
    }

    /// Updates the view from an admission by the store, which excludes the quota held here.
    pub(super) fn record_admission(&mut self, verdict: &Verdict, ticks: Timestamp) {
        let held = self.unspent;
        let remaining = verdict.remaining.map(|left| left.saturating_add_unsigned(held));
        let released = Span::from_micros(self.view.slope.saturating_mul(held));
        let reset_after = verdict.reset_after.less(released);
        let verdict = Verdict { remaining, reset_after, ..*verdict };
        self.view = LimitView { verdict, slope: self.view.slope, at: ticks, held };
    }

    /// Reverts the release of a call that was not executed.
    pub(super) fn call_failed(&mut self, call: LeaseCall, ticks: Timestamp) {
        self.expire_if_due(ticks);
        if ticks < self.expires_at {
            self.unspent = self.unspent.saturating_add(call.give);
        }
        self.back_off(ticks, FAILURE_BACKOFF);
    }

    /// Counts an unclaimed grant that has expired.
    pub(super) fn add_expired(&mut self, amount: u64) {
        self.expired = self.expired.saturating_add(amount);
    }

    /// Amount that may be spent.
    pub(super) const fn unspent(&self) -> u64 {
        self.unspent
    }

    /// Amount held after the last call.
    pub(super) const fn held(&self) -> u64 {
        self.view.held
    }

    /// Measured demand per second.
    pub(super) const fn per_second(&self) -> u64 {
        self.demand.per_second()
    }

    /// Time until the lease expires.
    pub(super) fn remaining_ttl(&self, ticks: Timestamp) -> Span {
        self.expires_at.since(ticks)
    }

    /// Whether a call is in flight.
    pub(super) const fn has_call_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether there was no hit lately.
    pub(super) fn is_idle(&self, ticks: Timestamp) -> bool {
        ticks.since(self.demand.last()) > IDLE_TIMEOUT
    }

    /// Whether the lease is idle and empty.
    pub(super) fn is_removable(&self, ticks: Timestamp) -> bool {
        self.is_idle(ticks) && self.unspent == 0 && self.in_flight.is_none()
    }

    /// Takes the amount that expired unspent since the last report.
    pub(super) const fn take_expired(&mut self) -> u64 {
        std::mem::replace(&mut self.expired, 0)
    }

    /// Expires the lease if its time has come. Called first by every method that spends or returns
    /// quota.
    #[inline]
    fn expire_if_due(&mut self, ticks: Timestamp) {
        if ticks >= self.expires_at && (self.unspent > 0 || self.pending > 0) {
            self.expire();
        }
    }

    /// Drops everything held.
    fn expire(&mut self) {
        self.expired = self.expired.saturating_add(self.unspent);
        (self.unspent, self.pending, self.low_water) = (0, 0, 0);
    }

    /// Amount of the next call.
    fn amount_to_acquire(&self) -> u64 {
        let max = (self.view.held.max(self.unspent).saturating_mul(GROWTH)).max(FIRST_AMOUNT);
        let missing = self.demand.during(HORIZON).saturating_sub(self.unspent);
        missing.clamp(1, max.min(AMOUNT_MAX))
    }

    fn start_call(&mut self, give: u64, want: u64, serials: &Serials) -> LeaseCall {
        self.unspent = self.unspent.saturating_sub(give);
        let call =
            LeaseCall { serial: serials.next(), give, hold: self.unspent + self.pending, want };
        (self.in_flight, self.is_unconfirmed) = (Some(call), false);
        call
    }

    fn back_off(&mut self, ticks: Timestamp, (min, max): (Span, Span)) {
        self.backoff = self.backoff.clamp(min, max);
        self.not_before = ticks.after(self.backoff);
        self.backoff = Span::from_micros(self.backoff.as_micros() * 2).min(max);
    }
}

impl Serials {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl LimitView {
    /// Admission that leaves this amount unspent.
    #[inline]
    fn verdict(&self, unspent: u64, ticks: Timestamp) -> Verdict {
        let spent = self.held.saturating_sub(unspent);
        let later = self.slope.saturating_mul(spent);
        let full_in = self.verdict.reset_after.as_micros().saturating_add(later);
        let reset_after = Span::from_micros(full_in).less(ticks.since(self.at));
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        let remaining = self.verdict.remaining.map(|left| left.saturating_sub(spent).max(0));
        let outcome = Outcome::Allow { wait: Span::ZERO };
        Verdict { outcome, remaining, reset_after, ..self.verdict }
    }
}

impl Denial {
    fn verdict_at(&self, ticks: Timestamp) -> Verdict {
        self.verdict.later(ticks.since(self.at))
    }
}
