//! Limits that have a rate: so many per period.

use std::time::Duration;

use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow as CoreFixedWindow};
use sluicegate_core::algorithm::leaky_bucket::LeakyBucket as CoreLeakyBucket;
use sluicegate_core::algorithm::sliding_log::SlidingLog as CoreSlidingLog;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow as CoreSlidingWindow};
use sluicegate_core::algorithm::smooth::SmoothBursty as CoreSmoothBursty;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket as CoreTokenBucket};
use sluicegate_core::algorithm::warm_up::WarmUp as CoreWarmUp;
use sluicegate_core::limit::Limit as CoreLimit;
use sluicegate_core::quota::{QuotaError, Rate as CoreRate};
use sluicegate_rules::calendar::{Calendar, CalendarUnit};
use sluicegate_rules::limit::Limit;

use super::{IntoLimit, LimitError};
use crate::clock::span;

/// So many per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    count: u64,
    period: Duration,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

impl Rate {
    fn exact(self) -> Result<CoreRate, QuotaError> {
        CoreRate::new(self.count, span(self.period))
    }
}

/// The constructors and the name that all limits with a rate have.
macro_rules! rated {
    ($limit:ident { $($field:ident: $value:expr),* }) => {
        impl $limit {
            /// So many per second.
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($limit), "::per_second(10))?;")]
            /// assert!(limiter.hit("alice").is_allowed());
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per_second(count: u64) -> Self {
                Self::per(count, SECOND)
            }

            /// So many per minute.
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($limit), "::per_minute(10))?;")]
            /// assert!(limiter.hit("alice").is_allowed());
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per_minute(count: u64) -> Self {
                Self::per(count, MINUTE)
            }

            /// So many per hour.
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($limit), "::per_hour(10))?;")]
            /// assert!(limiter.hit("alice").is_allowed());
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per_hour(count: u64) -> Self {
                Self::per(count, HOUR)
            }

            /// So many per day of 24 hours.
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($limit), "::per_day(10))?;")]
            /// assert!(limiter.hit("alice").is_allowed());
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per_day(count: u64) -> Self {
                Self::per(count, DAY)
            }

            /// So many per period of any length.
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            /// let period = Duration::from_secs(30);
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($limit), "::per(10, period))?;")]
            /// assert!(limiter.hit("alice").is_allowed());
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub const fn per(count: u64, period: Duration) -> Self {
                Self { rate: Rate { count, period }, name: None, $($field: $value),* }
            }
        }

        crate::limit::rated::named!($limit, $limit::per_minute(10));
    };
}

/// The name that all limits can have.
macro_rules! named {
    ($limit:ident, $example:expr) => {
        impl $limit {
            /// What it is called: in headers, in events, and by whoever changes it.
            ///
            /// ```
            #[doc = concat!("use sluicegate::limit::", stringify!($limit), ";")]
            ///
            #[doc = concat!("let limiter = sluicegate::Limiter::new(", stringify!($example), ".named(\"mine\"))?;")]
            /// assert_eq!(limiter.policies()[0].name, "mine");
            /// # Ok::<(), sluicegate::LimitError>(())
            /// ```
            pub fn named(self, name: impl Into<String>) -> Self {
                Self { name: Some(name.into()), ..self }
            }
        }
    };
}
pub(super) use named;

/// Tokens that come at a steady rate, and a bucket that keeps some: bursts pass while they last.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::TokenBucket;
///
/// let limiter = Limiter::new(TokenBucket::per_second(10).burst(50))?;
/// assert_eq!(limiter.hit("alice").remaining, Some(49));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    name: Option<String>,
    burst: Option<u64>,
    initial: Option<u64>,
    refill: Refill,
}
rated!(TokenBucket { burst: None, initial: None, refill: Refill::Greedy });

/// A queue that is drained at a steady rate: an admitted caller is told how long to wait for its turn.
///
/// ```
/// use sluicegate::limit::LeakyBucket;
/// use sluicegate::{Limiter, Outcome, Span};
///
/// let limiter = Limiter::new(LeakyBucket::per_second(10).queue(20))?;
/// limiter.hit("printer");
/// let Outcome::Allow { wait } = limiter.hit("printer").outcome else { panic!() };
/// assert!(wait > Span::from_millis(90));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    name: Option<String>,
    queue: u64,
}
rated!(LeakyBucket { queue: 0 });

