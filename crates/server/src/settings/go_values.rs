//! Parsers of Go's standard library: the variables of envoyproxy/ratelimit are written for them.

use std::time::Duration;

/// `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// `time.ParseDuration`, without signs: `90s`, `1h30m`, `1.5h`; and `0`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let table = [
            ("0", Some(0)),
            ("90s", Some(90_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("24h", Some(86_400_000)),
            ("1h0.5s", Some(3_600_500)),
            ("", None),
            ("5", None),
            ("5 s", None),
            ("s", None),
            ("-1s", None),
            ("1d", None),
            ("1..5s", None),
            ("99999999999999999999999h", None),
        ];
        for (text, millis) in table {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }
}
