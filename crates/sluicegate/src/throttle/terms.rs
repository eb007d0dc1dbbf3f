//! What a request brings along: how much, how often.

use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::packed::WholeBucket;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{SPAN_MAX, Span};

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
    /// The bucket as the core has it,
    pub(super) bucket: Limit,
    /// and as much of it as nearly every hit needs.
    pub(super) whole: Option<WholeBucket>,
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
    pub fn new(max_burst: i64, count: i64, period_s: i64) -> Result<Self, TermsError> {
        let count = within("count", count, 1, EXACT_MAX)?;
        let period_s = within("period", period_s, 1, SPAN_MAX.as_micros() / 1_000_000)?;
        let limit =
            within("max_burst", max_burst, 0, burst_max(count, period_s))?.saturating_add(1);
        let figures = Figures { limit, count, period_s };
        // The bounds above are those of the core: it has nothing left to refuse.
        Self::of(figures).ok_or(TermsError {
            argument: "max_burst",
            given: max_burst,
            least: 0,
            most: signed(burst_max(count, period_s)),
        })
    }

    /// The terms of these figures, if they can be held.
    pub(super) fn of(figures: Figures) -> Option<Self> {
        let rate = Rate::new(figures.count, Span::from_secs(figures.period_s)).ok()?;
        let bucket = Limit::TokenBucket(TokenBucket::new(rate, figures.limit).ok()?);
        Some(Self { figures, bucket, whole: bucket.whole_bucket() })
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
        if *argument == "max_burst" && *given > *most {
            write!(f, " at this rate, so that what was used is back within 142 years")?;
        }
        write!(f, ", got `{given}`")
    }
}

impl std::error::Error for TermsError {}
