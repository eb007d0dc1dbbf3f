//! A configured limit.

use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::limit::Limit;
use sluicegate_core::quota::{QuotaError, Rate};
use sluicegate_core::time::Timestamp;

use crate::calendar::Calendar;

/// A configured limit: an optional name and its quota.
///
/// ```
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::time::Timestamp;
/// use sluicegate_rules::limit::LimitConfig;
///
/// let limit = LimitConfig::fixed(Some("all".to_owned()), Limit::Unlimited);
/// assert_eq!((limit.name(), limit.algorithm()), (Some("all"), "unlimited"));
/// assert_eq!(limit.at(Timestamp::EPOCH), Limit::Unlimited);
/// let closed = LimitConfig::closed(None, "token_bucket");
/// assert_eq!((closed.name(), closed.algorithm()), (None, "token_bucket"));
/// assert!(!limit.is_calendar() && !closed.is_calendar());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitConfig {
    name: Option<String>,
    algorithm: &'static str,
    allows: Allows,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Allows {
    /// The same at any time.
    Fixed(Limit),
    /// A count per calendar window; the windows depend on the time of the request.
    Calendar(Rate, Calendar),
}

impl LimitConfig {
    /// A limit that is the same at any time.
    #[must_use]
    pub const fn fixed(name: Option<String>, limit: Limit) -> Self {
        Self { name, algorithm: limit.algorithm(), allows: Allows::Fixed(limit) }
    }

    /// A limit that is closed for now, with the algorithm that it will have again.
    #[must_use]
    pub const fn closed(name: Option<String>, algorithm: &'static str) -> Self {
        Self { name, algorithm, allows: Allows::Fixed(Limit::Closed) }
    }

    /// The algorithm, as it is written.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// At most the rate's number in each window of a calendar. The rate's period is its nominal
    /// length.
    ///
    /// ```
    /// use sluicegate_core::quota::{QuotaError, Rate};
    /// use sluicegate_core::time::{Span, Timestamp};
    /// use sluicegate_rules::calendar::{Calendar, CalendarUnit};
    /// use sluicegate_rules::limit::LimitConfig;
    ///
    /// let rate = Rate::new(10_000, Span::from_secs(86_400)).unwrap();
    /// let berlin = Calendar::new("Europe/Berlin", CalendarUnit::Day).unwrap();
    /// let limit = LimitConfig::calendar(Some("daily".to_owned()), rate, berlin);
    /// assert!(limit.is_calendar());
    /// assert_eq!(limit.followed_calendar().map(Calendar::zone_name), Some("Europe/Berlin"));
    /// let today = limit.at(Timestamp::EPOCH);
    /// assert_eq!((today.algorithm(), today.capacity()), ("fixed_window", Some(10_000)));
    /// ```
    #[must_use]
    pub const fn calendar(name: Option<String>, rate: Rate, calendar: Calendar) -> Self {
        Self { name, algorithm: "fixed_window", allows: Allows::Calendar(rate, calendar) }
    }

    /// The limit times `factor` thousandths, rounded down, at least 1.
    ///
    /// # Errors
    /// When the factor is out of range or the resulting limit is not exact.
    pub fn scaled(&self, factor: u64) -> Result<Self, QuotaError> {
        let allows = match &self.allows {
            Allows::Fixed(limit) => Allows::Fixed(limit.scaled(factor)?),
            Allows::Calendar(rate, calendar) => {
                let window = Limit::FixedWindow(FixedWindow::new(*rate, Align::Clock));
                match window.scaled(factor)? {
                    Limit::FixedWindow(window) => Allows::Calendar(window.rate(), calendar.clone()),
                    _ => self.allows.clone(),
                }
            }
        };
        Ok(Self { name: self.name.clone(), algorithm: self.algorithm, allows })
    }

    /// Its name, if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) const fn allows(&self) -> &Allows {
        &self.allows
    }

    /// Whether its windows follow a calendar, so that [`LimitConfig::at`] depends on the time.
    #[must_use]
    pub const fn is_calendar(&self) -> bool {
        matches!(self.allows, Allows::Calendar(..))
    }

    /// The calendar that its windows follow, if they follow one.
    #[must_use]
    pub const fn followed_calendar(&self) -> Option<&Calendar> {
        match &self.allows {
            Allows::Calendar(_, calendar) => Some(calendar),
            Allows::Fixed(_) => None,
        }
    }

    /// The limit that decides at `now`.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Limit {
        match &self.allows {
            Allows::Fixed(limit) => *limit,
            Allows::Calendar(rate, calendar) => {
                let align = Align::Calendar(calendar.edges(now));
                Limit::FixedWindow(FixedWindow::new(*rate, align))
            }
        }
    }
}

