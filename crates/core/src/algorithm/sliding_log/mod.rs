//! The sliding window log: exact, because it stores every hit.
//!
//! A hit passes if no rolling window then holds more than its number. An entry of age `>= window`
//! is dropped. One log can serve several windows (10 per minute and 2 per 3 seconds); the longest
//! determines the retention.
//!
//! Bookings are entries in the future and count like others. When the clock steps back, hits are
//! entered at the latest time seen, so that no entry leaves a window too early.
//!
//! Under `count_denied` a denied attempt is logged too. Denied entries are marked, so that a refund
//! never removes them, and only the latest ones that can fill a window are stored: older ones
//! cannot change a decision. That bounds the memory that an attacker can use.
//!
//! With slices, the hits of one slice of the clock are one entry at the end of the slice: as if
//! each had come just then. Everything else is the same: [`sliding_slices`](super::sliding_slices).

mod entries;

pub use entries::{Entries, Entry};

use super::{Algorithm, Slot, Ticket, Trace, clock_slack};
use crate::arithmetic::{clamp_signed, signed};
use crate::change::CarryOver;
use crate::quota::{QuotaError, Rate, proportion};
use crate::time::{Span, Timestamp};

/// Maximum number of hits in a log.
pub const LOG_ENTRIES_MAX: u64 = 10_000;
/// Maximum number of windows of one log.
pub const LOG_WINDOWS_MAX: usize = 8;
/// Denied entries are stored up to twice the limit (then cut to once), besides the admitted ones.
const COUNT_DENIED_MAX: u64 = LOG_ENTRIES_MAX / 4;

/// A sliding window log.
///
/// ```
/// use sluicegate_core::algorithm::sliding_log::SlidingLog;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let per_minute = Rate::new(10, Span::from_secs(60)).unwrap();
/// let per_three_seconds = Rate::new(2, Span::from_secs(3)).unwrap();
/// let limit = SlidingLog::new(&[per_minute, per_three_seconds])
///     .unwrap()
///     .counting_denied()
///     .unwrap()
///     .with_min_gap(Span::from_millis(200));
/// assert_eq!(limit.rates().count(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    windows: [Window; LOG_WINDOWS_MAX],
    len: usize,
    count_denied: bool,
    min_gap: Span,
    /// The length of a slice; zero if every hit has its own entry.
    slice: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Window {
    max: u64,
    length: Span,
}

/// The log of one identity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogState {
    /// Every hit that may still count.
    pub entries: Entries,
    /// When the log was last written.
    pub seen: Timestamp,
}

impl SlidingLog {
    /// At most each rate's number in any rolling window of its period.
    ///
    /// # Errors
    /// When there is no rate or more than [`LOG_WINDOWS_MAX`], or a number is above
    /// [`LOG_ENTRIES_MAX`].
    pub fn new(rates: &[Rate]) -> Result<Self, QuotaError> {
        let given = rates.len() as u64;
        if rates.is_empty() || rates.len() > LOG_WINDOWS_MAX {
            let max = LOG_WINDOWS_MAX as u64;
            return Err(QuotaError::OutOfRange { what: "the number of rates", given, min: 1, max });
        }
        let mut windows = [Window::default(); LOG_WINDOWS_MAX];
        for (window, rate) in windows.iter_mut().zip(rates) {
            *window = Window { max: rate.count(), length: rate.period() };
        }
        let (min_gap, slice) = (Span::ZERO, Span::ZERO);
        let log = Self { windows, len: rates.len(), count_denied: false, min_gap, slice };
        log.refuse_above(LOG_ENTRIES_MAX, "the rate's number on a log")?;
        Ok(log)
    }

    /// A log of one count per slice. The number has no maximum: entries are slices, not hits.
    pub(crate) fn of_slices(max: u64, length: Span, slice: Span) -> Self {
        let mut windows = [Window::default(); LOG_WINDOWS_MAX];
        windows[0] = Window { max, length };
        Self { windows, len: 1, count_denied: false, min_gap: Span::ZERO, slice }
    }

