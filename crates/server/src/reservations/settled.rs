//! Reservations that this node has settled lately, so that an error can say what became of one.
//!
//! A fixed table with one entry per hash: a later reservation replaces an earlier one, and then the
//! error is less specific.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::{Checked, HoldError, Holder, Outcome, Span};

use super::ReservationError;

/// Entries, of 8 bytes each.
const ENTRIES: usize = 8_192;

/// How a reservation was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Committed.
    Committed,
    /// Cancelled, or its slot was released.
    Cancelled,
}

/// Table of settled reservations.
pub(super) struct RecentlySettled {
    /// The id, with the settlement in its lowest bit; 0 for none.
    entries: Box<[AtomicU64]>,
}

impl RecentlySettled {
    pub(super) fn add(&self, holder: Holder, settlement: Settlement) {
        let bit = match settlement {
            Settlement::Committed => 0,
            Settlement::Cancelled => 1,
        };
        if let Some(entry) = self.entry(holder) {
            entry.store(holder.0 & !1 | bit, Ordering::Relaxed);
        }
    }

    pub(super) fn find(&self, holder: Holder) -> Option<Settlement> {
        let found = self.entry(holder)?.load(Ordering::Relaxed);
        match (found & !1 == holder.0 & !1, found & 1) {
            (true, 0) => Some(Settlement::Committed),
            (true, _) => Some(Settlement::Cancelled),
            (false, _) => None,
        }
    }

    fn entry(&self, holder: Holder) -> Option<&AtomicU64> {
        self.entries.get((holder.0 >> 1) as usize % ENTRIES)
    }
}

/// Removes the waits of statuses: a settlement records past usage, which does not wait.
pub(super) fn clear_waits(checked: &mut Checked) {
    for status in &mut checked.statuses {
        if let Outcome::Allow { wait } = &mut status.verdict.outcome {
            *wait = Span::ZERO;
        }
    }
}

impl ReservationError {
    /// Why nothing is held under a token that was issued: `committed`, `cancelled`, `expired` or
    /// `unknown`; `None` for other errors.
    #[must_use]
    pub const fn gone_reason(&self) -> Option<&'static str> {
        match self {
            Self::Settled(Settlement::Committed) => Some("committed"),
            Self::Settled(Settlement::Cancelled) => Some("cancelled"),
            Self::Hold(HoldError::Expired) => Some("expired"),
            Self::Hold(HoldError::Unknown) => Some("unknown"),
            _ => None,
        }
    }
}

impl Default for RecentlySettled {
    fn default() -> Self {
        Self { entries: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl fmt::Debug for RecentlySettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentlySettled").finish_non_exhaustive()
    }
}

impl fmt::Display for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Committed => {
                "the reservation was committed before, and this request changed nothing; a request \
                 that may be repeated needs an idempotency key"
            }
            Self::Cancelled => {
                "the reservation was cancelled before, and this request changed nothing; reserve \
                 again if there is more to do"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_settlement_of_an_entry_is_known() {
        let settled = RecentlySettled::default();
        let (one, same_entry) = (Holder(42), Holder(42 + 2 * ENTRIES as u64));
        assert_eq!(settled.find(one), None);
        settled.add(one, Settlement::Committed);
        assert_eq!(settled.find(one), Some(Settlement::Committed));
        assert_eq!(settled.find(same_entry), None);
        settled.add(same_entry, Settlement::Cancelled);
        assert_eq!(settled.find(same_entry), Some(Settlement::Cancelled));
        assert_eq!(settled.find(one), None);
    }
}
