//! Plain numbers and words: whole numbers, percentages, factors, true and false.

use sluicegate_core::arithmetic::EXACT_MAX;

use super::UnitError;
use crate::problem::quoted;
use crate::suggest;

/// Parses a whole number up to 2^53 − 1; underscores may separate digits.
///
/// ```
/// use sluicegate_config::units::whole;
///
/// assert_eq!(whole("1_000_000"), Ok(1_000_000));
/// assert!(whole("-1").is_err());
/// ```
///
/// # Errors
/// When it is something else, or larger.
pub fn whole(text: &str) -> Result<u64, UnitError> {
    let (digits, rest) = split_number(text.trim());
    if digits.is_empty() || !rest.is_empty() {
        let got = quoted(text);
        return Err(UnitError(format!(
            "must be a whole number, got {got}; write it like `50` or `1_000`"
        )));
    }
    digits_value(digits, text)
}

/// A whole percentage.
///
/// ```
/// assert_eq!(sluicegate_config::units::percent("10%"), Ok(10));
/// ```
///
/// # Errors
/// When it is something else.
pub fn percent(text: &str) -> Result<u64, UnitError> {
    let number = text.trim().strip_suffix('%').map(str::trim_end);
    match number.map(split_number) {
        Some((digits, "")) if !digits.is_empty() => digits_value(digits, text),
        _ => {
            let got = quoted(text);
            Err(UnitError(format!("must be a whole percentage, got {got}; write it like `10%`")))
        }
    }
}

/// A factor in thousandths: a number with at most three decimals, with or without `x`.
///
/// ```
/// use sluicegate_config::units::factor;
///
/// assert_eq!((factor("2x"), factor("1.5"), factor("1.025x")), (Ok(2_000), Ok(1_500), Ok(1_025)));
/// ```
///
/// # Errors
/// When it is something else.
pub fn factor(text: &str) -> Result<u64, UnitError> {
    let number = text.trim();
    let number = number.strip_suffix('x').map_or(number, str::trim_end);
    scaled(number, 3, text, "`2x` or `1.5x`")
}

/// A number with at most three decimals, in thousandths.
///
/// ```
/// assert_eq!(sluicegate_config::units::decimal("2.5"), Ok(2_500));
/// ```
///
/// # Errors
/// When it is something else.
pub fn decimal(text: &str) -> Result<u64, UnitError> {
    scaled(text.trim(), 3, text, "`3` or `2.5`")
}

/// A number with at most six decimals, in millionths.
///
/// ```
/// assert_eq!(sluicegate_config::units::millionths("0.15"), Ok(150_000));
/// ```
///
/// # Errors
/// When it is something else.
pub fn millionths(text: &str) -> Result<u64, UnitError> {
    scaled(text.trim(), 6, text, "`3` or `0.15`")
}

/// True or false.
///
/// ```
/// assert_eq!(sluicegate_config::units::truth("true"), Ok(true));
/// ```
///
/// # Errors
/// When it is something else.
pub fn truth(text: &str) -> Result<bool, UnitError> {
    match text {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        _ => choice(text, &[("true", true), ("false", false)]),
    }
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, UnitError> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = suggest::hint(text, known.iter().copied());
        let (got, known) = (quoted(text), suggest::one_of(&known));
        UnitError(format!("must be {known}, got {got}; {hint}write one of these"))
    })
}

// === parts of a text ===

/// The digits at the front, underscores included, and the rest.
pub(super) fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// Digits with single underscores between them, up to 2^53 − 1.
pub(super) fn digits_value(digits: &str, whole_text: &str) -> Result<u64, UnitError> {
    let stray = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if stray {
        let got = quoted(whole_text);
        return Err(UnitError(format!(
            "must have underscores only between digits, got {got}; write it like `1_000`"
        )));
    }
    let value = digits.bytes().filter(u8::is_ascii_digit).try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    match value {
        Some(value) if value <= EXACT_MAX => Ok(value),
        _ => {
            let got = quoted(whole_text);
            Err(UnitError(format!(
                "has a number that is too large, got {got}; write at most `{EXACT_MAX}`"
            )))
        }
    }
}

/// A number with at most so many decimals, three or six, without its point.
fn scaled(number: &str, places: u32, whole_text: &str, like: &str) -> Result<u64, UnitError> {
    let wrong = || {
        let got = quoted(whole_text);
        let most = if places == 3 { "three" } else { "six" };
        UnitError(format!(
            "must be a number with at most {most} decimals, got {got}; write it like {like}"
        ))
    };
    let width = places as usize;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > width {
        return Err(wrong());
    }
    let whole = digits_value(whole, whole_text)?;
    let decimals = digits_value(&format!("{decimals:0<width$}"), whole_text)?;
    let value = whole.checked_mul(10_u64.pow(places)).and_then(|value| value.checked_add(decimals));
    value.ok_or_else(wrong)
}
