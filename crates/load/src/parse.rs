//! Parsers of numbers, rates and commands on the command line.

use crate::schedule::Rate;

/// Parses a positive integer such as `250`, `100k` or `2M`.
///
/// ```
/// assert_eq!(sluicegate_load::count("100k"), Ok(100_000));
/// assert!(sluicegate_load::count("1.5").is_err());
/// ```
///
/// # Errors
/// When the text is invalid; the message shows valid examples.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("must be a whole number from 1 on, such as `250`, `100k` or `2M`, got `{text}`");
    number(text)
        .filter(|number| number.fract() == 0.0 && (1.0..=1e15).contains(number))
        .map(|number| number as u64)
        .ok_or_else(wrong)
}

/// Parses a rate such as `20k/s`, `1.5k` (per second) or `600/m`.
///
/// ```
/// assert_eq!(sluicegate_load::rate("20k/s").unwrap().as_per_second(), 20_000.0);
/// assert_eq!(sluicegate_load::rate("600/m").unwrap().as_per_second(), 10.0);
/// ```
///
/// # Errors
/// When the text is invalid; the message shows valid examples.
pub fn rate(text: &str) -> Result<Rate, String> {
    let (number_text, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3_600.0,
        unit => {
            return Err(format!(
                "unknown unit `{unit}`, got `{text}`; write `20k/s`, `600/m` or `100/h`"
            ));
        }
    };
    let rate = number(number_text).and_then(|number| Rate::per_second(number / seconds));
    rate.ok_or_else(|| {
        format!("must be a rate such as `20k/s` or `600/m`, from 0.001 to 10 million a second, got `{text}`")
    })
}

/// Splits a command at blanks. Quotes enclose a word with blanks: `SET {key} "two words"`.
///
/// ```
/// assert_eq!(sluicegate_load::words("SET {key} 'a b'").unwrap(), ["SET", "{key}", "a b"]);
/// ```
///
/// # Errors
/// When the command is empty or a quote is not closed.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' | '\'' => rest[1..]
                .split_once(first)
                .ok_or_else(|| format!("`{first}` is not closed in `{text}`"))?,
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    if words.is_empty() {
        return Err("a command has at least one word, such as `PING` or `INCR {key}`".to_owned());
    }
    Ok(words)
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        _ => (text, 1.0),
    };
    // `f64::from_str` accepts `inf`, `nan` and `1e9`.
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    digits.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds_and_remedies() {
        assert_eq!(count("1.5k"), Ok(1_500));
        for text in ["", "0", "-1", "1.5", "inf", "1e9", "k", "ten", "99999999999M"] {
            assert!(count(text).unwrap_err().contains("`100k`"), "{text}");
        }
        for text in ["", "0", "/s", "-1/s", "20M/s", "nan"] {
            assert!(rate(text).unwrap_err().contains("`20k/s`"), "{text}");
        }
        assert!(rate("5/day").unwrap_err().starts_with("unknown unit `day`"));
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words(" a  'b c' \"d'e\" ").unwrap(), ["a", "b c", "d'e"]);
        assert_eq!(words("a ''").unwrap(), ["a", ""]);
        assert!(words("a 'b").unwrap_err().contains("not closed"));
        assert!(words("  ").is_err());
    }
}
