//! Exact rates, and times with a fraction of a microsecond.
//!
//! A rate of `n` per `P` µs gives one unit every `P/n` µs, which is seldom whole: 3/s is one every
//! 333,333⅓ µs. The fraction is never dropped. The rate is reduced (`n` and `P` share no divisor),
//! an [`ExactTime`] is a whole number of microseconds plus `frac/n` of one, and adding the time of
//! a cost adds both parts and carries. So 3/s is exactly 3 per second over any run. Only where a
//! fraction meets the clock, which ticks in whole microseconds, is it rounded: up, since a moment
//! too early would admit too much.

use std::num::NonZeroU64;

use crate::arithmetic::{Division, EXACT_MAX, clamp_amount, div_ceil, gcd, muldiv, muldiv_ceil};
use crate::time::{SPAN_MAX, Span, Timestamp};

/// A number of units per period.
///
/// ```
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let rate = Rate::new(600, Span::from_secs(60)).unwrap();
/// assert_eq!((rate.count(), rate.period()), (600, Span::from_secs(60)));
/// assert!(Rate::new(0, Span::from_secs(1)).is_err(), "a rate of nothing is `Limit::Closed`");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU64,
    period: NonZeroU64,
    /// `count` and `period` over their greatest common divisor.
    units: NonZeroU64,
    micros: NonZeroU64,
    /// The time of one unit: `micros / units`.
    interval: ExactTime,
}

/// A moment or a span with a fraction: `us + frac / units` µs, for the rate it belongs to.
///
/// Values of one rate compare as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExactTime {
    us: u64,
    frac: u64,
}

