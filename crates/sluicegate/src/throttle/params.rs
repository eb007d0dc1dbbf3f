//! What a request brings along: how much, how often.

use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::packed::{FastHit, IntegerBucket, Packed};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{SPAN_MAX, Span, Timestamp};

/// A limit that comes with the request: a token bucket of `max_burst + 1` tokens, `count` of which come back per period.
///
/// ```
/// use sluicegate::throttle::Terms;
///
/// let terms = Terms::new(15, 30, 60)?;
/// assert_eq!((terms.limit(), terms.count(), terms.period_s()), (16, 30, 60));
///
/// let error = Terms::new(15, 0, 60).unwrap_err();
/// assert_eq!(error.to_string(), "`count` must be from `1` to `9007199254740991`, got `0`");
/// # Ok::<(), sluicegate::throttle::TermsError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub(super) figures: Figures,
    bucket: Bucket,
}

/// As much of the bucket as nearly every hit needs.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "in a box it could not be copied")]
enum Bucket {
    /// A token takes whole microseconds, as with most rates that people write. Made in no time, for whoever reads terms with
    /// every request.
    Whole(IntegerBucket),
    /// Any other.
    Fraction(Limit),
}

/// The numbers that terms are told apart by, and made from again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) limit: u64,
    pub(super) count: u64,
    pub(super) period_s: u64,
}

/// A number that cannot be held: which, and what could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TermsError {
    /// The argument: `max_burst`, `count` or `period`.
    pub argument: &'static str,
    /// What was given.
    pub given: i64,
    /// The least that can be.
    pub least: i64,
    /// The most that can be. Of `max_burst` it depends on the rate: no bucket may take longer than 142 years to fill.
    pub most: i64,
}

// === impl Terms ===

impl Terms {
    /// `max_burst` more than one at once, and `count` in `period_s` seconds.
    ///
    /// # Errors
    /// When `max_burst` is negative, `count` or `period_s` is below 1, or one of them is larger than can be held exactly.
    #[inline]
    pub fn new(max_burst: i64, count: i64, period_s: i64) -> Result<Self, TermsError> {
        let count = within("count", count, 1, EXACT_MAX)?;
        let period_s = within("period", period_s, 1, SPAN_MAX.as_micros() / 1_000_000)?;
        let limit = u64::try_from(max_burst).ok().map(|burst| burst.saturating_add(1));
        // All that the core refuses now is a bucket that is too large, or takes too long to fill.
        let terms = limit.and_then(|limit| Self::of(Figures { limit, count, period_s }));
        terms.ok_or_else(|| {
            let most = signed(burst_max(count, period_s));
            TermsError { argument: "max_burst", given: max_burst, least: 0, most }
        })
    }

    /// The terms of these figures, if they can be held.
    #[inline]
    pub(super) fn of(figures: Figures) -> Option<Self> {
        let Figures { limit, count, period_s } = figures;
        let period_us = period_s.checked_mul(1_000_000)?;
        let bucket = match period_us.checked_rem(count)? {
            0 => {
                let interval = Span::from_micros(period_us / count);
                Bucket::Whole(IntegerBucket::with_tokens(limit, interval)?)
            }
            _ => Bucket::Fraction(figures.bucket()?),
        };
        Some(Self { figures, bucket })
    }

    /// The bucket as the core has it.
    pub(super) fn bucket(&self) -> Limit {
        match self.bucket {
            // What could be held once can be held again.
            Bucket::Whole(_) => self.figures.bucket().unwrap_or(Limit::Closed),
            Bucket::Fraction(bucket) => bucket,
        }
    }

    /// The bucket, if its tokens take whole microseconds.
    #[inline]
    pub(super) const fn whole(&self) -> Option<&IntegerBucket> {
        match &self.bucket {
            Bucket::Whole(bucket) => Some(bucket),
            Bucket::Fraction(_) => None,
        }
    }

    /// A hit, if nothing is out of the ordinary: see [`Limit::hit_fast`].
    pub(super) fn hit_fast(
        &self,
        kept: Option<Packed>,
        cost: u64,
        now: Timestamp,
    ) -> Option<FastHit> {
        match &self.bucket {
            Bucket::Whole(bucket) => bucket.hit(kept, cost, now),
            Bucket::Fraction(bucket) => bucket.hit_fast(kept, cost, now),
        }
    }

