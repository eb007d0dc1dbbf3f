//! Limits in Rust code.
//!
//! Each algorithm is a type with its required numbers and defaults for the rest. Building a limiter
//! validates them, so that a chain of calls needs one `?`.
//!
//! | limit | code |
//! |---|---|
//! | 10 a second, bursts of 50 | `TokenBucket::per_second(10).burst(50)` |
//! | 10,000 a day, the day in Berlin | `FixedWindow::per_day(10_000).in_zone("Europe/Berlin")` |
//! | never more than 5 in any minute | `SlidingLog::per_minute(5)` |
//! | about 100 in any minute, for millions of users | `SlidingWindow::per_minute(100)` |
//! | never more than 100 in any minute, for many | `SlidingWindow::per_minute(100).slices(6)` |
//! | one every 100 ms, up to 20 waiting | `LeakyBucket::per_second(10).queue(20)` |
//! | a steady 5 a second; a larger request delays the next one | `SmoothBursty::per_second(5)` |
//! | the same, cold at first | `WarmUp::per_second(5).over(Duration::from_secs(10))` |
//! | 50 permits every second, bookable ahead | `Cycle::of(50).every(Duration::from_secs(1))` |
//! | 10 at a time | `Concurrency::at_most(10)` |
//! | 100 a minute as Envoy counts them, the denied too | `Tally::per_minute(100)` |

mod buckets;
mod rated;
mod unrated;
mod windows;

use sluicegate_rules::calendar::CalendarError;
use sluicegate_rules::domain::LIMITER_DOMAIN;

pub use buckets::{LeakyBucket, TokenBucket};
pub use buckets::{SmoothBursty, WarmUp};
pub use sluicegate_core::algorithm::sliding_window::Rounding;
pub use sluicegate_core::algorithm::token_bucket::Refill;
pub use sluicegate_core::quota::QuotaError;
pub use sluicegate_rules::limit::LimitConfig;
pub use unrated::{Concurrency, Cycle, Unlimited};
pub use windows::{FixedWindow, SlidingLog, SlidingWindow, Tally};

/// A value that can be made into a limit: the types of this module, and limits read from a file.
pub trait IntoLimit {
    /// The limit.
    ///
    /// ```
    /// use sluicegate::limit::{IntoLimit, TokenBucket};
    ///
    /// assert_eq!(TokenBucket::per_second(10).into_limit().unwrap().algorithm(), "token_bucket");
    /// ```
    ///
    /// # Errors
    /// When its numbers are out of range; the message names the number and the range.
    fn into_limit(self) -> Result<LimitConfig, LimitError>;
}

/// Why a limit is invalid.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::FixedWindow;
///
/// let error = Limiter::new(FixedWindow::per_day(5).in_zone("Europe/Berln")).unwrap_err();
/// assert_eq!(error.to_string(), "unknown time zone `Europe/Berln`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A number out of range.
    Quota(QuotaError),
    /// An unknown time zone.
    Calendar(CalendarError),
    /// A calendar supports days, weeks, months and years only.
    NoCalendarUnit {
        /// The given period, in microseconds.
        period_us: u64,
    },
    /// Invalid limits in text form: every problem with its position, value and remedy.
    Text(String),
    /// The store, or the memory, has a limiter of this name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// Two limits of one limiter have this name.
    LimitNamedTwice {
        /// The name.
        name: String,
    },
    /// A limiter on a store that several processes share has no name.
    NameMissing,
    /// Processes cannot share a limit, or limits of this mode, with this consistency.
    Unshared {
        /// The consistency, as rule files write it.
        consistency: &'static str,
        /// What it needs.
        needs: &'static str,
        /// What there is: an algorithm or a mode.
        got: &'static str,
    },
    /// A rule that cannot have pools, or pools that it cannot have.
    Pools {
        /// The reason.
        reason: &'static str,
    },
    /// Thresholds that cannot be reported.
    Notify {
        /// The reason.
        reason: &'static str,
    },
    /// The domain of limiters on a store, which cannot have other rules.
    ReservedDomain,
    /// A limit of a rule.
    InRule {
        /// Which rule.
        rule: String,
        /// The reason.
        error: Box<Self>,
    },
}

impl IntoLimit for LimitConfig {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        Ok(self)
    }
}

/// Allows limits of several types in one list: `[bucket.into_limit(), window.into_limit()]`.
impl IntoLimit for Result<LimitConfig, LimitError> {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        self
    }
}

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quota(error) => error.fmt(f),
            Self::Calendar(error) => error.fmt(f),
            Self::NoCalendarUnit { period_us } => write!(
                f,
                "a calendar counts in days, weeks, months or years, got `{period_us}us`: \
                 use `per_day`, `per_week`, `per_month` or `per_year`, or leave out the zone"
            ),
            Self::Text(problems) => f.write_str(problems),
            Self::NameTaken { name } => write!(
                f,
                "there is a limiter named `{name}` on this store already: use a clone of it, or \
                 another name"
            ),
            Self::LimitNamedTwice { name } => write!(
                f,
                "two limits of the limiter are named `{name}`, by which headers and changes refer \
                 to one of them: rename one, or leave out its name"
            ),
            Self::NameMissing => f.write_str(
                "a limiter on a shared store needs a name, under which every process finds its \
                 counters: add `.name(\"…\")`",
            ),
            Self::Unshared { consistency, needs, got } => write!(
                f,
                "`{consistency}` needs {needs}, got `{got}`: use `Consistency::Strict`, or another \
                 limit"
            ),
            Self::Pools { reason } | Self::Notify { reason } => f.write_str(reason),
            Self::ReservedDomain => write!(
                f,
                "the domain `{LIMITER_DOMAIN}` is reserved for limiters of the library, whose \
                 counters its rules would share: choose another name"
            ),
            Self::InRule { rule, error } => write!(f, "rule `{rule}`: {error}"),
        }
    }
}

impl std::error::Error for LimitError {}

impl From<QuotaError> for LimitError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}

impl From<CalendarError> for LimitError {
    fn from(error: CalendarError) -> Self {
        Self::Calendar(error)
    }
}
