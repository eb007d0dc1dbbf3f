//! Permits per cycle: a fixed number per period, bookable ahead.
//!
//! A caller may book permits of coming cycles, using the rest of the current one first. Cycles are
//! aligned to the clock. Any `k` cycles in a row use at most `k` times the permits, plus one less
//! than the cost of a booking that straddles, which is used at the start of its last cycle. The
//! kernel is [`periodic`](super::periodic).

use super::FORGET_AFTER;
use super::period::Period;
use super::periodic::{Periodic, PeriodicVariant};
use crate::quota::{QuotaError, amount, length};
use crate::time::Span;

/// Permits per cycle.
///
/// ```
/// use sluicegate_core::algorithm::cycle::Cycle;
/// use sluicegate_core::time::Span;
///
/// let limit = Cycle::new(50, Span::from_millis(500)).unwrap();
/// assert_eq!((limit.permits(), limit.period()), (50, Span::from_millis(500)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    pub(crate) kernel: Periodic,
}

impl Cycle {
    /// `permits` per `period`.
    ///
    /// # Errors
    /// When there are no permits or more than the exact bound, or the period is empty or above 142
    /// years.
    pub fn new(permits: u64, period: Span) -> Result<Self, QuotaError> {
        let count = amount("the number of permits", permits)?;
        let kernel = Periodic {
            variant: PeriodicVariant::Cycle,
            capacity: count,
            refill: count,
            period: Period::Clock(length("the cycle's period", period)?),
            start: permits,
            forget_after: FORGET_AFTER,
        };
        Ok(Self { kernel })
    }

    /// Permits per cycle.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.kernel.capacity.get()
    }

    /// The length of a cycle.
    #[must_use]
    pub fn period(&self) -> Span {
        self.kernel.period.longest()
    }
}