/// So many in each window, and a new count with each.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::FixedWindow;
///
/// let limiter = Limiter::new(FixedWindow::per_month(100_000).in_zone("America/New_York"))?;
/// assert_eq!(limiter.hit("alice").remaining, Some(99_999));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedWindow {
    rate: Rate,
    name: Option<String>,
    align: Windows,
    unit: Option<CalendarUnit>,
}
rated!(FixedWindow { align: Windows::Clock, unit: None });

/// Where windows begin.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Windows {
    Clock,
    FirstHit,
    Zone(String),
}

/// Exactly so many in any rolling window: remembers every hit.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::SlidingLog;
///
/// let limiter = Limiter::new(SlidingLog::per_minute(5).count_denied())?;
/// assert_eq!(limiter.hit("login:alice").remaining, Some(4));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingLog {
    rate: Rate,
    name: Option<String>,
    more: Vec<Rate>,
    count_denied: bool,
    min_gap: Duration,
}
rated!(SlidingLog { more: Vec::new(), count_denied: false, min_gap: Duration::ZERO });

/// About so many in any rolling window, from two counts.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::SlidingWindow;
///
/// let limiter = Limiter::new(SlidingWindow::per_minute(100))?;
/// assert_eq!(limiter.hit("alice").remaining, Some(99));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
    name: Option<String>,
    rounding: Rounding,
}
rated!(SlidingWindow { rounding: Rounding::Floor });

/// A steady rate: any cost is granted at once, and the next caller waits for it. As Guava's.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::SmoothBursty;
///
/// let limiter = Limiter::new(SmoothBursty::per_second(5))?;
/// assert!(limiter.of("export").cost(100).hit().is_allowed());
/// assert!(!limiter.of("export").hit().is_allowed(), "the next one pays");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmoothBursty {
    rate: Rate,
    name: Option<String>,
    max_burst: Duration,
}
rated!(SmoothBursty { max_burst: SECOND });

/// A steady rate that is slower after a pause: what it protects has to warm up. As Guava's.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::Limiter;
/// use sluicegate::limit::WarmUp;
///
/// let limiter = Limiter::new(WarmUp::per_second(5).over(Duration::from_secs(4)))?;
/// assert!(limiter.hit("cache").is_allowed());
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmUp {
    rate: Rate,
    name: Option<String>,
    warm_up: Duration,
    cold_factor: u64,
}
rated!(WarmUp { warm_up: SECOND, cold_factor: 3_000 });

// === impl TokenBucket ===

impl TokenBucket {
    /// How many tokens the bucket holds; the rate's number unless told.
    ///
    /// ```
    /// use sluicegate::limit::TokenBucket;
    ///
    /// let limiter = sluicegate::Limiter::new(TokenBucket::per_second(10).burst(50))?;
    /// assert_eq!(limiter.policies()[0].quota, Some(50));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.burst = Some(tokens);
        self
    }

    /// How many it starts with; full unless told.
    ///
    /// ```
    /// use sluicegate::limit::TokenBucket;
    ///
    /// let limiter = sluicegate::Limiter::new(TokenBucket::per_second(10).initial(1))?;
    /// assert_eq!(limiter.hit("alice").remaining, Some(0));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// How tokens come back: one by one unless told.
    ///
    /// ```
    /// use sluicegate::limit::{Refill, TokenBucket};
    ///
    /// let hourly = TokenBucket::per_hour(10).refill(Refill::Aligned);
    /// assert!(sluicegate::Limiter::new(hourly)?.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = refill;
        self
    }
}

impl IntoLimit for TokenBucket {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let burst = self.burst.unwrap_or(self.rate.count);
        let mut bucket = CoreTokenBucket::new(self.rate.exact()?, burst)?;
        if let Some(initial) = self.initial {
            bucket = bucket.with_initial(initial)?;
        }
        let bucket = bucket.with_refill(self.refill)?;
        Ok(Limit::fixed(self.name, CoreLimit::TokenBucket(bucket)))
    }
}

