//! Header fields that are lists of items with parameters:
//! `"default";r=50;t=30, "daily";r=1000;t=36000`.

use std::time::Duration;

/// An item with parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// Without quotes.
    pub(super) name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Bound of items and parameters.
const ITEMS_MAX: usize = 32;

/// The items of a field.
pub(super) fn items(field: &str) -> impl Iterator<Item = Item<'_>> {
    parts(field, ',').take(ITEMS_MAX).map(|item| {
        let mut parts = parts(item, ';');
        let name = bare(parts.next().unwrap_or_default());
        let parameters =
            parts.take(ITEMS_MAX).map(|part| part.split_once('=').unwrap_or((part, "")));
        Item {
            name,
            parameters: parameters.map(|(key, value)| (key.trim(), bare(value))).collect(),
        }
    })
}

impl<'a> Item<'a> {
    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let mut found = self.parameters.iter().filter(|(key, _)| *key == name);
        found.next().map(|(_, value)| *value)
    }
}

/// A number; negative ones are 0, fractions are dropped.
pub(super) fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    let whole = text.split('.').next().unwrap_or_default();
    match whole.strip_prefix('-') {
        Some(negative) => negative.parse::<u64>().ok().map(|_| 0),
        None => whole.parse().ok(),
    }
}

/// A number of seconds, perhaps with a fraction, rounded up to milliseconds.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let whole = Duration::from_secs(whole.parse().ok()?);
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let ms = digits.fold(0, |ms, digit| ms * 10 + u64::from(digit - b'0'));
    let more = fraction.bytes().skip(3).any(|digit| digit != b'0');
    Some(whole.saturating_add(Duration::from_millis(ms + u64::from(more))))
}

/// Splits at a separator outside quotes, and trims.
fn parts(text: &str, sign: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let is_end = move |c: char| {
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        c == sign && !quoted
    };
    text.split(is_end).map(str::trim).filter(|part| !part.is_empty())
}

fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_things_together() {
        let all: Vec<_> = items(r#""a,\";b" ; r=1;t="2,3", c;r , , d"#).collect();
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!(
            (all[0].name, all[0].get("r"), all[0].get("t")),
            (r#"a,\";b"#, Some("1"), Some("2,3"))
        );
        assert_eq!((all[1].name, all[1].get("r"), all[1].get("t")), ("c", Some(""), None));
        assert_eq!(all[2].name, "d");
        assert_eq!(items("\"never closed, at all;r=1").count(), 1);
    }

    #[test]
    fn numbers() {
        assert_eq!(
            ["7", " 7.9 ", "-3", "x", "", "-"].map(count),
            [Some(7), Some(7), Some(0), None, None, None]
        );
        let ms = |text| seconds(text).map(|span| span.as_millis());
        assert_eq!(
            ["2", "0.5", "1.0001", "1.", "-1", "1.x", "1e3"].map(ms),
            [Some(2_000), Some(500), Some(1_001), Some(1_000), None, None, None]
        );
        assert!(seconds("99999999999999999999").is_none());
    }
}