/// Why a limit cannot be represented exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaError {
    /// An amount of 0 where at least 1 is needed.
    Nothing {
        /// What was 0.
        what: &'static str,
    },
    /// An amount above the maximum.
    TooMuch {
        /// The name of the amount.
        what: &'static str,
        /// The given value.
        amount: u64,
        /// The maximum.
        max: u64,
    },
    /// A span that is empty or longer than [`SPAN_MAX`].
    BadSpan {
        /// The name of the span.
        what: &'static str,
        /// The given value.
        given: Span,
        /// The maximum.
        longest: Span,
    },
    /// The limit would take longer to fill than [`SPAN_MAX`].
    FillsTooSlowly {
        /// The amount to fill.
        amount: u64,
        /// The units per period.
        count: u64,
        /// The period.
        period: Span,
    },
    /// A factor, percentage or list length outside its range.
    OutOfRange {
        /// The name of the value.
        what: &'static str,
        /// The given value.
        given: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A mode that the algorithm does not support.
    Unfit {
        /// The mode.
        mode: &'static str,
        /// The algorithm.
        algorithm: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
}

impl Rate {
    /// `count` units per `period`.
    ///
    /// # Errors
    /// When `count` is 0 or above [`EXACT_MAX`], or `period` is empty or above [`SPAN_MAX`].
    pub fn new(count: u64, period: Span) -> Result<Self, QuotaError> {
        let count = amount("the rate's number", count)?;
        let period = length("the rate's period", period)?;
        let divisor = gcd(count.get(), period.get());
        let units = reduced(count, divisor);
        let micros = reduced(period, divisor);
        let Division { quotient: us, remainder: frac } = muldiv(1, micros.get(), units);
        Ok(Self { count, period, units, micros, interval: ExactTime { us, frac } })
    }

    /// The units per period, as written.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count.get()
    }

    /// The period, as written.
    #[must_use]
    pub const fn period(&self) -> Span {
        Span::from_micros(self.period.get())
    }

    /// The number and the period.
    pub(crate) const fn parts(&self) -> (NonZeroU64, NonZeroU64) {
        (self.count, self.period)
    }

    /// The denominator of fractions: `frac` is below it.
    #[must_use]
    pub const fn fraction(&self) -> u64 {
        self.units.get()
    }

    /// The number and the period over their greatest common divisor.
    pub(crate) const fn reduced(&self) -> (u64, u64) {
        (self.units.get(), self.micros.get())
    }

    /// The time of one unit, if that is a whole number of microseconds.
    #[inline]
    pub(crate) fn whole_interval(&self) -> Option<NonZeroU64> {
        (self.units == NonZeroU64::MIN).then_some(self.micros)
    }

    /// Whether both have the same interval, as 1/s and 60/m do.
    pub(crate) fn same_interval(&self, other: &Self) -> bool {
        (self.units, self.micros) == (other.units, other.micros)
    }

    /// This rate times `factor` thousandths.
    pub(crate) fn scaled(&self, factor_thousandths: u64) -> Result<Self, QuotaError> {
        let up = gcd(factor_thousandths, 1_000);
        let (Some(up), Some(factor)) = (NonZeroU64::new(up), NonZeroU64::new(factor_thousandths))
        else {
            return Err(QuotaError::Nothing { what: "the factor" });
        };
        let count = self.count.get().saturating_mul(reduced(factor, up.get()).get());
        let thousandths = NonZeroU64::MIN.saturating_add(999);
        let period = self.period.get().saturating_mul(reduced(thousandths, up.get()).get());
        let common = gcd(count, period).max(1);
        let rate = |n: u64| n.checked_div(common).unwrap_or(n);
        Self::new(rate(count), Span::from_micros(rate(period)))
    }

    /// The time that `cost` units take.
    #[inline]
    #[must_use]
    pub fn time_of(&self, cost: u64) -> ExactTime {
        if cost == 1 {
            return self.interval;
        }
        let Division { quotient, remainder } =
            muldiv(clamp_amount(cost), self.micros.get(), self.units);
        ExactTime { us: quotient, frac: remainder }
    }

    /// `time + by`, saturating at the end of time.
    #[inline]
    #[must_use]
    pub fn later(&self, time: ExactTime, by: ExactTime) -> ExactTime {
        let us = time.us.saturating_add(by.us);
        let room = self.units.get().saturating_sub(by.frac);
        // Avoids the sum of two fractions, which could exceed 2^53.
        let (us, frac) = if time.frac >= room {
            (us.saturating_add(1), time.frac.saturating_sub(room))
        } else {
            (us, time.frac.saturating_add(by.frac))
        };
        if us > EXACT_MAX { ExactTime { us: EXACT_MAX, frac: 0 } } else { ExactTime { us, frac } }
    }

    /// `time - by`, saturating at the epoch.
    #[inline]
    #[must_use]
    pub fn earlier(&self, time: ExactTime, by: ExactTime) -> ExactTime {
        if time <= by {
            return ExactTime::default();
        }
        if time.frac >= by.frac {
            let frac = time.frac.saturating_sub(by.frac);
            return ExactTime { us: time.us.saturating_sub(by.us), frac };
        }
        let borrowed = self.units.get().saturating_sub(by.frac);
        ExactTime {
            us: time.us.saturating_sub(by.us).saturating_sub(1),
            frac: time.frac.saturating_add(borrowed),
        }
    }

    /// Whole units in this time.
    #[inline]
    #[must_use]
    pub fn units_in(&self, time: ExactTime) -> u64 {
        self.units_and_rest(time).0
    }

    /// Units in this time, rounded up.
    #[inline]
    #[must_use]
    pub fn units_covering(&self, time: ExactTime) -> u64 {
        let (whole, exact) = self.units_and_rest(time);
        if exact { whole } else { clamp_amount(whole.saturating_add(1)) }
    }

    /// `times × time / whole`, rounded up.
    pub(crate) fn share(&self, time: ExactTime, whole: ExactTime, times: u64) -> u64 {
        let exact = |time: ExactTime| {
            let us = u128::from(time.us).saturating_mul(u128::from(self.units.get()));
            us.saturating_add(u128::from(time.frac))
        };
        let (mut part, mut whole) = (exact(time), exact(whole));
        // Up to 2^106 each: drop bits of both until the product fits, rounding against the client.
        while part >> 74 > 0 {
            part = (part >> 1).saturating_add(1);
            whole >>= 1;
        }
        let product = part.saturating_mul(u128::from(clamp_amount(times)));
        match product.checked_div(whole) {
            Some(floor) => {
                let up = u128::from(!product.is_multiple_of(whole));
                clamp_amount(u64::try_from(floor.saturating_add(up)).unwrap_or(EXACT_MAX))
            }
            None => 0,
        }
    }

    /// `(us * units + frac) / micros`, and whether that is whole.
    #[inline]
    fn units_and_rest(&self, time: ExactTime) -> (u64, bool) {
        let Division { quotient, remainder } = muldiv(time.us, self.units.get(), self.micros);
        if quotient == EXACT_MAX {
            return (EXACT_MAX, true);
        }
        // remainder < micros and frac < units; their sum over micros adds the rest, if any.
        let rest = remainder.saturating_add(time.frac);
        if rest < self.micros.get() {
            return (quotient, rest == 0);
        }
        let more = rest.checked_div(self.micros.get()).unwrap_or(0);
        let exact = rest.is_multiple_of(self.micros.get());
        (clamp_amount(quotient.saturating_add(more)), exact)
    }

    /// The time of `cost` units, at most [`SPAN_MAX`].
    pub(crate) fn fill_time(&self, cost: u64) -> Result<ExactTime, QuotaError> {
        let time = self.time_of(cost);
        if time.ceil() > Timestamp::EPOCH.after(SPAN_MAX) {
            let (count, period) = (self.count(), self.period());
            return Err(QuotaError::FillsTooSlowly { amount: cost, count, period });
        }
        Ok(time)
    }
}

