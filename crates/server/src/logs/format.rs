//! One line: when, how severe, what, and its fields.

use std::fmt;

use sluicegate::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Level as Severity, Metadata};

use super::Format;
use super::text::{put, put_json, put_plain, put_value};

/// The longest line; what goes beyond is left out, field by field.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Writes an event as a line, with its end.
pub(super) fn line(
    event: &Event<'_>,
    now: Timestamp,
    suppressed: u64,
    format: Format,
    ours: bool,
) -> String {
    let mut fields = Fields { format, message: String::new(), out: String::new() };
    event.record(&mut fields);
    if !ours {
        fields.text("target", event.metadata().target());
    }
    if suppressed > 0 {
        fields.bare("suppressed", format_args!("{suppressed}"));
    }
    let mut out = String::with_capacity(64 + fields.message.len() + fields.out.len());
    head(event.metadata(), now, format, &mut out);
    match format {
        Format::Text => put_plain(&fields.message, &mut out),
        Format::Json => put_json(&fields.message, &mut out),
    }
    out.push_str(&fields.out);
    out.push_str(if format == Format::Json { "}\n" } else { "\n" });
    out
}

fn head(metadata: &Metadata<'_>, now: Timestamp, format: Format, out: &mut String) {
    let (name, word) = match *metadata.level() {
        Severity::ERROR => ("error", "ERROR"),
        Severity::WARN => ("warning", "WARN "),
        Severity::INFO => ("info", "INFO "),
        Severity::DEBUG => ("debug", "DEBUG"),
        Severity::TRACE => ("trace", "TRACE"),
    };
    let now = stamp(now);
    match format {
        Format::Text => put(format_args!("{now} {word} "), out),
        Format::Json => {
            put(format_args!(r#"{{"@timestamp":"{now}","level":"{name}","@message":"#), out);
        }
    }
}

/// RFC 3339, UTC, to the millisecond.
fn stamp(now: Timestamp) -> impl fmt::Display {
    let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let now = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Gathers fields, each after what separates it from the last.
struct Fields {
    format: Format,
    message: String,
    out: String,
}

impl Fields {
    fn text(&mut self, name: &str, text: &str) {
        if !self.begin(name) {
            return;
        }
        match self.format {
            Format::Text => put_value(text, &mut self.out),
            Format::Json => put_json(text, &mut self.out),
        }
    }

    /// What needs no quotes in either format.
    fn bare(&mut self, name: &str, value: fmt::Arguments<'_>) {
        if self.begin(name) {
            put(value, &mut self.out);
        }
    }

    fn begin(&mut self, name: &str) -> bool {
        if self.out.len() > LINE_BYTES_MAX {
            return false;
        }
        match self.format {
            Format::Text => put(format_args!(" {name}="), &mut self.out),
            Format::Json => put(format_args!(",\"{name}\":"), &mut self.out),
        }
        true
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            put(format_args!("{value:?}"), &mut self.message);
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
        // JSON has no word for what is no number.
        if value.is_finite() {
            self.bare(field.name(), format_args!("{value}"));
        } else {
            self.text(field.name(), &value.to_string());
        }
    }
}
