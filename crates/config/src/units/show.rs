//! The same numbers, shown as a person would have written them.

use sluicegate_core::time::Span;

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

/// The longest that may be written, for a message: exact up to a year, in whole years beyond.
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