// === impl LeakyBucket ===

impl LeakyBucket {
    /// How many may wait; nobody unless told.
    ///
    /// ```
    /// use sluicegate::limit::LeakyBucket;
    ///
    /// let limiter = sluicegate::Limiter::new(LeakyBucket::per_second(1).queue(1))?;
    /// let allowed = [(); 3].map(|()| limiter.hit("printer").is_allowed());
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn queue(mut self, places: u64) -> Self {
        self.queue = places;
        self
    }
}

impl IntoLimit for LeakyBucket {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let bucket = CoreLeakyBucket::new(self.rate.exact()?, self.queue)?;
        Ok(Limit::fixed(self.name, CoreLimit::LeakyBucket(bucket)))
    }
}

// === impl FixedWindow ===

impl FixedWindow {
    /// So many per week, from Monday where a zone is given.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = sluicegate::Limiter::new(FixedWindow::per_week(10).in_zone("Asia/Tokyo"))?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn per_week(count: u64) -> Self {
        Self::per(count, Duration::from_secs(7 * 86_400))
    }

    /// So many per calendar month; of UTC unless [`FixedWindow::in_zone`] tells another zone.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = sluicegate::Limiter::new(FixedWindow::per_month(10))?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn per_month(count: u64) -> Self {
        let nominal = Self::per(count, Duration::from_secs(30 * 86_400));
        Self { unit: Some(CalendarUnit::Month), ..nominal }.in_zone("UTC")
    }

    /// So many per calendar year; of UTC unless [`FixedWindow::in_zone`] tells another zone.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = sluicegate::Limiter::new(FixedWindow::per_year(10))?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn per_year(count: u64) -> Self {
        let nominal = Self::per(count, Duration::from_secs(365 * 86_400));
        Self { unit: Some(CalendarUnit::Year), ..nominal }.in_zone("UTC")
    }

    /// Windows of the calendar in a time zone, named as in the IANA database: days, weeks, months or years.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = sluicegate::Limiter::new(FixedWindow::per_day(10).in_zone("Europe/Berlin"))?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn in_zone(self, zone: impl Into<String>) -> Self {
        Self { align: Windows::Zone(zone.into()), ..self }
    }

    /// Windows that begin with the first hit, for each key at another time.
    ///
    /// ```
    /// use sluicegate::limit::FixedWindow;
    ///
    /// let limiter = sluicegate::Limiter::new(FixedWindow::per_hour(10).from_first_hit())?;
    /// assert_eq!(limiter.hit("alice").reset_after, sluicegate::Span::from_secs(3_600));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn from_first_hit(self) -> Self {
        Self { align: Windows::FirstHit, ..self }
    }

    /// The unit of the calendar that the period stands for.
    fn calendar_unit(&self) -> Result<CalendarUnit, LimitError> {
        match (self.unit, self.rate.period.as_secs() / 86_400) {
            (Some(unit), _) => Ok(unit),
            (None, 1) if self.rate.period == DAY => Ok(CalendarUnit::Day),
            (None, 7) if self.rate.period == 7 * DAY => Ok(CalendarUnit::Week),
            _ => Err(LimitError::NoCalendarUnit { period_us: span(self.rate.period).as_micros() }),
        }
    }
}

impl IntoLimit for FixedWindow {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let rate = self.rate.exact()?;
        let align = match &self.align {
            Windows::Clock => Align::Clock,
            Windows::FirstHit => Align::FirstHit,
            Windows::Zone(zone) => {
                let calendar = Calendar::new(zone, self.calendar_unit()?)?;
                return Ok(Limit::calendar(self.name, rate, calendar));
            }
        };
        let window = CoreFixedWindow::new(rate, align);
        Ok(Limit::fixed(self.name, CoreLimit::FixedWindow(window)))
    }
}

// === impl SlidingLog ===

