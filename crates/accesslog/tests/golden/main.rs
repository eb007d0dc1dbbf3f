//! Lines of each format with the records that they are, all fields compared.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod cloud;
mod columns;
mod combined;
mod envoy;
mod json;
mod times;

use sluicegate_accesslog::{LineError, LineParser, Record, Scratch};
use sluicegate_core::time::{Span, Timestamp};

/// Reads a line and compares the record.
#[track_caller]
fn check(format: &str, head: &str, line: &str, expected: &Record<'_>) {
    let parser = LineParser::new(&format.parse().unwrap(), head.as_bytes()).unwrap();
    let mut scratch = Scratch::default();
    let record = parser.parse(line.as_bytes(), &mut scratch).unwrap().unwrap();
    assert_eq!(record, *expected, "{line}");
}

/// The error of a malformed line.
#[track_caller]
fn error_of(format: &str, head: &str, line: &[u8]) -> LineError {
    let parser = LineParser::new(&format.parse().unwrap(), head.as_bytes()).unwrap();
    parser.parse(line, &mut Scratch::default()).map(|record| format!("{record:?}")).unwrap_err()
}

/// A time, computed by jiff.
fn at(text: &str) -> Timestamp {
    let at: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_micros(u64::try_from(at.as_microsecond()).unwrap())
}

fn ip(text: &str) -> Option<std::net::IpAddr> {
    Some(text.parse().unwrap())
}

const fn text(text: &str) -> Option<&[u8]> {
    Some(text.as_bytes())
}

fn headers<'a>(list: &[(&'a str, &'a str)]) -> sluicegate_accesslog::Headers<'a> {
    list.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

const fn millis(ms: u64) -> Option<Span> {
    Some(Span::from_millis(ms))
}