impl ExactTime {
    /// A whole microsecond.
    #[inline]
    #[must_use]
    pub const fn at(moment: Timestamp) -> Self {
        Self { us: moment.as_micros(), frac: 0 }
    }

    /// A span of whole microseconds.
    #[inline]
    #[must_use]
    pub const fn span(span: Span) -> Self {
        Self { us: span.as_micros(), frac: 0 }
    }

    /// From stored parts. A fraction that the rate does not have is rounded up to the next
    /// microsecond.
    #[inline]
    #[must_use]
    pub fn from_parts(rate: &Rate, us: u64, frac: u64) -> Self {
        let carried = if frac >= rate.fraction() { us.saturating_add(1) } else { us };
        let frac = if carried == us { frac } else { 0 };
        Self { us: clamp_amount(carried), frac }
    }

    /// From parts of an unknown rate. A fraction too large for the rate is off by its excess only.
    pub(crate) const fn from_raw_parts(us: u64, frac: u64) -> Self {
        Self { us, frac }
    }

    /// The whole microseconds.
    #[inline]
    #[must_use]
    pub const fn us(self) -> u64 {
        self.us
    }

    /// The fraction of a microsecond, in parts of [`Rate::fraction`].
    #[inline]
    #[must_use]
    pub const fn frac(self) -> u64 {
        self.frac
    }

    /// Rounded up to a whole microsecond.
    #[inline]
    #[must_use]
    pub const fn ceil(self) -> Timestamp {
        Timestamp::from_micros(if self.frac == 0 { self.us } else { self.us.saturating_add(1) })
    }

    /// Earlier by whole microseconds.
    pub(crate) const fn moved_back(self, by: Span) -> Self {
        Self { us: self.us.saturating_sub(by.as_micros()), frac: self.frac }
    }

    /// Later by whole microseconds.
    #[inline]
    pub(crate) const fn moved_on(self, by: Span) -> Self {
        Self { us: clamp_amount(self.us.saturating_add(by.as_micros())), frac: self.frac }
    }
}

impl std::fmt::Display for QuotaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing { what } => write!(f, "{what} must be at least 1, got `0`"),
            Self::TooMuch { what, amount, max } => {
                write!(f, "{what} must be at most `{max}`, got `{amount}`")
            }
            Self::BadSpan { what, given, longest } => {
                let (given, longest) = (given.as_micros(), longest.as_micros());
                write!(f, "{what} must last from `1us` to `{longest}us`, got `{given}us`")
            }
            Self::FillsTooSlowly { amount, count, period } => {
                let period = period.as_micros();
                write!(
                    f,
                    "`{amount}` at `{count}` per `{period}us` would take more than 142 years to \
                     fill: lower the amount or raise the rate"
                )
            }
            Self::OutOfRange { what, given, min, max } => {
                write!(f, "{what} must be from `{min}` to `{max}`, got `{given}`")
            }
            Self::Unfit { mode, algorithm, remedy } => {
                write!(f, "mode `{mode}` has no meaning for `{algorithm}`: {remedy}")
            }
        }
    }
}

impl std::error::Error for QuotaError {}

// === constructors' checks ===

/// An amount from 1 to [`EXACT_MAX`].
pub(crate) fn amount(what: &'static str, amount: u64) -> Result<NonZeroU64, QuotaError> {
    if amount > EXACT_MAX {
        return Err(QuotaError::TooMuch { what, amount, max: EXACT_MAX });
    }
    NonZeroU64::new(amount).ok_or(QuotaError::Nothing { what })
}

/// A span from 1 µs to [`SPAN_MAX`].
pub(crate) fn length(what: &'static str, span: Span) -> Result<NonZeroU64, QuotaError> {
    length_up_to(what, span, SPAN_MAX)
}

/// A span of at least 1 µs and at most `longest`.
pub(crate) fn length_up_to(
    what: &'static str,
    given: Span,
    longest: Span,
) -> Result<NonZeroU64, QuotaError> {
    match NonZeroU64::new(given.as_micros()) {
        Some(us) if given <= longest => Ok(us),
        _ => Err(QuotaError::BadSpan { what, given, longest }),
    }
}

/// `n` over a divisor of it.
fn reduced(n: NonZeroU64, divisor: u64) -> NonZeroU64 {
    n.get().checked_div(divisor).and_then(NonZeroU64::new).unwrap_or(n)
}

/// `ceil(a / b)`, for periods.
pub(crate) fn periods(amount: u64, per_period: NonZeroU64) -> u64 {
    div_ceil(amount, per_period)
}

/// `ceil(amount * to / from)`: an amount carried over to another capacity, against the client.
pub(crate) fn proportion(amount: u64, from: u64, to: u64) -> u64 {
    match NonZeroU64::new(from) {
        Some(from) => muldiv_ceil(clamp_amount(amount), clamp_amount(to), from),
        None => 0,
    }
}