impl SlidingLog {
    /// Another window on the same log: never more than so many in any of this length either.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::SlidingLog;
    ///
    /// let limit = SlidingLog::per_minute(10).and_per(2, Duration::from_secs(3));
    /// assert_eq!(sluicegate::Limiter::new(limit)?.hit("alice").remaining, Some(1));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub fn and_per(mut self, count: u64, period: Duration) -> Self {
        self.more.push(Rate { count, period });
        self
    }

    /// Denied attempts occupy the log too: who keeps hammering stays out.
    ///
    /// ```
    /// use sluicegate::limit::SlidingLog;
    ///
    /// let limiter = sluicegate::Limiter::new(SlidingLog::per_minute(5).count_denied())?;
    /// assert!(limiter.hit("login:alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn count_denied(mut self) -> Self {
        self.count_denied = true;
        self
    }

    /// Denies a hit that comes sooner than this after the one before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::SlidingLog;
    ///
    /// let limit = SlidingLog::per_minute(5).min_gap(Duration::from_millis(200));
    /// let limiter = sluicegate::Limiter::new(limit)?;
    /// assert!(limiter.hit("alice").is_allowed());
    /// assert!(!limiter.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn min_gap(mut self, gap: Duration) -> Self {
        self.min_gap = gap;
        self
    }
}

impl IntoLimit for SlidingLog {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let all = std::iter::once(self.rate).chain(self.more);
        let rates = all.map(Rate::exact).collect::<Result<Vec<_>, _>>()?;
        let mut log = CoreSlidingLog::new(&rates)?.with_min_gap(span(self.min_gap));
        if self.count_denied {
            log = log.counting_denied()?;
        }
        Ok(Limit::fixed(self.name, CoreLimit::SlidingLog(log)))
    }
}

// === impl SlidingWindow ===

impl SlidingWindow {
    /// What happens to a fraction of a hit in the estimate: it does not count unless told.
    ///
    /// ```
    /// use sluicegate::limit::{Rounding, SlidingWindow};
    ///
    /// let strict = SlidingWindow::per_minute(100).rounding(Rounding::Up);
    /// assert!(sluicegate::Limiter::new(strict)?.hit("alice").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }
}

impl IntoLimit for SlidingWindow {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let window = CoreSlidingWindow::new(self.rate.exact()?, self.rounding);
        Ok(Limit::fixed(self.name, CoreLimit::SlidingWindow(window)))
    }
}

// === impl SmoothBursty, WarmUp ===

impl SmoothBursty {
    /// For how long unused permits are stored; a second unless told.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::SmoothBursty;
    ///
    /// let limit = SmoothBursty::per_second(5).max_burst(Duration::from_secs(10));
    /// assert!(sluicegate::Limiter::new(limit)?.hit("export").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn max_burst(mut self, time: Duration) -> Self {
        self.max_burst = time;
        self
    }
}

impl IntoLimit for SmoothBursty {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let smooth = CoreSmoothBursty::new(self.rate.exact()?, span(self.max_burst))?;
        Ok(Limit::fixed(self.name, CoreLimit::SmoothBursty(smooth)))
    }
}

impl WarmUp {
    /// How long it takes to warm up; a second unless told, an hour at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::limit::WarmUp;
    ///
    /// let limit = WarmUp::per_second(5).over(Duration::from_secs(60));
    /// assert!(sluicegate::Limiter::new(limit)?.hit("cache").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn over(mut self, time: Duration) -> Self {
        self.warm_up = time;
        self
    }

    /// How many times slower it is when cold, in thousandths; 3,000 unless told.
    ///
    /// ```
    /// use sluicegate::limit::WarmUp;
    ///
    /// let limit = WarmUp::per_second(5).cold_factor(2_000);
    /// assert!(sluicegate::Limiter::new(limit)?.hit("cache").is_allowed());
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn cold_factor(mut self, thousandths: u64) -> Self {
        self.cold_factor = thousandths;
        self
    }
}

impl IntoLimit for WarmUp {
    fn into_limit(self) -> Result<Limit, LimitError> {
        let limit = CoreWarmUp::new(self.rate.exact()?, span(self.warm_up), self.cold_factor)?;
        Ok(Limit::fixed(self.name, CoreLimit::WarmUp(limit)))
    }
}