    /// The same, counting denied attempts.
    ///
    /// # Errors
    /// When a number is above a quarter of [`LOG_ENTRIES_MAX`]: denied entries need room too.
    pub fn counting_denied(self) -> Result<Self, QuotaError> {
        self.refuse_above(COUNT_DENIED_MAX, "the rate's number on a log that counts denials")?;
        Ok(Self { count_denied: true, ..self })
    }

    /// The same, denying a hit closer than this to the latest one in the log.
    #[must_use]
    pub const fn with_min_gap(self, min_gap: Span) -> Self {
        Self { min_gap, ..self }
    }

    /// The rates, in the order given.
    pub fn rates(&self) -> impl Iterator<Item = (u64, Span)> + '_ {
        self.windows().map(|window| (window.max, window.length))
    }

    /// Whether denied attempts are logged.
    #[must_use]
    pub const fn counts_denied(&self) -> bool {
        self.count_denied
    }

    /// How close a hit may be to the latest one in the log.
    #[must_use]
    pub const fn min_gap(&self) -> Span {
        self.min_gap
    }

    /// The length of a slice; zero if every hit has its own entry.
    #[must_use]
    pub const fn slice(&self) -> Span {
        self.slice
    }

    /// The time of the entry for a hit at `at`: the end of its slice, if there are slices.
    fn entry_time(&self, at: Timestamp) -> Timestamp {
        if self.slice.is_zero() { at } else { at.aligned(self.slice).after(self.slice) }
    }

    /// Adds an entry for a hit at `at`; returns its time. A slice has one entry.
    fn enter(&self, entries: &mut Entries, at: Timestamp, weight: u64) -> Timestamp {
        let entry = Entry { at: self.entry_time(at), weight, denied: false };
        if self.slice.is_zero() {
            entries.insert(entry)
        } else {
            entries.add(entry)
        }
        entry.at
    }

    /// Moves entries of other slices to the ends of this log's. Entries up to `known` stand for
    /// hits, which came at `seen` at the latest; those after it are bookings.
    fn align(&self, entries: &mut Entries, known: Timestamp, seen: Timestamp) {
        if self.slice.is_zero() {
            return;
        }
        let latest = self.entry_time(seen);
        let aligned = |entry: Entry| {
            // An entry stands for hits before its time.
            let end = self.entry_time(entry.at.before(Span::from_micros(1)));
            Entry { at: if entry.at <= known { end.min(latest) } else { end }, ..entry }
        };
        let all: Vec<Entry> = entries.iter().map(aligned).collect();
        entries.rewrite_merged(all);
    }

    /// This log with its numbers changed by `grow`.
    pub(crate) fn grown(&self, grow: impl Fn(u64) -> u64) -> Result<Self, QuotaError> {
        let mut grown = *self;
        for window in grown.windows.iter_mut().take(self.len) {
            window.max = grow(window.max);
        }
        grown.refuse_above(LOG_ENTRIES_MAX, "the rate's number on a log, grown by its mode,")?;
        Ok(grown)
    }

    fn refuse_above(&self, max: u64, what: &'static str) -> Result<(), QuotaError> {
        match self.windows().map(|window| window.max).max() {
            Some(amount) if amount > max => Err(QuotaError::TooMuch { what, amount, max }),
            _ => Ok(()),
        }
    }

    fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.windows.iter().copied().take(self.len)
    }

    /// The largest cost that could ever pass.
    pub(crate) fn capacity(&self) -> u64 {
        self.windows().map(|window| window.max).min().unwrap_or(0)
    }

    fn max_count(&self) -> u64 {
        self.windows().map(|window| window.max).max().unwrap_or(0)
    }

    /// How long an entry is stored.
    fn retention(&self) -> Span {
        self.windows().map(|window| window.length).fold(self.min_gap, Span::max)
    }

    /// When `cost` fits into every window, without regard to the gap.
    fn fits_at(&self, state: &LogState, cost: u64, now: Timestamp) -> Timestamp {
        let mut fits = now;
        for window in self.windows() {
            // Entries expire oldest first; those that have expired did so before `now`.
            let mut held = state.entries.sum();
            let mut at = now;
            for entry in state.entries.iter() {
                if held.saturating_add(cost) <= window.max {
                    break;
                }
                held = held.saturating_sub(entry.weight);
                at = at.max(entry.at.after(window.length));
            }
            fits = fits.max(at);
        }
        fits
    }

    fn gap_over_at(&self, state: &LogState, now: Timestamp) -> Timestamp {
        match state.entries.last() {
            Some(last) if !self.min_gap.is_zero() => last.after(self.min_gap).max(now),
            _ => now,
        }
    }

    /// Logs a denied attempt, if this log counts them.
    pub(crate) fn log_denied(&self, state: &mut LogState, cost: u64, now: Timestamp) {
        if !self.count_denied || cost > self.capacity() {
            return;
        }
        state.seen = state.seen.max(now);
        state.entries.insert(Entry { at: state.seen, weight: cost, denied: true });
        let enough = self.max_count();
        if state.entries.denied_sum() < enough.saturating_mul(2) {
            return;
        }
        // Oldest first, until one is needed.
        let mut spare = state.entries.denied_sum();
        let mut stored: Vec<Entry> = state.entries.iter().collect();
        let mut dropping = true;
        stored.retain(|entry| {
            let without = spare.saturating_sub(entry.weight);
            dropping &= !entry.denied || without >= enough;
            if entry.denied && dropping {
                spare = without;
                return false;
            }
            true
        });
        state.entries.rewrite(stored);
    }

    /// Removes `amount` from the entries that `pick` selects, newest first; returns the amount
    /// removed.
    fn remove(state: &mut LogState, amount: u64, pick: impl Fn(&Entry) -> bool) -> u64 {
        let mut rest = amount;
        let mut all: Vec<Entry> = state.entries.iter().collect();
        for entry in all.iter_mut().rev().filter(|entry| pick(entry)) {
            let taken = entry.weight.min(rest);
            entry.weight = entry.weight.saturating_sub(taken);
            rest = rest.saturating_sub(taken);
        }
        state.entries.rewrite(all);
        amount.saturating_sub(rest)
    }
}

