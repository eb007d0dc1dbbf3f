//! Limits that hold at certain times of the week.
//!
//! A part of a schedule holds on days of the week from one civil time until another. Both begin at
//! the first moment at which clocks show them or a later time (`zone`), so a part never begins
//! twice on a day, and parts that follow each other leave no gap when clocks change:
//!
//! ```text
//!   Berlin 2026-03-29, 02:00 to 03:00 skipped    01:00-02:30 ends at 03:00, 02:15-02:45 is empty
//!   Berlin 2026-10-25, 02:00 to 03:00 repeated   01:00-02:30 ends at the first 02:30
//! ```

use jiff::ToSpan;
use jiff::civil::{Date, Time};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};

use crate::rule::Limits;
use crate::zone::{Zone, seconds, since_epoch};

/// Maximum number of parts of a schedule.
pub const PARTS_MAX: usize = 32;
/// Minutes of a day.
pub const DAY_MINUTES: u16 = 24 * 60;

/// How far ahead the next change is searched: every week is the same but for changes of the clock.
const AHEAD: Span = Span::from_secs(30 * 86_400);

/// Limits that hold at certain times instead of a rule's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The parts; of several that hold at a time, the first applies.
    pub parts: Vec<SchedulePart>,
    /// The limits at other times.
    pub otherwise: Limits,
    /// What the limits of the rule are, once it is resolved.
    pub in_force: Option<InForce>,
}

/// Limits, and when they hold.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulePart {
    /// When they hold.
    pub period: Period,
    /// The limits.
    pub limits: Limits,
}

/// The part of a schedule that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// Its index; `None` for the limits at other times.
    pub part: Option<usize>,
    /// When another one holds; `None` if that is not within 30 days.
    pub until: Option<Timestamp>,
}

/// Times of the week.
///
/// ```
/// use sluicegate_rules::schedule::Period;
/// use sluicegate_rules::zone::{Zone, moment_of};
///
/// let zone = Zone::new("Europe/Berlin").unwrap();
/// let office = Period { days: [true, true, true, true, true, false, false], from: 9 * 60, until: 18 * 60, zone };
/// assert!(office.holds(moment_of("2026-11-20T08:00:00Z").unwrap()), "a Friday at 9");
/// assert!(!office.holds(moment_of("2026-11-20T17:00:00Z").unwrap()), "at 18 it is over");
/// assert_eq!(office.to_string(), "mon-fri 09:00-18:00 Europe/Berlin");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    /// The days on which it begins, from Monday.
    pub days: [bool; 7],
    /// Begin, in minutes of the day.
    pub from: u16,
    /// End, in minutes of the day, up to [`DAY_MINUTES`]; on the next day if it is not after the
    /// begin.
    pub until: u16,
    /// The zone of the times.
    pub zone: Zone,
}

/// The names of the days of the week.
pub const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Schedule {
    /// The part that holds at a time, and until when.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> InForce {
        let now = now.min(NOW_MAX);
        let part = self.part_at(now);
        let (end, mut at) = (now.after(AHEAD), now);
        let until = loop {
            let edges = self.parts.iter().filter_map(|part| part.period.next_edge(at));
            match edges.min() {
                Some(edge) if edge <= end && edge > at => at = edge,
                _ => break None,
            }
            if self.part_at(at) != part {
                break Some(at);
            }
        };
        InForce { part, until }
    }

    fn part_at(&self, now: Timestamp) -> Option<usize> {
        self.parts.iter().position(|part| part.period.holds(now))
    }

    /// The limits of a part, or those at other times.
    #[must_use]
    pub fn limits(&self, part: Option<usize>) -> &Limits {
        let part = part.and_then(|part| self.parts.get(part));
        part.map_or(&self.otherwise, |part| &part.limits)
    }

    /// When the schedule is to be resolved again, at the latest.
    pub(crate) fn next(in_force: InForce, now: Timestamp) -> Timestamp {
        in_force.until.unwrap_or_else(|| now.after(AHEAD))
    }
}

impl Period {
    /// Whether a time is within it.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        let now = seconds(now);
        self.occurrences(now).any(|(start, end)| start <= now && now < end)
    }

    /// The first begin or end after a time.
    fn next_edge(&self, now: Timestamp) -> Option<Timestamp> {
        let now = seconds(now);
        let edges = self.occurrences(now).flat_map(|(start, end)| [start, end]);
        edges.filter(|edge| *edge > now).min().map(since_epoch)
    }

    /// Begins and ends, in seconds, of those that are near a time: two days before it, since an
    /// occurrence ends on the next day and clocks may be put back, to a week after it.
    fn occurrences(&self, now: i64) -> impl Iterator<Item = (i64, i64)> + '_ {
        let today = self.zone.civil(now).date();
        (-2..=9).filter_map(move |days: i64| {
            let date = today.saturating_add(days.days());
            let weekday = date.weekday().to_monday_zero_offset();
            let begins = usize::try_from(weekday).ok().and_then(|day| self.days.get(day));
            let (start, end) = (self.moment_s(date, self.from), self.moment_s(date, self.end()));
            (begins == Some(&true) && start < end).then_some((start, end))
        })
    }

    /// The end, in minutes from the begin of the day on which it begins.
    const fn end(&self) -> u16 {
        if self.until > self.from { self.until } else { self.until + DAY_MINUTES }
    }

    fn moment_s(&self, date: Date, minutes: u16) -> i64 {
        let (days, minutes) = (minutes / DAY_MINUTES, minutes % DAY_MINUTES);
        let date = date.saturating_add(i64::from(days).days());
        let time = i8::try_from(minutes / 60).ok().zip(i8::try_from(minutes % 60).ok());
        let time = time.and_then(|(hour, minute)| Time::new(hour, minute, 0, 0).ok());
        self.zone.first_moment_s(date.to_datetime(time.unwrap_or(Time::midnight())))
    }
}

/// `mon-fri 09:00-18:00 Europe/Berlin`.
impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut runs: Vec<String> = Vec::new();
        let mut day = 0;
        while let Some(rest) = self.days.get(day..).filter(|rest| !rest.is_empty()) {
            let length = rest.iter().take_while(|holds| **holds).count();
            let (first, last) = (DAYS.get(day), DAYS.get((day + length).saturating_sub(1)));
            match (length, first, last) {
                (0, ..) => {}
                (1, Some(day), _) => runs.push((*day).to_owned()),
                (_, Some(first), Some(last)) => runs.push(format!("{first}-{last}")),
                _ => {}
            }
            day += length.max(1);
        }
        let days = if self.days == [true; 7] { "daily".to_owned() } else { runs.join(",") };
        let clock = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let (from, until) = (clock(self.from), clock(self.until));
        write!(f, "{days} {from}-{until} {}", self.zone.name())
    }
}

#[cfg(test)]
mod tests;
