//! Format of a log line: time, level, message and fields, as text or as JSON.
//!
//! Not a formatter of `tracing-subscriber`: the JSON names are those of envoyproxy/ratelimit, and
//! values are sent by clients, so whatever could look like another line is escaped and values are
//! truncated.

use std::fmt::{self, Write};

use sluicegate::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::Format;

/// Bytes after which further fields are left out.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Characters of a value.
const VALUE_CHARS_MAX: usize = 1_024;

/// Formats an event as a line, with its end.
pub(super) fn line(
    event: &Event<'_>,
    now: Timestamp,
    suppressed: u64,
    format: Format,
    is_own: bool,
) -> String {
    let mut fields = Fields { format, message: String::new(), out: String::new() };
    event.record(&mut fields);
    if !is_own {
        fields.text("target", event.metadata().target());
    }
    if suppressed > 0 {
        fields.bare("suppressed", format_args!("{suppressed}"));
    }
    let (name, padded) = match *event.metadata().level() {
        Level::ERROR => ("error", "ERROR"),
        Level::WARN => ("warning", "WARN "),
        Level::INFO => ("info", "INFO "),
        Level::DEBUG => ("debug", "DEBUG"),
        Level::TRACE => ("trace", "TRACE"),
    };
    let Fields { message, out: fields, .. } = fields;
    assemble(now, (name, padded), &message, &fields, format)
}

/// Formats the reason why the program ends as a line, with its end.
pub(super) fn fatal_line(message: &str, now: Timestamp, format: Format) -> String {
    assemble(now, ("fatal", "FATAL"), message, "", format)
}

fn assemble(
    now: Timestamp,
    (level, padded): (&str, &str),
    message: &str,
    fields: &str,
    format: Format,
) -> String {
    let now = rfc3339(now);
    let mut out = String::with_capacity(64 + message.len() + fields.len());
    match format {
        Format::Text => {
            push(format_args!("{now} {padded} "), &mut out);
            push_escaped(message, Escape::Bare, &mut out);
            out.push_str(fields);
        }
        Format::Json => {
            push(format_args!(r#"{{"@timestamp":"{now}","level":"{level}","@message":"#), &mut out);
            push_escaped(message, Escape::Json, &mut out);
            out.push_str(fields);
            out.push('}');
        }
    }
    out.push('\n');
    out
}

/// UTC, to the millisecond.
pub(crate) fn rfc3339(now: Timestamp) -> impl fmt::Display {
    let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let now = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Collects the message, and the other fields each with its separator.
struct Fields {
    format: Format,
    message: String,
    out: String,
}

impl Fields {
    fn text(&mut self, name: &str, text: &str) {
        let is_word =
            |c: char| !c.is_whitespace() && !is_unsafe(c) && !matches!(c, '"' | '=' | '\\');
        let escape = match self.format {
            Format::Json => Escape::Json,
            Format::Text if !text.is_empty() && text.chars().all(is_word) => Escape::Bare,
            Format::Text => Escape::Quoted,
        };
        if self.begin(name) {
            push_escaped(text, escape, &mut self.out);
        }
    }

    /// A value that needs no quotes in either format.
    fn bare(&mut self, name: &str, value: fmt::Arguments<'_>) {
        if self.begin(name) {
            push(value, &mut self.out);
        }
    }

    fn begin(&mut self, name: &str) -> bool {
        if self.out.len() > LINE_BYTES_MAX {
            return false;
        }
        match self.format {
            Format::Text => push(format_args!(" {name}="), &mut self.out),
            Format::Json => push(format_args!(",\"{name}\":"), &mut self.out),
        }
        true
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            push(format_args!("{value:?}"), &mut self.message);
        } else {
            self.text(field.name(), &format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.text(field.name(), value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field.name(), &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field.name(), format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field.name(), format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field.name(), format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has neither NaN nor infinities.
        if value.is_finite() {
            self.bare(field.name(), format_args!("{value}"));
        } else {
            self.text(field.name(), &value.to_string());
        }
    }
}

// === escaping ===

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    Bare,
    /// In quotes, as Rust writes a string.
    Quoted,
    /// In quotes, as JSON writes a string.
    Json,
}

/// Appends a text that stays on its line, truncated.
fn push_escaped(text: &str, escape: Escape, out: &mut String) {
    let quote = if escape == Escape::Bare { "" } else { "\"" };
    out.push_str(quote);
    for (index, character) in text.chars().enumerate() {
        if index == VALUE_CHARS_MAX {
            out.push('…');
            break;
        }
        match character {
            '"' | '\\' if escape != Escape::Bare => out.extend(['\\', character]),
            // All of them are in the basic multilingual plane.
            _ if is_unsafe(character) && escape == Escape::Json => {
                push(format_args!("\\u{:04x}", u32::from(character)), out);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if is_unsafe(character) => {
                push(format_args!("\\u{{{:x}}}", u32::from(character)), out);
            }
            _ => out.push(character),
        }
    }
    out.push_str(quote);
}

fn push(arguments: fmt::Arguments<'_>, out: &mut String) {
    // Writing to a `String` fails only if a `Display` implementation does.
    let _ = out.write_fmt(arguments);
}

/// Control characters, line and paragraph separators, and changes of the writing direction.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: Escape, text: &str) -> String {
        let mut out = String::new();
        push_escaped(text, escape, &mut out);
        out
    }

    #[test]
    fn values_that_are_not_words_are_quoted() {
        let value = |text: &str| {
            let (message, out) = (String::new(), String::new());
            let mut fields = Fields { format: Format::Text, message, out };
            fields.text("k", text);
            fields.out.trim_start_matches(" k=").to_owned()
        };
        assert_eq!(value("shop"), "shop");
        assert_eq!(value(""), r#""""#);
        assert_eq!(value("a b"), r#""a b""#);
        assert_eq!(value("a=b"), r#""a=b""#);
        assert_eq!(value(r#"say "\n""#), r#""say \"\\n\"""#);
        assert_eq!(value("Ökonomie"), "Ökonomie");
    }

    #[test]
    fn nothing_ends_a_line() {
        let evil = "a\r\nb\u{85}\u{2028}\u{202e}\u{1b}[2J\u{9b}\0";
        let plain = r"a\r\nb\u{85}\u{2028}\u{202e}\u{1b}[2J\u{9b}\u{0}";
        assert_eq!(escaped(Escape::Bare, evil), plain);
        assert_eq!(escaped(Escape::Quoted, evil), format!("\"{plain}\""));
        let json = escaped(Escape::Json, evil);
        assert!(json.chars().all(|c| !is_unsafe(c)), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), evil);
    }

    #[test]
    fn long_values_are_truncated() {
        let long = "é".repeat(VALUE_CHARS_MAX + 1);
        for escape in [Escape::Bare, Escape::Quoted, Escape::Json] {
            assert_eq!(escaped(escape, &long).matches('é').count(), VALUE_CHARS_MAX);
        }
    }
}