/// When it changes by itself.
impl LimitConfig {
    /// The window of a calendar that holds `now`: from its first moment to before its last,
    /// [`LimitConfig::at`] is the same. `None` for a limit that is the same at any time.
    ///
    /// ```
    /// use sluicegate_core::quota::{QuotaError, Rate};
    /// use sluicegate_core::time::{Span, Timestamp};
    /// use sluicegate_rules::calendar::{Calendar, CalendarUnit};
    /// use sluicegate_rules::limit::LimitConfig;
    ///
    /// let rate = Rate::new(10, Span::from_secs(86_400)).unwrap();
    /// let daily = LimitConfig::calendar(None, rate, Calendar::new("UTC", CalendarUnit::Day).unwrap());
    /// let noon = Timestamp::from_micros(43_200_000_000);
    /// let midnight = Timestamp::from_micros(86_400_000_000);
    /// assert_eq!(daily.window_at(noon), Some((Timestamp::EPOCH, midnight)));
    /// ```
    #[must_use]
    pub fn window_at(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let Allows::Calendar(_, calendar) = &self.allows else { return None };
        let edges = calendar.edges(now);
        let mut windows = edges.starts().iter().zip(edges.starts().iter().skip(1));
        windows.find(|(start, end)| **start <= now && now < **end).map(|(s, e)| (*s, *e))
    }
}

// === several of them ===

/// The names of limits: the configured name, or the algorithm (with its index where ambiguous).
///
/// ```
/// use sluicegate_core::limit::Limit;
/// use sluicegate_rules::limit::{LimitConfig, names};
///
/// let all = || LimitConfig::fixed(None, Limit::Unlimited);
/// assert_eq!(names(&[all()]), ["unlimited"]);
/// assert_eq!(names(&[all(), all()]), ["unlimited#1", "unlimited#2"]);
/// ```
#[must_use]
pub fn names(limits: &[LimitConfig]) -> Vec<String> {
    let nameless = |limit: &LimitConfig, other: &LimitConfig| {
        other.name().is_none() && limit.algorithm() == other.algorithm()
    };
    let called = |(index, limit): (usize, &LimitConfig)| match limit.name() {
        Some(name) => name.to_owned(),
        None if limits.iter().filter(|other| nameless(limit, other)).count() > 1 => {
            format!("{}#{}", limit.algorithm(), index + 1)
        }
        None => limit.algorithm().to_owned(),
    };
    limits.iter().enumerate().map(called).collect()
}

/// For each new limit the index of the old one that it continues: the one of its name; without a
/// name, the nameless one at the same index.
///
/// ```
/// use sluicegate_core::limit::Limit;
/// use sluicegate_rules::limit::{LimitConfig, continued};
///
/// let named = |name: &str| LimitConfig::fixed(Some(name.to_owned()), Limit::Unlimited);
/// let from = continued(&[named("daily"), named("burst")], &[named("burst")]);
/// assert_eq!(from, [None, Some(0)]);
/// ```
#[must_use]
pub fn continued(new: &[LimitConfig], old: &[LimitConfig]) -> Vec<Option<usize>> {
    let from = |(index, limit): (usize, &LimitConfig)| match limit.name() {
        Some(name) => old.iter().position(|limit| limit.name() == Some(name)),
        None => old.get(index).filter(|limit| limit.name().is_none()).map(|_| index),
    };
    new.iter().enumerate().map(from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::CalendarUnit;
    use sluicegate_core::limit::State;
    use sluicegate_core::time::Span;

    fn at(text: &str) -> Timestamp {
        let moment: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_micros(u64::try_from(moment.as_microsecond()).unwrap())
    }

    #[test]
    fn a_day_of_23_hours_ends_an_hour_early() {
        let rate = Rate::new(1, Span::from_secs(86_400)).unwrap();
        let berlin = Calendar::new("Europe/Berlin", CalendarUnit::Day).unwrap();
        let limit = LimitConfig::calendar(None, rate, berlin);

        let noon = at("2026-03-29T12:00:00+02:00");
        let mut state = State::New;
        limit.at(noon).open(&mut state, noon);
        limit.at(noon).spend(&mut state, 1, noon, noon);
        let midnight = at("2026-03-30T00:00:00+02:00");
        assert_eq!(limit.at(noon).expires_at(&state), midnight);

        let just_before = midnight.before(Span::from_micros(1));
        limit.at(just_before).open(&mut state, just_before);
        assert_eq!(limit.at(just_before).remaining(&state, just_before), Some(0));
        limit.at(midnight).open(&mut state, midnight);
        assert_eq!(limit.at(midnight).remaining(&state, midnight), Some(1));
    }

    #[test]
    fn the_first_window_of_all_holds_what_was_spent_in_it() {
        let rate = Rate::new(5, Span::from_secs(86_400)).unwrap();
        for zone in ["Pacific/Kiritimati", "UTC", "Pacific/Pago_Pago"] {
            let calendar = Calendar::new(zone, CalendarUnit::Day).unwrap();
            let limit = LimitConfig::calendar(None, rate, calendar);
            let mut state = State::New;
            let mut now = Timestamp::EPOCH;
            limit.at(now).open(&mut state, now);
            limit.at(now).spend(&mut state, 5, now, now);
            let ends = limit.at(now).expires_at(&state);
            now = ends.before(Span::from_micros(1));
            limit.at(now).open(&mut state, now);
            assert_eq!(limit.at(now).remaining(&state, now), Some(0), "{zone}");
            limit.at(ends).open(&mut state, ends);
            assert_eq!(limit.at(ends).remaining(&state, ends), Some(5), "{zone}");
        }
    }
}
