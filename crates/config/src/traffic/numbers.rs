//! Parses the numbers of traffic, with the bounds that its generator needs.

use sluicegate_core::time::Span;

use crate::problem::quoted;
use crate::units::{self, UnitError, show_factor, show_span};

/// The largest number of clients: the memory of generated traffic grows with it.
pub const CLIENTS_MAX: u32 = 100_000_000;
/// The longest traffic: with it, times of a generator are exact to the microsecond.
const LENGTH_MAX: Span = Span::from_secs(10 * 365 * 86_400);
const PER_SECOND_MAX: f64 = 1e7;
const PER_SECOND_MIN: f64 = 1e-6;
const REQUESTS_MAX: u64 = 1_000_000;
const RETRIES_MAX: u64 = 20;
/// In thousandths.
const TIMES_MAX: u64 = 1_000_000;
const EXPONENT_MAX: u64 = 10_000;

/// A number such as `250`, `10k` or `2M`.
fn count(text: &str) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let (digits, factor) = match trimmed.char_indices().last() {
        Some((at, 'k' | 'K')) => (&trimmed[..at], 1_000),
        Some((at, 'M')) => (&trimmed[..at], 1_000_000),
        _ => (trimmed, 1),
    };
    let number = units::whole(digits).map_err(|_| {
        let got = quoted(text);
        let remedy = "write it like `250`, `10k` or `2M`";
        UnitError::new(format!("must be a whole number, got {got}; {remedy}"))
    })?;
    Ok(number.saturating_mul(factor))
}

fn within(text: &str, number: u64, min: u64, max: u64) -> Result<u64, UnitError> {
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    let got = quoted(text);
    let message = format!("must be from `{min}` to `{max}`, got {got}; write one in between");
    Err(UnitError::new(message))
}

pub(super) fn clients(text: &str) -> Result<u32, UnitError> {
    let number = within(text, count(text)?, 1, u64::from(CLIENTS_MAX))?;
    Ok(u32::try_from(number).unwrap_or(CLIENTS_MAX))
}

pub(super) fn requests(text: &str) -> Result<u64, UnitError> {
    within(text, count(text)?, 1, REQUESTS_MAX)
}

pub(super) fn retries(text: &str) -> Result<u64, UnitError> {
    within(text, units::whole(text)?, 0, RETRIES_MAX)
}

pub(super) fn swing(text: &str) -> Result<u64, UnitError> {
    let percent = units::percent(text)?;
    if percent <= 100 {
        return Ok(percent);
    }
    let got = quoted(text);
    Err(UnitError::new(format!("must be from `0%` to `100%`, got {got}; write one in between")))
}

/// A rate such as `2000/s`, `2k/s` or `1/10m`, per second.
pub(super) fn per_second(text: &str) -> Result<f64, UnitError> {
    let written = match text.split_once('/') {
        // `2k/s` is `2000/s`.
        Some((number, period)) if number.trim_end().ends_with(['k', 'K', 'M']) => {
            units::rate(&format!("{}/{period}", count(number)?))?
        }
        _ => units::rate(text)?,
    };
    let seconds = written.period().as_micros() as f64 / 1e6;
    let rate = written.count() as f64 / seconds;
    if (PER_SECOND_MIN..=PER_SECOND_MAX).contains(&rate) {
        return Ok(rate);
    }
    let got = quoted(text);
    Err(UnitError::new(format!(
        "must be from `1/1_000_000s` to `10M/s`, got {got}; write one in between"
    )))
}

pub(super) fn times(text: &str) -> Result<u64, UnitError> {
    let factor = units::factor(text)?;
    if (1_000..=TIMES_MAX).contains(&factor) {
        return Ok(factor);
    }
    let (max, got) = (show_factor(TIMES_MAX), quoted(text));
    Err(UnitError::new(format!("must be from `1x` to `{max}x`, got {got}; write one in between")))
}

pub(super) fn exponent(text: &str) -> Result<u64, UnitError> {
    let exponent = units::decimal(text)?;
    if (1..=EXPONENT_MAX).contains(&exponent) {
        return Ok(exponent);
    }
    let (max, got) = (show_factor(EXPONENT_MAX), quoted(text));
    Err(UnitError::new(format!(
        "must be above `0` and at most `{max}`, got {got}; write like `1.1`"
    )))
}

pub(super) fn length(text: &str) -> Result<Span, UnitError> {
    let span = units::span(text)?;
    if span <= LENGTH_MAX {
        return Ok(span);
    }
    let (max, got) = (show_span(LENGTH_MAX), quoted(text));
    Err(UnitError::new(format!("must last at most `{max}`, got {got}; write a shorter time")))
}
