//! The sliding window of slices: never above its number in any rolling window.
//!
//! ```text
//!   four slices of 15 s in a window of 60 s, now at :39
//!   :30      :45      :00      :15      :30      :45
//!    |-- 4 ---|-- 0 ---|-- 5 ---|-- 1 ---|-- 2 -:-|
//!    oldest: in full                     current
//!   used = 4 + 0 + 5 + 1 + 2
//! ```
//!
//! The window is cut into slices of the clock. The current slice and as many before it as the
//! window has are counted in full, so every hit counts until the end of its slice plus the window:
//! at most one slice longer than in a log. The kernel is the [log](super::sliding_log) with one
//! entry for each slice, at the end of the slice.
//!
//! Where the slices do not divide the window into whole microseconds, they are rounded up.

use super::sliding_log::SlidingLog;
use crate::quota::{QuotaError, Rate};
use crate::time::Span;

/// The least number of slices: with one, a hit could count for two windows.
pub const SLICES_MIN: u64 = 2;
/// The largest number of slices.
pub const SLICES_MAX: u64 = 60;

/// A sliding window of slices.
///
/// ```
/// use sluicegate_core::algorithm::sliding_slices::SlidingSlices;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(100, Span::from_secs(60)).unwrap();
/// let limit = SlidingSlices::new(rate, 6).unwrap();
/// assert_eq!(limit.slice(), Span::from_secs(10));
/// assert!(SlidingSlices::new(rate, 61).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingSlices {
    rate: Rate,
    slices: u64,
    pub(crate) kernel: SlidingLog,
}

impl SlidingSlices {
    /// At most the rate's number in any rolling window of its period, counted by `slices`.
    ///
    /// # Errors
    /// When there are fewer than [`SLICES_MIN`] slices or more than [`SLICES_MAX`].
    pub fn new(rate: Rate, slices: u64) -> Result<Self, QuotaError> {
        if !(SLICES_MIN..=SLICES_MAX).contains(&slices) {
            let (what, min, max) = ("the number of slices", SLICES_MIN, SLICES_MAX);
            return Err(QuotaError::OutOfRange { what, given: slices, min, max });
        }
        let slice = Span::from_micros(rate.period().as_micros().div_ceil(slices));
        let window = Span::from_micros(slice.as_micros().saturating_mul(slices));
        Ok(Self { rate, slices, kernel: SlidingLog::of_slices(rate.count(), window, slice) })
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The number of slices.
    #[must_use]
    pub const fn slices(&self) -> u64 {
        self.slices
    }

    /// The length of a slice: how much longer than in a log a hit can count.
    #[must_use]
    pub const fn slice(&self) -> Span {
        self.kernel.slice()
    }

    /// The most counts that hits alone keep: the current slice, and those of a window before it.
    #[must_use]
    pub const fn counts_max(&self) -> u64 {
        self.slices.saturating_add(1)
    }
}
