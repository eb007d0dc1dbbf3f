//! When periods start: on the clock, with the first hit, or at calendar boundaries.

use std::num::NonZeroU64;

use crate::time::{Span, Timestamp};

/// When a period starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Period {
    /// On multiples of this length since the epoch.
    Clock(NonZeroU64),
    /// With the first hit on a full limit.
    FirstHit(NonZeroU64),
    /// At calendar boundaries.
    Calendar(Edges),
}

/// Minimum number of calendar boundaries for a decision.
pub const EDGES_MIN: usize = 4;
/// Maximum number of calendar boundaries.
pub const EDGES_MAX: usize = 8;

/// The calendar boundaries around `now`: the starts of the previous, the current and the next
/// windows, and the end of the last.
///
/// Windows need not be equally long: a day may have 23 or 25 hours. A decision at a moment in a
/// neighbouring window uses that one. Beyond the last boundary, windows of the longest length are
/// assumed.
///
/// ```
/// use sluicegate_core::algorithm::periodic::Edges;
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let hour = |h: u64| Timestamp::from_micros(h * 3_600_000_000);
/// // The second day has 23 hours.
/// let edges = Edges::new([hour(0), hour(24), hour(47), hour(71)], Span::from_secs(25 * 3600));
/// assert!(edges.is_ok());
/// assert!(Edges::new([hour(0), hour(24), hour(24), hour(71)], Span::from_secs(1)).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edges {
    /// Padded with the last one.
    starts: [Timestamp; EDGES_MAX],
    len: usize,
    longest: NonZeroU64,
}

/// Invalid calendar boundaries: too few or too many, not ascending, or further apart than the
/// longest window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadEdges;

impl Period {
    /// The longest period.
    pub(crate) fn longest(&self) -> Span {
        match self {
            Self::Clock(length) | Self::FirstHit(length) => Span::from_micros(length.get()),
            Self::Calendar(edges) => Span::from_micros(edges.longest.get()),
        }
    }

    /// Start of the period that contains `now`; for a first hit, `now`.
    #[inline]
    pub(crate) fn start_of(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Clock(_) => now.aligned(self.longest()),
            Self::FirstHit(_) => now,
            Self::Calendar(edges) => edges.start_of(now),
        }
    }

    /// End of the period that contains `now`.
    #[inline]
    pub(crate) fn end_of(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Clock(_) | Self::FirstHit(_) => self.start_of(now).after(self.longest()),
            Self::Calendar(edges) => edges.nth_after(now, 1),
        }
    }

    /// Number of periods begun after `anchor` and by `now`.
    pub(super) fn passed(&self, anchor: Timestamp, now: Timestamp) -> u64 {
        match self {
            Self::Clock(length) => {
                let index = |t: Timestamp| t.as_micros().checked_div(length.get()).unwrap_or(0);
                index(now).saturating_sub(index(anchor))
            }
            Self::FirstHit(length) => {
                now.since(anchor).as_micros().checked_div(length.get()).unwrap_or(0)
            }
            Self::Calendar(edges) => edges.passed(anchor, now),
        }
    }

    /// Start of the period that contains `now`, `passed` periods after that of `anchor`.
    pub(super) fn start_after(&self, anchor: Timestamp, passed: u64, now: Timestamp) -> Timestamp {
        match self {
            Self::Clock(_) | Self::Calendar(_) => self.start_of(now),
            Self::FirstHit(_) => self.nth_after(anchor, passed),
        }
    }

    /// When the `nth` period after that of `anchor` begins.
    pub(crate) fn nth_after(&self, anchor: Timestamp, nth: u64) -> Timestamp {
        match self {
            Self::Clock(length) | Self::FirstHit(length) => {
                anchor.after(Span::from_micros(length.get().saturating_mul(nth)))
            }
            Self::Calendar(edges) => edges.nth_after(anchor, nth),
        }
    }
}

impl Edges {
    /// Boundaries in ascending order, [`EDGES_MIN`] to [`EDGES_MAX`] of them: the starts of the
    /// previous, the current and the next windows, and the end of the last; with the length that no
    /// window of this calendar exceeds.
    ///
    /// # Errors
    /// When there are too few or too many, they do not ascend, or lie further apart than `longest`.
    pub fn new(starts: impl AsRef<[Timestamp]>, longest: Span) -> Result<Self, BadEdges> {
        let given = starts.as_ref();
        let (Some(last), true) = (given.last(), (EDGES_MIN..=EDGES_MAX).contains(&given.len()))
        else {
            return Err(BadEdges);
        };
        let fits =
            |pair: (&Timestamp, &Timestamp)| pair.0 < pair.1 && pair.1.since(*pair.0) <= longest;
        let mut starts = [*last; EDGES_MAX];
        for (start, given) in starts.iter_mut().zip(given) {
            *start = *given;
        }
        match NonZeroU64::new(longest.as_micros()) {
            Some(longest) if given.iter().zip(given.iter().skip(1)).all(fits) => {
                Ok(Self { starts, len: given.len(), longest })
            }
            _ => Err(BadEdges),
        }
    }

    /// The boundaries.
    #[must_use]
    pub fn starts(&self) -> &[Timestamp] {
        self.starts.get(..self.len).unwrap_or(&self.starts)
    }

    /// The length that no window exceeds.
    #[must_use]
    pub const fn longest(&self) -> Span {
        Span::from_micros(self.longest.get())
    }

    fn first(&self) -> Timestamp {
        self.starts().first().copied().unwrap_or_default()
    }

    /// The latest known start of a window by `now`; the last boundary starts none.
    fn start_of(&self, now: Timestamp) -> Timestamp {
        let windows = self.starts().iter().rev().skip(1);
        windows.copied().find(|start| *start <= now).unwrap_or_else(|| self.first())
    }

    fn passed(&self, anchor: Timestamp, now: Timestamp) -> u64 {
        let first = self.first();
        // Before the first boundary the calendar is unknown: assume the fewest possible windows.
        let before = match first.since(anchor).as_micros() {
            us if us > 0 && first <= now => us.div_ceil(self.longest.get()),
            _ => 0,
        };
        let windows = self.starts().iter().take(self.len.saturating_sub(1)).skip(1);
        let begun = windows.filter(|start| anchor < **start && **start <= now).count();
        before.saturating_add(begun as u64)
    }

    fn nth_after(&self, anchor: Timestamp, nth: u64) -> Timestamp {
        // An anchor before the first boundary counts as in the first window.
        let after = anchor.max(self.first());
        let mut later = self.starts().iter().copied().filter(|start| *start > after);
        let index = usize::try_from(nth).unwrap_or(usize::MAX).saturating_sub(1);
        let known = later.clone().count() as u64;
        if let Some(start) = later.nth(index) {
            return start;
        }
        // Beyond the known boundaries assume the longest windows, so that a promise holds.
        let last = self.starts().last().copied().unwrap_or_default();
        let unknown = nth.saturating_sub(known);
        last.after(Span::from_micros(self.longest.get().saturating_mul(unknown)))
    }
}

impl std::fmt::Display for BadEdges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "four to eight window boundaries must ascend and lie no further apart than the longest window",
        )
    }
}

impl std::error::Error for BadEdges {}