impl Algorithm for SlidingLog {
    type State = LogState;

    fn fresh(&self, now: Timestamp) -> LogState {
        LogState { entries: Entries::default(), seen: now }
    }

    fn advance(&self, state: &mut LogState, now: Timestamp) {
        let retention = self.retention();
        if state.seen > now.after(clock_slack(retention)) {
            let by = state.seen.since(now);
            let known = self.entry_time(state.seen).before(by);
            state.entries.move_back(by);
            state.seen = now;
            self.align(&mut state.entries, known, now);
        }
        state.entries.drop_while(|entry| entry.at.after(retention) <= now);
    }

    fn expires_at(&self, state: &LogState) -> Timestamp {
        state.entries.last().map_or(Timestamp::EPOCH, |last| last.after(self.retention()))
    }

    fn slot(&self, state: &LogState, cost: u64, now: Timestamp) -> Slot {
        let max = self.capacity();
        if cost > max {
            return Slot::Never { max_cost: max };
        }
        let latest = now.max(state.seen);
        let fits = self.fits_at(state, cost, latest).max(self.gap_over_at(state, latest));
        Slot::At(if fits <= latest { now } else { fits })
    }

    fn spend(&self, state: &mut LogState, cost: u64, at: Timestamp, now: Timestamp) -> Ticket {
        state.seen = state.seen.max(now);
        let at = at.max(state.seen);
        let entry = self.enter(&mut state.entries, at, cost);
        // Only charges into debt get here: the two oldest are merged at the later time.
        if state.entries.len() as u64 > LOG_ENTRIES_MAX {
            let mut all: Vec<Entry> = state.entries.iter().collect();
            if let [first, second, ..] = all.as_mut_slice() {
                second.weight = second.weight.saturating_add(first.weight);
                first.weight = 0;
            }
            state.entries.rewrite(all);
        }
        Ticket { charged: cost, slot: at, trace: Trace::Entry { at: entry } }
    }

