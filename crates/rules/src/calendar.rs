//! The windows of a calendar in a time zone: when its days, weeks, months and years begin.
//!
//! A day begins at the first moment whose local date is that day or a later one. For most days that
//! is midnight; the definition matters for the others:
//!
//! ```text
//!   midnight is skipped    São Paulo 2018-11-04  23:59:59 -> 01:00:00  begins at 01:00
//!   midnight comes twice   Havana 2026-11-01     00:59:59 -> 00:00:00  begins at the first 00:00
//!   clocks go back over    St John's 2010-11-07  00:00:59 -> 23:01:00  has begun at the first
//!     midnight                                                         00:00, not left again
//!   a day is skipped       Apia 2011-12-30       29th 23:59 -> 31st    begins and ends at once
//! ```
//!
//! Window starts are therefore monotonic under every clock change, and the window that contains a
//! moment is the last one started. A week (from Monday), month or year starts with its first day.

use jiff::civil::{Date, Time};
use jiff::{Span as Calendrical, ToSpan};
use sluicegate_core::algorithm::periodic::{EDGES_MAX, Edges};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};

use crate::zone::{Zone, seconds, since_epoch};

/// The most that a window can exceed the length of its dates: local offsets range from UTC-12 to
/// UTC+14, so no change can set a clock back further.
const CLOCK_BACK_MAX_S: u64 = 26 * 3_600;
const DAY_S: u64 = 86_400;

/// The windows of one calendar unit in one time zone.
///
/// ```
/// use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::{Span, Timestamp};
/// use sluicegate_rules::calendar::{Calendar, CalendarUnit};
///
/// let calendar = Calendar::new("Europe/Berlin", CalendarUnit::Day).unwrap();
/// assert_eq!((calendar.zone_name(), calendar.unit()), ("Europe/Berlin", CalendarUnit::Day));
/// let now = Timestamp::from_micros(1_774_744_200_000_000); // 2026-03-29 01:30, a day of 23 hours
/// let rate = Rate::new(10_000, Span::from_secs(86_400)).unwrap();
/// let window = FixedWindow::new(rate, Align::Calendar(calendar.edges(now)));
/// assert_eq!(window.rate(), rate);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    zone: Zone,
    unit: CalendarUnit,
}

/// The unit of a calendar window.
///
/// ```
/// use sluicegate_rules::calendar::CalendarUnit;
///
/// assert_eq!(CalendarUnit::Week.name(), "week");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From one local date to the next.
    Day,
    /// From one Monday to the next.
    Week,
    /// From the first of a month to the first of the next.
    Month,
    /// From one 1 January to the next.
    Year,
}

/// Why a calendar is invalid.
///
/// ```
/// use sluicegate_rules::calendar::{Calendar, CalendarUnit};
///
/// let error = Calendar::new("Europe/Berln", CalendarUnit::Day).unwrap_err();
/// assert_eq!(error.to_string(), "unknown time zone `Europe/Berln`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// The time zone database has no zone of this name.
    UnknownZone {
        /// The unknown name.
        name: String,
    },
}

impl Calendar {
    /// The calendar of a zone, named as in the IANA time zone database.
    ///
    /// # Errors
    /// When the zone is unknown.
    pub fn new(zone_name: &str, unit: CalendarUnit) -> Result<Self, CalendarError> {
        let zone = Zone::new(zone_name)
            .ok_or_else(|| CalendarError::UnknownZone { name: zone_name.to_owned() })?;
        Ok(Self { zone, unit })
    }

