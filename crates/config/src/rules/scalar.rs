//! Types of plain scalars in yaml.v2, the parser of envoyproxy/ratelimit.
//!
//! That is YAML 1.1 with Go's numbers: `yes` and `on` are true, `010` is eight, `089` is no octal
//! number and so a fraction. Dates are texts.

/// The type and value of a plain scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Meaning {
    Null,
    Bool(bool),
    Int(i64),
    /// Above the largest `Int`.
    Large(u64),
    Float(f64),
    Text,
}

/// The meaning of a scalar without quotes.
pub(crate) fn meaning(text: &str) -> Meaning {
    match text.as_bytes().first() {
        None | Some(b'~' | b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O') => {
            word(text).unwrap_or(Meaning::Text)
        }
        Some(b'.') => word(text).or_else(|| float(text)).unwrap_or(Meaning::Text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            word(text).or_else(|| number(text)).unwrap_or(Meaning::Text)
        }
        Some(_) => Meaning::Text,
    }
}

fn word(text: &str) -> Option<Meaning> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Meaning::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Meaning::Bool(false)
        }
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
        ".nan" | ".NaN" | ".NAN" => Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Meaning::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

fn number(text: &str) -> Option<Meaning> {
    if text.contains('_') {
        return number(&text.replace('_', ""));
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..)?),
        Some(b'+') => (false, text.get(1..)?),
        _ => (false, text),
    };
    match whole(unsigned) {
        Some(value) if negative => match 0_i64.checked_sub_unsigned(value) {
            Some(value) => Some(Meaning::Int(value)),
            None => float(text),
        },
        Some(value) => match i64::try_from(value) {
            Ok(value) => Some(Meaning::Int(value)),
            // Go parses large numbers only without a sign.
            Err(_) if text.starts_with('+') => float(text),
            Err(_) => Some(Meaning::Large(value)),
        },
        None => float(text),
    }
}

/// Parses digits after a base prefix: `0x`, `0o`, `0b`, or `0` for octal.
fn whole(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (text.get(2..)?, 16),
        [b'0', b'o' | b'O', ..] => (text.get(2..)?, 8),
        [b'0', b'b' | b'B', ..] => (text.get(2..)?, 2),
        [b'0', _, ..] => (text.get(1..)?, 8),
        _ => (text, 10),
    };
    // Rust would take a sign here.
    let plain = !digits.starts_with(['+', '-']);
    if plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, if it can be held.
fn float(text: &str) -> Option<Meaning> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (base, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((base, exponent)) => (base, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (before, after) = base.split_once('.').unwrap_or((base, ""));
    let dotted = base.contains('.');
    let filled = !before.is_empty() || (dotted && !after.is_empty());
    let good_exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !(filled && digits(before) && digits(after) && good_exponent) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Meaning::Float(value))
}

impl Meaning {
    /// Its name in messages of yaml.v2.
    pub(super) const fn tag(self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Int(_) | Self::Large(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Text => "!!str",
        }
    }

    /// Formats the value as Go does; a text is unchanged.
    pub(super) fn in_go(self, text: &str) -> String {
        match self {
            Self::Null => "<nil>".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Large(value) => value.to_string(),
            Self::Float(value) if value.is_nan() => "NaN".to_owned(),
            Self::Float(value) if value.is_infinite() => {
                if value > 0.0 {
                    "+Inf".to_owned()
                } else {
                    "-Inf".to_owned()
                }
            }
            Self::Float(value) => {
                let size = value.abs();
                if size != 0.0 && !(1e-4..1e21).contains(&size) {
                    exponential(value)
                } else {
                    value.to_string()
                }
            }
            Self::Text => text.to_owned(),
        }
    }
}

/// Go writes at least two digits of an exponent, and its sign: `1e+21`.
fn exponential(value: f64) -> String {
    let shown = format!("{value:e}");
    let (base, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{base}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_they_mean_to_yaml_v2() {
        use Meaning::{Bool, Float, Int, Large, Null, Text};
        let table = [
            ("", Null),
            ("~", Null),
            ("Null", Null),
            ("nUll", Text),
            ("yes", Bool(true)),
            ("y", Bool(true)),
            ("Off", Bool(false)),
            ("tRUE", Text),
            ("5", Int(5)),
            ("-0", Int(0)),
            ("+5", Int(5)),
            ("1_000", Int(1_000)),
            ("010", Int(8)),
            ("0o10", Int(8)),
            ("0x10", Int(16)),
            ("-0x1", Int(-1)),
            ("0b101", Int(5)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775807", Int(i64::MAX)),
            ("9223372036854775808", Large(9_223_372_036_854_775_808)),
            ("+9223372036854775808", Float(9_223_372_036_854_775_808.0)),
            ("-9223372036854775809", Float(-9_223_372_036_854_775_809.0)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("089", Float(89.0)),
            ("5.", Float(5.0)),
            (".5", Float(0.5)),
            ("1e3", Float(1_000.0)),
            ("12e4", Float(120_000.0)),
            ("-1.5E-2", Float(-0.015)),
            (".inf", Float(f64::INFINITY)),
            ("inf", Text),
            ("NaN", Text),
            ("123e456", Text),
            (".", Text),
            ("-", Text),
            ("0x", Text),
            ("0x-5", Text),
            ("e5", Text),
            ("1e", Text),
            ("1,000", Text),
            ("1:30", Text),
            ("1.2.3", Text),
            ("10.0.0.1", Text),
            ("2020-01-01", Text),
            ("minute", Text),
            ("über", Text),
            ("-é", Text),
            ("0é", Text),
        ];
        for (text, expected) in table {
            assert_eq!(meaning(text), expected, "{text}");
        }
        assert!(matches!(meaning(".NaN"), Float(value) if value.is_nan()));
    }

    #[test]
    fn they_are_shown_as_go_shows_them() {
        let table = [
            ("0.25", "0.25"),
            ("1e3", "1000"),
            ("1e21", "1e+21"),
            ("1.5e-7", "1.5e-07"),
            (".inf", "+Inf"),
            ("on", "true"),
            ("010", "8"),
            ("~", "<nil>"),
            ("word", "word"),
        ];
        for (text, expected) in table {
            assert_eq!(meaning(text).in_go(text), expected, "{text}");
        }
    }
}
