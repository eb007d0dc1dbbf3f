//! Parses and formats durations, rates, percentages and factors.
//!
//! Each function parses one kind of value. It returns the exact value, or an error with the
//! problem, the given text and an example; the caller adds the position. Nothing is rounded: a
//! duration is a whole number of its unit, a factor has at most three decimals.

mod numbers;

pub(crate) use numbers::choice;
pub use numbers::{decimal, factor, millionths, percent, truth, whole};
use numbers::{digits_value, split_number};
use sluicegate_core::quota::{QuotaError, Rate};
use sluicegate_core::time::{SPAN_MAX, Span};
use sluicegate_rules::calendar::CalendarUnit;

use crate::problem::quoted;
use crate::suggest;

/// Why a text cannot be parsed.
///
/// ```
/// let error = sluicegate_config::units::span("5 sek").unwrap_err();
/// assert!(error.to_string().starts_with("unknown unit `sek`, got `5 sek`; did you mean `sec`?"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError(String);

/// A rate as it was written; its number may be 0.
///
/// ```
/// use sluicegate_config::units::rate;
/// use sluicegate_rules::calendar::CalendarUnit;
///
/// assert_eq!(rate("10000/day").unwrap().calendar(), Some(CalendarUnit::Day));
/// assert_eq!(rate("10000/24h").unwrap().calendar(), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenRate {
    count: u64,
    period: Span,
    calendar: Option<CalendarUnit>,
}

/// A duration of at least 1 µs: a whole number and a unit.
///
/// ```
/// use sluicegate_config::units::span;
/// use sluicegate_core::time::Span;
///
/// assert_eq!(span("200ms"), Ok(Span::from_millis(200)));
/// assert_eq!(span("5 minutes"), Ok(Span::from_secs(300)));
/// assert!(span("0s").is_err());
/// ```
///
/// # Errors
/// When it is something else, nothing, or above 142 years.
pub fn span(text: &str) -> Result<Span, UnitError> {
    let length = span_or_zero(text)?;
    if length.is_zero() {
        let got = quoted(text);
        return Err(UnitError(format!(
            "must be longer than nothing, got {got}; write at least `1us`"
        )));
    }
    Ok(length)
}

/// A duration, or none: `0s` is fine.
///
/// ```
/// use sluicegate_config::units::span_or_zero;
/// use sluicegate_core::time::Span;
///
/// assert_eq!(span_or_zero("0s"), Ok(Span::ZERO));
/// ```
///
/// # Errors
/// When it is something else, or above 142 years.
pub fn span_or_zero(text: &str) -> Result<Span, UnitError> {
    let (number, unit) = number_and_unit(text.trim(), text, SPAN_REMEDY)?;
    length(number, unit, text)
}

/// A rate: a whole number per duration.
///
/// ```
/// use sluicegate_config::units::rate;
/// use sluicegate_core::time::Span;
///
/// let written = rate("5 per 30s").unwrap();
/// assert_eq!((written.count(), written.period()), (5, Span::from_secs(30)));
/// assert_eq!(rate("600/m").unwrap().period(), Span::from_secs(60));
/// ```
///
/// # Errors
/// When it is something else, or a number or duration cannot be held exactly.
pub fn rate(text: &str) -> Result<WrittenRate, UnitError> {
    let got = quoted(text);
    let wrong =
        |problem: &str, remedy: &str| Err(UnitError(format!("{problem}, got {got}; {remedy}")));
    let (digits, rest) = split_number(text.trim());
    let rest = rest.trim_start();
    if digits.is_empty() {
        return wrong("must be a number per time", RATE_REMEDY);
    }
    if rest.starts_with('.') {
        let remedy = "write it over a longer time, like `1/2s`";
        return wrong("must be a whole number per time", remedy);
    }
    let per_word = rest
        .strip_prefix("per")
        .filter(|after| after.starts_with(|c: char| c.is_whitespace() || c.is_ascii_digit()));
    let Some(per) = rest.strip_prefix('/').or(per_word) else {
        return wrong("must be a number per time", RATE_REMEDY);
    };
    let count = digits_value(digits, text)?;
    let per = per.trim_start();
    // `10/s` is `10/1s`.
    let (number, unit) = if per.starts_with(char::is_alphabetic) {
        (1, unit(per, text)?)
    } else {
        number_and_unit(per, text, RATE_REMEDY)?
    };
    let period = length(number, unit, text)?;
    if period.is_zero() {
        return wrong("must be per a time longer than nothing", RATE_REMEDY);
    }
    let calendar = unit.calendar.filter(|_| number == 1);
    Ok(WrittenRate { count, period, calendar })
}

