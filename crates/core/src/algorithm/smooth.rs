//! The smooth limiter with bursts, as Guava defines it.
//!
//! Permits come at a steady rate; unused ones are stored, up to `max_burst` of time, and cost
//! nothing. Any cost is granted at once if the limiter is free; the part that stored permits do not
//! cover is paid by the next caller, who waits. The kernel is [`gcra`](super::gcra): stored permits
//! are unused time. The limiter that warms up is [`super::warm_up`].

use super::FORGET_AFTER;
use super::gcra::{Gcra, Variant};
use crate::quota::{ExactTime, QuotaError, Rate, length};
use crate::time::Span;

/// Default of `max_burst`: the time's worth of permits that are stored.
pub const MAX_BURST: Span = Span::from_secs(1);

/// A smooth limiter with bursts.
///
/// ```
/// use sluicegate_core::algorithm::smooth::{MAX_BURST, SmoothBursty};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(5, Span::from_secs(1)).unwrap();
/// let limit = SmoothBursty::new(rate, MAX_BURST).unwrap();
/// assert_eq!(limit.max_burst(), Span::from_secs(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmoothBursty {
    pub(crate) kernel: Gcra,
}

impl SmoothBursty {
    /// A steady `rate` that stores `max_burst` of permits. A new limiter has none.
    ///
    /// # Errors
    /// When `max_burst` is above 142 years.
    pub fn new(rate: Rate, max_burst: Span) -> Result<Self, QuotaError> {
        Self::build(rate, max_burst, FORGET_AFTER)
    }

    /// The same, remembered for this long after its last hit.
    ///
    /// # Errors
    /// When the span is empty or above 142 years.
    pub fn with_forget_after(self, forget_after: Span) -> Result<Self, QuotaError> {
        length("forget_after", forget_after)?;
        Self::build(self.rate(), self.max_burst(), forget_after)
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.kernel.rate
    }

    /// The time's worth of permits that are stored.
    #[must_use]
    pub const fn max_burst(&self) -> Span {
        Span::from_micros(self.kernel.full.us())
    }

    pub(crate) fn build(
        rate: Rate,
        max_burst: Span,
        forget_after: Span,
    ) -> Result<Self, QuotaError> {
        if !max_burst.is_zero() {
            length("max_burst", max_burst)?;
        }
        let full = ExactTime::span(max_burst);
        let capacity = rate.units_in(full);
        // Nothing is stored at first: all of the time is in use.
        let start = full;
        Ok(Self {
            kernel: Gcra { rate, variant: Variant::Smooth, capacity, full, start, forget_after },
        })
    }
}
