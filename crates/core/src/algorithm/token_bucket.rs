//! The token bucket: bursts pass while tokens last, and tokens come back at a rate.
//!
//! Refilled greedily (a token whenever its time has come: the [`gcra`]), interval-wise
//! or aligned to the clock (all of a period's tokens at once: [`periodic`]). There is no
//! timer: the level is worked out when somebody asks.

use super::FORGET_AFTER;
use super::gcra::{self, Gcra};
use super::period::Period;
use super::periodic::{Periodic, PeriodicVariant};
use crate::quota::{ExactTime, QuotaError, Rate, amount, length};
use crate::time::Span;

/// A token bucket.
///
/// ```
/// use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(10, Span::from_secs(1)).unwrap();
/// let bucket = TokenBucket::new(rate, 50).unwrap();
/// assert_eq!((bucket.burst(), bucket.initial()), (50, 50));
///
/// let cold = bucket.with_initial(0).unwrap().with_refill(Refill::Interval).unwrap();
/// assert_eq!(cold.initial(), 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
    initial: u64,
    refill: Refill,
    forget_after: Span,
    pub(crate) kernel: BucketKernel,
}

/// How tokens come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refill {
    /// One by one, each as soon as its time has come.
    #[default]
    Greedy,
    /// All of a period's at once; the period starts with the first hit on a full bucket.
    Interval,
    /// All of a period's at once, on multiples of the period since the epoch.
    Aligned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketKernel {
    Gcra(Gcra),
    Periodic(Periodic),
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A bucket of `burst` tokens, full at first, refilled greedily at `rate`.
    ///
    /// # Errors
    /// When `burst` is 0, above the exact bound, or would take longer than 142 years to refill.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        amount("the burst", burst)?;
        Self::build(rate, burst, burst, Refill::Greedy, FORGET_AFTER)
    }

    /// The same, starting with this many tokens.
    ///
    /// # Errors
    /// When that is more than the bucket holds.
    pub fn with_initial(self, initial: u64) -> Result<Self, QuotaError> {
        if initial > self.burst {
            let what = "the initial tokens";
            return Err(QuotaError::TooMuch { what, amount: initial, max: self.burst });
        }
        Self::build(self.rate, self.burst, initial, self.refill, self.forget_after)
    }

    /// The same, refilled another way.
    ///
    /// # Errors
    /// As [`TokenBucket::new`].
    pub fn with_refill(self, refill: Refill) -> Result<Self, QuotaError> {
        Self::build(self.rate, self.burst, self.initial, refill, self.forget_after)
    }

    /// The same, remembered for this long after the last hit where a new bucket is not a full one.
    ///
    /// # Errors
    /// When the span is empty or above 142 years.
    pub fn with_forget_after(self, forget_after: Span) -> Result<Self, QuotaError> {
        length("forget_after", forget_after)?;
        Self::build(self.rate, self.burst, self.initial, self.refill, forget_after)
    }

    /// The refill rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How many tokens the bucket holds.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// How many it starts with.
    #[must_use]
    pub const fn initial(&self) -> u64 {
        self.initial
    }

    /// How tokens come back.
    #[must_use]
    pub const fn refill(&self) -> Refill {
        self.refill
    }

    /// How long it is remembered after the last hit where a new bucket is not a full one.
    #[must_use]
    pub const fn forget_after(&self) -> Span {
        self.forget_after
    }

    /// This bucket with room for `more` tokens, which it also starts with.
    pub(crate) fn grown(&self, more: u64) -> Result<Self, QuotaError> {
        let burst = self.burst.saturating_add(more);
        let initial = self.initial.saturating_add(more);
        amount("the burst, grown by its mode,", burst)?;
        Self::build(self.rate, burst, initial, self.refill, self.forget_after)
    }

    /// This bucket at another rate and size, as full at first in proportion.
    pub(crate) fn scaled(&self, rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        amount("the burst, scaled by its mode,", burst)?;
        let initial = crate::quota::proportion(self.initial, self.burst, burst).min(burst);
        Self::build(rate, burst, initial, self.refill, self.forget_after)
    }

    fn build(
        rate: Rate,
        burst: u64,
        initial: u64,
        refill: Refill,
        forget_after: Span,
    ) -> Result<Self, QuotaError> {
        let full = rate.fill_time(burst)?;
        let period = length("the rate's period", rate.period())?;
        let steps = |period| -> Result<BucketKernel, QuotaError> {
            Ok(BucketKernel::Periodic(Periodic {
                variant: PeriodicVariant::Bucket,
                capacity: amount("the burst", burst)?,
                refill: amount("the rate's number", rate.count())?,
                period,
                start: initial,
                forget_after,
            }))
        };
        let kernel = match refill {
            Refill::Greedy => BucketKernel::Gcra(Gcra {
                rate,
                variant: gcra::Variant::Bucket,
                capacity: burst,
                full,
                start: initial_deficit(&rate, burst, initial),
                forget_after,
            }),
            Refill::Interval => steps(Period::FirstHit(period))?,
            Refill::Aligned => steps(Period::Clock(period))?,
        };
        Ok(Self { rate, burst, initial, refill, forget_after, kernel })
    }
}

/// The time of the tokens that a new bucket lacks.
fn initial_deficit(rate: &Rate, burst: u64, initial: u64) -> ExactTime {
    match burst.saturating_sub(initial) {
        0 => ExactTime::default(),
        lacking => rate.time_of(lacking),
    }
}
