//! The fixed window counter: a number of hits per window.
//!
//! Known edge: 5 per minute admits 5 hits at 2:00:59 and 5 more at 2:01:00, so a rolling minute can
//! hold twice the number. The kernel is [`periodic`](super::periodic).

use super::FORGET_AFTER;
use super::period::{Edges, Period};
use super::periodic::{Periodic, PeriodicVariant};
use crate::quota::Rate;

/// A fixed window counter.
///
/// ```
/// use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(5, Span::from_secs(60)).unwrap();
/// let limit = FixedWindow::new(rate, Align::Clock);
/// assert_eq!(limit.rate(), rate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    rate: Rate,
    align: Align,
    pub(crate) kernel: Periodic,
}

/// Where a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// On multiples of its length since the epoch.
    Clock,
    /// With the first hit.
    FirstHit,
    /// At calendar boundaries, which the caller provides for each decision.
    Calendar(Edges),
}

impl FixedWindow {
    /// At most the rate's number per window of its period (or per window of the calendar).
    #[must_use]
    pub const fn new(rate: Rate, align: Align) -> Self {
        let (count, length) = rate.parts();
        let period = match align {
            Align::Clock => Period::Clock(length),
            Align::FirstHit => Period::FirstHit(length),
            Align::Calendar(edges) => Period::Calendar(edges),
        };
        let kernel = Periodic {
            variant: PeriodicVariant::Window,
            capacity: count,
            refill: count,
            period,
            start: count.get(),
            forget_after: FORGET_AFTER,
        };
        Self { rate, align, kernel }
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Where a window begins.
    #[must_use]
    pub const fn align(&self) -> Align {
        self.align
    }
}
