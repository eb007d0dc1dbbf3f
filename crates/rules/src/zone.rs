//! A time zone: the moment at which its clocks first show a date and time.
//!
//! Clocks are put forward and back. `first_moment_s` defines every civil time as the first
//! moment at which clocks show it or a later one, so civil times keep their order:
//!
//! ```text
//!   skipped   Berlin 2026-03-29 02:30   01:59:59 -> 03:00:00   the moment of the change
//!   repeated  Berlin 2026-10-25 02:30   02:59:59 -> 02:00:00   the first of the two
//! ```

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use sluicegate_core::time::Timestamp;

const MICROS: u64 = 1_000_000;

/// A zone of the IANA time zone database.
///
/// ```
/// use sluicegate_rules::zone::Zone;
///
/// assert_eq!(Zone::new("Europe/Berlin").map(|zone| zone.name().to_owned()), Some("Europe/Berlin".to_owned()));
/// assert_eq!(Zone::new("Europe/Berln"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of a name; `None` if the time zone database has none.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        // `Etc/Unknown` is a valid name without a zone.
        TimeZone::get(name).ok().filter(|zone| !zone.is_unknown()).map(Self)
    }

    /// Coordinated universal time.
    #[must_use]
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Its name, as the time zone database has it.
    #[must_use]
    pub fn name(&self) -> &str {
        // It was found by its name.
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The first second since the epoch at which clocks show `civil` or a later time.
    pub(crate) fn first_moment_s(&self, civil: DateTime) -> i64 {
        let civil_s = civil.duration_since(EPOCH.to_datetime(jiff::civil::Time::midnight()));
        let civil_s = civil_s.as_secs();
        let at = |offset: jiff::tz::Offset| civil_s - i64::from(offset.seconds());
        match self.0.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            AmbiguousOffset::Fold { before, .. } => at(before),
            AmbiguousOffset::Gap { before, after } => {
                // Clocks were put forward somewhere in between, and that moment is the first: jiff
                // would count on by the old clock.
                let (mut early, mut late) = (at(after), at(before));
                while early + 1 < late {
                    let middle = early.midpoint(late);
                    if middle + self.offset_s(middle) < civil_s {
                        early = middle;
                    } else {
                        late = middle;
                    }
                }
                late
            }
        }
    }

    fn offset_s(&self, at_s: i64) -> i64 {
        i64::from(self.0.to_offset(moment(at_s)).seconds())
    }

    /// What clocks show.
    pub(crate) fn civil(&self, at_s: i64) -> DateTime {
        let at = moment(at_s);
        self.0.to_offset(at).to_datetime(at)
    }

    /// A moment as clocks of the zone show it: `2026-11-20 09:00 Europe/Berlin`, with seconds if
    /// they are not 0.
    ///
    /// ```
    /// use sluicegate_core::time::Timestamp;
    /// use sluicegate_rules::zone::Zone;
    ///
    /// assert_eq!(Zone::utc().show(Timestamp::EPOCH), "1970-01-01 00:00 UTC");
    /// ```
    #[must_use]
    pub fn show(&self, at: Timestamp) -> String {
        let civil = self.civil(seconds(at));
        let format = if civil.second() == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" };
        format!("{} {}", civil.strftime(format), self.name())
    }
}

/// Parses a moment with its offset, as RFC 3339 writes it: `2026-12-01T00:00:00Z`. `None` for
/// another text, or a moment before 1970.
///
/// ```
/// use sluicegate_rules::zone::{moment_of, show_moment};
///
/// let at = moment_of("2026-12-01T01:00:00+01:00").unwrap();
/// assert_eq!(show_moment(at), "2026-12-01T00:00:00Z");
/// assert_eq!(moment_of("2026-12-01"), None);
/// ```
#[must_use]
pub fn moment_of(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_microsecond()).ok().map(Timestamp::from_micros)
}

/// A moment in UTC, as RFC 3339 writes it.
#[must_use]
pub fn show_moment(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).to_string()
}

pub(crate) const EPOCH: Date = Date::constant(1970, 1, 1);

fn moment(at_s: i64) -> jiff::Timestamp {
    // Out of range only beyond the year 9999; `NOW_MAX` excludes it.
    jiff::Timestamp::from_second(at_s).unwrap_or(jiff::Timestamp::MAX)
}

/// Whole seconds since the epoch.
pub(crate) fn seconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_micros() / MICROS).unwrap_or(i64::MAX)
}

/// Time begins at the epoch.
pub(crate) fn since_epoch(at_s: i64) -> Timestamp {
    let seconds = u64::try_from(at_s).unwrap_or(0);
    Timestamp::from_micros(seconds.saturating_mul(MICROS))
}
