//! Text that stays on its line: control characters and whatever else could make a terminal or a reader of logs see another line are
//! escaped.

use std::fmt::Write;

/// The most characters of one value.
pub(super) const VALUE_CHARS_MAX: usize = 1_024;

/// Appends a text in which nothing ends the line.
pub(super) fn put_plain(text: &str, out: &mut String) {
    for (place, character) in text.chars().enumerate() {
        if place == VALUE_CHARS_MAX {
            out.push('…');
            return;
        }
        put_character(character, out);
    }
}

/// Appends a value: as it is if it is one word, and else in quotes.
pub(super) fn put_value(text: &str, out: &mut String) {
    let is_word = |c: char| !c.is_whitespace() && !hides(c) && !matches!(c, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(is_word) {
        return put_plain(text, out);
    }
    out.push('"');
    for (place, character) in text.chars().enumerate() {
        if place == VALUE_CHARS_MAX {
            out.push('…');
            break;
        }
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            other => put_character(other, out),
        }
    }
    out.push('"');
}

/// Appends a text as JSON writes it.
pub(super) fn put_json(text: &str, out: &mut String) {
    out.push('"');
    for (place, character) in text.chars().enumerate() {
        if place == VALUE_CHARS_MAX {
            out.push('…');
            break;
        }
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // All of them are among the first 65,536.
            other if hides(other) => put(format_args!("\\u{:04x}", u32::from(other)), out),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Appends whatever is formatted.
pub(super) fn put(what: std::fmt::Arguments<'_>, out: &mut String) {
    // A `String` takes everything; only a faulty `Display` could complain.
    let _ = out.write_fmt(what);
}

fn put_character(character: char, out: &mut String) {
    match character {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        other if hides(other) => put(format_args!("\\u{{{:x}}}", u32::from(other)), out),
        other => out.push(other),
    }
}

/// Control characters; the line and paragraph separators; and what turns the direction of writing.
fn hides(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: fn(&str, &mut String), text: &str) -> String {
        let mut out = String::new();
        put(text, &mut out);
        out
    }

    #[test]
    fn words_and_others() {
        assert_eq!(written(put_value, "shop"), "shop");
        assert_eq!(written(put_value, ""), r#""""#);
        assert_eq!(written(put_value, "a b"), r#""a b""#);
        assert_eq!(written(put_value, "a=b"), r#""a=b""#);
        assert_eq!(written(put_value, r#"say "\n""#), r#""say \"\\n\"""#);
        assert_eq!(written(put_value, "Ökonomie"), "Ökonomie");
    }

    #[test]
    fn nothing_ends_a_line() {
        let evil = "a\r\nb\u{85}\u{2028}\u{202e}\u{1b}[2J\u{9b}\0";
        let plain = r"a\r\nb\u{85}\u{2028}\u{202e}\u{1b}[2J\u{9b}\u{0}";
        assert_eq!(written(put_plain, evil), plain);
        assert_eq!(written(put_value, evil), format!("\"{plain}\""));
        let json = written(put_json, evil);
        assert!(json.chars().all(|c| !hides(c)), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), evil);
    }

    #[test]
    fn long_values_are_cut() {
        let long = "é".repeat(VALUE_CHARS_MAX + 1);
        for put in [put_plain, put_value, put_json] {
            let kept = written(put, &long).matches('é').count();
            assert_eq!(kept, VALUE_CHARS_MAX);
        }
    }
}
