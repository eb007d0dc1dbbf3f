//! Time as an argument: whole microseconds since the UNIX epoch, and spans of them.
//!
//! Nothing in this crate reads a clock. Microseconds since 1970 are exact in a double until the
//! year 2255; `now` is clamped to [`NOW_MAX`] (the year 2112), so that `now` plus the longest span
//! is exact too.

use crate::arithmetic::EXACT_MAX;

/// The latest `now`: 2^52 − 1 µs, in the year 2112.
pub const NOW_MAX: Timestamp = Timestamp(EXACT_MAX >> 1);

/// The longest fill time or window: 2^52 − 1 µs, 142 years.
pub const SPAN_MAX: Span = Span(EXACT_MAX >> 1);

/// How far a clock may step back before it counts as set.
///
/// Within this (or the limit's own span, if longer) a step back is waited out: it may deny more and
/// never admits more. Beyond it the state is moved to the new time, so that nobody is locked out.
pub const CLOCK_SLACK: Span = Span::from_secs(60);

/// A moment: microseconds since the UNIX epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// A length of time in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Timestamp {
    /// The UNIX epoch.
    pub const EPOCH: Self = Self(0);
    /// The end of time: later means never.
    pub const MAX: Self = Self(EXACT_MAX);

    /// The moment this many microseconds after the epoch, at most [`Timestamp::MAX`].
    ///
    /// ```
    /// use sluicegate_core::time::{Span, Timestamp};
    ///
    /// let noon = Timestamp::from_micros(43_200_000_000);
    /// assert_eq!(noon.since(Timestamp::EPOCH), Span::from_secs(12 * 3600));
    /// ```
    #[inline]
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        if us > EXACT_MAX { Self::MAX } else { Self(us) }
    }

    /// The moment this many microseconds after the epoch, known to be no later than
    /// [`Timestamp::MAX`].
    #[inline]
    #[must_use]
    pub(crate) const fn exact(us: u64) -> Self {
        debug_assert!(us <= EXACT_MAX, "later than can be held");
        Self(us)
    }

    /// Microseconds since the epoch.
    #[inline]
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The moment `span` later, at most [`Timestamp::MAX`].
    #[inline]
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }

    /// The moment `span` earlier, at least the epoch.
    #[inline]
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The time since `earlier`; zero if that is later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The start of the clock-aligned window of this length that contains this moment.
    #[inline]
    #[must_use]
    pub(crate) const fn aligned(self, window: Span) -> Self {
        match self.0.checked_rem(window.0) {
            Some(into) => Self(self.0.saturating_sub(into)),
            None => self,
        }
    }
}

/// As [`Span::to_duration`].
impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        span.to_duration()
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(EXACT_MAX);

    /// This many microseconds, at most [`Span::MAX`].
    #[inline]
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        if us > EXACT_MAX { Self::MAX } else { Self(us) }
    }

    /// This many microseconds, known to be no more than [`Span::MAX`].
    #[inline]
    #[must_use]
    pub(crate) const fn exact(us: u64) -> Self {
        debug_assert!(us <= EXACT_MAX, "longer than can be held");
        Self(us)
    }

    /// This many milliseconds, at most [`Span::MAX`].
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self::from_micros(ms.saturating_mul(1_000))
    }

    /// This many seconds, at most [`Span::MAX`].
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self::from_micros(s.saturating_mul(1_000_000))
    }

    /// The length in microseconds.
    #[inline]
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whether this is zero.
    #[inline]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As a [`std::time::Duration`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::time::Span;
    ///
    /// assert_eq!(Span::from_millis(1_500).to_duration(), Duration::from_millis(1_500));
    /// ```
    #[must_use]
    pub const fn to_duration(self) -> std::time::Duration {
        std::time::Duration::from_micros(self.0)
    }

    /// This span less `other`; zero if that is longer.
    #[inline]
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