impl WrittenRate {
    /// The number of units; 0 closes a limit.
    ///
    /// ```
    /// assert_eq!(sluicegate_config::units::rate("0/s").unwrap().count(), 0);
    /// ```
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The period that they come in.
    ///
    /// ```
    /// use sluicegate_core::time::Span;
    ///
    /// let month = sluicegate_config::units::rate("5/month").unwrap();
    /// assert_eq!(month.period(), Span::from_secs(30 * 86_400));
    /// ```
    #[must_use]
    pub const fn period(&self) -> Span {
        self.period
    }

    /// The unit of a calendar that the period was written as, if it was exactly one.
    ///
    /// ```
    /// use sluicegate_rules::calendar::CalendarUnit;
    ///
    /// let rate = |text| sluicegate_config::units::rate(text).unwrap();
    /// assert_eq!(rate("5/1week").calendar(), Some(CalendarUnit::Week));
    /// assert_eq!(rate("5/2weeks").calendar(), None);
    /// ```
    #[must_use]
    pub const fn calendar(&self) -> Option<CalendarUnit> {
        self.calendar
    }

    /// The rate; `None` if its number is 0.
    ///
    /// ```
    /// let rate = |text| sluicegate_config::units::rate(text).unwrap().to_rate();
    /// assert_eq!(rate("10/s").unwrap().map(|rate| rate.count()), Some(10));
    /// assert_eq!(rate("0/s"), Ok(None));
    /// ```
    ///
    /// # Errors
    /// Only errors that parsing the text has already excluded.
    pub fn to_rate(&self) -> Result<Option<Rate>, QuotaError> {
        match self.count {
            0 => Ok(None),
            count => Rate::new(count, self.period).map(Some),
        }
    }
}

impl UnitError {
    /// The problem as a message.
    pub(crate) fn into_message(self) -> String {
        self.0
    }

    pub(crate) const fn new(message: String) -> Self {
        Self(message)
    }
}

impl std::fmt::Display for UnitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

// === units ===

const SPAN_REMEDY: &str = "write it like `200ms`, `30s` or `1day`";
const RATE_REMEDY: &str = "write it like `10/s`, `600/m` or `5 per 30s`";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) names: &'static [&'static str],
    micros: u64,
    calendar: Option<CalendarUnit>,
}

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// The first name of each is the one that messages use.
pub(crate) const UNITS: [Unit; 9] = [
    // The micro sign has two code points of equal appearance.
    plain(&["us", "µs", "μs", "microsecond", "microseconds"], 1),
    plain(&["ms", "millisecond", "milliseconds"], 1_000),
    plain(&["s", "sec", "secs", "second", "seconds"], SECOND),
    plain(&["m", "min", "mins", "minute", "minutes"], 60 * SECOND),
    plain(&["h", "hr", "hrs", "hour", "hours"], 3_600 * SECOND),
    dated(&["day", "d", "days"], DAY, CalendarUnit::Day),
    dated(&["week", "w", "weeks"], 7 * DAY, CalendarUnit::Week),
    dated(&["month", "months"], 30 * DAY, CalendarUnit::Month),
    dated(&["year", "years"], 365 * DAY, CalendarUnit::Year),
];

const fn plain(names: &'static [&'static str], micros: u64) -> Unit {
    Unit { names, micros, calendar: None }
}

const fn dated(names: &'static [&'static str], micros: u64, unit: CalendarUnit) -> Unit {
    Unit { names, micros, calendar: Some(unit) }
}

fn unit(name: &str, whole_text: &str) -> Result<Unit, UnitError> {
    if let Some(unit) = UNITS.iter().find(|unit| unit.names.contains(&name)) {
        return Ok(*unit);
    }
    let got = quoted(whole_text);
    if name.contains(|c: char| c.is_ascii_digit()) {
        return Err(UnitError(format!(
            "must be one number and one unit, got {got}; write it in the smaller unit, like `90m`"
        )));
    }
    let hint = suggest::hint(name, UNITS.iter().flat_map(|unit| unit.names.iter().copied()));
    let known: Vec<&str> = UNITS.iter().filter_map(|unit| unit.names.first().copied()).collect();
    let (name, known) = (quoted(name), suggest::one_of(&known));
    Err(UnitError(format!("unknown unit {name}, got {got}; {hint}use {known}")))
}

