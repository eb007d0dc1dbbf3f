//! Windows: fixed, sliding, a log of every hit, and a tally that counts denials.

use std::time::Duration;

use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow as CoreFixedWindow};
use sluicegate_core::algorithm::sliding_log::SlidingLog as CoreSlidingLog;
use sluicegate_core::algorithm::sliding_slices::SlidingSlices as CoreSlidingSlices;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow as CoreSlidingWindow};
use sluicegate_core::algorithm::tally::Tally as CoreTally;
use sluicegate_core::limit::Limit;
use sluicegate_rules::calendar::{Calendar, CalendarUnit};
use sluicegate_rules::limit::LimitConfig;

use super::rated::{DAY, Rate, rated};
use super::{IntoLimit, LimitError};
use crate::clock::span;

/// A count per fixed window.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::FixedWindow;
///
/// for limit in [
///     FixedWindow::per_day(10).in_zone("Europe/Berlin"),
///     FixedWindow::per_week(10).in_zone("Asia/Tokyo"),
///     FixedWindow::per_month(10).in_zone("America/New_York"),
///     FixedWindow::per_month(10),
///     FixedWindow::per_year(10),
/// ] {
///     assert_eq!(Limiter::new(limit)?.hit("alice").remaining, Some(9));
/// }
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

/// An exact count in any rolling window; stores every hit.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::SlidingLog;
///
/// let limiter = Limiter::new(SlidingLog::per_minute(5).count_denied())?;
/// let verdict = limiter.hit("login:alice");
/// assert!(verdict.is_allowed());
/// assert_eq!(verdict.remaining, Some(4));
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

/// A count in any rolling window: approximate, from two counters, or with
/// [`slices`](SlidingWindow::slices) never above the limit.
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
    slices: Option<u64>,
}
rated!(SlidingWindow { rounding: Rounding::Floor, slices: None });

/// A count per clock window with the semantics of Envoy's rate limit service: it counts first and
/// compares then, so denied requests count too.
///
/// It counts even if other limits deny. A cost of 0 is denied once the count exceeds the limit. A
/// limit of 0 is valid: only a cost of 0 passes.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::limit::Tally;
///
/// let limiter = Limiter::new(Tally::per_day(10))?;
/// assert!(limiter.of("alice").cost(8).hit().is_allowed());
/// assert!(!limiter.of("alice").cost(5).hit().is_allowed(), "13 are more than 10");
/// assert!(!limiter.of("alice").hit().is_allowed(), "and so are 14");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    rate: Rate,
    name: Option<String>,
}
rated!(Tally {});

impl FixedWindow {
    /// A number per week, from Monday if a zone is set.
    pub const fn per_week(count: u64) -> Self {
        Self::per(count, Duration::from_secs(7 * 86_400))
    }

    /// A number per calendar month, in UTC unless [`FixedWindow::in_zone`] sets another zone.
    pub fn per_month(count: u64) -> Self {
        let nominal = Self::per(count, Duration::from_secs(30 * 86_400));
        Self { unit: Some(CalendarUnit::Month), ..nominal }.in_zone("UTC")
    }

    /// A number per calendar year, in UTC unless [`FixedWindow::in_zone`] sets another zone.
    pub fn per_year(count: u64) -> Self {
        let nominal = Self::per(count, Duration::from_secs(365 * 86_400));
        Self { unit: Some(CalendarUnit::Year), ..nominal }.in_zone("UTC")
    }

    /// Calendar windows in an IANA time zone: days, weeks, months or years.
    pub fn in_zone(self, zone: impl Into<String>) -> Self {
        Self { align: Windows::Zone(zone.into()), ..self }
    }

    /// Windows that begin with the first hit of each key.
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

    /// The calendar unit of the period.
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
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let rate = self.rate.exact()?;
        let align = match &self.align {
            Windows::Clock => Align::Clock,
            Windows::FirstHit => Align::FirstHit,
            Windows::Zone(zone) => {
                let calendar = Calendar::new(zone, self.calendar_unit()?)?;
                return Ok(LimitConfig::calendar(self.name, rate, calendar));
            }
        };
        let window = CoreFixedWindow::new(rate, align);
        Ok(LimitConfig::fixed(self.name, Limit::FixedWindow(window)))
    }
}

impl SlidingLog {
    /// Adds a window on the same log, with a limit of its own.
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

    /// Counts denied attempts too: a client that keeps sending stays denied.
    pub const fn count_denied(mut self) -> Self {
        self.count_denied = true;
        self
    }

    /// Denies a hit within this time after the previous one.
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
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let all = std::iter::once(self.rate).chain(self.more);
        let rates = all.map(Rate::exact).collect::<Result<Vec<_>, _>>()?;
        let mut log = CoreSlidingLog::new(&rates)?.with_min_gap(span(self.min_gap));
        if self.count_denied {
            log = log.counting_denied()?;
        }
        Ok(LimitConfig::fixed(self.name, Limit::SlidingLog(log)))
    }
}

impl SlidingWindow {
    /// How the estimate rounds a fraction of a hit; down by default.
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

    /// Counts in slices of the clock, from 2 to 60, instead of two counters: no rolling window ever
    /// holds more than the limit, and a hit counts at most one slice longer than its window. The
    /// rounding has no effect then.
    ///
    /// ```
    /// use sluicegate::limit::SlidingWindow;
    ///
    /// let exact = SlidingWindow::per_minute(100).slices(6);
    /// assert_eq!(sluicegate::Limiter::new(exact)?.hit("alice").remaining, Some(99));
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    pub const fn slices(mut self, slices: u64) -> Self {
        self.slices = Some(slices);
        self
    }
}

impl IntoLimit for SlidingWindow {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let rate = self.rate.exact()?;
        let limit = match self.slices {
            Some(slices) => Limit::SlidingSlices(CoreSlidingSlices::new(rate, slices)?),
            None => Limit::SlidingWindow(CoreSlidingWindow::new(rate, self.rounding)),
        };
        Ok(LimitConfig::fixed(self.name, limit))
    }
}

impl IntoLimit for Tally {
    fn into_limit(self) -> Result<LimitConfig, LimitError> {
        let tally = CoreTally::new(self.rate.count, span(self.rate.period))?;
        Ok(LimitConfig::fixed(self.name, Limit::Tally(tally)))
    }
}
