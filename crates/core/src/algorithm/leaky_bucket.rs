//! The leaky bucket: a bounded queue, drained at a fixed rate.
//!
//! It *shapes*: a queued caller gets the time until its slot, so that the outflow is even. And it
//! *polices*: a caller that finds the queue full is denied; with a queue of 0, any caller that
//! would have to wait. The kernel is [`gcra`](super::gcra).

use super::FORGET_AFTER;
use super::gcra::{Gcra, Variant};
use crate::quota::{ExactTime, QuotaError, Rate, amount};

/// A leaky bucket.
///
/// ```
/// use sluicegate_core::algorithm::leaky_bucket::LeakyBucket;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let outflow = Rate::new(10, Span::from_secs(1)).unwrap();
/// let limit = LeakyBucket::new(outflow, 20).unwrap();
/// assert_eq!(limit.queue(), 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeakyBucket {
    queue: u64,
    pub(crate) kernel: Gcra,
}

impl LeakyBucket {
    /// An outflow of `rate` and a queue of `queue` callers.
    ///
    /// # Errors
    /// When the queue is above the exact bound or would take longer than 142 years to drain.
    pub fn new(rate: Rate, queue: u64) -> Result<Self, QuotaError> {
        // One is served, `queue` wait.
        let capacity = amount("the queue", queue.saturating_add(1))?.get();
        let full = rate.fill_time(capacity)?;
        let start = ExactTime::default();
        let kernel = Gcra {
            rate,
            variant: Variant::Queue,
            capacity,
            full,
            start,
            forget_after: FORGET_AFTER,
        };
        Ok(Self { queue, kernel })
    }

    /// The outflow.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.kernel.rate
    }

    /// The length of the queue.
    #[must_use]
    pub const fn queue(&self) -> u64 {
        self.queue
    }
}