// === parts of a text ===

fn number_and_unit(text: &str, whole_text: &str, remedy: &str) -> Result<(u64, Unit), UnitError> {
    let (digits, rest) = split_number(text);
    let name = rest.trim_start();
    let (problem, remedy) = if digits.is_empty() {
        ("must be a whole number and a unit", remedy)
    } else if name.is_empty() {
        ("has no unit", remedy)
    } else if name.starts_with('.') {
        let remedy = "write it in a smaller unit, like `90m`";
        ("must be a whole number and a unit", remedy)
    } else {
        let unit = unit(name, whole_text)?;
        return Ok((digits_value(digits, whole_text)?, unit));
    };
    let got = quoted(whole_text);
    Err(UnitError(format!("{problem}, got {got}; {remedy}")))
}

fn length(number: u64, unit: Unit, whole_text: &str) -> Result<Span, UnitError> {
    match number.checked_mul(unit.micros) {
        Some(us) if us <= SPAN_MAX.as_micros() => Ok(Span::from_micros(us)),
        _ => {
            let got = quoted(whole_text);
            Err(UnitError(format!("must last at most 142 years, got {got}; write a shorter time")))
        }
    }
}

/// Largest first; a span is shown in the first that divides it.
const SHOWN: [(u64, &str, &str); 7] = [
    (365 * 86_400_000_000, "year", "years"),
    (86_400_000_000, "day", "days"),
    (3_600_000_000, "h", "h"),
    (60_000_000, "m", "m"),
    (1_000_000, "s", "s"),
    (1_000, "ms", "ms"),
    (1, "us", "us"),
];

/// A duration in the largest unit that divides it.
///
/// ```
/// use sluicegate_config::units::{show_span, span};
/// use sluicegate_core::time::Span;
///
/// assert_eq!(show_span(Span::from_micros(1_500_000)), "1500ms");
/// assert_eq!(show_span(Span::from_secs(86_400)), "1day");
/// assert_eq!(span(&show_span(Span::from_secs(90))), Ok(Span::from_secs(90)));
/// ```
#[must_use]
pub fn show_span(span: Span) -> String {
    let us = span.as_micros();
    for (micros, one, many) in SHOWN {
        if us > 0 && us.is_multiple_of(micros) {
            let number = us / micros;
            let unit = if number == 1 { one } else { many };
            return format!("{number}{unit}");
        }
    }
    "0s".to_owned()
}

/// The longest span allowed, for a message: exact up to a year, in whole years beyond.
pub(crate) fn show_longest(span: Span) -> String {
    let (year, _, _) = SHOWN[0];
    match span.as_micros() / year {
        0 => show_span(span),
        years => show_span(Span::from_micros(years * year)),
    }
}

/// A rate as a number per duration.
///
/// ```
/// use sluicegate_config::units::show_rate;
/// use sluicegate_core::time::Span;
///
/// assert_eq!(show_rate(600, Span::from_secs(60)), "600/m");
/// assert_eq!(show_rate(5, Span::from_secs(30)), "5/30s");
/// ```
#[must_use]
pub fn show_rate(count: u64, period: Span) -> String {
    let period = show_span(period);
    let single = period.strip_prefix('1');
    let unit = single.filter(|unit| unit.starts_with(|c: char| !c.is_ascii_digit()));
    format!("{count}/{}", unit.unwrap_or(&period))
}

/// Thousandths as a decimal number.
///
/// ```
/// use sluicegate_config::units::show_factor;
///
/// assert_eq!(show_factor(3_000), "3");
/// assert_eq!(show_factor(1_050), "1.05");
/// ```
#[must_use]
pub fn show_factor(thousandths: u64) -> String {
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    if rest == 0 {
        return whole.to_string();
    }
    let decimals = format!("{rest:03}");
    format!("{whole}.{}", decimals.trim_end_matches('0'))
}

#[cfg(test)]
mod tests;
