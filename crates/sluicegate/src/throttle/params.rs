//! The parameters of a throttle call.

use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::packed::{FastHit, IntegerBucket, Packed};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{SPAN_MAX, Span, Timestamp};

/// A limit sent with the request: a token bucket of `max_burst + 1` tokens, of which `count` are
/// refilled per period.
///
/// ```
/// use sluicegate::throttle::ThrottleParams;
///
/// let params = ThrottleParams::new(15, 30, 60)?;
/// assert_eq!((params.limit(), params.count(), params.period_s()), (16, 30, 60));
///
/// let error = ThrottleParams::new(15, 0, 60).unwrap_err();
/// assert_eq!(error.to_string(), "`count` must be from `1` to `9007199254740991`, got `0`");
/// # Ok::<(), sluicegate::throttle::ThrottleParamsError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ThrottleParams {
    pub(super) raw: RawParams,
    bucket: ThrottleBucket,
}

/// The bucket, as nearly every hit needs it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "in a box it could not be copied")]
enum ThrottleBucket {
    /// A token takes whole microseconds, as with most rates. Cheap to build on every request.
    Integer(IntegerBucket),
    /// Any other.
    Fractional(Limit),
}

/// The numbers that identify parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawParams {
    pub(super) limit: u64,
    pub(super) count: u64,
    pub(super) period_s: u64,
}

/// A number out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThrottleParamsError {
    /// The argument: `max_burst`, `count` or `period`.
    pub argument: &'static str,
    /// The given value.
    pub given: i64,
    /// The min that can be.
    pub min: i64,
    /// The maximum. That of `max_burst` depends on the rate: no bucket may take longer than 142
    /// years to fill.
    pub max: i64,
}

impl ThrottleParams {
    /// A burst of `max_burst` above one, and `count` per `period_s` seconds.
    ///
    /// # Errors
    /// When `max_burst` is negative, `count` or `period_s` is below 1, or one of them is too large.
    #[inline]
    pub fn new(max_burst: i64, count: i64, period_s: i64) -> Result<Self, ThrottleParamsError> {
        let count = in_range("count", count, 1, EXACT_MAX)?;
        let period_s = in_range("period", period_s, 1, SPAN_MAX.as_micros() / 1_000_000)?;
        let limit = u64::try_from(max_burst).ok().map(|burst| burst.saturating_add(1));
        // The core refuses only buckets that are too large or fill too slowly.
        let params = limit.and_then(|limit| Self::from_raw(RawParams { limit, count, period_s }));
        params.ok_or_else(|| {
            let max = signed(burst_max(count, period_s));
            ThrottleParamsError { argument: "max_burst", given: max_burst, min: 0, max }
        })
    }

    /// Validates the numbers.
    #[inline]
    pub(super) fn from_raw(raw: RawParams) -> Option<Self> {
        let RawParams { limit, count, period_s } = raw;
        let period_us = period_s.checked_mul(1_000_000)?;
        let bucket = match period_us.checked_rem(count)? {
            0 => {
                let interval = Span::from_micros(period_us / count);
                ThrottleBucket::Integer(IntegerBucket::with_tokens(limit, interval)?)
            }
            _ => ThrottleBucket::Fractional(raw.bucket()?),
        };
        Some(Self { raw, bucket })
    }

    /// The bucket as a limit of the core.
    #[must_use]
    pub fn bucket(&self) -> Limit {
        match self.bucket {
            // They were valid once.
            ThrottleBucket::Integer(_) => self.raw.bucket().unwrap_or(Limit::Closed),
            ThrottleBucket::Fractional(bucket) => bucket,
        }
    }

    /// The bucket, if its tokens take whole microseconds.
    #[inline]
    pub(super) const fn integer_bucket(&self) -> Option<&IntegerBucket> {
        match &self.bucket {
            ThrottleBucket::Integer(bucket) => Some(bucket),
            ThrottleBucket::Fractional(_) => None,
        }
    }

    /// A hit on the fast path: see [`Limit::hit_fast`].
    pub(super) fn hit_fast(
        &self,
        stored: Option<Packed>,
        cost: u64,
        now: Timestamp,
    ) -> Option<FastHit> {
        match &self.bucket {
            ThrottleBucket::Integer(bucket) => bucket.hit(stored, cost, now),
            ThrottleBucket::Fractional(bucket) => bucket.hit_fast(stored, cost, now),
        }
    }

    /// The capacity: `max_burst + 1`.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.raw.limit
    }

    /// Tokens refilled per period.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.raw.count
    }

    /// The time in which an empty bucket fills.
    #[must_use]
    pub fn fill_time(&self) -> Span {
        let RawParams { limit, count, period_s } = self.raw;
        let period_us = u128::from(period_s) * 1_000_000;
        let fill_us = (u128::from(limit) * period_us).div_ceil(u128::from(count.max(1)));
        Span::from_micros(u64::try_from(fill_us).unwrap_or(u64::MAX))
    }

    /// The period in seconds.
    #[must_use]
    pub const fn period_s(&self) -> u64 {
        self.raw.period_s
    }
}