    fn refund(&self, state: &mut LogState, amount: u64, now: Timestamp) {
        state.seen = state.seen.max(now);
        // Bookings are cancelled, not refunded.
        let by_now = self.entry_time(state.seen);
        Self::remove(state, amount, |entry| !entry.denied && entry.at <= by_now);
    }

    fn cancel_booking(&self, state: &mut LogState, ticket: &Ticket, now: Timestamp) -> u64 {
        let Trace::Entry { at } = ticket.trace else {
            return 0;
        };
        if now >= ticket.slot {
            return 0;
        }
        // All of it: other entries stay at their own times.
        Self::remove(state, ticket.charged, |entry| !entry.denied && entry.at == at)
    }

    fn release(&self, state: &mut LogState, ticket: &Ticket, amount: u64, now: Timestamp) -> u64 {
        let Trace::Entry { at } = ticket.trace else { return 0 };
        state.seen = state.seen.max(now);
        Self::remove(state, amount, |entry| !entry.denied && entry.at == at)
    }

    fn remaining(&self, state: &LogState, now: Timestamp) -> i64 {
        let now = now.max(state.seen);
        let left = |window: Window| {
            let oldest = state.entries.first();
            let all_inside = oldest.is_none_or(|entry| entry.at.after(window.length) > now);
            let held = |counted: &dyn Fn(&Entry) -> bool| {
                let inside = |entry: &Entry| entry.at.after(window.length) > now && counted(entry);
                let weights = state.entries.iter().filter(inside).map(|entry| entry.weight);
                weights.fold(0u64, u64::saturating_add)
            };
            let max = signed(window.max);
            // Usually the sums are known: the longest window holds all entries.
            let (own, all) = if all_inside {
                let (sum, denied) = (state.entries.sum(), state.entries.denied_sum());
                (sum.saturating_sub(denied), sum)
            } else {
                (held(&|entry| !entry.denied), held(&|_| true))
            };
            let used = max.saturating_sub(signed(own));
            // Denied attempts block, but are no debt.
            let open = max.saturating_sub(signed(all)).max(0);
            used.min(open)
        };
        clamp_signed(self.windows().map(left).min().unwrap_or(0))
    }

    fn available(&self, state: &LogState, max: u64, now: Timestamp) -> u64 {
        let latest = now.max(state.seen);
        if self.gap_over_at(state, latest) > latest {
            return 0;
        }
        u64::try_from(self.remaining(state, now)).unwrap_or(0).min(max)
    }

    fn debt_paid_at(&self, state: &LogState, now: Timestamp) -> Timestamp {
        self.fits_at(state, 0, now)
    }

    fn full_at(&self, state: &LogState, now: Timestamp) -> Timestamp {
        let longest = self.windows().map(|window| window.length).max().unwrap_or_default();
        state.entries.last().map_or(now, |last| last.after(longest).max(now))
    }

    fn carry(&self, old: &Self, state: &LogState, carry: CarryOver, now: Timestamp) -> LogState {
        let mut carried = state.clone();
        if self.slice != old.slice {
            self.align(&mut carried.entries, old.entry_time(state.seen), state.seen);
        }
        let change = match carry {
            CarryOver::Nothing => return self.fresh(now),
            CarryOver::Used => 0,
            CarryOver::Remaining => {
                self.remaining(&carried, now).saturating_sub(old.remaining(state, now))
            }
            CarryOver::Proportion => {
                let admitted = state.entries.sum().saturating_sub(state.entries.denied_sum());
                let scaled = proportion(admitted, old.max_count(), self.max_count());
                signed(scaled).saturating_sub(signed(admitted))
            }
        };
        match u64::try_from(change) {
            Ok(more) => {
                let at = now.max(state.seen);
                self.enter(&mut carried.entries, at, more);
            }
            // Bookings included, as in the remaining quota.
            Err(_) => {
                Self::remove(&mut carried, change.unsigned_abs(), |entry| !entry.denied);
            }
        }
        carried
    }
}
