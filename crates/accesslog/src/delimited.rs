//! Columns with a delimiter: CSV, TSV, and the tab-separated logs of CloudFront.
//!
//! A header line names the columns; without one, a mapping names them by number. A value of CSV and
//! TSV may be quoted, with quotes doubled; one that extends over several lines is malformed.

use memchr::{memchr, memchr_iter};
use percent_encoding::percent_decode;

use crate::format::FormatError;
use crate::mapping::Mapping;
use crate::parser::LineError;
use crate::preset::CLOUDFRONT_FIELDS;
use crate::record::Record;
use crate::scratch::{Arena, ArenaFull};
use crate::target::{RecordBuilder, Target, Value};
use crate::time::DateCache;

/// The beginning of the line with CloudFront's columns.
const FIELDS: &[u8] = b"#Fields:";

/// Columns of a file.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    mapping: Mapping,
    /// Numbers of columns with an index into the mapping, in the order of the line.
    order: Vec<(usize, usize)>,
    delimiter: u8,
    /// The header line, which may occur again where files were concatenated.
    header: Option<Box<[u8]>>,
    syntax: ColumnSyntax,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnSyntax {
    /// Values may be in quotes.
    Quotes,
    /// Values of headers are percent-encoded; lines that begin with `#` are no records.
    PercentEncoding,
}

impl Columns {
    /// Columns by the first line of a file.
    pub(crate) fn of_header(
        mapping: &Mapping,
        delimiter: u8,
        head: &[u8],
    ) -> Result<Self, FormatError> {
        let (mapping, syntax) = (mapping.clone(), ColumnSyntax::Quotes);
        if let Some(positions) = mapping.positions() {
            let order = sorted(positions);
            return Ok(Self { mapping, order, delimiter, header: None, syntax });
        }
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let names = header_names(line, delimiter);
        let position = |name: &str| {
            let exact = names.iter().position(|known| known == name);
            exact.or_else(|| names.iter().position(|known| known.eq_ignore_ascii_case(name)))
        };
        let positions = mapping
            .columns()
            .iter()
            .map(|column| position(&column.name).ok_or_else(|| no_column(&column.name, &names)));
        let order = sorted(positions.collect::<Result<_, _>>()?);
        Ok(Self { mapping, order, delimiter, header: Some(line.into()), syntax })
    }

