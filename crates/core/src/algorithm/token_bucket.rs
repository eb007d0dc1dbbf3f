//! The token bucket: bursts pass while tokens last, and tokens are refilled at a rate.
//!
//! Refill is greedy (each token at its own time: [`gcra`]), per interval, or aligned to the clock
//! (all tokens of a period at once: [`periodic`](super::periodic)). There is no timer: the level is
//! computed on access.

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

/// How tokens are refilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refill {
    /// Each token at its own time.
    #[default]
    Greedy,
    /// All tokens of a period at once; the period starts with the first hit on a full bucket.
    Interval,
    /// All tokens of a period at once, on multiples of the period since the epoch.
    Aligned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketKernel {
    Gcra(Gcra),
    Periodic(Periodic),
}

impl TokenBucket {
    /// A bucket of `burst` tokens, full at first, refilled greedily at `rate`.
    ///
    /// # Errors
    /// When `burst` is 0, above the exact bound, or would take longer than 142 years to refill.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        amount("the burst", burst)?;
        Self::build(rate, burst, burst, Refill::Greedy, FORGET_AFTER)
    }

    /// The same with an initial number of tokens.
    ///
    /// # Errors
    /// When that exceeds the burst.
    pub fn with_initial(self, initial: u64) -> Result<Self, QuotaError> {
        if initial > self.burst {
            let what = "the initial tokens";
            return Err(QuotaError::TooMuch { what, amount: initial, max: self.burst });
        }
        Self::build(self.rate, self.burst, initial, self.refill, self.forget_after)
    }

    /// The same with another refill.
    ///
    /// # Errors
    /// As [`TokenBucket::new`].
    pub fn with_refill(self, refill: Refill) -> Result<Self, QuotaError> {
        Self::build(self.rate, self.burst, self.initial, refill, self.forget_after)
    }

    /// The same with another time until an idle bucket is forgotten, if a new one does not start
    /// full.
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

    /// The capacity in tokens.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The initial number of tokens.
    #[must_use]
    pub const fn initial(&self) -> u64 {
        self.initial
    }

    /// How tokens are refilled.
    #[must_use]
    pub const fn refill(&self) -> Refill {
        self.refill
    }

    /// How long it is remembered after the last hit if a new bucket does not start full.
    #[must_use]
    pub const fn forget_after(&self) -> Span {
        self.forget_after
    }

    /// This bucket with `more` tokens of capacity, all of them present at first.
    pub(crate) fn grown(&self, more: u64) -> Result<Self, QuotaError> {
        let burst = self.burst.saturating_add(more);
        let initial = self.initial.saturating_add(more);
        amount("the burst, grown by its mode,", burst)?;
        Self::build(self.rate, burst, initial, self.refill, self.forget_after)
    }

    /// This bucket with another rate and size and the same initial proportion.
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