    /// The most that can pass at once: `max_burst + 1`.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.figures.limit
    }

    /// How many come back in a period.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.figures.count
    }

    /// The period in seconds.
    #[must_use]
    pub const fn period_s(&self) -> u64 {
        self.figures.period_s
    }
}

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.figures == other.figures
    }
}

impl Eq for Terms {}

/// The largest burst that fills in time: `limit × period / count` may be as long as any span.
fn burst_max(count: u64, period_s: u64) -> u64 {
    let period_us = u128::from(period_s) * 1_000_000;
    let limit = u128::from(SPAN_MAX.as_micros()) * u128::from(count) / period_us.max(1);
    u64::try_from(limit).unwrap_or(u64::MAX).min(EXACT_MAX).saturating_sub(1)
}

fn within(argument: &'static str, given: i64, least: i64, most: u64) -> Result<u64, TermsError> {
    match u64::try_from(given) {
        Ok(number) if given >= least && number <= most => Ok(number),
        _ => Err(TermsError { argument, given, least, most: signed(most) }),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

// === impl Figures ===

impl Figures {
    fn bucket(&self) -> Option<Limit> {
        let rate = Rate::new(self.count, Span::from_secs(self.period_s)).ok()?;
        TokenBucket::new(rate, self.limit).ok().map(Limit::TokenBucket)
    }

    /// As bytes, to be hashed.
    pub(super) fn bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, number) in bytes.chunks_exact_mut(8).zip([self.limit, self.count, self.period_s]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

// === impl TermsError ===

impl std::fmt::Display for TermsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { argument, given, least, most } = self;
        write!(f, "`{argument}` must be from `{least}` to `{most}`")?;
        if *argument == "max_burst" && *given > *most && *most < signed(EXACT_MAX - 1) {
            write!(f, " at this rate, so that what was used is back within 142 years")?;
        }
        write!(f, ", got `{given}`")
    }
}

impl std::error::Error for TermsError {}

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
            let figures = limit.zip(u64::try_from(count).ok()).zip(u64::try_from(period).ok());
            // Seconds that microseconds cannot tell are cut on the way to the core.
            let figures = figures.filter(|(_, period_s)| *period_s <= SPAN_MAX.as_micros() / 1_000_000);
            let figures = figures.map(|((limit, count), period_s)| Figures { limit, count, period_s });
            let expected = figures.and_then(|figures| figures.bucket());
            let terms = Terms::new(burst, count, period);
            prop_assert_eq!(terms.ok().map(|terms| terms.bucket()), expected);
            match terms {
                Ok(terms) => {
                    prop_assert_eq!(terms.whole().copied(), terms.bucket().integer_bucket());
                    prop_assert_eq!(terms.limit(), burst as u64 + 1);
                }
                Err(error) => {
                    prop_assert!(error.given < error.least || error.given > error.most, "{error}");
                    // The bound that is told is one that holds, and no more than it.
                    let with = |number| match error.argument {
                        "max_burst" => Terms::new(number, count, period),
                        "count" => Terms::new(0, number, 1),
                        _ => Terms::new(0, 1, number),
                    };
                    prop_assert!(with(error.least).is_ok() && with(error.least - 1).is_err());
                    prop_assert!(with(error.most).is_ok(), "{error}");
                    prop_assert!(with(error.most.saturating_add(1)).is_err(), "{error}");
                }
            }
        }
    }

    #[test]
    fn an_error_names_argument_value_and_bound() {
        let said = |burst, count, period| Terms::new(burst, count, period).unwrap_err().to_string();
        assert_eq!(said(-1, 1, 1), "`max_burst` must be from `0` to `4503599626`, got `-1`");
        assert_eq!(said(0, -5, 1), "`count` must be from `1` to `9007199254740991`, got `-5`");
        assert_eq!(said(0, 1, 0), "`period` must be from `1` to `4503599627`, got `0`");
        assert_eq!(
            said(2, 1, 4_000_000_000),
            "`max_burst` must be from `0` to `0` at this rate, so that what was used is back within 142 \
             years, got `2`"
        );
        let most = said(i64::MAX, i64::MAX, i64::MAX);
        assert_eq!(
            most,
            "`count` must be from `1` to `9007199254740991`, got `9223372036854775807`"
        );
    }
}
