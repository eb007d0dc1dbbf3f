//! The units that Envoy's form counts in.

use sluicegate_core::time::Span;

/// The time that a limit of Envoy's form counts over. A month is 30 days and a year 365, as there.
///
/// ```
/// use sluicegate_rules::unit::Unit;
///
/// assert_eq!(Unit::of("MINUTE"), Some(Unit::Minute));
/// assert_eq!(Unit::Week.span().as_micros(), 604_800_000_000);
/// assert_eq!(Unit::of("fortnight"), None);
/// assert_eq!((Unit::of_number(7), Unit::of_number(0)), (Some(Unit::Week), None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days, from Thursday to Thursday, since the epoch was one.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All of them, from the shortest.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The unit of this name, in any case.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// As it is written in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Its number in Envoy's protocol.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Second => 1,
            Self::Minute => 2,
            Self::Hour => 3,
            Self::Day => 4,
            Self::Month => 5,
            Self::Year => 6,
            Self::Week => 7,
        }
    }

    /// The unit of this number in Envoy's protocol.
    #[must_use]
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.number() == number)
    }

    /// How long it is.
    #[must_use]
    pub const fn span(self) -> Span {
        const DAY: u64 = 86_400;
        Span::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }
}