impl PartialEq for ThrottleParams {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for ThrottleParams {}

/// The largest burst that fills in time: `limit × period / count` is at most the longest span.
fn burst_max(count: u64, period_s: u64) -> u64 {
    let period_us = u128::from(period_s) * 1_000_000;
    let limit = u128::from(SPAN_MAX.as_micros()) * u128::from(count) / period_us.max(1);
    u64::try_from(limit).unwrap_or(u64::MAX).min(EXACT_MAX).saturating_sub(1)
}

fn in_range(
    argument: &'static str,
    given: i64,
    min: i64,
    max: u64,
) -> Result<u64, ThrottleParamsError> {
    match u64::try_from(given) {
        Ok(number) if given >= min && number <= max => Ok(number),
        _ => Err(ThrottleParamsError { argument, given, min, max: signed(max) }),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl RawParams {
    fn bucket(&self) -> Option<Limit> {
        let rate = Rate::new(self.count, Span::from_secs(self.period_s)).ok()?;
        TokenBucket::new(rate, self.limit).ok().map(Limit::TokenBucket)
    }

    /// As bytes, for hashing.
    pub(super) fn bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, number) in bytes.chunks_exact_mut(8).zip([self.limit, self.count, self.period_s]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

impl std::fmt::Display for ThrottleParamsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { argument, given, min, max } = self;
        write!(f, "`{argument}` must be from `{min}` to `{max}`")?;
        if *argument == "max_burst" && *given > *max && *max < signed(EXACT_MAX - 1) {
            write!(f, " at this rate, so that what was used is back within 142 years")?;
        }
        write!(f, ", got `{given}`")
    }
}

impl std::error::Error for ThrottleParamsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::memory::tests::cases(1_000))]

        #[test]
        fn terms_are_refused_where_the_core_refuses(
            burst: i64, count: i64, period: i64, shifts in (0..64u32, 0..64u32, 0..64u32),
        ) {
            let [burst, count, period] =
                [(burst, shifts.0), (count, shifts.1), (period, shifts.2)].map(|(n, by)| n >> by);
            let limit = u64::try_from(burst).ok().map(|burst| burst.saturating_add(1));
            let raw = limit.zip(u64::try_from(count).ok()).zip(u64::try_from(period).ok());
            // The core truncates periods that exceed the range of microseconds.
            let raw = raw.filter(|(_, period_s)| *period_s <= SPAN_MAX.as_micros() / 1_000_000);
            let raw = raw.map(|((limit, count), period_s)| RawParams { limit, count, period_s });
            let expected = raw.and_then(|raw| raw.bucket());
            let params = ThrottleParams::new(burst, count, period);
            prop_assert_eq!(params.ok().map(|params| params.bucket()), expected);
            match params {
                Ok(params) => {
                    prop_assert_eq!(params.integer_bucket().copied(), params.bucket().integer_bucket());
                    prop_assert_eq!(params.limit(), burst as u64 + 1);
                }
                Err(error) => {
                    prop_assert!(error.given < error.min || error.given > error.max, "{error}");
                    // The reported bounds are valid and tight.
                    let with = |number| match error.argument {
                        "max_burst" => ThrottleParams::new(number, count, period),
                        "count" => ThrottleParams::new(0, number, 1),
                        _ => ThrottleParams::new(0, 1, number),
                    };
                    prop_assert!(with(error.min).is_ok() && with(error.min - 1).is_err());
                    prop_assert!(with(error.max).is_ok(), "{error}");
                    prop_assert!(with(error.max.saturating_add(1)).is_err(), "{error}");
                }
            }
        }
    }

    #[test]
    fn an_error_names_argument_value_and_bound() {
        let error_text = |burst, count, period| {
            ThrottleParams::new(burst, count, period).unwrap_err().to_string()
        };
        assert_eq!(error_text(-1, 1, 1), "`max_burst` must be from `0` to `4503599626`, got `-1`");
        assert_eq!(
            error_text(0, -5, 1),
            "`count` must be from `1` to `9007199254740991`, got `-5`"
        );
        assert_eq!(error_text(0, 1, 0), "`period` must be from `1` to `4503599627`, got `0`");
        assert_eq!(
            error_text(2, 1, 4_000_000_000),
            "`max_burst` must be from `0` to `0` at this rate, so that what was used is back within 142 \
             years, got `2`"
        );
        let max = error_text(i64::MAX, i64::MAX, i64::MAX);
        assert_eq!(
            max,
            "`count` must be from `1` to `9007199254740991`, got `9223372036854775807`"
        );
    }
}