    /// CloudFront's columns by the line `#Fields:`, or the usual ones.
    pub(crate) fn of_cloudfront(mapping: Mapping, head: &[u8]) -> Self {
        let line = head.split(|byte| *byte == b'\n').find(|line| line.starts_with(FIELDS));
        let fields = line.map_or(CLOUDFRONT_FIELDS.as_bytes(), |line| &line[FIELDS.len()..]);
        let names: Vec<&[u8]> =
            fields.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty()).collect();
        let columns = mapping.columns().iter().enumerate();
        let found = columns.filter_map(|(index, column)| {
            Some((names.iter().position(|name| *name == column.name.as_bytes())?, index))
        });
        let mut order: Vec<(usize, usize)> = found.collect();
        order.sort_unstable();
        let syntax = ColumnSyntax::PercentEncoding;
        Self { mapping, order, delimiter: b'\t', header: None, syntax }
    }

    /// Reads a line; `None` for one that is not a record.
    pub(crate) fn parse<'a>(
        &'a self,
        line: &'a [u8],
        arena: &mut Arena<'a>,
        dates: &mut DateCache,
    ) -> Result<Option<Record<'a>>, LineError> {
        let is_comment = self.syntax == ColumnSyntax::PercentEncoding && line.starts_with(b"#");
        if is_comment || self.header.as_deref() == Some(line) {
            return Ok(None);
        }
        let mut builder = RecordBuilder::default();
        let (mut order, mut column, mut index) = (self.order.iter().peekable(), 0, 0);
        while let Some((wanted, _)) = order.peek() {
            if index > line.len() {
                return Err(LineError::at(line.len(), "columns are missing at the end"));
            }
            let start = index;
            let value = self.value(line, &mut index, *wanted == column, arena)?;
            while let Some((_, mapped)) = order.next_if(|(wanted, _)| *wanted == column) {
                let target = &self.mapping.columns()[*mapped].target;
                let value = self.decoded(target, value, arena)?;
                let set = builder.set(target, Value::Text(value), arena, dates);
                set.map_err(|reason| LineError::at(start, reason))?;
            }
            column += 1;
        }
        builder.finish(arena, dates).map(Some).map_err(|reason| LineError::at(0, reason))
    }

    /// The value at an index, which moves behind the delimiter; behind the line at its end.
    fn value<'a>(
        &self,
        line: &'a [u8],
        index: &mut usize,
        is_wanted: bool,
        arena: &mut Arena<'a>,
    ) -> Result<&'a [u8], LineError> {
        let start = *index;
        let rest = &line[start..];
        if self.syntax == ColumnSyntax::Quotes && rest.first() == Some(&b'"') {
            return self.quoted(line, index, is_wanted, arena);
        }
        let length = memchr(self.delimiter, rest).unwrap_or(rest.len());
        *index = start + length + 1;
        Ok(&rest[..length])
    }

    fn quoted<'a>(
        &self,
        line: &'a [u8],
        index: &mut usize,
        is_wanted: bool,
        arena: &mut Arena<'a>,
    ) -> Result<&'a [u8], LineError> {
        let start = *index + 1;
        let mut quotes = memchr_iter(b'"', &line[start..]).map(|quote| start + quote);
        let mut is_escaped = false;
        let end = loop {
            let Some(quote) = quotes.next() else {
                return Err(LineError::at(line.len(), "the closing quote is missing"));
            };
            if line.get(quote + 1) != Some(&b'"') {
                break quote;
            }
            is_escaped = true;
            quotes.next();
        };
        if line.get(end + 1).is_some_and(|byte| *byte != self.delimiter) {
            return Err(LineError::at(end + 1, "no delimiter behind the closing quote"));
        }
        *index = end + 2;
        let raw = &line[start..end];
        if !is_escaped || !is_wanted {
            return Ok(raw);
        }
        let mut previous_is_quote = false;
        let text = raw.iter().copied().filter(|byte| {
            previous_is_quote = *byte == b'"' && !previous_is_quote;
            !(previous_is_quote && *byte == b'"')
        });
        arena.store(text).map_err(|ArenaFull| LineError::at(start, "the line is too long"))
    }

    fn decoded<'a>(
        &self,
        target: &Target,
        value: &'a [u8],
        arena: &mut Arena<'a>,
    ) -> Result<&'a [u8], LineError> {
        let is_encoded = self.syntax == ColumnSyntax::PercentEncoding
            && matches!(target, Target::Header(_))
            && memchr(b'%', value).is_some();
        if !is_encoded {
            return Ok(value);
        }
        let decoded = arena.store(percent_decode(value));
        decoded.map_err(|ArenaFull| LineError::at(0, "the line is too long"))
    }
}

fn sorted(positions: Vec<usize>) -> Vec<(usize, usize)> {
    let mut order: Vec<(usize, usize)> =
        positions.into_iter().enumerate().map(|(index, column)| (column, index)).collect();
    order.sort_unstable();
    order
}

/// The names of a header line.
pub(crate) fn header_names(line: &[u8], delimiter: u8) -> Vec<String> {
    let name = |part: &[u8]| {
        let part = part.trim_ascii();
        let inner = part.strip_prefix(b"\"").and_then(|part| part.strip_suffix(b"\""));
        String::from_utf8_lossy(inner.unwrap_or(part)).replace("\"\"", "\"")
    };
    line.split(|byte| *byte == delimiter).map(name).collect()
}

fn no_column(name: &str, names: &[String]) -> FormatError {
    const SHOWN_MAX: usize = 20;
    if names.iter().all(String::is_empty) {
        let remedy = "name columns by number, such as `time=1`, if there is none";
        return FormatError::new(format!("no header line with a column `{name}`; {remedy}"));
    }
    let quoted: Vec<String> =
        names.iter().take(SHOWN_MAX).map(|name| format!("`{}`", shortened(name))).collect();
    let more = if names.len() > SHOWN_MAX { ", …" } else { "" };
    FormatError::new(format!(
        "no column `{name}` in the header; use one of {}{more}, or numbers, such as `time=1`, if \
         the log has no header",
        quoted.join(", ")
    ))
}

/// A name of a column for a message.
pub(crate) fn shortened(name: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    name.chars().filter(|c| !c.is_control()).take(CHARACTERS_MAX).collect()
}
