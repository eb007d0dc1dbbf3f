//! The format of a log by its first lines: the one that reads most of them.

use serde_json::Value;

use crate::block::Lines;
use crate::delimited::{header_names, shortened};
use crate::format::{Format, FormatError};
use crate::parser::LineParser;
use crate::scratch::Scratch;

/// Lines that decide.
const LINES_MAX: usize = 100;

const CANDIDATES: [Format; 8] = [
    Format::CloudFront,
    Format::Combined,
    Format::VhostCombined,
    Format::Envoy,
    Format::Alb,
    Format::EnvoyJson,
    Format::Caddy,
    Format::Gateway,
];

/// Finds the format by the first lines of a log. The format has to read at least half of them.
///
/// ```
/// use sluicegate_accesslog::{Format, detect};
///
/// let line = r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 2"#;
/// assert_eq!(detect(line.as_bytes())?, Format::Combined);
///
/// let error = detect(b"TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.68,374\n").unwrap_err();
/// assert!(error.to_string().contains("`csv:time=TIMESTAMP`"), "{error}");
/// # Ok::<(), sluicegate_accesslog::FormatError>(())
/// ```
///
/// # Errors
/// When no format fits. The message names the columns of CSV and JSON, which have to be mapped.
pub fn detect(head: &[u8]) -> Result<Format, FormatError> {
    let lines: Vec<&[u8]> =
        Lines::of(head).filter(|line| !line.is_empty()).take(LINES_MAX).collect();
    let Some(first) = lines.first() else {
        let remedy = "name the format if lines will follow";
        return Err(FormatError::new(format!("the log is empty; {remedy}")));
    };
    let mut best: Option<(usize, &Format)> = None;
    for format in &CANDIDATES {
        let score = score(format, head, &lines);
        if score > best.map_or(0, |(score, _)| score) {
            best = Some((score, format));
        }
    }
    best.map(|(_, format)| format.clone()).ok_or_else(|| unknown(first))
}

/// How well a format reads the lines; zero if it reads fewer than half of them.
fn score(format: &Format, head: &[u8], lines: &[&[u8]]) -> usize {
    let Ok(parser) = LineParser::new(format, head) else { return 0 };
    let mut scratch = Scratch::default();
    let (mut score, mut read) = (0, 0);
    for line in lines {
        // Any product may name its members `time` and `path`; only ours logs a verdict.
        let is_other =
            *format == Format::Gateway && memchr::memmem::find(line, b"\"verdict\":").is_none();
        if is_other {
            continue;
        }
        match parser.parse(line, &mut scratch) {
            Ok(None) => read += 1,
            // A virtual host is no address: with one, a line is rather of the format with hosts.
            Ok(Some(record)) => {
                read += 1;
                score += 1 + usize::from(record.client_ip.is_some());
            }
            Err(_) => {}
        }
    }
    if read * 2 < lines.len() { 0 } else { score }
}

/// A message that helps to name the format.
fn unknown(first: &[u8]) -> FormatError {
    let message = match serde_json::from_slice::<Value>(first) {
        Ok(Value::Object(members)) => {
            let names: Vec<&str> = members.keys().map(String::as_str).collect();
            mapping_message("JSON", "json", &names)
        }
        _ => [(b',', "CSV", "csv"), (b'\t', "TSV", "tsv")]
            .into_iter()
            .find(|(delimiter, ..)| first.contains(delimiter))
            .and_then(|(delimiter, title, format)| {
                let names = header_names(first, delimiter);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                mapping_message(title, format, &names)
            }),
    };
    FormatError::new(message.unwrap_or_else(|| {
        let first = shortened(&String::from_utf8_lossy(first));
        format!("no format reads the first lines (`{first}`…); name one: {}", Format::SYNTAX)
    }))
}

/// `None` unless the names look like those of columns.
fn mapping_message(title: &str, format: &str, names: &[&str]) -> Option<String> {
    const SHOWN_MAX: usize = 20;
    const HINTS: [&str; 5] = ["time", "date", "ts", "when", "at"];
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_alphabetic() || "_@$:".contains(c));
    if !names.iter().all(is_name) {
        return None;
    }
    let hinted = HINTS.iter().find_map(|hint| {
        let fits = |name: &&&str| {
            let name = name.to_ascii_lowercase();
            if hint.len() > 2 { name.contains(hint) } else { name == *hint }
        };
        names.iter().find(fits)
    });
    let time = shortened(hinted.or(names.first())?);
    let shown: Vec<String> =
        names.iter().take(SHOWN_MAX).map(|name| format!("`{}`", shortened(name))).collect();
    Some(format!(
        "{title} with {} has columns of any meaning; name them, such as `{format}:time={time}`",
        shown.join(", ")
    ))
}