    /// The unit of the windows.
    #[must_use]
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The zone, as the time zone database has it.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        self.zone.name()
    }

    /// Returns the boundaries around `now`, clamped to the latest moment that core accepts.
    ///
    /// They are the starts of the previous, the current and the next window and the end of the
    /// next. Time begins at the epoch: a window that started earlier starts there instead. The
    /// first window has no predecessor, so for `now` within it the four are its start (the epoch)
    /// and the three boundaries after; core finds it in the position of the previous window.
    ///
    /// ```
    /// use sluicegate_core::algorithm::periodic::Edges;
    /// use sluicegate_core::time::{Span, Timestamp};
    /// use sluicegate_rules::calendar::{Calendar, CalendarUnit};
    ///
    /// let calendar = Calendar::new("UTC", CalendarUnit::Day).unwrap();
    /// let day = |n: u64| Timestamp::from_micros(n * 86_400_000_000);
    /// let longest = Span::from_secs(50 * 3600);
    /// let expected = Edges::new([9, 10, 11, 12, 13, 14, 15, 16].map(day), longest).unwrap();
    /// assert_eq!(calendar.edges(day(10)), expected);
    /// ```
    #[must_use]
    pub fn edges(&self, now: Timestamp) -> Edges {
        let starts = self.starts(now);
        // The longest observed window is the bound if a clock was ever set back further.
        let seen = starts.windows(2).map(|pair| pair[1].since(pair[0])).max();
        let longest = self.unit.longest().max(seen.unwrap_or_default());
        Edges::new(starts, longest).expect("`starts` ascends and `longest` covers what it holds")
    }

    /// Ascending boundaries, as many as core requires, `now` before the third.
    fn starts(&self, now: Timestamp) -> [Timestamp; EDGES_MAX] {
        let now_s = seconds(now.min(NOW_MAX));
        let mut date = self.unit.first_date(self.zone.civil(now_s).date());
        // The local date may be behind the last that has begun, after a clock was turned back.
        while self.start_s(self.unit.after(date)) <= now_s {
            date = self.unit.after(date);
        }
        while self.start_s(date) > now_s {
            date = self.unit.before(date);
        }
        let current = self.start_s(date);
        let mut starts = [current; EDGES_MAX];
        let mut coming = 1;
        if current > 0 {
            starts[0] = self.preceding(date, current);
            starts[1] = current;
            coming = 2;
        }
        let mut last = (date, current);
        for start in &mut starts[coming..] {
            last = self.following(last.0, last.1);
            *start = last.1;
        }
        starts.map(since_epoch)
    }

    /// The first date from the one after `date` on that begins later than `start_s`, and when. A
    /// skipped one does not.
    fn following(&self, date: Date, start_s: i64) -> (Date, i64) {
        let mut date = self.unit.after(date);
        while self.start_s(date) <= start_s {
            date = self.unit.after(date);
        }
        (date, self.start_s(date))
    }

    fn preceding(&self, date: Date, start_s: i64) -> i64 {
        let mut date = self.unit.before(date);
        while self.start_s(date) >= start_s {
            date = self.unit.before(date);
        }
        self.start_s(date)
    }

    /// The first second since the epoch at which the local date is `date` or later.
    fn start_s(&self, date: Date) -> i64 {
        self.zone.first_moment_s(date.to_datetime(Time::midnight()))
    }
}

impl CalendarUnit {
    /// As it is written in a rate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// What no window of this unit exceeds: all its dates, and a clock set back as far as it can
    /// be.
    const fn longest(self) -> Span {
        let days = match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 31,
            Self::Year => 366,
        };
        Span::from_secs(days * DAY_S + CLOCK_BACK_MAX_S)
    }

    /// The first date of the unit that `date` belongs to.
    fn first_date(self, date: Date) -> Date {
        match self {
            Self::Day => date,
            Self::Week => {
                let days = i64::from(date.weekday().to_monday_zero_offset());
                date.saturating_add((-days).days())
            }
            Self::Month => date.first_of_month(),
            Self::Year => date.first_of_year(),
        }
    }

    /// The first date of the unit after the one that begins with `date`.
    fn after(self, date: Date) -> Date {
        date.saturating_add(self.one())
    }

    fn before(self, date: Date) -> Date {
        date.saturating_add(-self.one())
    }

    fn one(self) -> Calendrical {
        match self {
            Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
            Self::Year => 1.year(),
        }
    }
}

impl std::fmt::Display for CalendarError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownZone { name } => write!(f, "unknown time zone `{name}`"),
        }
    }
}

impl std::error::Error for CalendarError {}

#[cfg(test)]
mod tests;
